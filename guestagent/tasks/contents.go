package tasks

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"sort"
)

// source is a copy of the program's memory, of which pieces have parts.
type source struct {
	bytes uint64
	parts int
}

// piece is n bytes of an object at an offset: data, or else a pattern whose lowest byte lies at
// offsets that 4 divides.
type piece struct {
	off, n  uint64
	data    []byte
	from    *source
	pattern uint32
}

func (p *piece) end() uint64 { return p.off + p.n }

// part returns what lies from one offset to another.
func (p *piece) part(from, to uint64) piece {
	q := piece{off: from, n: to - from, from: p.from, pattern: p.pattern}
	if p.data != nil {
		q.data = p.data[from-p.off : to-p.off]
	}
	return q
}

// at returns the piece moved to another offset.
func (p piece) at(off uint64) piece {
	turn := 8 * ((off - p.off) % 4)
	p.off, p.pattern = off, p.pattern<<turn|p.pattern>>(32-turn)
	return p
}

// fill puts the piece's bytes where they lie in b, which begins at an offset.
func (p *piece) fill(b []byte, off uint64) {
	if p.data != nil {
		copy(b[p.off-off:], p.data)
		return
	}
	for i := range p.n {
		b[p.off-off+i] = byte(p.pattern >> (8 * ((p.off + i) % 4)))
	}
}

// firstAfter returns the index of the first piece of which something lies at an offset or behind.
func (o *object) firstAfter(off uint64) int {
	return sort.Search(len(o.pieces), func(i int) bool { return o.pieces[i].end() > off })
}

// clear has n bytes at an offset be zero.
func (r *Record) clear(o *object, off, n uint64) {
	i, end := o.firstAfter(off), off+n
	j := i
	var left []piece
	for ; j < len(o.pieces) && o.pieces[j].off < end; j++ {
		p := &o.pieces[j]
		if p.off < off {
			left = append(left, r.hold(p.part(p.off, off)))
		}
		if p.end() > end {
			left = append(left, r.hold(p.part(end, p.end())))
		}
		r.drop(p)
	}
	o.pieces = slices.Replace(o.pieces, i, j, left...)
}

// hold counts a piece that is about to be an object's.
func (r *Record) hold(p piece) piece {
	r.pieces++
	if p.from != nil {
		if p.from.parts++; p.from.parts == 1 {
			r.data += p.from.bytes
		}
	}
	return p
}

// drop takes back hold.
func (r *Record) drop(p *piece) {
	r.pieces--
	if p.from != nil {
		if p.from.parts--; p.from.parts == 0 {
			r.data -= p.from.bytes
		}
	}
}

// put has a piece take the place of what was there.
func (r *Record) put(o *object, p piece) {
	p = r.hold(p) // before its source may lose its last part
	r.clear(o, p.off, p.n)
	if p.data == nil && p.pattern == 0 {
		r.drop(&p)
		return
	}
	o.pieces = slices.Insert(o.pieces, o.firstAfter(p.off), p)
}

// roomFor returns an error if n more pieces would be too many. Putting a piece may split another.
func (r *Record) roomFor(n uint64) error {
	if n > maxPieces || uint64(r.pieces)+2*n > maxPieces {
		return fmt.Errorf("%d parts beside %d: %w", n, r.pieces, ErrBegin)
	}
	return nil
}

// outside is the error for addresses that are not in one object. Only the device knows such addresses.
func outside(p, n uint64) error { return fmt.Errorf("%d bytes at %#x: %w", n, p, ErrBegin) }

// Write records a copy of src to GPU memory. It copies src.
func (r *Record) Write(dst uint64, src []byte) error {
	n := uint64(len(src))
	o := r.find(dst, n)
	switch {
	case n == 0:
		return nil
	case o == nil:
		return outside(dst, n)
	case r.data+n > MaxData:
		return fmt.Errorf("%d bytes beside %d: %w", n, r.data, ErrBegin)
	}
	if err := r.roomFor(1); err != nil {
		return err
	}
	r.put(o, piece{off: dst - o.base, n: n, data: slices.Clone(src), from: &source{bytes: n}})
	return nil
}

