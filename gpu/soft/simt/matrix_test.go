package simt

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// smallValue returns a random value whose products and sums are exact in every type.
func smallValue(rng *rand.Rand, t ptx.Type) float64 {
	if t == ptx.U8 {
		return float64(rng.IntN(9))
	}
	return float64(rng.IntN(17) - 8)
}

// encodeElement returns the bits of a value in a matrix.
func encodeElement(t ptx.Type, v float64) uint64 {
	switch t {
	case ptx.F16:
		return uint64(arith.CvtF16F32(float32(v)))
	case ptx.BF16:
		return uint64(math.Float32bits(float32(v)) >> 16)
	case ptx.TF32, ptx.F32:
		return uint64(math.Float32bits(float32(v)))
	case ptx.F64:
		return math.Float64bits(v)
	case ptx.E4M3:
		return uint64(arith.E4M3.FromF32(float32(v), false))
	case ptx.E5M2:
		return uint64(arith.E5M2.FromF32(float32(v), false))
	}
	return uint64(int64(v)) & (1<<t.Bits() - 1)
}

func decodeElement(t ptx.Type, v uint64) float64 {
	switch t {
	case ptx.F16:
		return float64(arith.CvtF32F16(uint16(v)))
	case ptx.F32:
		return float64(math.Float32frombits(uint32(v)))
	case ptx.F64:
		return math.Float64frombits(v)
	}
	return float64(int32(v))
}

// isaA, isaB and isaC are the PTX ISA's layouts of mma's fragments, written as the ISA has them:
// element i of a lane, with groupID and threadID_in_group.
func isaA(m, k, bits, i, g, t int) (row, col int) {
	low := func(cond bool) int {
		if cond {
			return g
		}
		return g + 8
	}
	switch bits {
	case 16:
		if k == 8 {
			return low(i < 2), t*2 + i&1
		}
		col = t*2 + i&1
		if i >= 4 {
			col += 8
		}
		return low(i < 2 || i >= 4 && i < 6), col
	case 8:
		switch {
		case m == 8:
			return g, t*4 + i&3
		case k == 16:
			return low(i < 4), t*4 + i&3
		}
		col = t*4 + i&3
		if i >= 8 {
			col += 16
		}
		return low(i < 4 || i >= 8 && i < 12), col
	case 32:
		if k == 4 {
			return low(i == 0), t
		}
		col = t
		if i >= 2 {
			col += 4
		}
		return low(i == 0 || i == 2), col
	}
	if m == 8 {
		return g, t
	}
	return low(i%2 == 0), t + 4*(i/2)
}

func isaB(k, bits, i, g, t int) (row, col int) {
	switch bits {
	case 16:
		if row = t*2 + i&1; i >= 2 {
			row += 8
		}
	case 8:
		if row = t*4 + i&3; i >= 4 {
			row += 16
		}
	default:
		row = t + 4*i
	}
	return row, g
}

func isaC(i, g, t int) (row, col int) {
	if row = g; i >= 2 {
		row += 8
	}
	return row, t*2 + i&1
}

// registersOf returns how many registers hold n elements, and their PTX type.
func registersOf(t ptx.Type, n int) (int, string) {
	if t == ptx.F64 {
		return n, "f64"
	}
	return n * t.Bits() / 32, "b32"
}

