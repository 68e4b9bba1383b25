package tenant

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
)

// HalfCubin returns a truncated cubin for an NVIDIA GPU: its header announces sections, but their
// table, which would come last, is missing.
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
	_ = binary.Write(&b, binary.LittleEndian, &h) // writing to a buffer never fails
	return append(b.Bytes(), make([]byte, there-b.Len())...)
}

// BadPTX returns the module of fixed work with one instruction that lacks its end.
func BadPTX() []byte { return []byte(strings.Replace(fixedPTX, "ret;", "ret", 1)) }
