// Package programtest makes program files for tests: ELF files with chosen libraries, symbols and
// sections, which can't be run.
package programtest

import "encoding/binary"

// Program describes a program file.
type Program struct {
	Machine   uint16   // 0 means x86-64
	Needed    []string // libraries that it is linked with
	Undefined []string // symbols that it imports
	Defined   []string // symbols of its own
	Data      []byte   // its data, in which names and PTX may stand
	Fatbin    []byte   // section .nv_fatbin
	Relfatbin []byte   // section __nv_relfatbin
}

// Bytes returns the file: headers, sections, section headers. Addresses equal offsets.
func (p Program) Bytes() []byte {
	le := binary.LittleEndian
	const header, segments, base = 64, 3, 0
	machine := p.Machine
	if machine == 0 {
		machine = 62
	}
	type part struct {
		name string
		kind uint32
		link uint32
		data []byte
		at   int
	}
	strings := []byte{0}
	str := func(s string) uint64 {
		at := len(strings)
		strings = append(append(strings, s...), 0)
		return uint64(at)
	}
	var dynamic, symbols []byte
	for _, name := range p.Needed {
		dynamic = le.AppendUint64(le.AppendUint64(dynamic, 1), str(name))
	}
	symbols = append(symbols, make([]byte, 24)...)
	symbol := func(name string, section uint16) {
		b := le.AppendUint32(nil, uint32(str(name)))
		b = append(b, 0x12, 0) // a global function
		b = le.AppendUint16(b, section)
		symbols = append(symbols, append(b, make([]byte, 16)...)...)
	}
	for _, name := range p.Undefined {
		symbol(name, 0)
	}
	for _, name := range p.Defined {
		symbol(name, 1)
	}
	parts := []part{
		{name: ""},
		{name: ".data", kind: 1, data: p.Data},
		{name: ".nv_fatbin", kind: 1, data: p.Fatbin},
		{name: "__nv_relfatbin", kind: 1, data: p.Relfatbin},
		{name: ".interp", kind: 1, data: []byte("/lib64/ld-linux-x86-64.so.2\x00")},
		{name: ".dynsym", kind: 11, link: 6, data: symbols},
		{name: ".dynstr", kind: 3, data: strings},
		{name: ".dynamic", kind: 6, link: 6, data: dynamic},
		{name: ".shstrtab", kind: 3},
	}
	var names []byte
	nameAt := make([]uint32, len(parts))
	for i := range parts {
		nameAt[i] = uint32(len(names))
		names = append(append(names, parts[i].name...), 0)
	}
	parts[len(parts)-1].data = names

	out := make([]byte, header+segments*56)
	for i := range parts {
		for len(out)%16 != 0 {
			out = append(out, 0)
		}
		parts[i].at = len(out)
		if parts[i].name == ".dynamic" {
			d := le.AppendUint64(le.AppendUint64(parts[i].data, 5), uint64(parts[6].at)) // DT_STRTAB
			parts[i].data = append(d, make([]byte, 16)...)
		}
		out = append(out, parts[i].data...)
	}
	sections := len(out)
	for i, s := range parts {
		h := make([]byte, 64)
		le.PutUint32(h, nameAt[i])
		le.PutUint32(h[4:], s.kind)
		le.PutUint64(h[24:], uint64(s.at))
		le.PutUint64(h[32:], uint64(len(s.data)))
		le.PutUint32(h[40:], s.link)
		out = append(out, h...)
	}
	copy(out, "\x7fELF\x02\x01\x01")
	le.PutUint16(out[16:], 3)
	le.PutUint16(out[18:], machine)
	le.PutUint64(out[32:], header)
	le.PutUint64(out[40:], uint64(sections))
	le.PutUint16(out[54:], 56)
	le.PutUint16(out[56:], segments)
	le.PutUint16(out[58:], 64)
	le.PutUint16(out[60:], uint16(len(parts)))
	le.PutUint16(out[62:], uint16(len(parts)-1))
	segment := func(i int, kind uint32, at, size int) {
		h := out[header+i*56:]
		le.PutUint32(h, kind)
		le.PutUint64(h[8:], uint64(at))
		le.PutUint64(h[16:], uint64(base+at))
		le.PutUint64(h[32:], uint64(size))
	}
	segment(0, 1, 0, sections)
	segment(1, 2, parts[7].at, len(parts[7].data))
	segment(2, 3, parts[4].at, len(parts[4].data))
	return out
}
