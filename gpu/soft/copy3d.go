package soft

import (
	"fmt"

	"vgpud/gpu"
)

// rowCost is the number of bytes that could be copied in the time of beginning a row.
const rowCost = 32

// Copy3D copies a box.
func (ch *channel) Copy3D(b *gpu.Copy3D) (gpu.Fence, error) {
	if err := b.Check(); err != nil {
		return 0, fmt.Errorf("copy a box: %w", err)
	}
	n := b.Bytes()
	if n == 0 {
		return ch.queueCopy(0, func() {})
	}
	to, err := ch.side(b, &b.Dst)
	if err != nil {
		return 0, fmt.Errorf("copy a box to: %w", err)
	}
	from, err := ch.side(b, &b.Src)
	if err != nil {
		return 0, fmt.Errorf("copy a box from: %w", err)
	}
	box := *b // the caller may change its own before the copy's turn
	return ch.queueCopy(int(n+rowCost*box.Height*box.Depth), func() { copyBox(to, from, &box) })
}

// side returns the bytes from the first to the last of one side of a copy. They are all in one
// allocation.
func (ch *channel) side(b *gpu.Copy3D, s *gpu.Side) ([]byte, error) {
	n := b.Extent(s)
	if s.Host == nil {
		return ch.c.bytes(s.Ptr, n)
	}
	if n > uint64(len(s.Host)) {
		return nil, fmt.Errorf("%d bytes of %d: %w", n, len(s.Host), gpu.ErrInvalidCopy)
	}
	return s.Host[:n], nil
}

// copyBox copies row by row. Rows that are adjacent on both sides are copied as one, and so are
// slices.
func copyBox(to, from []byte, b *gpu.Copy3D) {
	width, height, depth := b.Width, b.Height, b.Depth
	toSlice, fromSlice := b.Dst.Pitch*b.Dst.Rows, b.Src.Pitch*b.Src.Rows
	if height == 1 || b.Dst.Pitch == width && b.Src.Pitch == width {
		width, height = width*height, 1
		if depth == 1 || toSlice == width && fromSlice == width {
			width, depth = width*depth, 1
		}
	}
	for z := range depth {
		for y := range height {
			t, f := z*toSlice+y*b.Dst.Pitch, z*fromSlice+y*b.Src.Pitch
			copy(to[t:t+width], from[f:f+width])
		}
	}
}

// Set2D fills rows of n elements, pitch bytes apart.
func (ch *channel) Set2D(dst gpu.Ptr, pitch uint64, value uint32, width int, n, rows uint64) (gpu.Fence, error) {
	if width != 1 && width != 2 && width != 4 {
		return 0, fmt.Errorf("set elements of %d bytes: want 1, 2 or 4: %w", width, gpu.ErrInvalidCopy)
	}
	if n > 1<<60 || rows > 1 && pitch%uint64(width) != 0 {
		return 0, fmt.Errorf("set rows of %d elements of %d bytes, %d bytes apart: %w", n, width, pitch, gpu.ErrInvalidCopy)
	}
	if uint64(dst)%uint64(width) != 0 {
		return 0, fmt.Errorf("set elements of %d bytes at %#x: %w", width, uint64(dst), gpu.ErrInvalidPtr)
	}
	b := gpu.Copy3D{Width: n * uint64(width), Height: rows, Depth: 1}
	b.Dst = gpu.Side{Ptr: dst, Pitch: pitch, Rows: rows}
	b.Src = b.Dst
	if err := b.Check(); err != nil {
		return 0, fmt.Errorf("set: %w", err)
	}
	if b.Bytes() == 0 {
		return ch.queueCopy(0, func() {})
	}
	to, err := ch.side(&b, &b.Dst)
	if err != nil {
		return 0, fmt.Errorf("set: %w", err)
	}
	return ch.queueCopy(int(b.Bytes()+rowCost*rows), func() {
		for y := range rows {
			fill(to[y*pitch:y*pitch+b.Width], value, width)
		}
	})
}
