package texture

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/soft/arith"
)

// floatArray returns an array of one float channel whose texels count up from 0.
func floatArray(w, h, d uint32) (Texture, []byte) {
	t := OfArray(0, gpu.ArrayShape{Width: w, Height: h, Depth: d, Texel: gpu.Texel{Format: gpu.FormatFloat, Channels: 1}})
	data := make([]byte, t.Bytes())
	for i := range len(data) / 4 {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(i)))
	}
	return t, data
}

func TestPointSampling(t *testing.T) {
	tex, data := floatArray(4, 0, 0)
	tex.Border = [4]float32{-7}
	for _, c := range []struct {
		mode       gpu.AddressMode
		normalized bool
		x          float32
		want       float32
	}{
		{gpu.AddressClamp, false, 0, 0}, {gpu.AddressClamp, false, 0.99, 0}, {gpu.AddressClamp, false, 1, 1},
		{gpu.AddressClamp, false, -3, 0}, {gpu.AddressClamp, false, 99, 3}, {gpu.AddressClamp, false, float32(math.Inf(1)), 3},
		{gpu.AddressClamp, true, 0.5, 2}, {gpu.AddressClamp, true, 1, 3}, {gpu.AddressClamp, true, float32(math.NaN()), 0},
		{gpu.AddressBorder, false, -0.01, -7}, {gpu.AddressBorder, false, 4, -7}, {gpu.AddressBorder, false, 3.99, 3}, {gpu.AddressBorder, true, 1, -7},
		{gpu.AddressWrap, true, 1.25, 1}, {gpu.AddressWrap, true, -0.25, 3}, {gpu.AddressWrap, true, -7.75, 1}, {gpu.AddressWrap, true, 1e30, 0},
		{gpu.AddressMirror, true, 1.25, 3}, {gpu.AddressMirror, true, -0.25, 1}, {gpu.AddressMirror, true, 2.25, 1}, {gpu.AddressMirror, true, -1.25, 3},
		// Without normalized coordinates wrap and mirror are clamp.
		{gpu.AddressWrap, false, 5, 3}, {gpu.AddressMirror, false, -1, 0},
	} {
		tex.Address[0], tex.Normalized = c.mode, c.normalized
		var v Value
		tex.Sample(data, [3]float32{c.x}, 0, &v)
		if got := math.Float32frombits(v[0]); got != c.want {
			t.Errorf("mode %d, normalized %v, x %v: %v, want %v", c.mode, c.normalized, c.x, got, c.want)
		}
	}
}

// referenceTexel is the programming guide's T[i, j, k] for a texture of floats, with the guide's
// definitions of the address modes for normalized coordinates.
func referenceTexel(tex *Texture, data []byte, i [3]int) float64 {
	var at [3]int
	for d := range tex.Dims {
		n := int(tex.Size[d])
		x := i[d]
		mode := tex.Address[d]
		if !tex.Normalized && (mode == gpu.AddressWrap || mode == gpu.AddressMirror) {
			mode = gpu.AddressClamp
		}
		switch {
		case x >= 0 && x < n:
		case mode == gpu.AddressBorder:
			return float64(tex.Border[0])
		case mode == gpu.AddressClamp && x < 0:
			x = 0
		case mode == gpu.AddressClamp:
			x = n - 1
		case mode == gpu.AddressWrap:
			for x < 0 {
				x += n
			}
			for x >= n {
				x -= n
			}
		default: // the period after next is the texture again, the next one is reversed
			period := 0
			for x < 0 {
				x, period = x+n, period+1
			}
			for x >= n {
				x, period = x-n, period+1
			}
			if period%2 == 1 {
				x = n - 1 - x
			}
		}
		at[d] = x
	}
	n := (at[2]*int(tex.Size[1])+at[1])*int(tex.Size[0]) + at[0]
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*n:])))
}

