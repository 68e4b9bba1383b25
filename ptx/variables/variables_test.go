package variables

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/ptx"
)

// at has every variable 4 KiB from the one before, as they are asked for. A variable called missing has
// no address, and one called small too few bytes.
type at struct {
	next  uint64
	asked []string
}

var errMissing = errors.New("no such variable")

func (a *at) find(name string) (Place, error) {
	a.asked = append(a.asked, name)
	if a.next == 0 {
		a.next = 0x7f00_0000_0000
	}
	p := Place{a.next, 4096}
	a.next += 4096
	switch name {
	case "missing":
		return Place{}, errMissing
	case "small":
		p.Bytes = 3
	}
	return p, nil
}

// bind binds k of a module, checks the output as every output has to be, and returns its text.
func bind(t testing.TB, src string) (string, *at, error) {
	t.Helper()
	m, err := ptx.Parse(src)
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	before, a := m.String(), &at{}
	out, err := Bind(m, "k", a.find)
	if after := m.String(); after != before {
		t.Fatalf("the module has changed:\n%s\n---\n%s", before, after)
	}
	if err != nil {
		return "", a, err
	}
	return check(t, out), a, nil
}

// check checks that a module parses, binds, and uses no variables in global or constant memory, and returns its text.
func check(t testing.TB, out *ptx.Module) string {
	t.Helper()
	text := out.String()
	m, err := ptx.Parse(text)
	if err != nil {
		t.Fatalf("the output does not parse: %v\n%s", err, text)
	}
	prog, err := ptx.Resolve(m)
	if err != nil {
		t.Fatalf("the output does not bind: %v\n%s", err, text)
	}
	for _, it := range m.Items {
		if v, ok := it.(*ptx.Var); ok && inMemory(v) {
			t.Fatalf("the output has the variable %s:\n%s", v.Name, text)
		}
	}
	for _, c := range prog.Codes {
		for _, in := range c.Instrs {
			if in.Has("const") && in.Opcode != "cvta" {
				t.Fatalf("the output has %v:\n%s", in, text)
			}
		}
	}
	return text
}

// module returns a module with variables of all kinds, functions, and a kernel with the given body.
func module(body string) string {
	return ".version 8.3\n.target sm_90, debug\n.address_size 64\n" + `
.file 1 "k.cu"
.global .u32 word = 7;
.visible .global .align 8 .b8 table[256];
.global .u64 there = generic(table) + 8, other = word;
.const .u32 scale = 3;
.visible .const .align 8 .b8 lines[64];
.const .u64 chain = lines;
.global .u32 missing;
.global .u32 small;
.global .texref picture;
.tex .u32 old;
.global .attribute(.managed) .u32 moved;
.global .u64 pointers[1] = {helper};
.shared .align 4 .b8 cells[64];
.shared .u32 unused;
.extern .shared .align 16 .b8 dynamic[];
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.extern .func stranger ();
.func helper (.param .b32 a) { .reg .b32 %r<4>; .reg .b64 %rd<2>; ld.param.b32 %r1, [a]; st.global.u32 [table+12], %r1; ret; }
.func idle () { .reg .b32 %r<2>; ld.global.u32 %r1, [missing]; ret; }
.func taker (.param .b64 a) { .reg .b64 %rd<2>; .reg .b32 %r<2>; ld.param.b64 %rd1, [a]; ld.const.u32 %r1, [%rd1]; ret; }
.func (.reg .b64 r) giver () { mov.b64 r, lines; ret; }
.func receiver (.reg .b64 r) { ret; }
.visible .entry other_kernel () { .reg .b32 %r<2>; ld.global.u32 %r1, [missing]; ret; }
.visible .entry k (.param .u64 p0)
{
	.reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<9>; .reg .pred %p<9>; .reg .b16 %h<4>; .reg .b32 %vgpud_x;
	.loc 1 7 3
	` + body + "\n}\n.section .debug_info { .b8 1 }\n"
}

