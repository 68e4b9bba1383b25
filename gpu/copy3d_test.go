package gpu

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestExtent compares with the last byte that a walk over all rows touches.
func TestExtent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.Uint64Range(0, 6)
		c := Copy3D{Width: small.Draw(t, "width"), Height: small.Draw(t, "height"), Depth: small.Draw(t, "depth")}
		c.Dst = Side{Pitch: rapid.Uint64Range(0, 9).Draw(t, "pitch"), Rows: rapid.Uint64Range(0, 9).Draw(t, "rows")}
		c.Src = Side{Pitch: c.Width, Rows: c.Height}
		touched := map[uint64]bool{}
		var end, bytes uint64
		overlap := false
		for z := range c.Depth {
			for y := range c.Height {
				for x := range c.Width {
					at := (z*c.Dst.Rows+y)*c.Dst.Pitch + x
					overlap = overlap || touched[at]
					touched[at] = true
					end = max(end, at+1)
					bytes++
				}
			}
		}
		if err := c.Check(); err != nil {
			if !errors.Is(err, ErrInvalidCopy) || bytes == 0 {
				t.Fatalf("%+v: %v", c, err)
			}
			return
		}
		if overlap {
			t.Fatalf("%+v: bytes overlap", c)
		}
		if got := c.Extent(&c.Dst); got != end || c.Bytes() != bytes {
			t.Fatalf("%+v: extent %d of %d bytes, want %d of %d", c, got, c.Bytes(), end, bytes)
		}
	})
}

func TestImpossibleBoxes(t *testing.T) {
	const most = math.MaxUint64
	for name, c := range map[string]Copy3D{
		"rows overlap":           {Width: 8, Height: 2, Depth: 1, Dst: Side{Pitch: 7}, Src: Side{Pitch: 8}},
		"rows of slices overlap": {Width: 8, Height: 1, Depth: 2, Dst: Side{Pitch: 4, Rows: 2}, Src: Side{Pitch: 8, Rows: 1}},
		"slices overlap":         {Width: 8, Height: 3, Depth: 2, Dst: Side{Pitch: 8, Rows: 3}, Src: Side{Pitch: 8, Rows: 2}},
		"pitch times rows":       {Width: 1, Height: 1 << 33, Depth: 1, Dst: Side{Pitch: 1 << 33}, Src: Side{Pitch: 1}},
		"rows times slices":      {Width: 1, Height: 1, Depth: 1 << 33, Dst: Side{Pitch: 1, Rows: 1 << 33}, Src: Side{Pitch: 1, Rows: 1}},
		"one more row":           {Width: 1, Height: most, Depth: 2, Dst: Side{Pitch: 1, Rows: most}, Src: Side{Pitch: 1, Rows: most}},
		"one more byte":          {Width: most, Height: 2, Depth: 1, Dst: Side{Pitch: most}, Src: Side{Pitch: most}},
	} {
		if err := c.Check(); !errors.Is(err, ErrInvalidCopy) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
