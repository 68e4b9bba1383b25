package cuda

import (
	"context"
	"errors"
	"math"

	"vgpud/guestagent/driver"
)

// Memcpy2D is CUDA_MEMCPY2D.
type Memcpy2D struct {
	SrcX, SrcY    uint64
	SrcMemoryType uint32
	SrcHost       Pointer
	SrcDevice     uint64
	SrcArray      Handle
	SrcPitch      uint64
	DstX, DstY    uint64
	DstMemoryType uint32
	DstHost       Pointer
	DstDevice     uint64
	DstArray      Handle
	DstPitch      uint64
	Width, Height uint64
}

// Memcpy3D is CUDA_MEMCPY3D.
type Memcpy3D struct {
	SrcX, SrcY, SrcZ, SrcLOD uint64
	SrcMemoryType            uint32
	SrcHost                  Pointer
	SrcDevice                uint64
	SrcArray, SrcContext     Handle
	SrcPitch, SrcHeight      uint64
	DstX, DstY, DstZ, DstLOD uint64
	DstMemoryType            uint32
	DstHost                  Pointer
	DstDevice                uint64
	DstArray, DstContext     Handle
	DstPitch, DstHeight      uint64
	Width, Height, Depth     uint64
}

// Memcpy3DPeer is CUDA_MEMCPY3D_PEER, of the same layout, with contexts.
type Memcpy3DPeer = Memcpy3D

// Places of a copy's sides, CUmemorytype.
const (
	placeHost    = 1
	placeDevice  = 2
	placeArray   = 3
	placeUnified = 4
)

// side is one side of a box.
type side struct {
	place       uint32 // placeHost, placeDevice or placeArray
	at          uint64 // the first byte's address
	pitch, rows uint64 // bytes from row to row, rows from slice to slice
	array       Handle
	x, y, z     uint64 // origin in an array
}

// box is a pitched copy.
type box struct {
	dst, src             side
	width, height, depth uint64 // bytes, rows, slices
}

// newSide returns a side whose origin is folded into its address.
func (x *Context) newSide(place uint32, host Pointer, device uint64, array Handle, px, py, pz, pitch, rows uint64, b *box) (side, Result) {
	s := side{place: place, at: device, pitch: pitch, rows: rows, array: array, x: px, y: py, z: pz}
	switch place {
	case placeHost:
		s.at = addressOf(host)
	case placeDevice, placeArray:
	case placeUnified:
		if s.place = placeHost; x.isDevice(device) {
			s.place = placeDevice
		}
	default:
		return s, ErrorInvalidValue
	}
	if s.place == placeArray {
		return s, Success
	}
	if s.pitch == 0 {
		s.pitch = px + b.width
	}
	if s.rows == 0 {
		s.rows = py + b.height
	}
	const most = 1 << 40
	if px > most || py > most || pz > most || s.pitch > math.MaxUint32 || s.rows > math.MaxUint32 ||
		(b.height > 1 || b.depth > 1) && s.pitch < b.width || b.depth > 1 && s.rows < b.height {
		return s, ErrorInvalidValue
	}
	if s.at == 0 {
		return s, ErrorInvalidValue
	}
	s.at += (pz*s.rows+py)*s.pitch + px
	return s, Success
}

// span returns how many bytes a side reaches over.
func (b *box) span(s *side) uint64 {
	return (b.depth-1)*s.rows*s.pitch + (b.height-1)*s.pitch + b.width
}

// contiguous reports whether a side has no gaps.
func (b *box) contiguous(s *side) bool {
	return (b.height == 1 || s.pitch == b.width) && (b.depth == 1 || s.pitch == b.width && s.rows == b.height)
}

