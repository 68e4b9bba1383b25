package ptx

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// declared parses a single variable.
func declared(t *testing.T, decl string) *Var {
	t.Helper()
	return mustParse(t, header+decl).Items[0].(*Var)
}

func values(t *testing.T, v *Var) []Value {
	t.Helper()
	var out []Value
	for val, err := range v.Values() {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, val)
	}
	return out
}

func TestValues(t *testing.T) {
	f64 := math.Float64bits
	for _, c := range []struct {
		decl string
		want []Value
		size int64
	}{
		{".global .b32 x;", nil, 4},
		{".global .b32 x = 5;", []Value{{Bits: 5}}, 4},
		{".global .f32 x = 0f3F800000;", []Value{{Imm: ImmF32, Bits: 0x3F800000}}, 4},
		{".global .align 1 .b8 x[5] = {72, 0x65, 017, -1};", []Value{{Bits: 72}, {Index: 1, Bits: 0x65}, {Index: 2, Bits: 15}, {Index: 3, Bits: math.MaxUint64}}, 5},
		{".global .s32 x[][3] = {{1, 2}, {3}, {-4}};", []Value{{Bits: 1}, {Index: 1, Bits: 2}, {Index: 3, Bits: 3}, {Index: 6, Bits: 1<<64 - 4}}, 36},
		{".global .s32 x[2][3] = {1, 2, 3, 4};", []Value{{Bits: 1}, {Index: 1, Bits: 2}, {Index: 2, Bits: 3}, {Index: 3, Bits: 4}}, 24},
		{".global .s32 x[2][3] = {1, {2}};", []Value{{Bits: 1}, {Index: 3, Bits: 2}}, 24},
		{".global .v2 .f32 x[2] = {{1.0, 2.0}, {3.0}};", []Value{{Imm: ImmF64, Bits: f64(1)}, {Index: 1, Imm: ImmF64, Bits: f64(2)}, {Index: 2, Imm: ImmF64, Bits: f64(3)}}, 16},
		{".global .u64 x[] = {f, generic(y)+8, z - 4, };", []Value{{Name: "f"}, {Index: 1, Name: "y", Generic: true, Bits: 8}, {Index: 2, Name: "z", Bits: 1<<64 - 4}}, 24},
		{".global .b8 x[2] = {0xff(y), 0xFF00(generic(z)+4)};", []Value{{Name: "y", Mask: 0xff}, {Index: 1, Name: "z", Generic: true, Bits: 4, Mask: 0xff00}}, 2},
		{".global .b32 x[2] = { // one\n 1, /* two; */ 2\n};", []Value{{Bits: 1}, {Index: 1, Bits: 2}}, 8},
		{".global .u64 x = WARP_SZ * 2;", []Value{{Bits: 64}}, 8},
		{".global .u64 x = WINDOW;", []Value{{Name: "WINDOW"}}, 8},
		{".global .b32 x[] = {};", nil, 0},
		{".global .b32 x[0];", nil, 0},
		{".extern .shared .b8 x[];", nil, 0},
		{".global .samplerref x = { addr_mode_0 = wrap, filter_mode = nearest, force_unnormalized_coords = 1 };", nil, 8},
	} {
		v := declared(t, c.decl)
		if d := cmp.Diff(c.want, values(t, v)); d != "" {
			t.Errorf("%s -want +got:\n%s", c.decl, d)
		}
		if v.Size() != c.size {
			t.Errorf("%s takes %d bytes, want %d", c.decl, v.Size(), c.size)
		}
	}
	n := 0
	for range declared(t, ".global .b32 x[3] = {1, 2, 3};").Values() {
		if n++; n == 2 {
			break // the walk must end with the loop
		}
	}
}

func TestInitialiserErrors(t *testing.T) {
	for decl, want := range map[string]string{
		".global .b32 x = {1, 2};":                "more values than the variable's 1 elements",
		".global .b32 x[2] = {1, 2, 3};":          "more values than the variable's 2 elements",
		".global .b32 x[2] = {{1}, 2};":           "more braces than dimensions",
		".global .b32 x[2] = {1 2};":              "expected ',' or '}', found '2'",
		".global .b32 x[2] = {1,, 2};":            "expected a number, found ','",
		".global .b32 x[2] = {1, 2;":              "expected ',' or '}', found ';'",
		".global .b32 x[2] = {0x, 2};":            "malformed number '0x'",
		".global .b32 x = 08;":                    "malformed number '08'",
		".global .b32 x = 0f3F8;":                 "malformed number '0f3F8'",
		".global .b32 x = 18446744073709551616;":  "malformed number '18446744073709551616'",
		".global .b32 x = 0(y);":                  "malformed mask '0'",
		".global .b32 x = 1 / 0;":                 "division by zero in a constant",
		".global .b32 x = 1.0 << 2;":              "operator '<<' on floating-point constants",
		".global .b32 x[1000000][1000000000000];": "array is larger than any memory",
		".global .b32 x[2][];":                    "only the first array dimension may be empty",
		".global .b32 x[-1];":                     "an array dimension must be an integer from 0 to 9223372036854775807",
		".global .align 3 .b32 x;":                "alignment is no power of two",
		".global .b32 x<5> = 1":                   "expected ';', found the end of the file",
		".reg .b32 x<0>;":                         "the number of registers must be an integer from 1 to 999999999",
		".global x;":                              "expected a type such as .b32, found 'x'",
		".global .b33 x;":                         "expected a type such as .b32, found '.b33'",
		".global .b32 .u32 x;":                    "two types in one declaration",
	} {
		_, err := Parse(header + decl)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", decl, err, want)
		}
	}
	v := &Var{Type: B32, Init: &Init{Raw: "{1, 2}"}} // built, not parsed
	for _, err := range v.Values() {
		if err != nil {
			return
		}
	}
	t.Error("two values for one element go unnoticed")
}

func TestExpressions(t *testing.T) {
	for text, want := range map[string]int64{
		"1 + 2 * 3":                     7,
		"(1 + 2) * 3":                   9,
		"10 - 3 - 2":                    5,
		"1 << 4 | 1":                    17,
		"7 & 3 ^ 1":                     2,
		"~0":                            -1,
		"!5 + !0":                       1,
		"-7 / 2":                        -3,
		"-7 % 3":                        -1,
		"-1 >> 1":                       -1,
		"(.u64)-1 >> 60":                15,
		"(.s64)0xFFFFFFFFFFFFFFFF >> 1": -1,
		"1 < 2 && 2 >= 2 || 0":          1,
		"-1 < 0":                        1,
		"-1 < 0U":                       0,
		"1 != 1":                        0,
		"0 == 0":                        1,
		"1 ? 2 : 3":                     2,
		"0 ? 2 : 0 ? 4 : 5":             5,
		"0b101 + 017 + 0x1F":            51,
		"0U":                            0,
		"1 << 64":                       0,
		"1 << 100":                      0,
		"-1 >> 64":                      -1,
		"1.5 < 2":                       1,
		"-9223372036854775807-1":        math.MinInt64,
		"(-9223372036854775807-1) / -1": math.MinInt64,
	} {
		v := values(t, declared(t, ".global .b64 x = "+text+";"))
		if len(v) != 1 || int64(v[0].Bits) != want {
			t.Errorf("%s is %v, want %d", text, v, want)
		}
	}
	v := values(t, declared(t, ".global .f64 x = (1.5 + 1) / 0f40000000;"))
	if v[0].Imm != ImmF64 || math.Float64frombits(v[0].Bits) != 1.25 {
		t.Errorf("2.5/2 is %v", v)
	}
}
