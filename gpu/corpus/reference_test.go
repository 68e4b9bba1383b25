package corpus

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

// The references mirror the kernels' operations, so these tests compare them with the results that
// the algorithms should give.

// decode returns a buffer's bytes as values.
func decode[T element](b []byte) []T {
	v := make([]T, len(b)/elemOf[T]().Bytes())
	if _, err := binary.Decode(b, binary.LittleEndian, v); err != nil {
		panic(err)
	}
	return v
}

func initial[T element](c *Case, name string) []T { return decode[T](c.Buffer(name).Init) }

func wanted[T element](c *Case, name string) []T { return decode[T](c.Buffer(name).Want) }

// near fails the test unless got is within tolerance of want.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: got %g, want %g ± %g", what, got, want, tolerance)
	}
}

func TestReduceIsTheSum(t *testing.T) {
	c := reduce.Case(Small, 3)
	sum := 0.0
	for _, v := range initial[float32](c, "in") {
		sum += float64(v)
	}
	near(t, "sum", float64(wanted[float32](c, "sum")[0]), sum, 0.01)
}

func TestScanStepsReachEveryBlock(t *testing.T) {
	// Three levels: blocks, their totals, the totals' totals.
	c := scan.Case(Large, 1)
	if len(c.Steps) != 5 {
		t.Errorf("a large scan takes %d launches, want 5", len(c.Steps))
	}
}

func TestFFTFindsAToneAndInverts(t *testing.T) {
	const tone = 37
	row := make([]float32, 2*fftLength)
	for i := range fftLength {
		sin, cos := math.Sincos(2 * math.Pi * tone * float64(i) / fftLength)
		row[2*i], row[2*i+1] = float32(cos), float32(sin)
	}
	spectrum := fftRow(row, fftTwiddles(), false)
	for k := range fftLength {
		want := 0.0
		if k == tone {
			want = fftLength
		}
		near(t, "spectrum", float64(spectrum[2*k]), want, 1e-3)
		near(t, "spectrum's imaginary part", float64(spectrum[2*k+1]), 0, 1e-3)
	}
	for i, v := range fftRow(spectrum, fftTwiddles(), true) {
		near(t, "there and back", float64(v/fftLength), float64(row[i]), 1e-5)
	}
}

func TestRadixSortsStably(t *testing.T) {
	c := radix.Case(Small, 2)
	keys, values := wanted[uint32](c, "keys"), wanted[uint32](c, "values")
	if !slices.IsSorted(keys) {
		t.Error("keys are not sorted")
	}
	at := map[uint32]int{}
	for i, v := range initial[uint32](c, "values") {
		at[v] = i
	}
	for i := 1; i < len(keys); i++ {
		if keys[i] == keys[i-1] && at[values[i]] < at[values[i-1]] {
			t.Fatalf("values of the equal keys %d and %d have changed places", i-1, i)
		}
	}
	if len(c.Steps)%6 != 0 {
		t.Errorf("%d launches: an odd number of passes ends in the other buffers", len(c.Steps))
	}
}

// TestBitonicNetwork performs the launches' compare-and-exchange steps.
func TestBitonicNetwork(t *testing.T) {
	c := bitonic.Case(Small, 2)
	keys := initial[uint32](c, "keys")
	for _, l := range c.Steps {
		a, b := binary.LittleEndian.Uint32(l.Args[1].Bytes), binary.LittleEndian.Uint32(l.Args[2].Bytes)
		step := func(run, distance uint32) {
			for i := range uint32(len(keys)) {
				if j := i ^ distance; j > i && (keys[i] > keys[j]) == (i&run == 0) {
					keys[i], keys[j] = keys[j], keys[i]
				}
			}
		}
		if l.Entry == "bitonic_global" {
			step(a, b)
			continue
		}
		for run := a; run <= b; run *= 2 {
			for distance := min(run, 512) / 2; distance > 0; distance /= 2 {
				step(run, distance)
			}
		}
	}
	if !bytes.Equal(encode(keys), c.Buffer("keys").Want) {
		t.Error("the launches' network does not sort")
	}
}

func TestHistogramCountsEveryByte(t *testing.T) {
	c := histogram.Case(Small, 2)
	sum := uint32(0)
	for _, n := range wanted[uint32](c, "bins") {
		sum += n
	}
	if int(sum) != c.Buffer("words").Size {
		t.Errorf("bins sum to %d, want %d", sum, c.Buffer("words").Size)
	}
}

