package simt

import (
	"math"
	"testing"

	"vgpud/gpu"
)

// values provides arguments from a list, with strings by index.
type values struct {
	list    []uint64
	strings []string
}

func (v *values) next(int) uint64 {
	if len(v.list) == 0 {
		return 0
	}
	x := v.list[0]
	v.list = v.list[1:]
	return x
}

func (v *values) text(addr uint64) []byte {
	if addr >= uint64(len(v.strings)) {
		return nil
	}
	return []byte(v.strings[addr])
}

// The expected texts are those of C's printf.
func TestPrintf(t *testing.T) {
	f := math.Float64bits
	for _, test := range []struct {
		format, want string
		args         []uint64
	}{
		{"plain, 100%%, 50%", "plain, 100%, 50%", nil},
		{"%d %i %u", "-1 7 4294967295", []uint64{0xffffffff, 7, 0xffffffff}},
		{"[%5d|%-5d|%05d|%+d|% d]", "[   42|42   |-0042|+42| 42]", []uint64{42, 42, 0xffffffd6, 42, 42}},
		{"%x %X %#x %#X %o %#o", "ff FF 0xff 0XFF 17 017", []uint64{255, 255, 255, 255, 15, 15}},
		{"%#x %#o", "0 0", []uint64{0, 0}},
		{"%lld %llu %lx %hhd", "-1 18446744073709551615 ffffffffffffffff 5", []uint64{^uint64(0), ^uint64(0), ^uint64(0), 5}},
		{"%.3d|%8.3d|%-8.3d|%.0d|", "007|     007|007     ||", []uint64{7, 7, 7, 0}},
		{"%c%c%5c", "ab    c", []uint64{'a', 'b', 'c'}},
		{"%s|%8s|%-8s|%.2s", "text|    text|text    |te", []uint64{0, 0, 0, 0}},
		{"%*d|%-*d|%.*f", "    5|5    |1.50", []uint64{5, 5, 5, 5, 2, f(1.5)}},
		{"%f %.0f %#.0f %10.2f %-10.2f| %+.1f", "1.500000 2 2.       3.14 3.14      | +1.0", []uint64{f(1.5), f(2), f(2), f(3.14159), f(3.14159), f(1)}},
		{"%e %.2E %g %g %g %G", "1.234500e+03 1.23E+03 1234.5 1e-05 1e+06 1E+10", []uint64{f(1234.5), f(1234.5), f(1234.5), f(1e-5), f(1e6), f(1e10)}},
		{"%g %g %#g %.3g", "100000 0.0001 1.00000 1.23", []uint64{f(1e5), f(1e-4), f(1), f(1.2345)}},
		{"%f %F %e %010f", "inf -INF nan        inf", []uint64{f(math.Inf(1)), f(math.Inf(-1)), f(math.NaN()), f(math.Inf(1))}},
		{"%08.2f", "-0001.50", []uint64{f(-1.5)}},
		{"%a", "0x1.8p+1", []uint64{f(3)}},
		{"%p", "0x1000", []uint64{0x1000}},
		{"%n %y", "%n %y", nil},
		{"%", "%", nil},
		{"%999999999999d", "", nil}, // limited
	} {
		got := string(printf(nil, []byte(test.format), &values{test.args, []string{"text"}}))
		if test.format == "%999999999999d" {
			if len(got) != maxWidth {
				t.Errorf("%d bytes", len(got))
			}
			continue
		}
		if got != test.want {
			t.Errorf("%q: got %q, want %q", test.format, got, test.want)
		}
	}
}

func FuzzPrintf(f *testing.F) {
	f.Add("%d %s %f", uint64(5))
	f.Add("%*.*e%%%#-+ 0lld", uint64(1)<<63)
	f.Fuzz(func(t *testing.T, format string, arg uint64) {
		out := printf(nil, []byte(format), &values{[]uint64{arg, arg, arg, arg}, []string{"text"}})
		if len(out) > len(format)*(maxWidth+350) {
			t.Errorf("%d bytes of %q", len(out), format)
		}
	})
}

// A failed assertion ends the kernel, with CUDA's message as the fault's text.
func TestAssert(t *testing.T) {
	m := newMachine(t, `
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 expr[6] = {120, 32, 62, 32, 48, 0};
.global .align 1 .b8 file[5] = {97, 46, 99, 117, 0};
.global .align 1 .b8 name[2] = {102, 0};
`+entry(`
	setp.eq.u32 %p1, %r2, 33;
	@!%p1 bra FINE;
	mov.u64 %rd3, expr; mov.u64 %rd4, file; mov.u64 %rd5, name; mov.u64 %rd6, 1; mov.u32 %r3, 17;
	{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
	st.param.b64 [a], %rd3; st.param.b64 [b], %rd4; st.param.b32 [c], %r3; st.param.b64 [d], %rd5; st.param.b64 [e], %rd6;
	call.uni __assertfail, (a, b, c, d, e); }
FINE:
`))
	f := m.run("k", d3(1), d3(64), 0, uint64(0), uint64(0), 0)
	if f == nil || f.Thread.X != 33 || f.Kind != gpu.FaultAssert {
		t.Fatal(f)
	}
	if got, want := f.Error(), "a.cu:17: f: block: [0,0,0], thread: [33,0,0] Assertion `x > 0` failed."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMalloc(t *testing.T) {
	m := newMachine(t, ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n"+entry(`
	mov.u64 %rd3, 24;
	{ .param .b64 n; .param .b64 r; st.param.b64 [n], %rd3; call.uni (r), malloc, (n); ld.param.b64 %rd4, [r]; }
	setp.eq.s64 %p1, %rd4, 0;
	@%p1 bra NONE;
	st.u32 [%rd4+20], %r2;
	ld.u32 %r3, [%rd4+20];
	{ .param .b64 p; st.param.b64 [p], %rd4; call.uni free, (p); }
	bra STORE;
NONE:
	mov.u32 %r3, 9999;
STORE:
`+storeAt("%r2", "u32", "%r3")))
	heap, _ := m.alloc(32 * 30)
	m.mem.SetHeap(heap, 32*30)
	out, data := m.alloc(4 * 32)
	if f := m.run("k", d3(1), d3(32), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		want := uint32(i)
		if i >= 30 {
			want = 9999
		}
		if v != want {
			t.Errorf("thread %d: %d, want %d", i, v, want)
		}
	}
}
