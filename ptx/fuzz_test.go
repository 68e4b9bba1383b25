package ptx

import (
	"strings"
	"testing"
)

// FuzzParse parses anything. Accepted text must print, parse again to the same tree, and be safe to
// resolve; other text must give an error with a position.
func FuzzParse(f *testing.F) {
	for _, src := range samples(f) {
		if len(src) < 6_000 { // the engine is slow on larger ones
			f.Add(src)
		}
	}
	for _, body := range []string{
		"@p bra L; L:", "{{{}}}", "call (r), f, (a, 1), p;", "ld [a, {b}, c|d];", ".reg .b32 %r<5>, x;",
		"mov a, ((((1))))+-!~2 ? 3 : 0x1U;", "t: .branchtargets a, b;", "p : .callprototype (.param .b32 _) _ () .noreturn;",
		".loc 1 2 3, function_name x+1, inlined_at 1 2 3", ".pragma \"x\";", "vadd a, -b.h1, c.b3210;",
	} {
		f.Add(header + ".func f() {" + body + "}")
	}
	f.Add(header + ".global .v2 .b8 x[][3] = {{{1,2},{3}}, 0xff(y), generic(z)+1};")
	limits := Options{MaxBytes: 1 << 16, MaxDepth: 16, MaxStatements: 1 << 12, MaxOperands: 1 << 12}
	f.Fuzz(func(t *testing.T, src string) {
		m, err := limits.Parse(src)
		if err != nil {
			for _, e := range err.(Errors) {
				if len(src) <= limits.MaxBytes && (e.Pos.Line == 0 || e.Pos.Col == 0) || e.Error() == "" || len(e.Error()) > 1000 {
					t.Fatalf("error without a place, or too long: %v", e)
				}
			}
			return
		}
		text := m.String()
		again, err := Options{}.Parse(text)
		if err != nil {
			t.Fatalf("printed module does not parse: %v\n%s", err, text)
		}
		if d := diff(m, again); d != "" {
			t.Fatalf("-first +second:\n%s\n%s", d, text)
		}
		for _, it := range again.Items {
			if v, ok := it.(*Var); ok && v.Init != nil {
				n := 0
				for _, err := range v.Values() {
					if err != nil {
						t.Fatalf("initialiser of %s, which Parse accepted: %v", v.Name, err)
					}
					n++
				}
				if int64(n) > v.Len() {
					t.Fatalf("%s has %d elements and %d values", v.Name, v.Len(), n)
				}
			}
		}
		if p, err := Resolve(again); err == nil {
			for _, c := range p.Codes {
				checkCode(t, c)
			}
		}
	})
}

// TestWorkIsLinear parses texts that make a naive parser scan the same bytes repeatedly. They are
// so large that quadratic work would not end within a test's time limit.
func TestWorkIsLinear(t *testing.T) {
	const n = 1 << 20
	for name, src := range map[string]string{
		"escaped quotes":     header + strings.Repeat(`"\`, n),
		"in a body":          header + ".func f() { ." + strings.Repeat(`"\`, n),
		"open comments":      header + strings.Repeat("/*", n),
		"dots":               header + ".func f() { ." + strings.Repeat("..a", n),
		"parentheses":        header + ".func f() { x " + strings.Repeat("(", n),
		"braces":             header + ".func f() " + strings.Repeat("{", n),
		"brackets":           header + ".func f() { x " + strings.Repeat("[a,", n),
		"signs":              header + ".global .b32 x = " + strings.Repeat("-", n),
		"a long name":        header + ".func f() { " + strings.Repeat("x", n),
		"a long number":      header + ".global .b32 x = " + strings.Repeat("1", n) + ";",
		"many modifiers":     header + ".func f() { x" + strings.Repeat(".y", n) + "; }",
		"many operands":      header + ".func f() { x " + strings.Repeat("y,", n) + "y; }",
		"many elements":      header + ".func f() { x {" + strings.Repeat("y,", n) + "y}; }",
		"many nested rows":   header + ".global .b8 x[][1000000] = {" + strings.Repeat("{1},", n) + "};",
		"hashes":             header + strings.Repeat(" #", n),
		"digits of ranges":   header + ".func f() { .reg .b32 %r<9>; x %r" + strings.Repeat("1", n) + "; }",
		"labels and spaces":  header + ".func f() { x" + strings.Repeat(" ", n) + ": }",
		"unterminated block": header + ".func f() {" + strings.Repeat("a;", n),
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(src)
			if err == nil {
				Resolve(m)
			}
		})
	}
}