// TestLinearFiltering compares with the guide's formulas: the sum over the neighbours of x-1/2, whose
// fraction has eight bits.
func TestLinearFiltering(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		shape := [3]uint32{1 + rng.Uint32N(5), 0, 0}
		dims := 1 + rng.IntN(3)
		for d := 1; d < dims; d++ {
			shape[d] = 1 + rng.Uint32N(5)
		}
		tex, data := floatArray(shape[0], shape[1], shape[2])
		for i := range len(data) / 4 {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(rng.IntN(1000))))
		}
		tex.Filter, tex.Normalized, tex.Border = gpu.FilterLinear, rng.IntN(2) == 0, [4]float32{17}
		var at [3]float32
		var low [3]int
		var alpha [3]float64
		for d := range dims {
			tex.Address[d] = gpu.AddressMode(rng.IntN(4))
			n := float64(tex.Size[d])
			at[d] = float32((rng.Float64()*4 - 1.5) * n)
			if tex.Normalized {
				at[d] /= float32(n)
			}
			x := float64(at[d])
			if tex.Normalized {
				x *= n
			}
			low[d] = int(math.Floor(x - 0.5))
			alpha[d] = math.Round((x-0.5-math.Floor(x-0.5))*256) / 256
		}
		if err := tex.Check(); err != nil {
			t.Fatal(err)
		}
		want := 0.0
		for k := range 2 {
			for j := range 2 {
				for i := range 2 {
					w := 1.0
					for d, b := range [3]int{i, j, k} {
						switch {
						case d >= dims && b == 1:
							w = 0
						case d >= dims:
						case b == 1:
							w *= alpha[d]
						default:
							w *= 1 - alpha[d]
						}
					}
					if w > 0 {
						want += w * referenceTexel(&tex, data, [3]int{low[0] + i, low[1] + j, low[2] + k})
					}
				}
			}
		}
		var v Value
		tex.Sample(data, at, 0, &v)
		if got := math.Float32frombits(v[0]); math.Abs(float64(got)-want) > 1e-4*math.Max(1, want) {
			t.Fatalf("%d dimensions %v, modes %v, normalized %v, at %v: %v, want %v", dims, tex.Size, tex.Address, tex.Normalized, at, got, want)
		}
	}
}

// The weight is rounded to eight bits: near a texel's centre the neighbour does not count.
func TestWeightsHaveEightBits(t *testing.T) {
	tex, data := floatArray(2, 0, 0)
	tex.Filter, tex.Address[0] = gpu.FilterLinear, gpu.AddressClamp
	for _, c := range []struct{ x, want float32 }{
		{0.5, 0}, {0.5 + 1.0/1024, 0}, {0.5 + 3.0/1024, 1.0 / 256}, {1, 0.5}, {1.5 - 1.0/1024, 1}, {1.2, 179.0 / 256},
	} {
		var v Value
		tex.Sample(data, [3]float32{c.x}, 0, &v)
		if got := math.Float32frombits(v[0]); got != c.want {
			t.Errorf("at %v: %v, want %v", c.x, got, c.want)
		}
	}
}

func TestFormats(t *testing.T) {
	f := math.Float32bits
	half := arith.CvtF16F32(1.5)
	for _, c := range []struct {
		format  gpu.ChannelFormat
		bytes   []byte
		integer bool
		want    Value
	}{
		{gpu.FormatUint8, []byte{0, 51, 128, 255}, true, Value{0, 51, 128, 255}},
		{gpu.FormatUint8, []byte{0, 51, 128, 255}, false, Value{0, f(0.2), f(128.0 / 255), f(1)}},
		{gpu.FormatInt8, []byte{0x80, 0x81, 127, 0}, true, Value{0xffffff80, 0xffffff81, 127, 0}},
		{gpu.FormatInt8, []byte{0x80, 0x81, 127, 0}, false, Value{f(-1), f(-1), f(1), 0}},
		{gpu.FormatUint16, []byte{0xff, 0xff, 1, 0}, false, Value{f(1), f(1.0 / 65535), 0, f(1)}},
		{gpu.FormatUint16, []byte{0xff, 0xff, 1, 0}, true, Value{65535, 1, 0, 1}},
		{gpu.FormatInt16, []byte{0, 0x80, 0xff, 0x7f}, false, Value{f(-1), f(1), 0, f(1)}},
		{gpu.FormatUint32, []byte{1, 2, 3, 4}, true, Value{0x04030201, 0, 0, 1}},
		{gpu.FormatInt32, []byte{0xff, 0xff, 0xff, 0xff}, false, Value{0xffffffff, 0, 0, 1}},
		{gpu.FormatHalf, []byte{byte(half), byte(half >> 8)}, false, Value{f(1.5), 0, 0, f(1)}},
		{gpu.FormatFloat, []byte{0, 0, 0x20, 0x41}, false, Value{f(10), 0, 0, f(1)}},
	} {
		channels := len(c.bytes) / c.format.Bytes()
		tex := OfArray(0, gpu.ArrayShape{Width: 1, Texel: gpu.Texel{Format: c.format, Channels: uint8(channels)}})
		tex.AsInteger = c.integer
		var v Value
		tex.Fetch(c.bytes, [3]int32{}, 0, &v)
		if v != c.want {
			t.Errorf("format %#x of %v, integer %v: %#x, want %#x", c.format, c.bytes, c.integer, v, c.want)
		}
	}
}