// Set records that rows of count elements, of width 1, 2 or 4 bytes, have the low bits of value. Rows
// are pitch bytes apart.
func (r *Record) Set(dst, pitch uint64, value uint32, width, count, rows uint64) error {
	if pitch == count*width {
		count, rows = count*rows, min(rows, 1)
	}
	if count == 0 || rows == 0 {
		return nil
	}
	if err := r.roomFor(rows); err != nil {
		return err
	}
	n := (rows-1)*pitch + count*width
	o := r.find(dst, n)
	if o == nil || dst%width != 0 || rows > 1 && pitch%width != 0 {
		return outside(dst, n)
	}
	switch width {
	case 1:
		value = value & 0xff * 0x01010101
	case 2:
		value = value & 0xffff * 0x00010001
	}
	for y := range rows {
		r.put(o, piece{off: dst - o.base + y*pitch, n: count * width, pattern: value})
	}
	return nil
}

// Copy records a copy within GPU memory.
func (r *Record) Copy(dst, src, n uint64) error {
	to, from := r.find(dst, n), r.find(src, n)
	switch {
	case n == 0:
		return nil
	case to == nil:
		return outside(dst, n)
	case from == nil:
		return outside(src, n)
	}
	var moved []piece
	at, end := src-from.base, src-from.base+n
	for _, p := range from.pieces[from.firstAfter(at):] {
		if p.off >= end {
			break
		}
		q := p.part(max(p.off, at), min(p.end(), end))
		moved = append(moved, q.at(dst-to.base+q.off-at))
	}
	if err := r.roomFor(uint64(len(moved)) + 1); err != nil {
		return err
	}
	for _, p := range moved {
		r.hold(p) // what is cleared may be the last of its source
	}
	r.clear(to, dst-to.base, n)
	to.pieces = slices.Insert(to.pieces, to.firstAfter(dst-to.base), moved...)
	return nil
}

// Read answers a copy of GPU memory to dst.
func (r *Record) Read(dst []byte, src uint64) error {
	n := uint64(len(dst))
	o := r.find(src, n)
	switch {
	case n == 0:
		return nil
	case o == nil:
		return outside(src, n)
	}
	clear(dst)
	at, end := src-o.base, src-o.base+n
	for _, p := range o.pieces[o.firstAfter(at):] {
		if p.off >= end {
			break
		}
		q := p.part(max(p.off, at), min(p.end(), end))
		q.fill(dst, at)
	}
	return nil
}

// Write is something to be done so that GPU memory that was zero has what a record holds: Data
// copied to Address, or, without Data, Words words of Value.
type Write struct {
	Address uint64
	Data    []byte
	Value   uint32
	Words   uint64
}

// Writes returns what is to be done so that new memory holds what the record does.
func (r *Record) Writes() iter.Seq[Write] {
	return func(yield func(Write) bool) {
		for _, o := range r.objects {
			for i := range o.pieces {
				for _, w := range o.pieces[i].writes(o.base) {
					if !yield(w) {
						return
					}
				}
			}
		}
	}
}

// writes returns what a piece is: a pattern of which part of a word lies at an end is up to three.
func (p *piece) writes(base uint64) (all []Write) {
	if p.data != nil {
		return []Write{{Address: base + p.off, Data: p.data}}
	}
	from, to := roundUp(p.off, 4), p.end()&^3
	part := func(from, to uint64) {
		if from < to {
			var w [4]byte
			binary.LittleEndian.PutUint32(w[:], p.pattern)
			all = append(all, Write{Address: base + from, Data: slices.Clone(w[from%4:][:to-from])})
		}
	}
	if from >= to { // less than a word, or two halves
		part(p.off, min(from, p.end()))
		part(min(from, p.end()), p.end())
		return all
	}
	part(p.off, from)
	all = append(all, Write{Address: base + from, Value: p.pattern, Words: (to - from) / 4})
	part(to, p.end())
	return all
}
