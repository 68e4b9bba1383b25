package nvidia

import (
	"bytes"
	"debug/elf"

	"vgpud/ptx"
)

// imageBytes is about how much GPU memory a module takes: its code and its
// variables. Of PTX the code's size is not known before it is compiled; it is
// about as large as the text.
func imageBytes(image []byte) uint64 {
	size := uint64(len(image))
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		return max(size, elfBytes(image))
	}
	if m, err := ptx.Parse(string(bytes.TrimRight(image, "\x00"))); err == nil {
		for _, item := range m.Items {
			if v, ok := item.(*ptx.Var); ok && (v.Space == ptx.GlobalSpace || v.Space == ptx.ConstSpace) {
				size += uint64(max(v.Size(), 0))
			}
		}
	}
	return size
}

// elfBytes sums what of a cubin is loaded, variables without initial value
// included.
func elfBytes(image []byte) (n uint64) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0
	}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && n+s.Size >= n {
			n += s.Size
		}
	}
	return n
}
