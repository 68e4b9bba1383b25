package texture

import (
	"math"

	"vgpud/gpu"
)

// mode returns the address mode of a dimension: without normalized coordinates there is neither
// wrap nor mirror.
func (t *Texture) mode(dim int) gpu.AddressMode {
	m := t.Address[dim]
	switch {
	case t.Linear:
		return gpu.AddressBorder
	case t.Cube, !t.Normalized && (m == gpu.AddressWrap || m == gpu.AddressMirror):
		return gpu.AddressClamp
	}
	return m
}

// index applies a dimension's address mode to the index of a texel.
func (t *Texture) index(dim int, i float64) int {
	n := float64(t.Size[dim])
	switch t.mode(dim) {
	case gpu.AddressWrap:
		if i = math.Mod(i, n); i < 0 {
			i += n
		}
	case gpu.AddressMirror:
		if i = math.Mod(i, 2*n); i < 0 {
			i += 2 * n
		}
		if i >= n {
			i = 2*n - 1 - i
		}
	case gpu.AddressBorder:
		if !(i >= 0 && i < n) {
			return outside
		}
	}
	// A NaN, and the infinities of a wrapped dimension, count as zero.
	return int(max(min(zeroNaN(i), n-1), 0))
}

func zeroNaN(x float64) float64 {
	if x != x {
		return 0
	}
	return x
}

// position returns a coordinate in texels.
func (t *Texture) position(dim int, x float32) float64 {
	if t.Normalized || t.Cube {
		return float64(x) * float64(t.Size[dim])
	}
	return float64(x)
}

// mirrored returns a position within the extent of a mirrored dimension. The bound between two
// texels then belongs to the one after it in the direction of the original.
func (t *Texture) mirrored(dim int, p float64) float64 {
	if t.mode(dim) != gpu.AddressMirror {
		return p
	}
	n := float64(t.Size[dim])
	if p = math.Mod(p, 2*n); p < 0 {
		p += 2 * n
	}
	if p >= n {
		p = min(2*n-p, n-0.5)
	}
	return p
}

// layer limits the number of a layer to those of the texture.
func (t *Texture) layer(i int64) int {
	return int(max(min(i, int64(t.Layers)-1), 0))
}

// Sample reads the texture at floating-point coordinates, x and y and z as far as it has
// dimensions, in a layer.
func (t *Texture) Sample(data []byte, at [3]float32, layer int64, v *Value) {
	if t.Filter == gpu.FilterLinear && t.floats() {
		t.filter(data, at, t.layer(layer), v)
		return
	}
	var i [3]int
	for d := range t.Dims {
		i[d] = t.index(d, math.Floor(t.mirrored(d, t.position(d, at[d]))))
	}
	t.texel(data, i[0], i[1], i[2], t.layer(layer), v)
}

// neighbours returns the two texels between which a coordinate lies, and the weight of the second
// with eight fractional bits.
func (t *Texture) neighbours(dim int, x float32) (i [2]int, weight float64) {
	p := t.position(dim, x) - 0.5
	low := math.Floor(p)
	weight = zeroNaN(math.Floor((p-low)*256+0.5) / 256)
	return [2]int{t.index(dim, low), t.index(dim, low+1)}, weight
}

// filter interpolates between the two, four or eight texels around a place.
func (t *Texture) filter(data []byte, at [3]float32, layer int, v *Value) {
	var i [3][2]int
	var weight [3]float64
	for d := range t.Dims {
		i[d], weight[d] = t.neighbours(d, at[d])
	}
	var sum [4]float64
	var one Value
	for corner := range 1 << t.Dims {
		w := 1.0
		var at [3]int
		for d := range t.Dims {
			b := corner >> d & 1
			at[d] = i[d][b]
			if b == 1 {
				w *= weight[d]
			} else {
				w *= 1 - weight[d]
			}
		}
		if w == 0 {
			continue // so that an infinity beside the place does not matter
		}
		t.texel(data, at[0], at[1], at[2], layer, &one)
		for c := range sum {
			sum[c] += w * float64(math.Float32frombits(one[c]))
		}
	}
	for c := range sum {
		v[c] = math.Float32bits(float32(sum[c]))
	}
}

// Fetch reads the texel with the given indices. Indices outside follow the address modes, where wrap
// and mirror are clamp.
func (t *Texture) Fetch(data []byte, at [3]int32, layer int64, v *Value) {
	var i [3]int
	for d := range t.Dims {
		n := int(t.Size[d])
		switch x := int(at[d]); {
		case x >= 0 && x < n:
			i[d] = x
		case t.mode(d) == gpu.AddressBorder:
			i[d] = outside
		default:
			i[d] = max(min(x, n-1), 0)
		}
	}
	t.texel(data, i[0], i[1], i[2], t.layer(layer), v)
}

// Gather reads one channel of the four texels that a linear filter would use, counter-clockwise
// from the lower left.
func (t *Texture) Gather(data []byte, channel int, at [3]float32, layer int64, v *Value) {
	x, _ := t.neighbours(0, at[0])
	y, _ := t.neighbours(1, at[1])
	l := t.layer(layer)
	for k, c := range [4][2]int{{0, 1}, {1, 1}, {1, 0}, {0, 0}} {
		var one Value
		t.texel(data, x[c[0]], y[c[1]], 0, l, &one)
		v[k] = one[channel&3]
	}
}

// Face returns the face of a cube that a direction meets, and where it meets that.
func Face(at [3]float32) (face int64, s, t float32) {
	x, y, z := at[0], at[1], at[2]
	ax, ay, az := abs(x), abs(y), abs(z)
	var m float32
	switch {
	case ax >= ay && ax >= az && x >= 0:
		face, m, s, t = 0, ax, -z, -y
	case ax >= ay && ax >= az:
		face, m, s, t = 1, ax, z, -y
	case ay >= az && y >= 0:
		face, m, s, t = 2, ay, x, z
	case ay >= az:
		face, m, s, t = 3, ay, x, -z
	case z >= 0:
		face, m, s, t = 4, az, x, -y
	default:
		face, m, s, t = 5, az, -x, -y
	}
	return face, (s/m + 1) / 2, (t/m + 1) / 2
}

func abs(x float32) float32 { return float32(math.Abs(float64(x))) }
