// Command genops writes the operations that make up most of what kernels
// execute: one function for each opcode and type, with a loop over full warps
// that the compiler keeps free of bounds checks and calls, unrolled by four, and
// one over the lanes of a partial mask.
//
//	go generate ./gpu/soft/simt
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"strings"
)

// op is one operation. Its expression names the operands a, b and c, which are
// of type src (or srcs, one each); the result is of type dst.
type op struct {
	name string
	dst  string
	srcs []string
	expr string
}

// same makes an operation of n operands of the result's type.
func same(name, typ string, n int, expr string) op {
	return op{name, typ, strings.Split(strings.Repeat(typ+" ", n)[:n*len(typ)+n-1], " "), expr}
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
			op{"Shl" + s, t, []string{t, "uint32"}, "a << b"},
		)
	}
	for _, t := range ints {
		ops = append(ops,
			op{"Shr" + short[t], t, []string{t, "uint32"}, "a >> b"},
			same("Min"+short[t], t, 2, "min(a, b)"),
			same("Max"+short[t], t, 2, "max(a, b)"),
		)
	}
	for _, t := range []string{"int32", "int64"} {
		ops = append(ops, same("Abs"+short[t], t, 1, "max(a, -a)"))
	}
	return append(ops,
		op{"MulWideU32", "uint64", []string{"uint32", "uint32"}, "uint64(a) * uint64(b)"},
		op{"MulWideS32", "int64", []string{"int32", "int32"}, "int64(a) * int64(b)"},
		op{"MadWideU32", "uint64", []string{"uint32", "uint32", "uint64"}, "uint64(a)*uint64(b) + c"},
		op{"MadWideS32", "int64", []string{"int32", "int32", "int64"}, "int64(a)*int64(b) + c"},
		same("MulHiU32", "uint32", 2, "uint32(uint64(a) * uint64(b) >> 32)"),
		same("MulHiS32", "int32", 2, "int32(int64(a) * int64(b) >> 32)"),
		op{"Popc32", "uint32", []string{"uint32"}, "arith.Popc32(a)"},
		op{"Clz32", "uint32", []string{"uint32"}, "arith.Clz32(a)"},
		same("ShfLWrap", "uint32", 3, "arith.ShfLWrap(a, b, c)"),
		same("ShfRWrap", "uint32", 3, "arith.ShfRWrap(a, b, c)"),
		op{"BfeU32", "uint32", []string{"uint32", "uint32", "uint32"}, "arith.BfeU32(a, b, c)"},
	)
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
		{"CvtU64U32", "uint64", []string{"uint32"}, "uint64(a)"},
		{"CvtS64S32", "int64", []string{"int32"}, "int64(a)"},
		{"CvtU32U64", "uint32", []string{"uint64"}, "uint32(a)"},
		{"CvtF32S32", "float32", []string{"int32"}, "float32(a)"},
		{"CvtF32U32", "float32", []string{"uint32"}, "float32(a)"},
		{"CvtF64S32", "float64", []string{"int32"}, "float64(a)"},
		{"CvtS32F32", "int32", []string{"float32"}, "arith.CvtS32F32(a)"},
		{"CvtF64F32", "float64", []string{"float32"}, "float64(a)"},
		{"CvtF32F64", "float32", []string{"float64"}, "arith.CvtF32F64(a)"},
		{"CvtF64U32", "float64", []string{"uint32"}, "float64(a)"},
	}
}

var imports = map[string]string{"arith.": `"vgpud/gpu/soft/arith"`}

func main() {
	for file, ops := range map[string][]op{
		"ops_int_gen.go": integerOps(), "ops_float_gen.go": floatOps(), "ops_convert_gen.go": convertOps(),
	} {
		var b bytes.Buffer
		for _, o := range ops {
			emit(&b, o)
		}
		write(file, b.Bytes())
	}
	for file, types := range map[string][]string{"compare_int_gen.go": ints, "compare_float_gen.go": floats} {
		var b bytes.Buffer
		for _, t := range types {
			for _, c := range compares(t) {
				emitCompare(&b, t, c[0], c[1])
			}
		}
		write(file, b.Bytes())
	}
}

// compares lists the comparisons of a type: PTX's name and Go's expression.
func compares(t string) [][2]string {
	list := [][2]string{{"Eq", "a == b"}, {"Ne", "a != b"}, {"Lt", "a < b"}, {"Le", "a <= b"}, {"Gt", "a > b"}, {"Ge", "a >= b"}}
	switch t {
	case "int32", "int64":
		return list[2:] // equality is the unsigned type's
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
	fmt.Fprintf(b, "if w.mask == full {\nfor i := 0; i < lanes; i += 4 {\n")
	for k := range 4 {
		lane := "i"
		if k > 0 {
			lane = fmt.Sprintf("i+%d", k)
		}
		fmt.Fprintf(b, "d[%s] = %s\n", lane, index(o.expr, n, lane))
	}
	fmt.Fprintf(b, "}\nreturn\n}\nfor m := w.mask; m != 0; m &= m - 1 {\ni := bits.TrailingZeros32(m) & 31\n")
	fmt.Fprintf(b, "d[i] = %s\n}\n}\n\n", index(o.expr, n, "i"))
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

func write(file string, body []byte) {
	var b bytes.Buffer
	b.WriteString("// Code generated by internal/genops; DO NOT EDIT.\n\npackage simt\n\nimport (\n\"math/bits\"\n")
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
