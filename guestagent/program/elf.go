package program

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The parts of an ELF file that matter here. Package debug/elf is not meant for hostile files.

const (
	elfHeader     = 64 // bytes
	sectionHeader = 64
	programHeader = 56
	symbolEntry   = 24
	machineX86    = 62
	maxSections   = 1 << 16
	maxNeeded     = 1 << 12
	maxSymbols    = 1 << 22
	maxNameBytes  = 1 << 12
)

// section is a section's header, by the fields used here.
type section struct {
	name         string
	kind         uint32
	offset, size uint64
	link         uint32
}

// Section types.
const (
	typeSymbols        = 2
	typeDynamicSymbols = 11
	typeNoBits         = 8
)

// file is an ELF file.
type file struct {
	b        []byte
	kind     uint16 // 2: program at a fixed address, 3: library, or program at any address
	machine  uint16
	sections []section
	loads    []load
	dynamic  []byte
	interp   bool
}

// load is a part of the file that is mapped.
type load struct{ offset, address, size uint64 }

// ErrNotELF is returned for what is no 64-bit ELF file.
var ErrNotELF = errors.New("not a 64-bit ELF file")

// slice returns n bytes of b from offset, or false if they are not there.
func slice(b []byte, offset, n uint64) ([]byte, bool) {
	if offset > uint64(len(b)) || n > uint64(len(b))-offset {
		return nil, false
	}
	return b[offset : offset+n], true
}

// cstring returns the text at offset in a table of strings.
func cstring(table []byte, offset uint64) string {
	if offset >= uint64(len(table)) {
		return ""
	}
	s := table[offset:]
	s = s[:min(len(s), maxNameBytes)]
	if end := bytes.IndexByte(s, 0); end >= 0 {
		return string(s[:end])
	}
	return ""
}

// readELF reads the headers of an ELF file.
func readELF(b []byte) (*file, error) {
	le := binary.LittleEndian
	if len(b) < elfHeader || !bytes.HasPrefix(b, []byte("\x7fELF")) || b[4] != 2 || b[5] != 1 {
		return nil, ErrNotELF
	}
	f := &file{b: b, kind: le.Uint16(b[16:]), machine: le.Uint16(b[18:])}
	if err := f.readSegments(le.Uint64(b[32:]), uint64(le.Uint16(b[56:])), uint64(le.Uint16(b[54:]))); err != nil {
		return nil, err
	}
	f.readSections(le.Uint64(b[40:]), uint64(le.Uint16(b[60:])), uint64(le.Uint16(b[58:])), uint64(le.Uint16(b[62:])))
	return f, nil
}

// readSegments reads the program headers, which a file that runs must have.
func (f *file) readSegments(at, count, size uint64) error {
	const (
		typeLoad, typeDynamic, typeInterp = 1, 2, 3
	)
	le := binary.LittleEndian
	if count > 0 && size < programHeader {
		return fmt.Errorf("program headers of %d bytes", size)
	}
	for i := range count {
		h, ok := slice(f.b, at, programHeader)
		if !ok {
			return fmt.Errorf("program header %d is not in the file", i)
		}
		at += size
		l := load{offset: le.Uint64(h[8:]), address: le.Uint64(h[16:]), size: le.Uint64(h[32:])}
		switch le.Uint32(h) {
		case typeLoad:
			f.loads = append(f.loads, l)
		case typeDynamic:
			f.dynamic, _ = slice(f.b, l.offset, l.size)
		case typeInterp:
			f.interp = true
		}
	}
	return nil
}

// readSections reads the section headers, as far as they are there: a program runs without them.
func (f *file) readSections(at, count, size, names uint64) {
	le := binary.LittleEndian
	if size < sectionHeader || count > maxSections {
		return
	}
	var nameAt []uint32
	for range count {
		h, ok := slice(f.b, at, sectionHeader)
		if !ok {
			break
		}
		at += size
		nameAt = append(nameAt, le.Uint32(h))
		f.sections = append(f.sections, section{
			kind: le.Uint32(h[4:]), offset: le.Uint64(h[24:]), size: le.Uint64(h[32:]), link: le.Uint32(h[40:]),
		})
	}
	if names < uint64(len(f.sections)) {
		table := f.contents(&f.sections[names])
		for i := range f.sections {
			f.sections[i].name = cstring(table, uint64(nameAt[i]))
		}
	}
}

// contents returns the bytes of a section; nil if they are not in the file.
func (f *file) contents(s *section) []byte {
	if s.kind == typeNoBits {
		return nil
	}
	b, _ := slice(f.b, s.offset, s.size)
	return b
}

// at returns the bytes of the file from an address in memory on.
func (f *file) at(address uint64) []byte {
	for _, l := range f.loads {
		if address >= l.address && address-l.address < l.size {
			if b, ok := slice(f.b, l.offset, l.size); ok {
				return b[address-l.address:]
			}
		}
	}
	return nil
}

// needed returns the libraries that the file is linked with.
func (f *file) needed() (names []string) {
	const (
		tagEnd, tagNeeded, tagStrings = 0, 1, 5
	)
	le := binary.LittleEndian
	var offsets []uint64
	var table []byte
	for d := f.dynamic; len(d) >= 16; d = d[16:] {
		tag, value := le.Uint64(d), le.Uint64(d[8:])
		if tag == tagEnd {
			break
		}
		switch tag {
		case tagNeeded:
			if len(offsets) < maxNeeded {
				offsets = append(offsets, value)
			}
		case tagStrings:
			table = f.at(value)
		}
	}
	for _, o := range offsets {
		if name := cstring(table, o); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// symbols calls visit for each symbol of the file, from its table for linking and, if it was not
// removed, the one for debugging.
func (f *file) symbols(visit func(name string, defined bool)) {
	le := binary.LittleEndian
	budget := maxSymbols
	for i := range f.sections {
		s := &f.sections[i]
		if s.kind != typeSymbols && s.kind != typeDynamicSymbols || s.link >= uint32(len(f.sections)) {
			continue
		}
		table := f.contents(&f.sections[s.link])
		for b := f.contents(s); len(b) >= symbolEntry && budget > 0; b = b[symbolEntry:] {
			budget--
			if name := cstring(table, uint64(le.Uint32(b))); name != "" {
				visit(name, le.Uint16(b[6:]) != 0)
			}
		}
	}
}