// TestBind has each way in which a variable may be used, and what becomes of it. The first variable
// that is used is at 7f00'00000000 (139637976727552), the second 4096 behind it.
func TestBind(t *testing.T) {
	const first, second = "139637976727552", "139637976731648"
	for body, want := range map[string][]string{
		"ld.global.u32 %r1, [word]; ret;":                                                 {"mov.b64 %vgpud1_variable0, " + first + ";", "ld.global.u32 %r1, [%vgpud1_variable0];"},
		"ld.global.v2.u32 {%r1, %r2}, [table+16];":                                        {"mov.b64 %vgpud1_variable0, 139637976727568;", "ld.global.v2.u32 {%r1, %r2}, [%vgpud1_variable0];"},
		"@%p1 st.global.u32 [table], %r1;":                                                {"mov.b64 %vgpud1_variable0, " + first + ";", "@%p1 st.global.u32 [%vgpud1_variable0], %r1;"},
		"atom.global.add.u32 %r1, [word], 1;":                                             {"atom.global.add.u32 %r1, [%vgpud1_variable0], 1;"},
		"red.global.add.u32 [table+4], 1;":                                                {"red.global.add.u32 [%vgpud1_variable0], 1;"},
		"st.u32 [word], 5;":                                                               {"st.u32 [%vgpud1_variable0], 5;"},
		"prefetch.global.L2 [table];":                                                     {"prefetch.global.L2 [%vgpud1_variable0];"},
		"cp.async.ca.shared.global [cells], [table+16], 16; cp.async.wait_all;":           {"cp.async.ca.shared.global [cells], [%vgpud1_variable0], 16;"},
		"mov.u64 %rd1, table;":                                                            {"mov.u64 %rd1, " + first + ";"},
		"@%p1 mov.b64 %rd1, table+8;":                                                     {"@%p1 mov.b64 %rd1, 139637976727560;"},
		"mov.u64 %rd1, generic(table);":                                                   {"mov.u64 %rd1, " + first + ";"},
		"cvta.global.u64 %rd1, table;":                                                    {"cvta.global.u64 %rd1, %vgpud1_variable0;"},
		"add.s64 %rd1, %rd2, table;":                                                      {"add.s64 %rd1, %rd2, %vgpud1_variable0;"},
		"selp.b64 %rd1, table, word, %p1;":                                                {"mov.b64 %vgpud1_variable0, " + first + ";", "mov.b64 %vgpud1_variable1, " + second + ";", "selp.b64 %rd1, %vgpud1_variable0, %vgpud1_variable1, %p1;"},
		"ld.const.u32 %r1, [scale];":                                                      {"ld.global.u32 %r1, [%vgpud1_variable0];"},
		"ld.weak.const.v2.f32 {%f1, %f2}, [lines+8];":                                     {"ld.weak.global.v2.f32 {%f1, %f2}, [%vgpud1_variable0];"},
		"cvta.const.u64 %rd1, lines; ld.u32 %r1, [%rd1];":                                 {"cvta.global.u64 %rd1, %vgpud1_variable0;"},
		"mov.u64 %rd1, lines; cvta.const.u64 %rd2, %rd1; st.global.u64 [%rd9], %rd2;":     {"mov.u64 %rd1, " + first + ";", "cvta.global.u64 %rd2, %rd1;"},
		"mov.u64 %rd1, lines; add.s64 %rd2, %rd1, %rd3; ld.const.f32 %f1, [%rd2+4];":      {"ld.global.f32 %f1, [%rd2+4];"},
		"mov.u64 %rd1, lines; mad.wide.u32 %rd2, %r1, 4, %rd1; ld.const.f32 %f1, [%rd2];": {"ld.global.f32 %f1, [%rd2];"},
		"mov.u64 %rd1, lines; L: ld.const.f32 %f1, [%rd1]; add.s64 %rd1, %rd1, 4; setp.lt.u64 %p1, %rd1, %rd2; @%p1 bra L; ret;":   {"ld.global.f32 %f1, [%rd1];", "@%p1 bra L;"},
		"cvta.to.const.u64 %rd2, %rd1; ld.const.f32 %f1, [%rd2];":                                                                  {"cvta.to.global.u64 %rd2, %rd1;"},
		"{ .param .b32 a; st.param.b32 [a], %r1; call helper, (a); }":                                                              {".func helper", "st.global.u32 [%vgpud1_variable0], %r1;", "call helper, (a);"},
		"{ .param .b32 r; .param .b64 f; .param .b64 a; mov.u64 %rd1, table; st.param.b64 [f], %rd1; call (r), vprintf, (f, a); }": {".extern .func (.param .b32 r) vprintf", "mov.u64 %rd1, " + first + ";"},
		"mov.u32 %r1, cells; ld.shared.u32 %r1, [dynamic];":                                                                        {".shared .align 4 .b8 cells[64];", ".extern .shared .align 16 .b8 dynamic[];", "mov.u32 %r1, cells;"},
	} {
		text, _, err := bind(t, module(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: missing: %s\n%s", body, w, text)
			}
		}
		for _, w := range []string{".loc", ".file", ".section", "debug", "other_kernel", "idle", "unused"} {
			if strings.Contains(text, w) {
				t.Errorf("%s: the output still has %s\n%s", body, w, text)
			}
		}
	}
}

