package fatbin

import (
	"bytes"
	"encoding/binary"
)

// Format is what an image is.
type Format int

// The formats of images.
const (
	FormatUnknown   Format = iota
	FormatPTX              // text that a zero ends
	FormatELF              // machine code
	FormatContainer        // a fat binary
	FormatWrapper          // a pointer to one, see [Wrapper]
)

// How many bytes [Size] and [ParseWrapper] need of each format.
const (
	ContainerHead = containerHeader
	WrapperHead   = 24
	ELFHead       = 64
)

const wrapperMagic = 0x466243b1

// Detect returns what an image is by its first bytes; four are enough. Text is taken for PTX if it
// begins like PTX: with a directive, a comment or white space.
func Detect(head []byte) Format {
	if len(head) == 0 {
		return FormatUnknown
	}
	if len(head) >= 4 {
		switch binary.LittleEndian.Uint32(head) {
		case containerMagic:
			return FormatContainer
		case wrapperMagic:
			return FormatWrapper
		}
		if bytes.HasPrefix(head, []byte("\x7fELF")) {
			return FormatELF
		}
	}
	if bytes.IndexByte([]byte("./ \t\r\n"), head[0]) >= 0 {
		return FormatPTX
	}
	return FormatUnknown
}

// Size returns the length of the container or machine code that begins with head, which must hold
// [ContainerHead] or [ELFHead] bytes. PTX text has no length of its own: a zero ends it.
func Size(head []byte) (int64, error) {
	switch Detect(head) {
	case FormatContainer:
		return Options{}.withDefaults().containerSize(head, 0)
	case FormatELF:
		n, err := elfSize(head)
		if most := (Options{}).withDefaults().MaxBytes; err == nil && n > most {
			return 0, invalid(0, "machine code of %d bytes, more than %d", n, most)
		}
		return n, err
	}
	return 0, invalid(0, "neither a container nor machine code")
}

// Wrapper is struct __fatBinC_Wrapper_t, what a program's own code passes to
// __cudaRegisterFatBinary. The addresses are of the program's memory.
type Wrapper struct {
	Version int    // 1, or 2 with a prelinked list
	Data    uint64 // address of a container
	List    uint64 // version 2: of an array of addresses of relocatable containers, ended by 0; version 1: of a file's name, or 0
}

// ParseWrapper reads the wrapper at the start of b.
func ParseWrapper(b []byte) (Wrapper, error) {
	le := binary.LittleEndian
	if len(b) < WrapperHead || le.Uint32(b) != wrapperMagic {
		return Wrapper{}, invalid(0, "no wrapper of a fat binary")
	}
	w := Wrapper{Version: int(le.Uint32(b[4:])), Data: le.Uint64(b[8:]), List: le.Uint64(b[16:])}
	if w.Version != 1 && w.Version != 2 {
		return Wrapper{}, invalid(0, "wrapper version %d, not 1 or 2", uint32(w.Version))
	}
	if w.Data == 0 {
		return Wrapper{}, invalid(0, "a wrapper without data")
	}
	return w, nil
}
