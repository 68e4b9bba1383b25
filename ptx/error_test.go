package ptx

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestErrorsSayWhereAndWhat(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"", "1:1: expected .version at the start of the module, found the end of the file"},
		{"\n\n hello", "3:2: expected .version at the start of the module, found 'hello'"},
		{".version nine", "1:10: expected a version such as 9.0, found ''"},
		{".version 9", "1:10: expected a version such as 9.0, found '9'"},
		{".version 9.x", "1:10: malformed version '9.x'"},
		{".version 9.0 .func", "1:14: expected .target after .version, found '.func'"},
		{".version 9.0 .target ;", "1:22: expected a target such as sm_90, found ';'"},
		{".version 9.0 .target sm_90 .address_size 48", "1:42: an address size of 32 or 64 is required"},
		{header + "foo", "4:1: expected a directive, found 'foo'"},
		{header + ".foo", "4:1: expected a directive of module scope, found '.foo'"},
		{header + ".visible .foo", "4:10: expected a function or variable, found '.foo'"},
		{header + ".version 8.0", "4:1: a second .version that differs from the first"},
		{header + ".func 1() {}", "4:7: expected a function's name, found '1'"},
		{header + ".func f(.param b32 a) {}", "4:16: expected a type such as .b32, found 'b32'"},
		{header + ".func f(.param .b32) {}", "4:20: expected a name, found ')'"},
		{header + ".func f(.b32 a) {}", "4:9: expected a state space, found '.b32'"},
		{header + ".func f() x", "4:11: expected '{', ';' or a directive, found 'x'"},
		{header + ".file x", "4:7: expected a file number, found 'x'"},
		{header + ".file 1 x", "4:9: expected a file name in double quotes, found 'x'"},
		{header + ".file 1 \"x\ny\"", "4:9: expected a file name in double quotes, found a string"},
		{header + ".alias a b;", "4:10: expected ',', found 'b'"},
		{header + ".section .x { .b9 1 }", "4:15: expected a label, .b8, .b16, .b32, .b64 or '}', found '.b9'"},
		{header + ".section .x { .b8 }", "4:19: expected a number, label or section, found '}'"},
		{header + ".global .attribute(managed) .b32 x;", "4:20: expected an attribute such as .managed, found 'managed'"},
		{header + ".func f() {", "4:12: expected '}', found the end of the file"},
		{header + ".func f() {\n  add.s32 a, b c;\n}", "5:16: expected ',' or ';', found 'c'"},
		{header + ".func f() {\n  add.s32 a, ;\n}", "5:14: expected a number, found ';'"},
		{header + ".func f() {\n  add. s32;\n}", "5:6: expected a modifier, found '.'"},
		{header + ".func f() {\n  %r1 = 5;\n}", "5:3: expected an instruction, label, declaration or '}', found '%r1'"},
		{header + ".func f() {\n  .foo\n}", "5:3: expected a statement, found '.foo'"},
		{header + ".func f() {\n  ld a, [b;\n}", "5:11: expected '+', ',' or ']', found ';'"},
		{header + ".func f() {\n  ld a, [{b}];\n}", "5:13: an address must begin with a register, a variable or a number"},
		{header + ".func f() {\n  ld a, {b;\n}", "5:11: expected ',' or '}', found ';'"},
		{header + ".func f() {\n  ld a, %r.q;\n}", "5:11: expected a component such as .x, found '.q'"},
		{header + ".func f() {\n  @ ret;\n}", "5:8: expected an instruction, label, declaration or '}', found ';'"},
		{header + ".func f() {\n  @5 ret;\n}", "5:4: expected a predicate register, found '5'"},
		{header + ".func f() {\n  .loc 1 x 2\n}", "5:10: expected a number, found 'x'"},
		{header + ".func f() {\n  .loc 1 2 3, foo x\n}", "5:15: expected function_name, found 'foo'"},
		{header + ".func f() {\n  mov.b32 a, 0f12;\n}", "5:14: malformed number '0f12'"},
		{header + ".func f() {\n  mov.b32 a, 99999999999999999999;\n}", "5:14: malformed number '99999999999999999999'"},
		{header + ".func f() {\n  mov.b32 a, -;\n}", "5:15: expected a number, found ';'"},
		{header + ".func f() {\n  mov.b32 a, !f;\n}", "5:14: expected a register or number, found '!'"},
		{header + ".func f() {\n  \x01;\n}", "5:3: expected an instruction, label, declaration or '}', found '\\x01'"},
		{header + ".func f() {\n  /* not closed\n}", "6:2: expected '}', found the end of the file"},
		{header + ".func f() { .reg .b32 a }", "4:25: expected ';', found '}'"},
	} {
		_, err := Parse(c.src)
		var first *Error
		if !errors.As(err, &first) || first.Error() != c.want {
			t.Errorf("%q:\n got  %v\n want %s", strings.TrimPrefix(c.src, header), first, c.want)
		}
	}
}

