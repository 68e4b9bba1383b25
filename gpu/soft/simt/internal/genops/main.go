// Command genops generates the most frequent operations of kernels: for each opcode and type one
// function, with a loop over full warps that compiles without bounds checks and calls, unrolled by
// four, and a loop over the lanes of a partial mask.
//
//	go generate ./gpu/soft/simt
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"slices"
	"strings"
)

// op is one operation. Its expression uses the operands a, b and c of type src (or srcs, one each).
// The result has type dst.
type op struct {
	name string
	dst  string
	srcs []string
	expr string
	way  way
	simd string // the method of simd/archsimd's vectors that does the same, if any
}

// way is how a full warp is processed, if not lane by lane.
type way int

const (
	byLane  way = iota
	byPairs     // two 32-bit lanes as one word, for bitwise operations
	byCopy      // the whole register
)

// same returns an operation whose n operands have the result's type.
func same(name, typ string, n int, expr string) op {
	return op{name: name, dst: typ, expr: expr, srcs: strings.Split(strings.Repeat(typ+" ", n)[:n*len(typ)+n-1], " ")}
}

var short = map[string]string{
	"uint32": "U32", "int32": "S32", "float32": "F32",
	"uint64": "U64", "int64": "S64", "float64": "F64",
}

var (
	ints   = []string{"uint32", "int32", "uint64", "int64"}
	words  = []string{"uint32", "uint64"}
	floats = []string{"float32", "float64"}
)

func integerOps() (ops []op) {
	for _, t := range words {
		s := short[t][1:]
		ops = append(ops,
			same("Add"+s, t, 2, "a + b"),
			same("Sub"+s, t, 2, "a - b"),
			same("MulLo"+s, t, 2, "a * b"),
			same("MadLo"+s, t, 3, "a * b + c"),
			same("And"+s, t, 2, "a & b"),
			same("Or"+s, t, 2, "a | b"),
			same("Xor"+s, t, 2, "a ^ b"),
			same("Not"+s, t, 1, "^a"),
			same("Neg"+s, t, 1, "-a"),
			same("Mov"+s, t, 1, "a"),
			op{name: "Shl" + s, dst: t, srcs: []string{t, "uint32"}, expr: "a << b"},
		)
	}
	for _, t := range ints {
		ops = append(ops,
			op{name: "Shr" + short[t], dst: t, srcs: []string{t, "uint32"}, expr: "a >> b"},
			same("Min"+short[t], t, 2, "min(a, b)"),
			same("Max"+short[t], t, 2, "max(a, b)"),
		)
	}
	for _, t := range []string{"int32", "int64"} {
		ops = append(ops, same("Abs"+short[t], t, 1, "max(a, -a)"))
	}
	for i := range ops {
		ops[i].simd = vectorised[ops[i].name]
		switch o := &ops[i]; o.name {
		case "And32", "Or32", "Xor32", "Not32":
			o.way = byPairs
		case "Mov32", "Mov64":
			o.way = byCopy
		}
	}
	return append(ops,
		op{name: "MulWideU32", dst: "uint64", srcs: []string{"uint32", "uint32"}, expr: "uint64(a) * uint64(b)"},
		op{name: "MulWideS32", dst: "int64", srcs: []string{"int32", "int32"}, expr: "int64(a) * int64(b)"},
		op{name: "MadWideU32", dst: "uint64", srcs: []string{"uint32", "uint32", "uint64"}, expr: "uint64(a)*uint64(b) + c"},
		op{name: "MadWideS32", dst: "int64", srcs: []string{"int32", "int32", "int64"}, expr: "int64(a)*int64(b) + c"},
		same("MulHiU32", "uint32", 2, "uint32(uint64(a) * uint64(b) >> 32)"),
		same("MulHiS32", "int32", 2, "int32(int64(a) * int64(b) >> 32)"),
		op{name: "Popc32", dst: "uint32", srcs: []string{"uint32"}, expr: "arith.Popc32(a)"},
		op{name: "Clz32", dst: "uint32", srcs: []string{"uint32"}, expr: "arith.Clz32(a)"},
		same("ShfLWrap", "uint32", 3, "arith.ShfLWrap(a, b, c)"),
		same("ShfRWrap", "uint32", 3, "arith.ShfRWrap(a, b, c)"),
		op{name: "BfeU32", dst: "uint32", srcs: []string{"uint32", "uint32", "uint32"}, expr: "arith.BfeU32(a, b, c)"},
	)
}

// vectorised names the operations that a build with GOEXPERIMENT=simd performs with vector
// instructions. Floats are not among them, since a NaN must become the canonical NaN of GPUs.
var vectorised = map[string]string{
	"Add32": "Add", "Sub32": "Sub", "MulLo32": "Mul", "And32": "And", "Or32": "Or", "Xor32": "Xor",
	"MinU32": "Min", "MaxU32": "Max", "MinS32": "Min", "MaxS32": "Max", "Add64": "Add", "Sub64": "Sub",
}

