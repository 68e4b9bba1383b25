package gpu

import (
	"fmt"
	"math/bits"
)

// Side is where one side of a [Copy3D] lies: in GPU memory from Ptr on or, if Host is not nil, in
// the program's memory from its first byte on.
type Side struct {
	Ptr  Ptr
	Host []byte
	// Pitch is the distance between rows in bytes, at least a row's length. Rows is the distance
	// between slices in rows, at least a slice's height. They have no effect if there is one row,
	// or one slice.
	Pitch, Rows uint64
}

// Copy3D is a box to be copied: Depth slices of Height rows of Width bytes. A box without volume
// touches nothing, wherever its sides lie.
type Copy3D struct {
	Dst, Src             Side
	Width, Height, Depth uint64
}

// Bytes returns how much is copied. It can overflow if Check was not called.
func (c *Copy3D) Bytes() uint64 { return c.Width * c.Height * c.Depth }

// Check returns an error that wraps [ErrInvalidCopy] if rows or slices overlap, or exceed the
// address space.
func (c *Copy3D) Check() error {
	for _, s := range [...]*Side{&c.Dst, &c.Src} {
		switch _, ok := c.extent(s); {
		case c.Width == 0 || c.Height == 0 || c.Depth == 0:
		case c.Height > 1 && s.Pitch < c.Width, c.Depth > 1 && (s.Pitch < c.Width || s.Rows < c.Height):
			return fmt.Errorf("%d x %d rows of %d bytes, %d bytes and %d rows apart: they overlap: %w",
				c.Depth, c.Height, c.Width, s.Pitch, s.Rows, ErrInvalidCopy)
		case !ok:
			return fmt.Errorf("%d x %d rows of %d bytes, %d bytes and %d rows apart: too many: %w",
				c.Depth, c.Height, c.Width, s.Pitch, s.Rows, ErrInvalidCopy)
		}
	}
	return nil
}

// Extent returns the number of bytes from a side's first to its last, gaps between rows and slices
// included. The box must have passed Check.
func (c *Copy3D) Extent(s *Side) uint64 {
	n, _ := c.extent(s)
	return n
}

func (c *Copy3D) extent(s *Side) (n uint64, ok bool) {
	if c.Width == 0 || c.Height == 0 || c.Depth == 0 {
		return 0, true
	}
	rows := c.Height - 1 // before the last
	if c.Depth > 1 {
		over, whole := bits.Mul64(c.Depth-1, s.Rows)
		sum, carry := bits.Add64(whole, rows, 0)
		if over != 0 || carry != 0 {
			return 0, false
		}
		rows = sum
	}
	if rows == 0 {
		return c.Width, true
	}
	over, before := bits.Mul64(rows, s.Pitch)
	n, carry := bits.Add64(before, c.Width, 0)
	return n, over == 0 && carry == 0
}
