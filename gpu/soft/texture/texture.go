package texture

import (
	"fmt"
	"math"

	"vgpud/gpu"
	"vgpud/gpu/soft/arith"
)

// Texture describes a texture or a surface: where its texels are, and how they are read.
type Texture struct {
	Base  uint64 // address of the first texel in the context's memory
	Dims  int    // dimensions of a layer, from 1 to 3
	Size  [3]uint32
	Pitch uint64 // bytes from row to row
	Slice uint64 // bytes from slice to slice, or layer to layer
	// Layers is the number of layers, the faces of cubes included, or 0 if it is not layered.
	Layers uint32
	Cube   bool
	// Linear memory of one dimension reads as zeros outside its extent.
	Linear  bool
	Surface bool
	Texel   gpu.Texel
	gpu.Sampling
}

// OfArray returns the texture of an array whose texels begin at base, each row after the other.
func OfArray(base uint64, s gpu.ArrayShape) Texture {
	t := Texture{
		Base: base, Dims: s.Dims(), Size: [3]uint32{s.Width, s.Rows(), s.Slices()}, Pitch: s.RowBytes(),
		Slice: s.RowBytes() * uint64(s.Rows()), Cube: s.Cube, Texel: s.Texel,
	}
	if s.Layered || s.Cube {
		t.Layers, t.Size[2] = s.Layers(), 1
	}
	return t
}

// OfMemory returns the texture of linear memory.
func OfMemory(m *gpu.TextureMemory) Texture {
	t := Texture{Base: uint64(m.Ptr), Dims: 2, Size: [3]uint32{m.Width, m.Height, 1}, Pitch: m.Pitch, Texel: m.Texel}
	if m.Height == 0 {
		t.Dims, t.Size[1], t.Linear = 1, 1, true
		t.Pitch = uint64(m.Width) * uint64(m.Texel.Bytes())
	}
	t.Slice = t.Pitch * uint64(t.Size[1])
	return t
}

// Bytes returns the bytes from the first texel to the last.
func (t *Texture) Bytes() uint64 {
	row := uint64(t.Size[0]) * uint64(t.Texel.Bytes())
	slices := uint64(max(t.Size[2], t.Layers, 1))
	return (slices-1)*t.Slice + (uint64(t.Size[1])-1)*t.Pitch + row
}

// Check returns an error if the descriptor makes no sense. A descriptor that passes makes no
// function of this package read outside Bytes bytes.
func (t *Texture) Check() error {
	bad := func(what string) error { return fmt.Errorf("texture: %s: %w", what, gpu.ErrInvalidTexture) }
	texel := uint64(t.Texel.Bytes())
	row := uint64(t.Size[0]) * texel
	const most = 1 << 40
	switch {
	case texel == 0:
		return bad("unknown format")
	case t.Dims < 1 || t.Dims > 3 || t.Size[0] == 0 || t.Size[1] == 0 || t.Size[2] == 0:
		return bad("no extent")
	case t.Dims < 2 && t.Size[1] != 1, t.Dims < 3 && t.Size[2] != 1, t.Layers > 0 && t.Dims > 2:
		return bad("an extent beyond its dimensions")
	case t.Size[0] > gpu.MaxLinearTexels || t.Size[1] > 1<<17 || t.Size[2] > 1<<15 || t.Layers > gpu.MaxArrayLayers:
		return bad("too large")
	case t.Cube && (t.Dims != 2 || t.Layers == 0 || t.Layers%6 != 0):
		return bad("not a cube")
	case t.Pitch < row || t.Pitch > most || t.Slice < t.Pitch*(uint64(t.Size[1])-1)+row || t.Slice > most:
		return bad("overlapping rows")
	case t.Base%texel != 0 || t.Pitch%texel != 0 || t.Slice%texel != 0:
		return bad("not aligned")
	}
	if t.Surface {
		return nil
	}
	return t.Sampling.Check(t.Texel)
}

// raw reads channel k of the texel whose bytes are p.
func (t *Texture) raw(p []byte, k int) uint32 {
	switch t.Texel.Format {
	case gpu.FormatUint8:
		return uint32(p[k])
	case gpu.FormatInt8:
		return uint32(int32(int8(p[k])))
	case gpu.FormatUint16, gpu.FormatHalf:
		return uint32(p[2*k]) | uint32(p[2*k+1])<<8
	case gpu.FormatInt16:
		return uint32(int32(int16(uint16(p[2*k]) | uint16(p[2*k+1])<<8)))
	}
	return uint32(p[4*k]) | uint32(p[4*k+1])<<8 | uint32(p[4*k+2])<<16 | uint32(p[4*k+3])<<24
}

// floats reports whether reads give floating-point numbers.
func (t *Texture) floats() bool {
	return t.Texel.Format.Float() || !t.AsInteger && t.Texel.Format.Bytes() < 4
}

// decode converts a channel to what a texture read with a float result gives.
func (t *Texture) decode(v uint32) float32 {
	switch t.Texel.Format {
	case gpu.FormatUint8:
		return float32(float64(v) / math.MaxUint8)
	case gpu.FormatUint16:
		return float32(float64(v) / math.MaxUint16)
	case gpu.FormatInt8:
		return float32(max(float64(int32(v))/math.MaxInt8, -1))
	case gpu.FormatInt16:
		return float32(max(float64(int32(v))/math.MaxInt16, -1))
	case gpu.FormatHalf:
		return arith.CvtF32F16(uint16(v))
	}
	return math.Float32frombits(v)
}

// outside is the index of a texel outside the texture, whose value is the border's.
const outside = -1

// Value is the four channels of a result: the bits of a float32 or of an integer.
type Value [4]uint32

// absent sets the channels that the format lacks: 0, 0 and 1.
func (t *Texture) absent(v *Value) {
	for k := int(t.Texel.Channels); k < 4; k++ {
		v[k] = 0
		if k == 3 {
			v[k] = 1
			if t.floats() {
				v[k] = math.Float32bits(1)
			}
		}
	}
}

// border sets v to the value outside the texture.
func (t *Texture) border(v *Value) {
	for k := range v {
		switch {
		case t.Linear:
			v[k] = 0
		case t.floats():
			v[k] = math.Float32bits(t.Border[k])
		case t.Texel.Format.Signed():
			v[k] = uint32(int32(t.Border[k]))
		default:
			v[k] = uint32(max(t.Border[k], 0))
		}
	}
}

// texel reads the texel at the given indices, in a layer.
func (t *Texture) texel(data []byte, i, j, k, layer int, v *Value) {
	if i == outside || j == outside || k == outside {
		t.border(v)
		return
	}
	size := t.Texel.Bytes()
	p := data[uint64(k+layer)*t.Slice+uint64(j)*t.Pitch+uint64(i*size):][:size]
	for c := range int(t.Texel.Channels) {
		v[c] = t.raw(p, c)
		if t.floats() && t.Texel.Format != gpu.FormatFloat {
			v[c] = math.Float32bits(t.decode(v[c]))
		}
	}
	t.absent(v)
}