func floatOps() (ops []op) {
	for _, t := range floats {
		s := short[t]
		for _, f := range []struct {
			name string
			n    int
			args string
		}{{"Add", 2, "a, b"}, {"Sub", 2, "a, b"}, {"Mul", 2, "a, b"}, {"Div", 2, "a, b"}, {"Fma", 3, "a, b, c"}, {"Sqrt", 1, "a"}, {"Min", 2, "a, b"}, {"Max", 2, "a, b"}, {"Abs", 1, "a"}, {"Neg", 1, "a"}} {
			ops = append(ops, same(f.name+s, t, f.n, "arith."+f.name+s+"("+f.args+")"))
		}
	}
	return ops
}

func convertOps() []op {
	return []op{
		{name: "CvtU64U32", dst: "uint64", srcs: []string{"uint32"}, expr: "uint64(a)"},
		{name: "CvtS64S32", dst: "int64", srcs: []string{"int32"}, expr: "int64(a)"},
		{name: "CvtU32U64", dst: "uint32", srcs: []string{"uint64"}, expr: "uint32(a)"},
		{name: "CvtF32S32", dst: "float32", srcs: []string{"int32"}, expr: "float32(a)"},
		{name: "CvtF32U32", dst: "float32", srcs: []string{"uint32"}, expr: "float32(a)"},
		{name: "CvtF64S32", dst: "float64", srcs: []string{"int32"}, expr: "float64(a)"},
		{name: "CvtS32F32", dst: "int32", srcs: []string{"float32"}, expr: "arith.CvtS32F32(a)"},
		{name: "CvtF64F32", dst: "float64", srcs: []string{"float32"}, expr: "float64(a)"},
		{name: "CvtF32F64", dst: "float32", srcs: []string{"float64"}, expr: "arith.CvtF32F64(a)"},
		{name: "CvtF64U32", dst: "float64", srcs: []string{"uint32"}, expr: "float64(a)"},
	}
}

var imports = map[string]string{"arith.": `"vgpud/gpu/soft/arith"`, "archsimd.": `"simd/archsimd"`}

// only returns the operations for which want is true.
func only(ops []op, want func(op) bool) (out []op) {
	for _, o := range ops {
		if want(o) {
			out = append(out, o)
		}
	}
	return out
}

func main() {
	integer := integerOps()
	vectors := func(o op) bool { return o.simd != "" }
	for _, f := range []struct {
		name, tag string
		simd      bool
		ops       []op
	}{
		{"ops_int_gen.go", "", false, slices.DeleteFunc(slices.Clone(integer), vectors)},
		{"ops_lanes_gen.go", "!(goexperiment.simd && amd64)", false, only(integer, vectors)},
		{"ops_simd_gen.go", "goexperiment.simd && amd64", true, only(integer, vectors)},
		{"ops_float_gen.go", "", false, floatOps()},
		{"ops_convert_gen.go", "", false, convertOps()},
	} {
		var b bytes.Buffer
		for _, o := range f.ops {
			if !f.simd {
				o.simd = ""
			}
			emit(&b, o)
		}
		write(f.name, f.tag, b.Bytes())
	}
	for file, types := range map[string][]string{"compare_int_gen.go": ints, "compare_float_gen.go": floats} {
		var b bytes.Buffer
		for _, t := range types {
			for _, c := range compares(t) {
				emitCompare(&b, t, c[0], c[1])
			}
		}
		write(file, "", b.Bytes())
	}
}

// compares lists the comparisons of a type: PTX's name and Go's expression.
func compares(t string) [][2]string {
	list := [][2]string{{"Eq", "a == b"}, {"Ne", "a != b"}, {"Lt", "a < b"}, {"Le", "a <= b"}, {"Gt", "a > b"}, {"Ge", "a >= b"}}
	switch t {
	case "int32", "int64":
		return list[2:] // equality is generated for the unsigned type
	case "float32", "float64":
		// The ordered forms are false for NaN, the unordered ones true.
		list[1][1] = "a < b || a > b"
		return append(list, [][2]string{
			{"Equ", "!(a < b || a > b)"}, {"Neu", "a != b"}, {"Ltu", "!(a >= b)"}, {"Leu", "!(a > b)"},
			{"Gtu", "!(a <= b)"}, {"Geu", "!(a < b)"}, {"Num", "a == a && b == b"}, {"Nan", "a != a || b != b"},
		}...)
	}
	return list
}

const letters = "abc"

// index replaces the operands' names by their lanes.
func index(expr string, n int, lane string) string {
	var out strings.Builder
	word := func(i int) bool {
		return i >= 0 && i < len(expr) && (expr[i] == '_' || expr[i] == '.' || expr[i] >= '0' && expr[i] <= '9' || expr[i]|32 >= 'a' && expr[i]|32 <= 'z')
	}
	for i := range len(expr) {
		out.WriteByte(expr[i])
		if strings.IndexByte(letters[:n], expr[i]) >= 0 && !word(i-1) && !word(i+1) {
			out.WriteString("[" + lane + "]")
		}
	}
	return out.String()
}

