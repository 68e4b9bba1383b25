package nvidia

import (
	"bytes"
	"debug/elf"
	"unicode/utf8"

	"vgpud/ptx"
)

// keptBytes bounds the text of a module that is kept.
const keptBytes = 4 << 20

// keptText returns a module's PTX, or "" if it is machine code or too long.
func keptText(image []byte) string {
	text := bytes.TrimRight(image, "\x00")
	if len(text) > keptBytes || bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return ""
	}
	return string(text)
}

// imageBytes returns about how much GPU memory a module takes: its code and its variables. The code
// size of PTX is not known before it is compiled, and is about the size of the text. sure is false
// if the variables are not known: a fatbin's, which may be compressed, and those of PTX that only
// the driver can parse.
func imageBytes(image []byte) (size uint64, sure bool) {
	size = uint64(len(image))
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		loaded, ok := elfBytes(image)
		return max(size, loaded), ok
	}
	m, err := ptx.Parse(string(bytes.TrimRight(image, "\x00")))
	if err != nil {
		return size, false
	}
	for _, item := range m.Items {
		if v, ok := item.(*ptx.Var); ok && (v.Space == ptx.GlobalSpace || v.Space == ptx.ConstSpace) {
			size += uint64(max(v.Size(), 0))
		}
	}
	return size, true
}

// elfBytes sums the loaded sections of a cubin, including variables without an initial value.
func elfBytes(image []byte) (n uint64, ok bool) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, false
	}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && n+s.Size >= n {
			n += s.Size
		}
	}
	return n, true
}
