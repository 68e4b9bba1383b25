package fatbin

import (
	"bytes"
	"encoding/binary"
)

const (
	containerMagic   = 0xba55ed50
	containerVersion = 1
	containerHeader  = 16 // bytes
	entryHeader      = 64 // bytes, at least
)

// Kind is the kind of an entry. There are others than the named ones, which [Container.Choose]
// passes over.
type Kind uint16

// The kinds that can be loaded.
const (
	PTX Kind = 1
	ELF Kind = 2 // machine code, a "cubin"
)

// Flags of an entry.
const (
	Flag64Bit uint64 = 0x1
	FlagDebug uint64 = 0x2
	FlagLinux uint64 = 0x10
	FlagLZ4   uint64 = 0x2000 // one LZ4 block
	FlagZstd  uint64 = 0x8000 // a Zstandard frame
)

// Options bound what Parse accepts. Zero fields mean the defaults named beside them.
type Options struct {
	MaxBytes   int64 // of a container: 1 GiB
	MaxEntries int   // of a container: 4,096
	MaxData    int64 // of one entry when decompressed: 256 MiB
}

// withDefaults replaces zeros by defaults.
func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = 4096
	}
	if o.MaxData <= 0 {
		o.MaxData = 256 << 20
	}
	return o
}

// Container is one fat binary. Its entries refer to the bytes that Parse was given.
type Container struct {
	Entries []Entry
}

// Entry is one image in a container.
type Entry struct {
	Kind         Kind
	Major, Minor int    // of PTX, its version
	SM           int    // compute capability that the image was compiled for: 80 for 8.0
	Flags        uint64 // also those that have no name here
	Name         string // of the source file, where given
	Size         int64  // of the image when decompressed, padding included

	offset  int64 // in the container
	payload []byte
	limit   int64 // Options.MaxData
}

// Parse lists the entries of the container at the start of b, with the default bounds. Bytes after
// the container are ignored.
func Parse(b []byte) (*Container, error) { return Options{}.Parse(b) }

// ParseAll lists the containers in a section that holds one after the other, such as .nv_fatbin,
// with the default bounds.
func ParseAll(b []byte) ([]*Container, error) { return Options{}.ParseAll(b) }

// ParseAll lists the containers in a section that holds one after the other, with zeros between
// them.
func (o Options) ParseAll(b []byte) ([]*Container, error) {
	o = o.withDefaults()
	var all []*Container
	entries := 0
	for pos := int64(0); pos < int64(len(b)); {
		if b[pos] == 0 {
			pos++
			continue
		}
		c, n, err := o.parse(b[pos:], pos)
		if err != nil {
			return all, err
		}
		if entries += max(len(c.Entries), 1); entries > o.MaxEntries {
			return all, invalid(pos, "more than %d entries in all", o.MaxEntries)
		}
		all = append(all, c)
		pos += n
	}
	return all, nil
}

// Parse lists the entries of the container at the start of b. Bytes after the container are
// ignored.
func (o Options) Parse(b []byte) (*Container, error) {
	c, _, err := o.withDefaults().parse(b, 0)
	return c, err
}

// parse returns the container at the start of b and its length; base is b's offset in the image.
func (o Options) parse(b []byte, base int64) (*Container, int64, error) {
	n, err := o.containerSize(b, base)
	if err != nil {
		return nil, 0, err
	}
	if n > int64(len(b)) {
		return nil, 0, invalid(base, "a container of %d bytes, of which %d are there", n, len(b))
	}
	c := &Container{}
	for pos := int64(binary.LittleEndian.Uint16(b[6:])); pos < n; {
		if n-pos < 8 && len(bytes.Trim(b[pos:n], "\x00")) == 0 {
			break // padding
		}
		e, length, err := parseEntry(b[pos:n], base+pos)
		if err != nil {
			return nil, 0, err
		}
		if len(c.Entries) == o.MaxEntries {
			return nil, 0, invalid(base+pos, "more than %d entries", o.MaxEntries)
		}
		e.limit = o.MaxData
		c.Entries = append(c.Entries, e)
		pos += length
	}
	return c, n, nil
}

// containerSize returns the length of the container that begins with head, its header included.
func (o Options) containerSize(head []byte, base int64) (int64, error) {
	le := binary.LittleEndian
	switch {
	case len(head) < containerHeader:
		return 0, invalid(base, "%d bytes are no container's header", len(head))
	case le.Uint32(head) != containerMagic:
		return 0, invalid(base, "no container: it begins with %#x", le.Uint32(head))
	case le.Uint16(head[4:]) != containerVersion:
		return 0, invalid(base, "container version %d, not %d", le.Uint16(head[4:]), containerVersion)
	}
	header, size := le.Uint16(head[6:]), le.Uint64(head[8:])
	if header < containerHeader || size > uint64(o.MaxBytes) || int64(size) > o.MaxBytes-int64(header) {
		return 0, invalid(base, "a container with %d bytes of header and %d of entries, more than %d in all", header, size, o.MaxBytes)
	}
	return int64(header) + int64(size), nil
}

// parseEntry returns the entry at the start of b and its length; base is b's offset in the image.
func parseEntry(b []byte, base int64) (Entry, int64, error) {
	le := binary.LittleEndian
	if len(b) < entryHeader {
		return Entry{}, 0, invalid(base, "%d bytes are no entry's header", len(b))
	}
	header, padded := uint64(le.Uint32(b[4:])), le.Uint64(b[8:])
	if room := uint64(len(b)); header < entryHeader || header > room || padded > room-header {
		return Entry{}, 0, invalid(base, "an entry with %d bytes of header and %d of data, of which %d are there", header, padded, room)
	}
	e := Entry{
		Kind:   Kind(le.Uint16(b)),
		Minor:  int(le.Uint16(b[24:])),
		Major:  int(le.Uint16(b[26:])),
		SM:     int(min(le.Uint32(b[28:]), 1<<20)),
		Flags:  le.Uint64(b[40:]),
		offset: base,
	}
	if at, n := uint64(le.Uint32(b[32:])), uint64(le.Uint32(b[36:])); at >= entryHeader && at+n <= header {
		e.Name = string(bytes.TrimRight(b[at:at+n], "\x00"))
	}
	e.payload = b[header : header+padded]
	e.Size = int64(padded)
	if e.compressed() {
		stored := uint64(le.Uint32(b[16:]))
		size := le.Uint64(b[56:])
		if stored > padded || size > 1<<62 {
			return Entry{}, 0, invalid(base, "%d compressed bytes for %d, in %d", stored, size, padded)
		}
		e.payload, e.Size = e.payload[:stored], int64(size)
	}
	return e, int64(header + padded), nil
}

// compressed reports whether the entry's payload must be decompressed.
func (e *Entry) compressed() bool { return e.Flags&(FlagLZ4|FlagZstd) != 0 }