// mmaKernel loads a lane's registers of a, b and c, multiplies, and stores those of d.
func mmaKernel(form string, counts [4]int, kinds [4]string) string {
	var s strings.Builder
	s.WriteString(testHeader + ".visible .entry k(.param .u64 d, .param .u64 a, .param .u64 b, .param .u64 c)\n{\n.reg .b64 %rd<10>; .reg .b32 %t<3>;\nmov.u32 %t1, %tid.x;\n")
	var names [4]string
	for i, p := range "dabc" {
		size := 4
		if kinds[i] == "f64" {
			size = 8
		}
		fmt.Fprintf(&s, ".reg .%s %%%c<20>;\nld.param.u64 %%rd%d, [%c];\nmul.wide.u32 %%rd9, %%t1, %d;\nadd.s64 %%rd%d, %%rd%d, %%rd9;\n", kinds[i], p, i, p, size*counts[i], i, i)
		var list []string
		for k := range counts[i] {
			list = append(list, fmt.Sprintf("%%%c%d", p, k))
			if i > 0 {
				fmt.Fprintf(&s, "ld.global.%s %%%c%d, [%%rd%d+%d];\n", kinds[i], p, k, i, size*k)
			}
		}
		names[i] = "{" + strings.Join(list, ",") + "}"
	}
	fmt.Fprintf(&s, "%s %s, %s, %s, %s;\n", form, names[0], names[1], names[2], names[3])
	for k := range counts[0] {
		size := 4
		if kinds[0] == "f64" {
			size = 8
		}
		fmt.Fprintf(&s, "st.global.%s [%%rd0+%d], %%d%d;\n", kinds[0], size*k, k)
	}
	s.WriteString("ret;\n}\n")
	return s.String()
}

type mmaCase struct {
	form       string
	m, k       int
	d, a, b, c ptx.Type
}