// TestAsksOnce: the driver is asked only for what is used, and once.
func TestAsksOnce(t *testing.T) {
	_, a, err := bind(t, module("ld.global.u32 %r1, [word]; ld.global.u32 %r2, [word]; { .param .b32 a; call helper, (a); } mov.u64 %rd1, table; ret;"))
	if got := strings.Join(a.asked, " "); err != nil || got != "word table" {
		t.Errorf("asked for %s, %v", got, err)
	}
}

// TestRefusals has each reason.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		body string
		want Reason
	}{
		{"ret;", None},
		{"call stranger; ret;", None},
		{"ld.global.u32 %r1, [missing]; ret;", NoAddress},
		{"ld.global.u32 %r1, [small]; ret;", NoAddress},
		{"call idle; ret;", NoAddress},
		{".global .u32 mine; ld.global.u32 %r1, [mine]; ret;", InFunction},
		{".const .u32 mine; ret;", InFunction},
		{"tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [picture, {%r1}]; ret;", Texture},
		{"tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [old, {%r1}]; ret;", Texture},
		{"mov.u64 %rd1, picture; ret;", Texture},
		{"ld.global.u32 %r1, [moved]; ret;", Managed},
		{"mov.u64 %rd1, helper; st.global.u64 [%rd2], %rd1; ret;", FunctionAddress},
		{"ld.global.u64 %rd1, [pointers]; { .param .b32 a; call %rd1, (a), proto; } ret; proto: .callprototype _ (.param .b32 _);", FunctionAddress},
		{"ld.const.u32 %r1, [%rd1]; ret;", ConstantAddress},
		{"ld.const.u64 %rd1, [chain]; ld.const.u32 %r1, [%rd1]; ret;", ConstantAddress},
		{"ld.global.u64 %rd1, [there]; cvta.const.u64 %rd2, %rd1; ret;", ConstantAddress},
		{"ld.param.u64 %rd1, [p0]; selp.b64 %rd2, %rd1, lines, %p1; ld.const.u32 %r1, [%rd2]; ret;", ConstantAddress},
		{"mov.u64 %rd1, lines; @%p1 ld.param.u64 %rd1, [p0]; ld.const.u32 %r1, [%rd1]; ret;", ConstantAddress},
		{"mov.u64 %rd1, lines; st.global.u64 [%rd2], %rd1; ret;", ConstantAddress},
		{"mov.u64 %rd1, lines; xor.b64 %rd3, %rd1, %rd2; st.global.u64 [%rd2], %rd3; ret;", ConstantAddress},
		{"st.global.u64 [%rd2], lines; ret;", ConstantAddress},
		{"mov.b64 %rd1, lines; mov.b64 {%r1, %r2}, %rd1; shfl.sync.down.b32 %r4, %r1, 1, 31, -1; ret;", ConstantAddress},
		{"mov.b64 %rd1, lines; atom.global.exch.b64 %rd2, [%rd3], %rd1; ret;", ConstantAddress},
		{"{ .param .b64 a; mov.b64 %rd1, lines; st.param.b64 [a], %rd1; call taker, (a); } ret;", ConstantAddress},
		{"call (%rd1), giver, (); ret;", ConstantAddress},
		{"mov.b64 %rd1, lines; call receiver, (%rd1); ret;", ConstantAddress},
		{"mov.b64 %rd1, lines; sub.s64 %rd2, %rd3, %rd1; ld.const.u32 %r1, [%rd2]; ret;", ConstantAddress},
		{"mov.b64 %rd1, lines; and.b64 %rd2, %rd1, 63; ld.const.u32 %r1, [%rd2]; ret;", ConstantAddress},
		{"mov.b64 %rd1, lines; or.b64 %rd2, %rd1, 8; ld.const.u32 %r1, [%rd2]; ret;", None},
		{"ld.const.u32 %r1, [64]; ret;", ConstantAddress},
		{"isspacep.const %p1, %rd1; ld.const.u32 %r1, [scale]; ret;", SpaceQuery},
		{"isspacep.global %p1, %rd1; ld.const.u32 %r1, [scale]; ret;", SpaceQuery},
		{"isspacep.global %p1, %rd1; ld.global.u32 %r1, [word]; ret;", None},
		{"mov.u32 %r1, table; ret;", NarrowAddress},
		{"prefetch.const.tensormap [%rd1]; ret;", UnsupportedUse},
		{"ld.const.u32 %r1, [word]; ret;", UnsupportedUse},
		{"ld.global.u32 %r1, [scale]; ret;", UnsupportedUse},
		{"cvta.to.global.u64 %rd1, table; ret;", UnsupportedUse},
		{"call receiver, (table); ret;", UnsupportedUse},
	} {
		_, _, err := bind(t, module(c.body))
		if got := reason(t, err); got != c.want {
			t.Errorf("%s: %v, want %v", c.body, err, c.want)
		}
	}
	_, _, err := bind(t, module("ld.global.u32 %r1, [missing]; ret;"))
	if !errors.Is(err, errMissing) {
		t.Errorf("%v hides what the driver said", err)
	}
	if _, _, err := bind(t, strings.Replace(module("ret;"), ".global .u32 word = 7;", ".global .u32 word = 7; .global .u64 place = cells;", 1)); reason(t, err) != SharedAddress {
		t.Errorf("a shared variable's address in memory: %v", err)
	}
	if _, _, err := bind(t, strings.ReplaceAll(module("ret;"), ".entry k ", ".entry another ")); reason(t, err) != NoBody {
		t.Errorf("no kernel: %v", err)
	}
	if _, _, err := bind(t, strings.Replace(module("ret;"), ".address_size 64", "", 1)); reason(t, err) != NarrowAddress {
		t.Errorf("32-bit addresses: %v", err)
	}
}