func TestIntegerFetch(t *testing.T) {
	tex, data := floatArray(3, 2, 0)
	tex.Border = [4]float32{-1}
	get := func(x, y int32) float32 {
		var v Value
		tex.Fetch(data, [3]int32{x, y}, 0, &v)
		return math.Float32frombits(v[0])
	}
	tex.Address = [3]gpu.AddressMode{gpu.AddressClamp, gpu.AddressBorder}
	for _, c := range []struct {
		x, y int32
		want float32
	}{{0, 0, 0}, {2, 1, 5}, {-1, 1, 3}, {9, 0, 2}, {1, 2, -1}, {math.MinInt32, 0, 0}, {1, math.MaxInt32, -1}} {
		if got := get(c.x, c.y); got != c.want {
			t.Errorf("(%d, %d): %v, want %v", c.x, c.y, got, c.want)
		}
	}
	linear := OfMemory(&gpu.TextureMemory{Ptr: 4, Width: 3, Texel: tex.Texel})
	for x, want := range map[int32]float32{-1: 0, 0: 0, 2: 2, 3: 0} {
		var v Value
		if linear.Fetch(data, [3]int32{x}, 0, &v); math.Float32frombits(v[0]) != want {
			t.Errorf("linear memory at %d: %#x", x, v[0])
		}
	}
}

// Layers, cubes and gathers read the texels that the guide names.
func TestLayersCubesAndGathers(t *testing.T) {
	s := gpu.ArrayShape{Width: 2, Height: 2, Depth: 3, Layered: true, Texel: gpu.Texel{Format: gpu.FormatUint8, Channels: 1}}
	tex := OfArray(0, s)
	tex.AsInteger = true
	data := []byte{0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23}
	var v Value
	for layer, want := range map[int64]uint32{-1: 3, 0: 3, 1: 13, 2: 23, 9: 23} {
		if tex.Sample(data, [3]float32{1.5, 1.5}, layer, &v); v[0] != want {
			t.Errorf("layer %d: %d, want %d", layer, v[0], want)
		}
	}
	if tex.Gather(data, 0, [3]float32{1, 1}, 1, &v); v != (Value{12, 13, 11, 10}) {
		t.Errorf("gather: %v", v)
	}
	for _, c := range []struct {
		at   [3]float32
		face int64
		s, t float32
	}{
		{[3]float32{1, 0, 0}, 0, 0.5, 0.5}, {[3]float32{2, 0, 1}, 0, 0.25, 0.5}, {[3]float32{-1, 0.5, 0}, 1, 0.5, 0.25},
		{[3]float32{0.5, 1, 0}, 2, 0.75, 0.5}, {[3]float32{0, -1, 0.5}, 3, 0.5, 0.25}, {[3]float32{0.5, 0, 1}, 4, 0.75, 0.5},
		{[3]float32{0.5, 0, -1}, 5, 0.25, 0.5},
	} {
		if face, s, r := Face(c.at); face != c.face || s != c.s || r != c.t {
			t.Errorf("%v: face %d at %v, %v, want %v", c.at, face, s, r, c)
		}
	}
}

func TestSurfaceBounds(t *testing.T) {
	s := OfArray(0, gpu.ArrayShape{Width: 4, Height: 2, Depth: 2, Layered: true, Texel: gpu.Texel{Format: gpu.FormatUint16, Channels: 1}})
	for _, c := range []struct {
		at    [3]int32
		layer int64
		size  int
		how   Bounds
		off   uint64
		place Place
	}{
		{[3]int32{6, 1}, 1, 2, Trap, 30, Inside}, {[3]int32{8, 1}, 1, 2, Trap, 0, Invalid}, {[3]int32{-2, 1}, 1, 2, Trap, 0, Invalid},
		{[3]int32{8, 0}, 0, 2, Zero, 0, Skipped}, {[3]int32{0, 2}, 0, 2, Zero, 0, Skipped}, {[3]int32{0, 0}, 2, 2, Zero, 0, Skipped},
		{[3]int32{99, 9}, 9, 2, Clamp, 30, Inside}, {[3]int32{-9, -9}, -9, 2, Clamp, 0, Inside}, {[3]int32{99, 0}, 0, 4, Clamp, 4, Inside},
		{[3]int32{1, 0}, 0, 2, Trap, 0, Misaligned}, {[3]int32{6, 0}, 0, 4, Trap, 0, Invalid}, {[3]int32{0, 0}, 0, 16, Clamp, 0, Invalid},
	} {
		if off, place := s.Locate(c.at, c.layer, c.size, c.how); off != c.off || place != c.place {
			t.Errorf("%v in layer %d, %d bytes, bounds %d: %d, %d, want %d, %d", c.at, c.layer, c.size, c.how, off, place, c.off, c.place)
		}
	}
}

