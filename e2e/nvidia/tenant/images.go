package tenant

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
)

// HalfCubin is code for a GPU of NVIDIA's as a file has it that was cut off: its header says
// that there are sections, and their table, which comes last, is not there.
func HalfCubin() []byte {
	const (
		there    = 4096
		machine  = 190 // EM_CUDA
		sections = 8
		flags    = 0x5a055a // compute capability 9.0
	)
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: machine, Version: uint32(elf.EV_CURRENT), Flags: flags,
		Ehsize: 64, Shoff: there, Shentsize: 64, Shnum: sections, Shstrndx: 1,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	h.Ident[elf.EI_OSABI], h.Ident[elf.EI_ABIVERSION] = 51, 7 // CUDA's
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, &h) // a buffer takes everything
	return append(b.Bytes(), make([]byte, there-b.Len())...)
}

// BadPTX is the kernels of fixed work with an instruction that does not end.
func BadPTX() []byte { return []byte(strings.Replace(fixedPTX, "ret;", "ret", 1)) }