func reason(t testing.TB, err error) Reason {
	t.Helper()
	if err == nil {
		return None
	}
	r, ok := errors.AsType[*Refusal](err)
	if !ok || r.Reason == None || r.Reason >= reasons || r.Detail == "" {
		t.Fatalf("%T %v", err, err)
	}
	return r.Reason
}

// TestAlias: a function that is called by another name stays, under both.
func TestAlias(t *testing.T) {
	src := strings.Replace(module("call second; ret;"), ".visible .entry k", ".func first () { st.global.u32 [word], 1; ret; }\n.func second ();\n.alias second, first;\n.visible .entry k", 1)
	text, _, err := bind(t, src)
	if err != nil || !strings.Contains(text, ".alias second, first;") || !strings.Contains(text, "st.global.u32 [%vgpud1_variable0], 1;") {
		t.Errorf("%v\n%s", err, text)
	}
}

// samples calls f with real compilers' modules.
func samples(t testing.TB, f func(name, src string)) {
	for _, pattern := range []string{"../testdata/*.ptx", "../testdata/real/*.ptx"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no samples at %s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f(filepath.Base(name), string(text))
		}
	}
}

// all binds each kernel of a module, and returns how many there are and how many could be bound.
func all(t testing.TB, name string, m *ptx.Module) (kernels, made int) {
	for _, it := range m.Items {
		f, ok := it.(*ptx.Func)
		if !ok || !f.Entry {
			continue
		}
		kernels++
		// The module is bound anew for each.
		switch out, err := Bind(m, f.Name, (&at{}).find); {
		case err == nil:
			made++
			check(t, out)
		case reason(t, err) == NoBody && f.Body != nil:
			t.Errorf("%s: %s has a body: %v", name, f.Name, err)
		default:
			t.Logf("%s: %s: %v", name, f.Name, err)
		}
	}
	return kernels, made
}

func TestSamples(t *testing.T) {
	kernels, made := 0, 0
	samples(t, func(name, src string) {
		m, err := ptx.Parse(src)
		if err != nil {
			t.Fatal(err)
		}
		n, k := all(t, name, m)
		kernels, made = kernels+n, made+k
	})
	t.Logf("%d of %d kernels are bound", made, kernels)
	if made*3 < kernels*2 {
		t.Errorf("only %d of %d kernels are bound", made, kernels)
	}
}

// FuzzBind checks Bind's promises for any module: no panic, the module keeps its text, and an output
// that parses, binds and has no variables of its own.
func FuzzBind(f *testing.F) {
	samples(f, func(_, src string) {
		if len(src) < 8<<10 {
			f.Add(src)
		}
	})
	f.Add(module("ld.const.u64 %rd1, [chain]; mov.u64 %rd2, lines; add.s64 %rd3, %rd2, %rd1; ld.const.u32 %r1, [%rd3]; { .param .b32 a; call helper, (a); } exit;"))
	f.Add(module("selp.b64 %rd1, table+4, word, %p1; cp.async.ca.shared.global [cells], [table], 16; atom.global.add.u32 %r1, [word], 1; ret;"))
	f.Fuzz(func(t *testing.T, src string) {
		m, err := ptx.Options{MaxBytes: 1 << 20, MaxStatements: 1 << 16}.Parse(src)
		if err != nil {
			return
		}
		if _, err := ptx.Resolve(m); err != nil {
			return
		}
		before, kernels := m.String(), 0
		for _, it := range m.Items {
			if fn, ok := it.(*ptx.Func); ok && kernels < 8 {
				kernels++
				out, err := Bind(m, fn.Name, (&at{}).find)
				if reason(t, err) == None {
					check(t, out)
				}
			}
		}
		if m.String() != before {
			t.Fatal("the module has changed")
		}
	})
}
