package executor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// newMovingRig returns a rig whose context may move.
func newMovingRig(t testing.TB) *rig {
	t.Helper()
	r := newRigOn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1}, gpu.ContextOptions{MemoryLimit: 32 << 20})
	r.options.Moves = true
	r.x.places = newPlaces(r.ctx)
	return r
}

// save has the context leave its GPU. It returns where it was saved, or why it stays.
func (r *rig) save() (f *os.File, err error) {
	r.t.Helper()
	fd, err := unix.MemfdCreate("saved", unix.MFD_CLOEXEC)
	if err != nil {
		r.t.Fatal(err)
	}
	f = os.NewFile(uintptr(fd), "saved")
	answered := false
	r.x.Save(f, func(s ipc.Saved, e error) { answered, r.wants, err = true, s.Wants, e })
	r.stepUntil("the context leaves or stays", func() bool { return answered })
	return f, err
}

// restore makes the context anew on a GPU of another size, which has contexts already.
func (r *rig) restore(f *os.File, closed ...int) {
	r.t.Helper()
	r.end()
	dev, err := soft.NewLocal(soft.Options{MemoryBytes: 96 << 20, Priority: -1})
	if err != nil {
		r.t.Fatal(err)
	}
	other, err := dev.NewContext(r.t.Context(), gpu.ContextOptions{MemoryLimit: 1 << 20})
	if err != nil {
		r.t.Fatal(err)
	}
	defer other.Close()
	if r.options.Context, err = dev.NewContext(r.t.Context(), gpu.ContextOptions{MemoryLimit: 32 << 20}); err != nil {
		r.t.Fatal(err)
	}
	r.options.Device = dev
	r.start()
	if err := r.x.Restore(f, closed); err != nil {
		r.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// TestPrintedIsBounded: output that is never asked for does not grow with each move for ever: the
// newest stays.
func TestPrintedIsBounded(t *testing.T) {
	var printed []byte
	for i := range 5 {
		printed = keepPrinted(printed, bytes.Repeat([]byte{byte(i)}, maxPrinted/2-1))
	}
	if len(printed) != maxPrinted || printed[0] != 2 || printed[maxPrinted-1] != 4 {
		t.Errorf("%d bytes, from %d to %d", len(printed), printed[0], printed[len(printed)-1])
	}
}

// await steps the executor until n completions wait, and fails the test if they don't come.
func (g *guestEnd) await(n int) {
	g.r.t.Helper()
	var w proctest.Wait
	for {
		got, err := g.com.Pending()
		if err = errors.Join(err, w.Over()); err != nil {
			g.r.t.Fatalf("%d completions, want %d: %v", got, n, err)
		}
		if got >= n {
			return
		}
		g.r.x.Step(false)
		runtime.Gosched()
	}
}

// move moves the context to another GPU.
func (r *rig) move(closed ...int) {
	r.t.Helper()
	f, err := r.save()
	if err != nil {
		r.t.Fatal(err)
	}
	r.restore(f, closed...)
}

// globalPTX adds to a variable of its module, whose address is in another variable, and stores the
// sum. It has a constant, too.
const globalPTX = ptxHeader + `
.const .u32 step = 5;
.global .u32 sum = 100;
.global .u64 where = sum;
.visible .entry add(.param .u64 p)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	ld.global.u64 %rd2, [where];
	ld.const.u32 %r1, [step];
	ld.global.u32 %r2, [%rd2];
	add.s32 %r3, %r1, %r2;
	st.global.u32 [%rd2], %r3;
	st.global.u32 [%rd1], %r3;
	ret;
}
`

// put copies bytes to GPU memory, and get copies them back.
func (g *guestEnd) put(at uint64, b []byte) {
	g.r.t.Helper()
	copy(g.r.shared[staging:], b)
	g.must(abi.OpCopyIn, abi.Transfer{Dst: at, Src: staging, Size: uint64(len(b))})
}

func (g *guestEnd) get(at uint64, n int) []byte {
	g.r.t.Helper()
	g.must(abi.OpCopyOut, abi.Transfer{Dst: staging, Src: at, Size: uint64(n)})
	return bytes.Clone(g.r.shared[staging : staging+n])
}

// A context that moved has everything where it was: memory, a chain of pointers in it, functions,
// variables and their addresses, attributes, limits, events, and handles that are not given again.
func TestMovedContextGoesOn(t *testing.T) {
	r := newMovingRig(t)
	g := r.open()
	at := g.must(abi.OpMemAlloc, abi.Alloc{Size: 3 << 20}).Value[0]
	second := g.must(abi.OpMemAlloc, abi.Alloc{Size: 100}).Value[0]
	inc, add := g.load(incPTX, "inc"), g.load(globalPTX, "add")
	module := r.x.functions.byID[add].module
	sum := g.must(abi.OpGlobal, abi.Lookup{Module: module, NameBytes: 3}, []byte("sum")...).Value[0]
	g.must(abi.OpSetLimit, abi.Query{Key: uint32(gpu.LimitStack), Value: 32 << 10})
	g.must(abi.OpFunctionSetAttribute, abi.Query{Handle: inc, Key: abi.FunctionCarveout, Value: 30})
	event := g.must(abi.OpEventCreate, abi.Empty{}).Value[0]
	run := func(fn uint64, at uint64, threads uint32) {
		t.Helper()
		l, params := launchOf(fn, threads, at)
		g.must(abi.OpLaunch, l, params...)
	}
	g.put(at+2<<20, binary.LittleEndian.AppendUint32(nil, 41))
	run(add, second, 1)
	window := g.must(abi.OpWindowAddress, abi.Mapping{Window: abi.Window{Offset: staging, Size: 4096}}).Value[0]
	began := g.must(abi.OpEventRecord, abi.Handle{Handle: event}).Value[0]
	for i := range 3 {
		r.move()
		run(inc, at+2<<20, 1)
		run(add, second, 1)
		if v := binary.LittleEndian.Uint32(g.get(at+2<<20, 4)); v != uint32(42+i) {
			t.Errorf("after %d moves memory has %d, want %d", i+1, v, 42+i)
		}
		if v := binary.LittleEndian.Uint32(g.get(sum, 4)); v != uint32(110+5*i) {
			t.Errorf("after %d moves the variable has %d, want %d", i+1, v, 110+5*i)
		}
	}
	clear(r.shared[staging : staging+4])
	run(inc, window, 1)
	if v := binary.LittleEndian.Uint32(r.shared[staging:]); v != 1 {
		t.Errorf("a kernel stored %d in a window", v)
	}
	if v := g.must(abi.OpGlobal, abi.Lookup{Module: module, NameBytes: 3}, []byte("sum")...).Value[0]; v != sum {
		t.Errorf("the variable is at %#x, was at %#x", v, sum)
	}
	if v := g.must(abi.OpFunctionAttribute, abi.Query{Handle: inc, Key: abi.FunctionCarveout}).Value[0]; v != 30 {
		t.Errorf("the function's attribute is %d, was 30", v)
	}
	if v := g.must(abi.OpLimit, abi.Query{Key: uint32(gpu.LimitStack)}).Value[0]; v != 32<<10 {
		t.Errorf("the limit of the stack is %d", v)
	}
	if c := g.must(abi.OpEventQuery, abi.Handle{Handle: event}); c.Value[0] != abi.EventReached || c.Value[1] != began {
		t.Errorf("the event's state is %d at %d, was reached at %d", c.Value[0], c.Value[1], began)
	}
	end := g.must(abi.OpEventCreate, abi.Empty{}).Value[0]
	if end == event {
		t.Error("an event's handle was given again")
	}
	g.must(abi.OpEventRecord, abi.Handle{Handle: end})
	if d := time.Duration(g.must(abi.OpEventElapsed, abi.Elapsed{Start: event, End: end}).Value[0]); d <= 0 || d > time.Minute {
		t.Errorf("between events before and after three moves there are %v", d)
	}
	if a := g.must(abi.OpMemAlloc, abi.Alloc{Size: 3 << 20}).Value[0]; a < at+3<<20 && at < a+3<<20 || a <= second && second < a+3<<20 {
		t.Errorf("new memory is at %#x, where there was some", a)
	}
	g.must(abi.OpMemFree, abi.Handle{Handle: at})
	if c := g.call(abi.Header{Op: abi.OpMemFree}, abi.Handle{Handle: at}); c.Status != abi.StatusInvalidAddress {
		t.Errorf("memory is freed twice: %v", c.Status)
	}
}

// Commands that were submitted and not begun when a context left are carried out where it goes on:
// those that were fetched already, in mid-ring, and those that were not.
func TestMoveKeepsCommands(t *testing.T) {
	r := newMovingRig(t)
	g, other := r.open(), r.open()
	at := g.must(abi.OpMemAlloc, abi.Alloc{Size: 256}).Value[0]
	inc := g.load(incPTX, "inc")
	ev := g.call(abi.Header{Op: abi.OpEventCreate, Aux: abi.EventTriggered}, abi.Empty{}).Value[0]
	for range 50 { // so that the rings wrap
		g.must(abi.OpFence, abi.Empty{})
	}
	l, params := launchOf(inc, 1, at)
	g.send(abi.Header{Op: abi.OpEventAwait}, abi.Point{Handle: ev, Value: 7})
	for range 5 {
		g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	}
	r.x.Step(false)
	if ch := r.x.channels[0]; ch.next == ch.held {
		t.Fatal("nothing was fetched that waits")
	}
	r.move()
	if r.wants {
		t.Error("a context wants a GPU whose commands wait for an event")
	}
	for range 5 {
		g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	}
	other.must(abi.OpEventTrigger, abi.Point{Handle: ev, Value: 7})
	g.await(11)
	for i, c := range g.receive(11) {
		if c.Status != abi.StatusOK || c.Cookie != g.n-10+uint64(i) {
			t.Fatalf("answer %d is %+v", i, c)
		}
	}
	if v := binary.LittleEndian.Uint32(g.get(at, 4)); v != 10 {
		t.Errorf("10 launches were carried out %d times", v)
	}
	// A channel that was closed meanwhile is not served any more, and the others are.
	f, err := r.save()
	if err != nil || r.wants {
		t.Fatalf("a context without commands wants a GPU: %v; %v", r.wants, err)
	}
	other.send(abi.Header{Op: abi.OpFence}, abi.Empty{})
	r.restore(f, 1)
	g.must(abi.OpFence, abi.Empty{})
	if n, err := other.com.Pending(); n != 0 || err != nil {
		t.Errorf("a closed channel answers %d commands, %v", n, err)
	}
}

// A context waits with leaving for what is on the GPU, and begins nothing new.
func TestContextLeavesOnceQuiet(t *testing.T) {
	r := newMovingRig(t)
	g := r.open()
	spin := g.load(spinPTX, "spin")
	l, params := launchOf(spin, 32, 60_000)
	g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	r.stepUntil("the kernel is on the GPU", func() bool { return r.x.launches == 1 })
	g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	r.move()
	if !r.wants {
		t.Error("a context with a launch wants no GPU")
	}
	if n, err := g.com.Pending(); n != 1 || err != nil {
		t.Fatalf("%d launches had ended when it left (%v), want the one that was on the GPU", n, err)
	}
	g.await(2)
	for _, c := range g.receive(2) {
		if c.Status != abi.StatusOK {
			t.Errorf("launch: %v", c.Status)
		}
	}
}

// A context that has what can't be made anew stays, says why, and goes on.
func TestContextsThatStay(t *testing.T) {
	cases := map[string]func(g *guestEnd){
		"an array": func(g *guestEnd) {
			g.must(abi.OpArrayCreate, abi.Array{Width: 16, Format: uint16(gpu.FormatFloat), Channels: 1})
		},
		"a heap": func(g *guestEnd) {
			g.load(ptxHeader+`
.extern .func (.param .b64 r) malloc(.param .b64 n);
.visible .entry k()
{
	.reg .b64 %rd<2>;
	{
	.param .b64 n;
	st.param.b64 [n], 16;
	.param .b64 r;
	call.uni (r), malloc, (n);
	}
	ret;
}
`, "k")
		},
		"a fault": func(g *guestEnd) {
			l, params := launchOf(g.load(incPTX, "inc"), 1, 8)
			if c := g.call(abi.Header{Op: abi.OpLaunch}, l, params...); c.Status != abi.StatusIllegalAddress {
				g.r.t.Fatalf("the launch ends with %v", c.Status)
			}
		},
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			r := newMovingRig(t)
			g := r.open()
			prepare(g)
			f, err := r.save()
			if err == nil {
				t.Error("it has left")
			}
			if r.x.gone {
				t.Fatal("it does not go on")
			}
			g.call(abi.Header{Op: abi.OpNop}, abi.Empty{})
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a GPU that can't", func(t *testing.T) {
		r := newFakeRig(t)
		f, err := r.save()
		if err == nil {
			t.Error("it has left")
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Whatever a guest allocates, frees, sets, copies and launches, a context that moves in between has
// the same memory as one that does not.
func TestMoveProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newMovingRig(t)
		g := r.open()
		inc := g.load(incPTX, "inc")
		want := map[uint64][]byte{}
		pick := func(rt *rapid.T) uint64 {
			if len(want) == 0 {
				rt.Skip("no memory")
			}
			return rapid.SampledFrom(slices.Sorted(maps.Keys(want))).Draw(rt, "memory")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"alloc": func(rt *rapid.T) {
				n := rapid.Uint64Range(128, 200_000).Draw(rt, "bytes")
				c := g.call(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: n})
				if c.Status == abi.StatusOutOfMemory && len(want) > 100 {
					return
				}
				if c.Status != abi.StatusOK {
					rt.Fatalf("allocate %d: %v", n, c.Status)
				}
				want[c.Value[0]] = make([]byte, n)
			},
			"free": func(rt *rapid.T) {
				p := pick(rt)
				g.must(abi.OpMemFree, abi.Handle{Handle: p})
				delete(want, p)
			},
			"set": func(rt *rapid.T) {
				p := pick(rt)
				from := rapid.IntRange(0, len(want[p])-1).Draw(rt, "from")
				n := rapid.IntRange(1, len(want[p])-from).Draw(rt, "n")
				v := rapid.Byte().Draw(rt, "value")
				g.must(abi.OpSet, abi.Set{Dst: p + uint64(from), Value: uint32(v), Width: 1, Count: uint64(n), Rows: 1})
				copy(want[p][from:], bytes.Repeat([]byte{v}, n))
			},
			"launch": func(rt *rapid.T) {
				p := pick(rt)
				l, params := launchOf(inc, 32, p)
				g.must(abi.OpLaunch, l, params...)
				for i := range 32 {
					b := want[p][4*i:]
					binary.LittleEndian.PutUint32(b, binary.LittleEndian.Uint32(b)+1)
				}
			},
			"move": func(rt *rapid.T) { r.move() },
		})
		r.move()
		for p, b := range want {
			if !bytes.Equal(g.get(p, len(b)), b) {
				rt.Fatalf("%d bytes at %#x are wrong", len(b), p)
			}
		}
		r.end()
	})
}