func operands(srcs []string) (names, values string) {
	for i, s := range srcs {
		names += fmt.Sprintf(", %c", letters[i])
		values += fmt.Sprintf(", vec[%s](w, in.%c)", s, letters[i])
	}
	return names, values
}

func emit(b *bytes.Buffer, o op) {
	names, values := operands(o.srcs)
	n := len(o.srcs)
	fmt.Fprintf(b, "func op%s(w *warp, in *inst) {\n", o.name)
	fmt.Fprintf(b, "d%s := vec[%s](w, in.d)%s\n", names, o.dst, values)
	if o.simd != "" {
		emitVector(b, o)
	}
	count := "lanes"
	switch o.way {
	case byCopy:
		fmt.Fprintf(b, "if w.mask == full {\n*d = *a\nreturn\n}\n")
	case byPairs:
		fmt.Fprintf(b, "if w.mask == full {\nd%s := pairs(d)", names)
		for i := range o.srcs {
			fmt.Fprintf(b, ", pairs(%c)", letters[i])
		}
		fmt.Fprintln(b)
		count = "lanes / 2"
		fallthrough
	case byLane:
		if o.way == byLane {
			fmt.Fprintf(b, "if w.mask == full {\n")
		}
		fmt.Fprintf(b, "for i := 0; i < %s; i += 4 {\n", count)
		for k := range 4 {
			lane := "i"
			if k > 0 {
				lane = fmt.Sprintf("i+%d", k)
			}
			fmt.Fprintf(b, "d[%s] = %s\n", lane, index(o.expr, n, lane))
		}
		fmt.Fprintf(b, "}\nreturn\n}\n")
	}
	fmt.Fprintf(b, "for m := w.mask; m != 0; m &= m - 1 {\ni := bits.TrailingZeros32(m) & 31\n")
	fmt.Fprintf(b, "d[i] = %s\n}\n}\n\n", index(o.expr, n, "i"))
}

// emitVector writes the loop over 256-bit vectors. It clears the upper halves afterwards: Go does
// not, and its floating-point code, which does not use them, would run at half its speed.
func emitVector(b *bytes.Buffer, o op) {
	width := 8
	if strings.HasSuffix(o.dst, "64") {
		width = 4
	}
	array := fmt.Sprintf("(*[%d]%s)", width, o.dst)
	load := fmt.Sprintf("archsimd.Load%s%sx%d(%s", strings.ToUpper(o.dst[:1]), o.dst[1:], width, array)
	fmt.Fprintf(b, "if w.mask == full && avx2 {\nfor i := 0; i < lanes; i += %d {\n", width)
	fmt.Fprintf(b, "%s(a[i:])).%s(%s(b[i:]))).Store(%s(d[i:]))\n}\narchsimd.ClearAVXUpperBits()\nreturn\n}\n", load, o.simd, load, array)
}

func emitCompare(b *bytes.Buffer, t, name, expr string) {
	fmt.Fprintf(b, "func cmp%s%s(w *warp, in *inst) uint32 {\n", name, short[t])
	fmt.Fprintf(b, "a, b := vec[%s](w, in.a), vec[%s](w, in.b)\nvar r uint32\n", t, t)
	fmt.Fprintf(b, "if w.mask == full {\nfor i := 0; i < lanes; i += 4 {\nvar x uint32\n")
	for k := range 4 {
		lane := "i"
		if k > 0 {
			lane = fmt.Sprintf("i+%d", k)
		}
		fmt.Fprintf(b, "x |= bit(%s) << %d\n", index(expr, 2, lane), k)
	}
	fmt.Fprintf(b, "r = r>>4 | x<<28\n}\nreturn r\n}\nfor m := w.mask; m != 0; m &= m - 1 {\ni := bits.TrailingZeros32(m) & 31\n")
	fmt.Fprintf(b, "r |= bit(%s) << i\n}\nreturn r\n}\n\n", index(expr, 2, "i"))
}

func write(file, tag string, body []byte) {
	var b bytes.Buffer
	b.WriteString("// Code generated by internal/genops; DO NOT EDIT.\n\n")
	if tag != "" {
		fmt.Fprintf(&b, "//go:build %s\n\n", tag)
	}
	b.WriteString("package simt\n\nimport (\n\"math/bits\"\n")
	for use, path := range imports {
		if bytes.Contains(body, []byte(use)) {
			fmt.Fprintf(&b, "\n%s\n", path)
		}
	}
	b.WriteString(")\n\n")
	b.Write(body)
	src, err := format.Source(b.Bytes())
	if err != nil {
		log.Fatalf("%s: %v", file, err)
	}
	if err := os.WriteFile(file, src, 0o644); err != nil {
		log.Fatal(err)
	}
}