var mmaCases = []mmaCase{
	{"mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", 16, 8, ptx.F16, ptx.F16, ptx.F16, ptx.F16},
	{"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 16, 8, ptx.F32, ptx.F16, ptx.F16, ptx.F32},
	{"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, 16, ptx.F32, ptx.F16, ptx.F16, ptx.F32},
	{"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 16, 16, ptx.F16, ptx.F16, ptx.F16, ptx.F16},
	{"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 16, 8, ptx.F32, ptx.BF16, ptx.BF16, ptx.F32},
	{"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, ptx.F32, ptx.BF16, ptx.BF16, ptx.F32},
	{"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 16, 4, ptx.F32, ptx.TF32, ptx.TF32, ptx.F32},
	{"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 16, 8, ptx.F32, ptx.TF32, ptx.TF32, ptx.F32},
	{"mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32", 8, 16, ptx.S32, ptx.S8, ptx.U8, ptx.S32},
	{"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", 16, 16, ptx.S32, ptx.S8, ptx.S8, ptx.S32},
	{"mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32", 16, 32, ptx.S32, ptx.U8, ptx.S8, ptx.S32},
	{"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", 16, 32, ptx.F32, ptx.E4M3, ptx.E5M2, ptx.F32},
	{"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", 8, 4, ptx.F64, ptx.F64, ptx.F64, ptx.F64},
	{"mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", 16, 8, ptx.F64, ptx.F64, ptx.F64, ptx.F64},
	{"mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", 16, 16, ptx.F64, ptx.F64, ptx.F64, ptx.F64},
}

// runMMA multiplies matrices that value chooses, in the ISA's layout, and returns the result and
// the matrices.
func runMMA(t *testing.T, x mmaCase, value func(t ptx.Type) float64) (d, a, b, c []float64) {
	const n = 8
	counts, kinds := [4]int{}, [4]string{}
	elements := [4]int{x.m * n / 32, x.m * x.k / 32, x.k * n / 32, x.m * n / 32}
	types := [4]ptx.Type{x.d, x.a, x.b, x.c}
	for i := range counts {
		counts[i], kinds[i] = registersOf(types[i], elements[i])
	}
	m := newMachine(t, mmaKernel(x.form, counts, kinds))
	a, b, c = make([]float64, x.m*x.k), make([]float64, x.k*n), make([]float64, x.m*n)
	for i := range a {
		a[i] = value(x.a)
	}
	for i := range b {
		b[i] = value(x.b)
	}
	for i := range c {
		c[i] = value(x.c)
	}
	where := func(op, i, lane int) int {
		g, th := lane>>2, lane%4
		switch op {
		case 1:
			row, col := isaA(x.m, x.k, x.a.Bits(), i, g, th)
			return row*x.k + col
		case 2:
			row, col := isaB(x.k, x.b.Bits(), i, g, th)
			return row*n + col
		}
		row, col := isaC(i, g, th)
		return row*n + col
	}
	var at [4]uint64
	var mem [4][]byte
	for op := range 4 {
		bits := types[op].Bits()
		perLane := elements[op] * bits / 8
		at[op], mem[op] = m.alloc(32 * perLane)
		for lane := range 32 {
			for i := range elements[op] {
				if op > 0 {
					v := [][]float64{nil, a, b, c}[op][where(op, i, lane)]
					put(mem[op][lane*perLane+i*bits/8:], bits/8, encodeElement(types[op], v))
				}
			}
		}
	}
	if f := m.run("k", d3(1), d3(32), 0, at[0], at[1], at[2], at[3]); f != nil {
		t.Fatal(f)
	}
	d = make([]float64, x.m*n)
	bytes := x.d.Bits() / 8
	for lane := range 32 {
		for i := range elements[0] {
			d[where(0, i, lane)] = decodeElement(x.d, fetch(mem[0][lane*elements[0]*bytes+i*bytes:], bytes, false))
		}
	}
	return d, a, b, c
}

// Every shape and type multiplies matrices of small integers, in the ISA's layout, exactly.
func TestMMA(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, x := range mmaCases {
		t.Run(x.form, func(t *testing.T) {
			d, a, b, c := runMMA(t, x, func(t ptx.Type) float64 { return smallValue(rng, t) })
			for i := range x.m {
				for j := range 8 {
					want := c[i*8+j]
					for k := range x.k {
						want += a[i*x.k+k] * b[k*8+j]
					}
					if d[i*8+j] != want {
						t.Fatalf("row %d, column %d: %v, want %v", i, j, d[i*8+j], want)
					}
				}
			}
		})
	}
}

// Sums are rounded to float32 one after the other along k, and a half-precision result once.
func TestMMARounding(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for _, x := range mmaCases[:8] {
		value := func(typ ptx.Type) float64 {
			v := float32(rng.NormFloat64())
			switch typ {
			case ptx.F16:
				return float64(arith.CvtF32F16(arith.CvtF16F32(v)))
			case ptx.BF16:
				return float64(math.Float32frombits(math.Float32bits(v) &^ 0xffff))
			case ptx.TF32:
				return float64(math.Float32frombits(math.Float32bits(v) &^ 0x1fff))
			}
			return float64(v)
		}
		d, a, b, c := runMMA(t, x, value)
		for i := range x.m {
			for j := range 8 {
				sum := float32(c[i*8+j])
				for k := range x.k {
					sum = float32(float64(sum) + a[i*x.k+k]*b[k*8+j])
				}
				want := float64(sum)
				if x.d == ptx.F16 {
					want = float64(arith.CvtF32F16(arith.CvtF16F32(sum)))
				}
				if d[i*8+j] != want {
					t.Fatalf("%s: row %d, column %d: %v, want %v", x.form, i, j, d[i*8+j], want)
				}
			}
		}
	}
}

// The lower bits of a tf32 element have no effect; integer sums wrap around or saturate.
func TestMMALimits(t *testing.T) {
	x := mmaCase{"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 16, 4, ptx.F32, ptx.TF32, ptx.TF32, ptx.F32}
	d, _, _, _ := runMMA(t, x, func(typ ptx.Type) float64 {
		if typ == ptx.F32 {
			return 0
		}
		return 1 + 0x1p-11
	})
	if d[0] != 4 {
		t.Errorf("tf32: %v, want 4", d[0])
	}
	for form, want := range map[string]float64{"": math.MinInt32 + 16*127*127 - 1, ".satfinite": math.MaxInt32} {
		x := mmaCase{"mma.sync.aligned.m16n8k16.row.col" + form + ".s32.s8.s8.s32", 16, 16, ptx.S32, ptx.S8, ptx.S8, ptx.S32}
		d, _, _, _ := runMMA(t, x, func(typ ptx.Type) float64 {
			if typ == ptx.S32 {
				return math.MaxInt32
			}
			return 127
		})
		if d[5] != want {
			t.Errorf("sums%s: %v, want %v", form, d[5], want)
		}
	}
}

// wmma loads, multiplies and stores matrices in every shape, type and layout.
func TestWMMA(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	shapes := [][3]int{{16, 16, 16}, {8, 32, 16}, {32, 8, 16}}
	type types struct {
		a, sum ptx.Type
		shapes [][3]int
		mma    string
	}
	regs := func(typ ptx.Type, s [3]int, operand byte) int {
		switch {
		case operand == 'c' && typ == ptx.F16:
			return 4
		case operand == 'c' && typ == ptx.F64:
			return 2
		case operand == 'c', typ == ptx.F16:
			return 8
		case typ == ptx.F64:
			return 1
		case typ == ptx.TF32:
			return 4
		}
		n := s[0] * s[2]
		if operand == 'b' {
			n = s[1] * s[2]
		}
		return n * typ.Bits() / 32 / 32
	}
	for _, c := range []types{
		{a: ptx.F16, sum: ptx.F32, shapes: shapes, mma: ".f32.f32"}, {a: ptx.F16, sum: ptx.F16, shapes: shapes, mma: ".f16.f16"},
		{a: ptx.BF16, sum: ptx.F32, shapes: shapes, mma: ".f32.bf16.bf16.f32"}, {a: ptx.TF32, sum: ptx.F32, shapes: [][3]int{{16, 16, 8}}, mma: ".f32.tf32.tf32.f32"},
		{a: ptx.S8, sum: ptx.S32, shapes: shapes, mma: ".s32.s8.s8.s32"}, {a: ptx.U8, sum: ptx.S32, shapes: shapes, mma: ".s32.u8.u8.s32"},
		{a: ptx.F64, sum: ptx.F64, shapes: [][3]int{{8, 8, 4}}, mma: ".rn.f64.f64.f64.f64"},
	} {
		for _, s := range c.shapes {
			for layouts := range 8 {
				name := [2]string{"row", "col"}
				la, lb, lc := layouts&1, layouts>>1&1, layouts>>2
				shape := fmt.Sprintf("m%dn%dk%d", s[0], s[1], s[2])
				kind := func(t ptx.Type) string {
					if t == ptx.F64 {
						return "f64"
					}
					return "b32"
				}
				list := func(p string, n int) string {
					var l []string
					for i := range n {
						l = append(l, fmt.Sprintf("%%%s%d", p, i))
					}
					return "{" + strings.Join(l, ",") + "}"
				}
				dims := map[byte][2]int{'a': {s[0], s[2]}, 'b': {s[2], s[1]}, 'c': {s[0], s[1]}}
				stride := func(op byte, layout int) int { return dims[op][1-layout] + 8 } // beyond a row or column
				na, nb, nc := regs(c.a, s, 'a'), regs(c.a, s, 'b'), regs(c.sum, s, 'c')
				src := testHeader + fmt.Sprintf(`.visible .entry k(.param .u64 d, .param .u64 a, .param .u64 b, .param .u64 c)
{
	.reg .b64 %%rd<5>; .reg .%s %%a<10>, %%b<10>; .reg .%s %%c<10>, %%d<10>; .reg .b32 %%s;
	ld.param.u64 %%rd0, [d]; ld.param.u64 %%rd1, [a]; ld.param.u64 %%rd2, [b]; ld.param.u64 %%rd3, [c];
	mov.u32 %%s, %d;
	wmma.load.a.sync.aligned.%s.%s.global.%s %s, [%%rd1], %%s;
	wmma.load.b.sync.aligned.%s.%s.%s %s, [%%rd2], %d;
	wmma.load.c.sync.aligned.%s.%s.global.%s %s, [%%rd3], %d;
	wmma.mma.sync.aligned.%s.%s.%s%s %s, %s, %s, %s;
	wmma.store.d.sync.aligned.%s.%s.global.%s [%%rd0], %s, %d;
	ret;
}`, kind(c.a), kind(c.sum), stride('a', la), name[la], shape, c.a, list("a", na), name[lb], shape, c.a, list("b", nb), stride('b', lb),
					name[lc], shape, c.sum, list("c", nc), stride('c', lc), name[la], name[lb], shape, c.mma, list("d", nc), list("a", na), list("b", nb), list("c", nc),
					name[lc], shape, c.sum, list("d", nc), stride('c', lc))
				m := newMachine(t, src)
				at, mem, values := map[byte]uint64{}, map[byte][]byte{}, map[byte][]float64{}
				place := func(op byte, layout, row, col int) int {
					if layout == 1 {
						row, col = col, row
					}
					return row*stride(op, layout) + col
				}
				for _, op := range []byte("abcd") {
					typ, as, layout := c.a, op, map[byte]int{'a': la, 'b': lb, 'c': lc, 'd': lc}[op]
					if op >= 'c' {
						typ, as = c.sum, 'c'
					}
					at[op], mem[op] = m.alloc(48 * 48 * typ.Size())
					if op == 'd' {
						continue
					}
					values[op] = make([]float64, dims[as][0]*dims[as][1])
					for row := range dims[as][0] {
						for col := range dims[as][1] {
							v := smallValue(rng, typ)
							values[op][row*dims[as][1]+col] = v
							put(mem[op][place(as, layout, row, col)*typ.Size():], typ.Size(), encodeElement(typ, v))
						}
					}
				}
				if f := m.run("k", d3(1), d3(32), 0, at['d'], at['a'], at['b'], at['c']); f != nil {
					t.Fatal(f)
				}
				for i := range s[0] {
					for j := range s[1] {
						want := values['c'][i*s[1]+j]
						for k := range s[2] {
							want += values['a'][i*s[2]+k] * values['b'][k*s[1]+j]
						}
						got := decodeElement(c.sum, fetch(mem['d'][place('c', lc, i, j)*c.sum.Size():], c.sum.Size(), false))
						if got != want {
							t.Fatalf("%s%s, layouts %s, %s, %s: row %d, column %d: %v, want %v", shape, c.mma, name[la], name[lb], name[lc], i, j, got, want)
						}
					}
				}
			}
		}
	}
}

// ldmatrix, stmatrix and movmatrix move 8×8 matrices of halves: lane l holds row l/4, columns
// 2*(l%4) and one more, and lanes 8*i to 8*i+7 name the rows of matrix i.
func TestMatrixRows(t *testing.T) {
	rows := func(body string) []uint16 {
		m := newMachine(t, testHeader+`.shared .align 16 .b8 tile[512]; .shared .align 16 .b8 out[512];
.visible .entry k(.param .u64 p)
{
	.reg .b64 %rd<5>; .reg .b32 %r<20>; .reg .b16 %h<3>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, tile;
	mad.lo.u32 %r3, %r1, 16, %r2;
	mov.u32 %r15, out;
	mad.lo.u32 %r16, %r1, 16, %r15;
	mul.lo.u32 %r4, %r1, 8;
	mov.u32 %r5, 0;
L:	mad.lo.u32 %r6, %r5, 2, %r3;
	add.u32 %r7, %r4, %r5;
	cvt.u16.u32 %h1, %r7;
	st.shared.u16 [%r6], %h1;
	add.u32 %r5, %r5, 1;
	.reg .pred %p1; setp.lt.u32 %p1, %r5, 8;
	@%p1 bra L;
	bar.sync 0;
`+body+`
	bar.sync 0;
	mul.wide.u32 %rd2, %r1, 16;
	add.s64 %rd1, %rd1, %rd2;
	st.global.v4.b32 [%rd1], {%r8,%r9,%r10,%r11};
	ret;
}`)
		out, data := m.alloc(512)
		if f := m.run("k", d3(1), d3(32), 0, out); f != nil {
			t.Fatal(f)
		}
		v := make([]uint16, 256)
		for i := range v {
			v[i] = binary.LittleEndian.Uint16(data[2*i:])
		}
		return v
	}
	const back = "ld.shared.v4.b32 {%r8,%r9,%r10,%r11}, [%r16];"
	for name, c := range map[string]struct {
		body string
		want func(lane, matrix, k int) int // half k of the register of a matrix
	}{
		"load": {"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r8,%r9,%r10,%r11}, [%r3];", func(l, m, k int) int { return 64*m + 8*(l/4) + 2*(l%4) + k }},
		"load transposed": {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r8,%r9,%r10,%r11}, [%r3];",
			func(l, m, k int) int { return 64*m + 8*(2*(l%4)+k) + l/4 }},
		"load one": {"mov.u32 %r9, 0; mov.u32 %r10, 0; mov.u32 %r11, 0; ldmatrix.sync.aligned.m8n8.x1.shared::cta.b16 {%r8}, [%r3];", func(l, m, k int) int {
			if m > 0 {
				return 0
			}
			return 8*(l/4) + 2*(l%4) + k
		}},
		"transpose": {"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r8,%r9,%r10,%r11}, [%r3]; movmatrix.sync.aligned.m8n8.trans.b16 %r8, %r8; movmatrix.sync.aligned.m8n8.trans.b16 %r9, %r9; movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r10; movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r11;",
			func(l, m, k int) int { return 64*m + 8*(2*(l%4)+k) + l/4 }},
		"store": {"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r8,%r9,%r10,%r11}, [%r3]; stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r16], {%r8,%r9,%r10,%r11}; bar.sync 0; " + back,
			func(l, m, k int) int { return 8*l + 2*m + k }},
		"store transposed": {"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r8,%r9,%r10,%r11}, [%r3]; stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r16], {%r8,%r9,%r10,%r11}; bar.sync 0; " + back,
			func(l, m, k int) int { return 64*(l/8) + 8*(2*m+k) + l%8 }},
	} {
		got := rows(c.body)
		for lane := range 32 {
			for m := range 4 {
				for k := range 2 {
					if g, want := got[8*lane+2*m+k], uint16(c.want(lane, m, k)); g != want {
						t.Fatalf("%s: lane %d, matrix %d, half %d: %d, want %d", name, lane, m, k, g, want)
					}
				}
			}
		}
	}
}

// A warp's lanes meet at a matrix instruction even if they come by different ways, and an address
// outside faults.
func TestMatrixInstructionsConverge(t *testing.T) {
	m := newMachine(t, entry(`
	mov.u32 %r3, 0;
	and.b32 %r4, %r2, 1;
	setp.eq.u32 %p1, %r4, 0;
	@%p1 bra EVEN;
	add.u32 %r3, %r3, 1;
EVEN:
	mov.u32 %r5, 0x3c003c00;
	mov.f32 %f1, 0f00000000;
	mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f2,%f3,%f4,%f5}, {%r5,%r5}, {%r5}, {%f1,%f1,%f1,%f1};
	mov.b32 %r6, %f2;
`+storeAt("%r2", "u32", "%r6")))
	out, data := m.alloc(4 * 32)
	if f := m.run("k", d3(1), d3(32), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		if v != math.Float32bits(8) {
			t.Fatalf("lane %d: %#x", i, v)
		}
	}
	m = newMachine(t, entry("mov.u32 %r3, 0x10000; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];"))
	if f := m.run("k", d3(1), d3(32), 64, out, out, 0); f == nil || f.Kind != gpu.FaultAddress || f.Space != "shared" {
		t.Errorf("outside shared memory: %v", f)
	}
}

// BenchmarkMMA multiplies matrices of halves.
func BenchmarkMMA(b *testing.B) {
	m := newMachine(b, entry(`
	mov.u32 %r3, 0;
	mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
	mov.u32 %r5, 0x3c003c00;
L:	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r5,%r5,%r5,%r5}, {%r5,%r5}, {%f1,%f2,%f3,%f4};
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p1, %r3, 1000;
	@%p1 bra L;
`))
	b.ReportAllocs()
	for b.Loop() {
		if f := m.run("k", d3(1), d3(32), 0, uint64(0), uint64(0), 0); f != nil {
			b.Fatal(f)
		}
	}
}