// TestSeveralErrors checks that one invalid statement does not hide the next, and is not reported
// twice.
func TestSeveralErrors(t *testing.T) {
	_, err := Parse(header + `
.func a() {
	add.s32 x, , y;
	ret;
	{ mov.b32 [; }
	ld.b32 x [y];
}
.foo "a;b{" ;
.visible .entry b() {
	bra "x";
}
.func c( { }
.func d() { ret; }
`)
	var got []string
	for _, e := range err.(Errors) {
		got = append(got, fmt.Sprint(e.Pos.Line))
	}
	if want := "6 8 9 11 13 15"; strings.Join(got, " ") != want {
		t.Errorf("errors on lines %v, want %s\n%v", got, want, err)
	}
	if !strings.HasSuffix(err.Error(), "(and 5 more)") {
		t.Errorf("summary: %v", err)
	}
	_, err = Parse(header + ".func f() {" + strings.Repeat("x y z;\n", 100) + "}")
	if n := len(err.(Errors)); n != 10 {
		t.Errorf("%d errors are kept, want 10", n)
	}
}

func TestLimits(t *testing.T) {
	body := func(s string) string { return header + ".func f() {" + s + "}" }
	o := Options{MaxBytes: 1000, MaxDepth: 4, MaxStatements: 5, MaxOperands: 8, MaxElements: 3}
	for _, c := range []struct{ src, want string }{
		{strings.Repeat(" ", 1001), "source of 1001 bytes is larger than the limit of 1000"},
		{body("{{{}}}"), ""},
		{body("{{{{}}}}"), "nested deeper than the limit of 4"},
		{body("x [a, [a, [a]]];"), ""},
		{body("x [a, [a, [a, [a]]]];"), "nested deeper than the limit of 4"},
		{body("x {{{{a}}}};"), "nested deeper than the limit of 4"},
		{body("x ----1;"), "nested deeper than the limit of 4"},
		{body("x 1 ? 1 : 1 ? 1 : 1 ? 1 : 1;"), "nested deeper than the limit of 4"},
		{header + ".global .b8 x[1][1][1][1][1] = {{{{{1}}}}};", "nested deeper than the limit of 4"},
		{body("a; a; a; a;"), ""},
		{body("a; a; a; a; a;"), "more statements than the limit of 5"},
		{body(".reg .b32 a, b, c, d, e;"), "more statements than the limit of 5"},
		{body("t: .branchtargets a, b, c, d, e;"), "more statements than the limit of 5"},
		{header + strings.Repeat(".pragma \"x\";", 6), "more statements than the limit of 5"},
		{body("x a, b, c;"), ""},
		{body("x a, b, c, d;"), "more operands than the limit of 3"},
		{body("x {a, b, c, d};"), "more operands than the limit of 3"},
		{body("x a, b, c; x a, b, c; x a, b, c;"), "more operands in all than the limit of 8"},
	} {
		_, err := o.Parse(c.src)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.src, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.src, err, c.want)
		}
	}
	for _, many := range []string{
		".target " + strings.Repeat("a,", 100) + "a",
		".pragma " + strings.Repeat(`"a",`, 100) + `"a";`,
		".global .attribute(" + strings.Repeat(".a,", 100) + ".a) .b32 x;",
		".global .attribute(.a(" + strings.Repeat("1,", 100) + "1)) .b32 x;",
		".file 1 \"x\", 1, 2, 3",
		".func f() .maxntid " + strings.Repeat("1,", 100) + "1;",
		".func f() " + strings.Repeat(".noreturn ", 100) + ";",
		".global .b8 x" + strings.Repeat("[1]", 100) + ";",
		".func f() { x" + strings.Repeat(".y", 100) + "; }",
		".func f() { x " + strings.Repeat(".y ", 100) + "; }",
	} {
		if _, err := Parse(header + many); err == nil || !strings.Contains(err.Error(), "too many") {
			t.Errorf("%.40s…: %v", many, err)
		}
	}
}
