package simt

import (
	"encoding/binary"

	"vgpud/ptx"
)

// Movers: loads.

func load32(w *warp, in *inst, data []byte)  { loadWord(w, in.d, data, 0) }
func load64(w *warp, in *inst, data []byte)  { loadLong(w, in.d, data, 0) }
func store32(w *warp, in *inst, data []byte) { storeWord(w, in.d, data, 0) }
func store64(w *warp, in *inst, data []byte) { storeLong(w, in.d, data, 0) }

func loadWord(w *warp, reg uint32, data []byte, at int) {
	d := &w.r32[reg]
	if w.mask == full {
		for i := range d {
			d[i] = binary.LittleEndian.Uint32(data[w.off[i]+at:])
		}
		return
	}
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		d[i] = binary.LittleEndian.Uint32(data[w.off[i]+at:])
	}
}

func loadLong(w *warp, reg uint32, data []byte, at int) {
	d := &w.r64[reg]
	if w.mask == full {
		for i := range d {
			d[i] = binary.LittleEndian.Uint64(data[w.off[i]+at:])
		}
		return
	}
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		d[i] = binary.LittleEndian.Uint64(data[w.off[i]+at:])
	}
}

func storeWord(w *warp, reg uint32, data []byte, at int) {
	d := &w.r32[reg]
	if w.mask == full {
		for i := range d {
			binary.LittleEndian.PutUint32(data[w.off[i]+at:], d[i])
		}
		return
	}
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		binary.LittleEndian.PutUint32(data[w.off[i]+at:], d[i])
	}
}

func storeLong(w *warp, reg uint32, data []byte, at int) {
	d := &w.r64[reg]
	if w.mask == full {
		for i := range d {
			binary.LittleEndian.PutUint64(data[w.off[i]+at:], d[i])
		}
		return
	}
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		binary.LittleEndian.PutUint64(data[w.off[i]+at:], d[i])
	}
}

// element is one register of a load or store.
type element struct {
	reg  operand
	at   int // offset in the access
	size int
	sext bool
}

// loadElements returns a mover for other loads: narrow elements, extended to their registers'
// width, and vectors.
func loadElements(elems []element) mover {
	return func(w *warp, in *inst, data []byte) {
		for k := range elems {
			e := &elems[k]
			switch {
			case e.reg.class == noReg:
			case e.size == 4 && e.reg.class == reg32:
				loadWord(w, e.reg.index, data, e.at)
			case e.size == 8 && e.reg.class == reg64:
				loadLong(w, e.reg.index, data, e.at)
			default:
				loadNarrow(w, e, data)
			}
		}
	}
}

func loadNarrow(w *warp, e *element, data []byte) {
	if w.mask == full && e.size <= 2 && (e.reg.class == reg16 || e.reg.class == reg32) {
		e.loadAll(w, data)
		return
	}
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		w.setLane(e.reg, i, fetch(data[w.off[i]+e.at:], e.size, e.sext))
	}
}

// loadAll loads 8 or 16 bits for each lane of a full warp.
func (e *element) loadAll(w *warp, data []byte) {
	d, off := &w.r32[e.reg.index], &w.off
	keep := ^uint32(0)
	if e.reg.class == reg16 {
		keep = 0xffff
	}
	switch {
	case e.size == 1 && e.sext:
		for i := range d {
			d[i] = uint32(int32(int8(data[off[i]+e.at]))) & keep
		}
	case e.size == 1:
		for i := range d {
			d[i] = uint32(data[off[i]+e.at])
		}
	case e.sext:
		for i := range d {
			d[i] = uint32(int32(int16(binary.LittleEndian.Uint16(data[off[i]+e.at:])))) & keep
		}
	default:
		for i := range d {
			d[i] = uint32(binary.LittleEndian.Uint16(data[off[i]+e.at:]))
		}
	}
}

// storeElements returns a mover for other stores.
func storeElements(elems []element) mover {
	return func(w *warp, in *inst, data []byte) {
		for k := range elems {
			e := &elems[k]
			switch {
			case e.size == 4 && e.reg.class == reg32:
				storeWord(w, e.reg.index, data, e.at)
			case e.size == 8 && e.reg.class == reg64:
				storeLong(w, e.reg.index, data, e.at)
			default:
				storeNarrow(w, e, data)
			}
		}
	}
}

func storeNarrow(w *warp, e *element, data []byte) {
	if w.mask == full && e.size <= 2 && e.reg.class != reg64 {
		e.storeAll(w, data)
		return
	}
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		var v uint64
		if e.reg.class == reg64 {
			v = w.r64[e.reg.index][i]
		} else {
			v = uint64(w.r32[e.reg.index][i])
		}
		p := data[w.off[i]+e.at:]
		switch e.size {
		case 1:
			p[0] = byte(v)
		case 2:
			binary.LittleEndian.PutUint16(p, uint16(v))
		case 4:
			binary.LittleEndian.PutUint32(p, uint32(v))
		default:
			binary.LittleEndian.PutUint64(p, v)
		}
	}
}

// storeAll stores 8 or 16 bits for each lane of a full warp.
func (e *element) storeAll(w *warp, data []byte) {
	d, off := &w.r32[e.reg.index], &w.off
	if e.size == 1 {
		for i := range d {
			data[off[i]+e.at] = byte(d[i])
		}
		return
	}
	for i := range d {
		binary.LittleEndian.PutUint16(data[off[i]+e.at:], uint16(d[i]))
	}
}

// resolver returns the resolver for a space and width of addresses.
func resolver(space ptx.Space, wide bool) opFunc {
	switch {
	case space == ptx.SharedSpace && wide:
		return shared64
	case space == ptx.SharedSpace:
		return shared32
	case space == ptx.LocalSpace && wide:
		return local64
	case space == ptx.LocalSpace:
		return local32
	case space == ptx.ParamSpace:
		return param64
	case space == ptx.NoSpace:
		return generic64
	}
	return global64
}