// TestMD5AsTheKernelComputesIt compares the kernel's unrolled loop, with the sines of the case,
// with the standard library.
func TestMD5AsTheKernelComputesIt(t *testing.T) {
	sines := md5Sines()
	shifts := [4][4]int{{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}
	for _, number := range []uint32{0, 1, 25, 26, 12345, math.MaxUint32} {
		key := md5Key(number)
		block := [16]uint32{binary.LittleEndian.Uint32(key), binary.LittleEndian.Uint32(key[4:]), 0x80, 14: 64}
		a, b, c, d := uint32(0x67452301), uint32(0xefcdab89), uint32(0x98badcfe), uint32(0x10325476)
		for i := range 64 {
			var f uint32
			var word int
			switch i / 16 {
			case 0:
				f, word = b&c|^b&d, i
			case 1:
				f, word = d&b|^d&c, (5*i+1)%16
			case 2:
				f, word = b^c^d, (3*i+5)%16
			case 3:
				f, word = c^(b|^d), 7*i%16
			}
			x, by := a+f+sines[i]+block[word], shifts[i/16][i%4]
			a, b, c, d = d, b+(x<<by|x>>(32-by)), b, c
		}
		got := encode([]uint32{0x67452301 + a, 0xefcdab89 + b, 0x98badcfe + c, 0x10325476 + d})
		if want := md5.Sum(key); !bytes.Equal(got, want[:]) {
			t.Errorf("key %d: digest %x, want %x", number, got, want)
		}
	}
}

func TestBFSLevelsDifferByOneAlongEdges(t *testing.T) {
	c := bfs.Case(Small, 2)
	offsets, edges, levels := initial[int32](c, "offsets"), initial[int32](c, "edges"), wanted[int32](c, "levels")
	reached := 0
	for v, level := range levels {
		if level < 0 {
			continue
		}
		reached++
		for _, w := range edges[offsets[v]:offsets[v+1]] {
			if levels[w] < 0 || levels[w] > level+1 {
				t.Fatalf("edge from %d (level %d) to %d (level %d)", v, level, w, levels[w])
			}
		}
	}
	if reached < len(levels)/2 {
		t.Errorf("only %d of %d nodes are reached: the graph is no work", reached, len(levels))
	}
	if deepest := slices.Max(levels); len(c.Steps) != int(deepest)+1 {
		t.Errorf("%d launches for %d levels", len(c.Steps), deepest+1)
	}
}

func TestLennardJonesForces(t *testing.T) {
	c := lennardjones.Case(Small, 2)
	atoms, lengths := initial[float32](c, "atoms"), wanted[int32](c, "lengths")
	n := len(lengths)
	// Every pair within the cutoff is listed: the search by cells finds all.
	for i := range n {
		close := int32(0)
		for j := range n {
			r2 := 0.0
			for axis := range 3 {
				d := float64(atoms[4*i+axis] - atoms[4*j+axis])
				r2 += d * d
			}
			if j != i && r2 < 1.6*1.6 {
				close++
			}
		}
		if lengths[i] != close {
			t.Errorf("atom %d lists %d neighbours, has %d", i, lengths[i], close)
		}
	}
	// The forces between two atoms are equal and opposite.
	forces := wanted[float32](c, "forces")
	for axis := range 3 {
		sum, size := 0.0, 0.0
		for i := range n {
			sum += float64(forces[4*i+axis])
			size += math.Abs(float64(forces[4*i+axis]))
		}
		near(t, "sum of forces", sum/size, 0, 1e-5)
		if size == 0 {
			t.Error("no forces at all")
		}
	}
}

func TestKMeansConverges(t *testing.T) {
	c := kmeans.Case(Small, 2)
	start, end := initial[float32](c, "centroids"), wanted[float32](c, "centroids")
	if slices.Equal(start, end) {
		t.Error("centroids did not move")
	}
	for _, v := range end {
		near(t, "centroid", float64(v), 2, 4)
	}
}

func TestNeedlemanAlignsASequenceWithItself(t *testing.T) {
	c := needleman.Case(Trivial, 2)
	scores, n := wanted[int32](c, "scores"), c.Buffer("a").Size
	// No alignment scores better than matching the best residues throughout.
	best := slices.Max(initial[int32](c, "similarity"))
	if last := scores[len(scores)-1]; last > best*int32(n) || last < int32(-20*n) {
		t.Errorf("score %d is out of any alignment's reach", last)
	}
	blocks := 0
	for _, l := range c.Steps {
		blocks += int(l.Grid[0])
	}
	if tiles := n / 16; blocks != tiles*tiles {
		t.Errorf("launches cover %d tiles, want %d", blocks, tiles*tiles)
	}
}

func TestParticlesExponential(t *testing.T) {
	for x := float32(-80); x <= 0; x += 0.0371 {
		got, want := float64(particlesExp(x)), math.Exp(float64(x))
		near(t, "exp", got/want, 1, 3e-7)
	}
}

func TestParticlesGatherAroundTheObservation(t *testing.T) {
	c := particlefilter.Case(Small, 2)
	cumulative := wanted[float32](c, "cumulative")
	parents := wanted[int32](c, "parents")
	if !sort.SliceIsSorted(parents, func(i, j int) bool { return parents[i] < parents[j] }) {
		t.Error("systematic resampling gave parents out of order")
	}
	total := 0.0
	for _, w := range wanted[float32](c, "weights") {
		total += float64(w)
	}
	near(t, "total weight", float64(cumulative[len(cumulative)-1])/total, 1, 1e-4)
}

func TestSradSmooths(t *testing.T) {
	c := srad.Case(Small, 2)
	variance := func(v []float32) float64 {
		sum, square := 0.0, 0.0
		for _, x := range v {
			sum += float64(x)
			square += float64(x) * float64(x)
		}
		mean := sum / float64(len(v))
		return square/float64(len(v)) - mean*mean
	}
	if before, after := variance(initial[float32](c, "a")), variance(wanted[float32](c, "a")); !(after < before) {
		t.Errorf("variance went from %g to %g", before, after)
	}
}

func TestEulerStaysPhysical(t *testing.T) {
	c := euler.Case(Small, 2)
	v := wanted[float32](c, "variables")
	n := len(v) / 5
	for i := range n {
		s := newEulerState([5]float32{v[i], v[n+i], v[2*n+i], v[3*n+i], v[4*n+i]})
		if !(s.density > 0 && s.pressure > 0) {
			t.Fatalf("cell %d has density %g and pressure %g", i, s.density, s.pressure)
		}
	}
}

// TestEulerConservesWhatNeighboursExchange checks the flux of two equal cells that share their
// faces: what one loses, the other gains.
func TestEulerConservesWhatNeighboursExchange(t *testing.T) {
	m := eulerMesh{n: 2, neighbours: []int32{1, 0, 1, 0, 1, 0, 1, 0}, normals: make([]float32, 24)}
	rng := rand.New(rand.NewPCG(3, 4))
	for k := range 12 {
		m.normals[2*k] = rng.Float32() - 0.5
		m.normals[2*k+1] = -m.normals[2*k]
	}
	fluxes := m.fluxes([]float32{1, 1.1, 0.2, 0.3, 0.1, 0, 0, 0.1, 2.2, 2.3})
	for v := range 5 {
		near(t, "what the two cells lose", float64(fluxes[2*v]+fluxes[2*v+1]), 0, 1e-5)
	}
}

func TestThrottleJumpsAsTheLoopSteps(t *testing.T) {
	for _, iterations := range []int{0, 1, 2, 1000} {
		c := Throttle(ThrottleConfig{Blocks: 2, Threads: 3, Iterations: iterations, Start: 99})
		for i, got := range wanted[uint32](c, "out") {
			x := uint32(99) ^ uint32(i)
			for range iterations {
				x = 1664525*x + 1013904223
			}
			if got != x {
				t.Errorf("%d iterations: out[%d] is %d, want %d", iterations, i, got, x)
			}
		}
	}
}

func TestDirectedRounding(t *testing.T) {
	inf := float32(math.Inf(1))
	negativeZero := float32(math.Copysign(0, -1))
	for _, test := range []struct {
		x                       float64
		nearest, zero, up, down float32
	}{
		{1, 1, 1, 1, 1},
		{1 + 0x1p-30, 1, 1, 1 + 0x1p-23, 1},
		{-1 - 0x1p-30, -1, -1, -1, -1 - 0x1p-23},
		{0x1p-200, 0, 0, 0x1p-149, 0},
		{-0x1p-200, negativeZero, negativeZero, negativeZero, -0x1p-149},
		{1e300, inf, math.MaxFloat32, inf, math.MaxFloat32},
		{-1e300, -inf, -math.MaxFloat32, -math.MaxFloat32, -inf},
		{math.Inf(1), inf, inf, inf, inf},
	} {
		got := [4]float32{toFloat32(test.x, nearestEven), toFloat32(test.x, towardZero), toFloat32(test.x, upward), toFloat32(test.x, downward)}
		want := [4]float32{test.nearest, test.zero, test.up, test.down}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Errorf("%g: got %v, want %v", test.x, got, want)
			}
		}
	}
}

func TestWarpExchangeOnSimpleWarps(t *testing.T) {
	var lanes [32]uint32
	for i := range lanes {
		lanes[i] = uint32(i)
	}
	rows := warpExchange(lanes)
	for row, want := range map[int]uint32{
		2: 7, 4: 15, 6: 10 ^ 21, // lane 10 of up 3, down 5, xor 21
		8: 0xaaaaaaaa, 12: 0xffffffff, 13: 1, 14: 496, 15: 0, 16: 31, 18: 31, 19: 0,
	} {
		if got := rows[row][10]; got != want {
			t.Errorf("row %d: lane 10 gets %d, want %d", row, got, want)
		}
	}
}