// copyBox copies a box in a stream.
func (c *Call) copyBox(s *stream, p *Memcpy3D, async bool) Result {
	if p == nil {
		return ErrorInvalidValue
	}
	b := box{width: p.Width, height: p.Height, depth: p.Depth}
	if b.width > math.MaxUint32 || b.height > math.MaxUint32 || b.depth > math.MaxUint32 || p.SrcLOD != 0 || p.DstLOD != 0 {
		return ErrorInvalidValue
	}
	if b.width == 0 || b.height == 0 || b.depth == 0 {
		return Success
	}
	var r Result
	if b.src, r = s.x.newSide(p.SrcMemoryType, p.SrcHost, p.SrcDevice, p.SrcArray, p.SrcX, p.SrcY, p.SrcZ, p.SrcPitch, p.SrcHeight, &b); r != Success {
		return r
	}
	if b.dst, r = s.x.newSide(p.DstMemoryType, p.DstHost, p.DstDevice, p.DstArray, p.DstX, p.DstY, p.DstZ, p.DstPitch, p.DstHeight, &b); r != Success {
		return r
	}
	if c.captures(s) {
		make := func() operation { return &copyNode{*p} }
		if !async {
			make = nil
		}
		if r, done := c.capture(s, make); done {
			return r
		}
	}
	if b.src.place == placeArray || b.dst.place == placeArray {
		return c.copyArrayBox(s, &b, async)
	}
	for _, e := range []*side{&b.src, &b.dst} {
		if e.place == placeDevice {
			if r := s.x.deviceRange(e.at, b.span(e)); r != Success {
				return r
			}
		} else if access(pointerTo(e.at), b.span(e)) != nil {
			return ErrorInvalidValue
		}
	}
	if b.contiguous(&b.src) && b.contiguous(&b.dst) {
		return c.copyLinear(s, &b, async)
	}
	switch {
	case b.src.place == placeHost && b.dst.place == placeHost:
		return c.drained(s, func() Result { b.copyRows(hostSide(&b, &b.dst), hostSide(&b, &b.src), b.dst, b.src); return Success })
	case b.src.place == placeHost:
		return c.boxIn(s, &b)
	case b.dst.place == placeHost:
		return c.boxOut(s, &b, async)
	}
	return c.send(s, func(ctx context.Context, ch *driver.Channel) (*driver.Pending, error) {
		return ch.CopyBox(ctx, b.device())
	})
}

// copyLinear copies a box without gaps.
func (c *Call) copyLinear(s *stream, b *box, async bool) Result {
	n := b.width * b.height * b.depth
	switch {
	case b.src.place == placeDevice && b.dst.place == placeDevice:
		return c.copyAcross(s, b.dst.at, b.src.at, n, async)
	case b.src.place == placeDevice:
		return c.copyOut(s, pointerTo(b.dst.at), b.src.at, n, async)
	case b.dst.place == placeDevice:
		return c.copyIn(s, b.dst.at, pointerTo(b.src.at), n, async)
	}
	return c.copyHost(s, pointerTo(b.dst.at), pointerTo(b.src.at), n)
}

// device returns the driver's form of a box.
func (b *box) device() driver.Box {
	return driver.Box{
		Dst: driver.Ptr(b.dst.at), Src: driver.Ptr(b.src.at), DstPitch: uint32(b.dst.pitch), SrcPitch: uint32(b.src.pitch),
		DstSliceRows: uint32(b.dst.rows), SrcSliceRows: uint32(b.src.rows),
		WidthBytes: uint32(b.width), HeightRows: uint32(b.height), DepthSlices: uint32(b.depth),
	}
}

func hostSide(b *box, s *side) []byte { return hostBytes(pointerTo(s.at), b.span(s)) }

// copyRows copies the rows between two memories, in which the box begins at the first byte.
func (b *box) copyRows(dst, src []byte, d, s side) {
	for z := range b.depth {
		for y := range b.height {
			copy(dst[(z*d.rows+y)*d.pitch:][:b.width], src[(z*s.rows+y)*s.pitch:])
		}
	}
}

// parts splits a box into such that their rows take at most boxBytes, unless one row is more.
func (b *box) parts() (all []box) {
	rows := max(boxBytes/b.width, 1)
	if slice := b.width * b.height; slice <= boxBytes { // whole slices
		for z, n := uint64(0), max(boxBytes/slice, 1); z < b.depth; z += n {
			all = append(all, b.part(z, 0, min(n, b.depth-z), b.height))
		}
		return all
	}
	for z := range b.depth {
		for y := uint64(0); y < b.height; y += rows {
			all = append(all, b.part(z, y, 1, min(rows, b.height-y)))
		}
	}
	return all
}

// boxBytes is how much of a box goes through shared memory at once.
const boxBytes = 1 << 20

func (b *box) part(z, y, depth, height uint64) box {
	q := *b
	q.depth, q.height = depth, height
	for _, s := range []*side{&q.dst, &q.src} {
		s.at += (z*s.rows + y) * s.pitch
	}
	return q
}

// packed returns the side of a part in shared memory, at an offset.
func (b *box) packed() side { return side{place: placeHost, pitch: b.width, rows: b.height} }

// boxIn copies a box of the program's memory to GPU memory, through shared memory.
func (c *Call) boxIn(s *stream, b *box) Result {
	if b.width > boxBytes {
		return c.rowsIn(s, b)
	}
	return c.boxPartsIn(s, b.parts())
}

