package texture

import (
	"math"

	"vgpud/gpu"
	"vgpud/gpu/soft/arith"
)

// Bounds is what an access outside a surface does.
type Bounds uint8

// The bounds, as PTX's modifiers name them.
const (
	Trap  Bounds = iota // a fault
	Clamp               // the nearest texel
	Zero                // a load gives zeros, and a store has no effect
)

// Place is the result of [Texture.Locate].
type Place uint8

// The places.
const (
	Inside     Place = iota
	Skipped          // outside, with Zero
	Invalid          // outside, with Trap
	Misaligned       // not a multiple of the access's size
)

// Locate returns the offset of size bytes of a surface: x in bytes, y in rows and z in slices as
// far as it has dimensions, in a layer. They lie within Bytes if the place is Inside.
func (t *Texture) Locate(at [3]int32, layer int64, size int, b Bounds) (uint64, Place) {
	row := int64(t.Size[0]) * int64(t.Texel.Bytes())
	limits := [3]int64{row - int64(size), int64(t.Size[1]) - 1, int64(t.Size[2]) - 1}
	if limits[0] < 0 {
		return 0, Invalid // wider than the surface
	}
	var i [3]int64
	for d := range t.Dims {
		x := int64(at[d])
		if x < 0 || x > limits[d] {
			switch b {
			case Trap:
				return 0, Invalid
			case Zero:
				return 0, Skipped
			}
			if x = max(min(x, limits[d]), 0); d == 0 {
				x -= x % int64(size)
			}
		}
		i[d] = x
	}
	if i[0]%int64(size) != 0 {
		return 0, Misaligned
	}
	if t.Layers > 0 {
		last := int64(t.Layers) - 1
		if layer < 0 || layer > last {
			switch b {
			case Trap:
				return 0, Invalid
			case Zero:
				return 0, Skipped
			}
			layer = max(min(layer, last), 0)
		}
		i[2] = layer
	}
	return uint64(i[2])*t.Slice + uint64(i[1])*t.Pitch + uint64(i[0]), Inside
}

// Store writes a texel with the given channels, converted to the surface's format: floats where it
// has floats, else integers, which are limited to its range.
func (t *Texture) Store(p []byte, v *Value) {
	for k := range int(t.Texel.Channels) {
		x := v[k]
		switch t.Texel.Format {
		case gpu.FormatUint8:
			x = min(x, math.MaxUint8)
		case gpu.FormatUint16:
			x = min(x, math.MaxUint16)
		case gpu.FormatInt8:
			x = uint32(max(min(int32(x), math.MaxInt8), math.MinInt8))
		case gpu.FormatInt16:
			x = uint32(max(min(int32(x), math.MaxInt16), math.MinInt16))
		case gpu.FormatHalf:
			x = uint32(arith.CvtF16F32(math.Float32frombits(x)))
		}
		n := t.Texel.Format.Bytes()
		for b := range n {
			p[n*k+b] = byte(x >> (8 * b))
		}
	}
}
