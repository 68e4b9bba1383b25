package simt

import (
	"encoding/binary"
	"math"

	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// A matrix instruction is executed by a whole warp, whose lanes hold fragments of the matrices: it
// gathers the matrices from the lanes' registers, multiplies, and scatters the result. Products are
// exact and sums of floats are rounded to float32 one after the other along k, from the
// accumulator on; a half-precision accumulator is rounded once at the end. Sums of doubles are
// fused. The PTX ISA leaves order and rounding of sums open.

// fragment is a matrix in the registers of a warp's lanes.
type fragment struct {
	regs   []operand
	typ    ptx.Type
	bits   int // of an element
	rows   int
	cols   int
	places []uint16 // of element i of a lane at [32*i+lane]: row*cols+column
}

// elements returns the number of elements that a lane holds.
func (f *fragment) elements() int { return len(f.places) / lanes }

// layoutKey identifies the places of a fragment.
type layoutKey struct {
	operand    byte // 'a', 'b' or 'c' of mma; 0: of wmma
	rows, cols int
	bits       int // of an element, for a and b
	elements   int
}

// places returns where the elements of a fragment are.
func (l *loader) places(k layoutKey) []uint16 {
	if p := l.layouts[k]; p != nil {
		return p
	}
	p := make([]uint16, lanes*k.elements)
	for i := range k.elements {
		for lane := range lanes {
			row, col := k.place(i, lane)
			p[lanes*i+lane] = uint16(row*k.cols + col)
		}
	}
	if l.layouts == nil {
		l.layouts = map[layoutKey][]uint16{}
	}
	l.layouts[k] = p
	return p
}

// place returns where element i of a lane is. The layouts of mma are the PTX ISA's, which come down
// to one rule for each operand. That of wmma is left open by the ISA, where a fragment may hold a
// matrix several times.
func (k *layoutKey) place(i, lane int) (row, col int) {
	group, thread := lane>>2, lane&3
	e := max(32/max(k.bits, 1), 1) // elements of a register
	switch k.operand {
	case 'a':
		halves := k.rows / 8
		return group + 8*(i/e%halves), e*thread + i%e + 4*e*(i/e/halves)
	case 'b':
		return e*thread + i%e + 4*e*(i/e), group
	case 'c':
		return group + 8*(i/2), 2*thread + i%2
	}
	n := (lanes*i + lane) % (k.rows * k.cols)
	return n / k.cols, n % k.cols
}

// maxMatrix is the largest number of elements of a matrix: 32×16.
const maxMatrix = 512

// multiplication is a compiled matrix instruction: d = a*b + c.
type multiplication struct {
	a, b, c, d fragment
	saturate   bool
}

// matrices holds the operands of a matrix instruction while it is executed.
type matrices[T number] struct{ a, b, c [maxMatrix]T }

// matrixScratch belongs to a grid, of which one warp is executed at a time.
type matrixScratch struct {
	f32 matrices[float32]
	f64 matrices[float64]
	s32 matrices[int32]
}

// scratch returns the memory of matrix instructions.
func (g *Grid) scratch() *matrixScratch {
	if g.matrices == nil {
		g.matrices = new(matrixScratch)
	}
	return g.matrices
}

// number is the type of a matrix instruction's sums.
type number interface{ int32 | float32 | float64 }

// gather collects a matrix from the lanes' registers.
func gather[T number](w *warp, f *fragment, out *[maxMatrix]T, decode func(bits uint64) T) {
	per := max(32/f.bits, 1)
	mask := uint64(1)<<f.bits - 1
	for i := range f.elements() {
		r := f.regs[i/per]
		shift := i % per * f.bits
		places := f.places[lanes*i:][:lanes]
		if r.class == reg64 {
			for lane, v := range &w.r64[r.index] {
				out[places[lane]] = decode(v)
			}
			continue
		}
		for lane, v := range &w.r32[r.index] {
			out[places[lane]] = decode(uint64(v) >> shift & mask)
		}
	}
}

// scatter sets the lanes' registers from a matrix.
func scatter[T number](w *warp, takers uint32, f *fragment, in *[maxMatrix]T, encode func(T) uint64) {
	per := max(32/f.bits, 1)
	for i := 0; i < f.elements(); i += per {
		r := f.regs[i/per]
		for m := takers; m != 0; m &= m - 1 {
			lane := first(m)
			var v uint64
			for k := range per {
				v |= encode(in[f.places[lanes*(i+k)+lane]]) << (k * f.bits)
			}
			w.setLane(r, lane, v)
		}
	}
}

// run multiplies. Its lanes' registers are those of the whole warp.
func (x *multiplication) run(w *warp, _ *inst, takers, _ uint32, _ offer) {
	switch s := w.grid.scratch(); x.d.typ {
	case ptx.F64:
		multiply(w, takers, x, &s.f64, decodeF64, decodeF64, decodeF64, math.Float64bits, sumsF64)
	case ptx.S32:
		x.integers(w, takers, &s.s32)
	case ptx.F16:
		multiply(w, takers, x, &s.f32, decoders[x.a.typ], decoders[x.b.typ], decoders[x.c.typ], func(v float32) uint64 { return uint64(arith.CvtF16F32(v)) }, sumsF32)
	default:
		multiply(w, takers, x, &s.f32, decoders[x.a.typ], decoders[x.b.typ], decoders[x.c.typ], func(v float32) uint64 { return uint64(math.Float32bits(v)) }, sumsF32)
	}
}

// multiply computes a product of floats. sums adds the multiples of a row of b to a row of c.
func multiply[T number](w *warp, takers uint32, x *multiplication, s *matrices[T], da, db, dc func(uint64) T, encode func(T) uint64, sums func(c, b []T, a T)) {
	gather(w, &x.a, &s.a, da)
	gather(w, &x.b, &s.b, db)
	gather(w, &x.c, &s.c, dc)
	rows, inner, cols := x.a.rows, x.a.cols, x.b.cols
	for i := range rows {
		for k := range inner {
			sums(s.c[i*cols:][:cols], s.b[k*cols:][:cols], s.a[i*inner+k])
		}
	}
	scatter(w, takers, &x.d, &s.c, encode)
}

func sumsF32(c, b []float32, a float32) {
	for j, v := range b {
		c[j] = float32(float64(c[j]) + float64(a)*float64(v)) // the product is exact
	}
}

func sumsF64(c, b []float64, a float64) {
	for j, v := range b {
		c[j] = math.FMA(a, v, c[j])
	}
}

// integers multiplies integers of 8 bits. The sums wrap around, or with saturation are limited at
// the end.
func (x *multiplication) integers(w *warp, takers uint32, s *matrices[int32]) {
	decode := func(t ptx.Type) func(uint64) int32 {
		if t == ptx.S8 {
			return func(v uint64) int32 { return int32(int8(v)) }
		}
		return func(v uint64) int32 { return int32(uint8(v)) }
	}
	gather(w, &x.a, &s.a, decode(x.a.typ))
	gather(w, &x.b, &s.b, decode(x.b.typ))
	gather(w, &x.c, &s.c, func(v uint64) int32 { return int32(v) })
	rows, inner, cols := x.a.rows, x.a.cols, x.b.cols
	for i := range rows {
		for j := range cols {
			sum := int64(s.c[i*cols+j])
			for k := range inner {
				sum += int64(s.a[i*inner+k] * s.b[k*cols+j])
			}
			if x.saturate {
				sum = max(min(sum, math.MaxInt32), math.MinInt32)
			}
			s.c[i*cols+j] = int32(sum)
		}
	}
	scatter(w, takers, &x.d, &s.c, func(v int32) uint64 { return uint64(uint32(v)) })
}

func decodeF64(v uint64) float64 { return math.Float64frombits(v) }

// decoders converts an element's bits to a float32, which is exact.
var decoders = map[ptx.Type]func(uint64) float32{
	ptx.F16:  func(v uint64) float32 { return arith.CvtF32F16(uint16(v)) },
	ptx.BF16: func(v uint64) float32 { return arith.CvtF32BF16(uint16(v)) },
	ptx.TF32: func(v uint64) float32 { return math.Float32frombits(uint32(v) &^ (1<<13 - 1)) },
	ptx.F32:  func(v uint64) float32 { return math.Float32frombits(uint32(v)) },
	ptx.E4M3: func(v uint64) float32 { return arith.CvtF32F16(arith.E4M3.F16(uint8(v), false)) },
	ptx.E5M2: func(v uint64) float32 { return arith.CvtF32F16(arith.E5M2.F16(uint8(v), false)) },
}

// matrixAccess is a compiled wmma.load or wmma.store. Each lane accesses its own elements.
type matrixAccess struct {
	fragment
	base     place
	stride   operand
	size     int  // of an element in memory, in bytes
	byColumn bool // the stride is between columns
	access   access
}

// each calls do with the bytes of each element of each lane.
func (x *matrixAccess) each(w *warp, in *inst, do func(lane, i int, p []byte)) {
	for m := w.mask; m != 0; m &= m - 1 {
		lane := first(m)
		base := w.lane(x.base.base, lane) + x.base.offset
		stride := uint64(w.r32[x.stride.index][lane])
		for i := range x.elements() {
			row, col := uint64(int(x.places[lanes*i+lane])/x.cols), uint64(int(x.places[lanes*i+lane])%x.cols)
			if x.byColumn {
				row, col = col, row
			}
			p, ok := w.at(in, &x.access, lane, base+(row*stride+col)*uint64(x.size))
			if !ok {
				return
			}
			do(lane, i, p)
		}
	}
	if x.access.space != ptx.SharedSpace {
		w.chargeSectors(uint32(popcount(w.mask)*x.elements()*x.size+sectorBytes-1) / sectorBytes)
	}
}

func (x *matrixAccess) load(w *warp, in *inst) {
	per := max(32/x.bits, 1)
	x.each(w, in, func(lane, i int, p []byte) {
		r := x.regs[i/per]
		v := fetch(p, x.size, false) << (i % per * x.bits)
		if i%per != 0 {
			v |= w.lane(r, lane)
		}
		w.setLane(r, lane, v)
	})
}

func (x *matrixAccess) store(w *warp, in *inst) {
	per := max(32/x.bits, 1)
	x.each(w, in, func(lane, i int, p []byte) {
		put(p, x.size, w.lane(x.regs[i/per], lane)>>(i%per*x.bits))
	})
}

// rowsOf is a compiled ldmatrix or stmatrix: up to four 8×8 matrices of 16-bit elements, of which
// eight lanes each have the rows' addresses.
type rowsOf struct {
	regs      []operand
	base      place
	transpose bool
	access    access
}

// row returns the bytes of a row of a matrix.
func (x *rowsOf) row(w *warp, in *inst, matrix, row int) ([]byte, bool) {
	lane := 8*matrix + row
	return w.at(in, &x.access, lane, w.lane(x.base.base, lane)+x.base.offset)
}

func (x *rowsOf) load(w *warp, in *inst, takers, _ uint32, _ offer) {
	var out [4][lanes]uint32
	for k := range x.regs {
		for row := range 8 {
			p, ok := x.row(w, in, k, row)
			if !ok {
				return
			}
			for col := range 8 {
				v := uint32(binary.LittleEndian.Uint16(p[2*col:]))
				r, c := row, col
				if x.transpose {
					r, c = col, row
				}
				out[k][4*r+c/2] |= v << (16 * (c & 1))
			}
		}
	}
	for k, r := range x.regs {
		for m := takers; m != 0; m &= m - 1 {
			lane := first(m)
			w.setLane(r, lane, uint64(out[k][lane]))
		}
	}
}

func (x *rowsOf) store(w *warp, in *inst, _, _ uint32, _ offer) {
	for k, reg := range x.regs {
		for row := range 8 {
			p, ok := x.row(w, in, k, row)
			if !ok {
				return
			}
			for col := range 8 {
				r, c := row, col
				if x.transpose {
					r, c = col, row
				}
				binary.LittleEndian.PutUint16(p[2*col:], uint16(w.lane(reg, 4*r+c/2)>>(16*(c&1))))
			}
		}
	}
}

// transposed sets each lane of d to its part of the transpose of the matrix in a.
func transposed(d, a operand) exchangeFunc {
	return func(w *warp, _ *inst, takers, _ uint32, _ offer) {
		from := w.r32[a.index]
		for m := takers; m != 0; m &= m - 1 {
			lane := first(m)
			r, c := lane/4, lane%4*2
			var v uint32
			for k := range 2 { // element (r, c+k) is (c+k, r) of a
				v |= from[4*(c+k)+r/2] >> (16 * (r & 1)) & 0xffff << (16 * k)
			}
			w.r32[d.index][lane] = v
		}
	}
}