func (c *Call) boxPartsIn(s *stream, parts []box) Result {
	for len(parts) > 0 {
		q := parts[0]
		m, r := c.stagePart(s.x, q.width*q.height*q.depth)
		if r == ErrorNotReady { // what uses the shared memory has to end first
			return c.drained(s, func() Result { return c.boxPartsIn(s, parts) })
		}
		if r != Success {
			return r
		}
		err := m.Use(func(to []byte) { q.copyRows(to, hostSide(&q, &q.src), q.packed(), q.src) })
		if err != nil {
			m.Free()
			return s.x.fail(err)
		}
		q.src = q.packed()
		r = c.send(s, func(ctx context.Context, ch *driver.Channel) (*driver.Pending, error) {
			p, err := ch.CopyBoxIn(ctx, q.device(), m)
			if !errors.Is(err, errSlice) {
				m.Free() // when the copy has ended
			}
			return p, err
		})
		if r == again {
			f := c.resume
			return c.later(func() Result {
				return c.then(f, func() Result { return c.boxPartsIn(s, parts[1:]) })
			})
		}
		if r != Success {
			return r
		}
		parts = parts[1:]
	}
	return Success
}

// then calls f, if need be again and again, and if it succeeds next.
func (c *Call) then(f, next func() Result) Result {
	switch r := f(); r {
	case again:
		f := c.resume
		return c.later(func() Result { return c.then(f, next) })
	case Success:
		return next()
	default:
		return r
	}
}

// stagePart returns shared memory for a part of a copy. The result is ErrorNotReady if there is none
// now.
func (c *Call) stagePart(x *Context, n uint64) (*driver.HostMemory, Result) {
	ctx, cancel := context.WithTimeout(context.Background(), hostWait)
	defer cancel()
	m, err := x.gpu.Device().AllocHost(ctx, int(n))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, ErrorNotReady
	case err != nil:
		return nil, x.fail(err)
	}
	return m, Success
}

// boxOut copies a box of GPU memory to the program's memory, through shared memory.
func (c *Call) boxOut(s *stream, b *box, async bool) Result {
	if b.width > boxBytes {
		return c.rowsOut(s, b)
	}
	_ = async // it is complete when it returns
	return c.boxPartsOut(s, b.parts())
}

func (c *Call) boxPartsOut(s *stream, parts []box) Result {
	if len(parts) == 0 {
		return Success
	}
	q := parts[0]
	m, r := c.stagePart(s.x, q.width*q.height*q.depth)
	if r == ErrorNotReady {
		return c.drained(s, func() Result { return c.boxPartsOut(s, parts) })
	}
	if r != Success {
		return r
	}
	return c.boxPartOut(s, q, m, func() Result { return c.boxPartsOut(s, parts[1:]) })
}

func (c *Call) boxPartOut(s *stream, q box, m *driver.HostMemory, next func() Result) Result {
	x := s.x
	again := func() Result { return c.boxPartOut(s, q, m, next) }
	if entered, r := c.enter(s, again); !entered {
		return r
	}
	d := q
	d.dst = q.packed()
	p, err := s.ch.ch.CopyBoxOut(c.slice(), d.device(), m)
	if err != nil {
		x.mu.Unlock()
		if errors.Is(err, errSlice) {
			return c.later(again)
		}
		m.Free()
		return x.fail(err)
	}
	end := s.ch.add(s, p, true)
	x.mu.Unlock()
	return c.waitFor([]point{end}, func() Result {
		defer m.Free()
		if r := c.ended(x, p); r != Success {
			return r
		}
		if err := m.Use(func(from []byte) { q.copyRows(hostSide(&q, &q.dst), from, q.dst, q.packed()) }); err != nil {
			return x.fail(err)
		}
		return next()
	})
}

// rowsIn copies a box with long rows, one by one.
func (c *Call) rowsIn(s *stream, b *box) Result {
	return c.rows(b, func(q *box) Result { return c.copyIn(s, q.dst.at, pointerTo(q.src.at), q.width, false) })
}

func (c *Call) rowsOut(s *stream, b *box) Result {
	return c.rows(b, func(q *box) Result { return c.copyOut(s, pointerTo(q.dst.at), q.src.at, q.width, false) })
}

func (c *Call) rows(b *box, f func(*box) Result) Result {
	return c.each(0, b.height*b.depth, func(i uint64) Result {
		q := b.part(i/b.height, i%b.height, 1, 1)
		return f(&q)
	})
}