func TestFormattedStore(t *testing.T) {
	f := math.Float32bits
	for _, c := range []struct {
		texel gpu.Texel
		v     Value
		want  []byte
	}{
		{gpu.Texel{Format: gpu.FormatUint8, Channels: 2}, Value{300, 7}, []byte{255, 7}},
		{gpu.Texel{Format: gpu.FormatInt8, Channels: 2}, Value{0xffffff00, 127}, []byte{0x80, 127}},
		{gpu.Texel{Format: gpu.FormatUint16, Channels: 1}, Value{1 << 20}, []byte{255, 255}},
		{gpu.Texel{Format: gpu.FormatInt16, Channels: 1}, Value{0xffff0000}, []byte{0, 0x80}},
		{gpu.Texel{Format: gpu.FormatHalf, Channels: 1}, Value{f(1)}, []byte{0, 0x3c}},
		{gpu.Texel{Format: gpu.FormatFloat, Channels: 1}, Value{f(1)}, []byte{0, 0, 0x80, 0x3f}},
	} {
		s := OfArray(0, gpu.ArrayShape{Width: 1, Texel: c.texel})
		p := make([]byte, c.texel.Bytes())
		if s.Store(p, &c.v); string(p) != string(c.want) {
			t.Errorf("%+v of %#x: %v, want %v", c.texel, c.v, p, c.want)
		}
	}
}

// FuzzTexture: whatever passes Check reads nothing outside Bytes bytes.
func FuzzTexture(f *testing.F) {
	f.Add(uint8(2), uint32(4), uint32(3), uint32(1), uint64(16), uint64(48), uint32(0), uint8(0x20), uint8(1), uint8(3), float32(1), float32(2), int32(3))
	f.Add(uint8(3), uint32(4), uint32(3), uint32(2), uint64(16), uint64(48), uint32(0), uint8(1), uint8(4), uint8(0), float32(math.Inf(1)), float32(math.NaN()), int32(-3))
	f.Fuzz(func(t *testing.T, dims uint8, w, h, d uint32, pitch, slice uint64, layers uint32, format, channels, modes uint8, x, y float32, i int32) {
		tex := Texture{
			Dims: int(dims), Size: [3]uint32{w, h, d}, Pitch: pitch, Slice: slice, Layers: layers, Cube: modes&64 != 0, Linear: modes&128 != 0,
			Surface: modes&32 != 0, Texel: gpu.Texel{Format: gpu.ChannelFormat(format), Channels: channels},
		}
		tex.Address = [3]gpu.AddressMode{gpu.AddressMode(modes & 3), gpu.AddressMode(modes >> 1 & 3), gpu.AddressMode(modes >> 2 & 3)}
		tex.Filter, tex.Normalized, tex.AsInteger = gpu.Filter(modes>>3&1), modes&16 != 0, modes&4 != 0
		if err := tex.Check(); err != nil {
			if !errors.Is(err, gpu.ErrInvalidTexture) {
				t.Fatal(err)
			}
			return
		}
		if tex.Bytes() > 1<<20 {
			return
		}
		data := make([]byte, tex.Bytes())
		var v Value
		tex.Sample(data, [3]float32{x, y, x}, int64(i), &v)
		tex.Gather(data, int(channels), [3]float32{x, y}, int64(i), &v)
		tex.Fetch(data, [3]int32{i, int32(w), -i}, int64(i), &v)
		for _, b := range []Bounds{Trap, Clamp, Zero} {
			for _, size := range []int{1, 4, 16, tex.Texel.Bytes()} {
				if off, place := tex.Locate([3]int32{i, int32(h), i}, int64(i), size, b); place == Inside {
					clear(data[off:][:size])
				}
			}
		}
	})
}

func BenchmarkLinear2D(b *testing.B) {
	tex, data := floatArray(64, 64, 0)
	tex.Filter, tex.Address = gpu.FilterLinear, [3]gpu.AddressMode{gpu.AddressClamp, gpu.AddressClamp}
	var v Value
	b.ReportAllocs()
	for b.Loop() {
		tex.Sample(data, [3]float32{31.3, 17.9}, 0, &v)
	}
}
