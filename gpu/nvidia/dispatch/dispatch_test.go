package dispatch

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/internal/memfd"
	"vgpud/internal/proctest"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
	"vgpud/ptx"
	"vgpud/ptx/variables"
)

// echoPTX has kernels whose threads add a number to their own of an array, each by another way.
const echoPTX = `.version 6.0
.target sm_52
.address_size 64
.visible .entry other(.param .u64 out) { ret; }
.visible .entry echo(.param .u64 out, .param .u32 add)
{
	.reg .b32 %r<10>;
	.reg .b64 %rd<6>;
	.reg .pred %p;
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r1, [add];
	mov.u32 %r2, %tid.x;
	mov.u32 %r3, %tid.y;
	mov.u32 %r4, %ntid.x;
	mad.lo.u32 %r2, %r3, %r4, %r2;
	mov.u32 %r5, %ntid.y;
	mul.lo.u32 %r4, %r4, %r5;
	mov.u32 %r6, %ctaid.x;
	mad.lo.u32 %r2, %r6, %r4, %r2;
	mul.wide.u32 %rd2, %r2, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r7, [%rd3];
	add.u32 %r7, %r7, %r1;
	st.global.u32 [%rd3], %r7;
	ret;
}
.visible .entry turn(.param .u64 out, .param .u32 add)
{
	.shared .align 4 .b8 cells[256];
	.reg .b32 %r<12>;
	.reg .b64 %rd<6>;
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r1, [add];
	mov.u32 %r2, %tid.x;
	mov.u32 %r3, cells;
	mad.lo.u32 %r4, %r2, 4, %r3;
	st.shared.u32 [%r4], %r1;
	bar.sync 0;
	xor.b32 %r5, %r2, 63;
	mad.lo.u32 %r5, %r5, 4, %r3;
	ld.shared.u32 %r6, [%r5];
	mul.wide.u32 %rd2, %r2, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r7, [%rd3];
	add.u32 %r7, %r7, %r6;
	st.global.u32 [%rd3], %r7;
	bar.sync 0;
	ret;
}
.visible .entry wide(.param .u64 out, .param .align 8 .b8 many[400])
{
	.reg .b32 %r<6>;
	.reg .b64 %rd<6>;
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r1, [many];
	ld.param.u32 %r2, [many+396];
	add.u32 %r1, %r1, %r2;
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %rd2, %r2, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r3, [%rd3];
	add.u32 %r3, %r3, %r1;
	st.global.u32 [%rd3], %r3;
	ret;
}
.visible .entry trap(.param .u64 out) { trap; ret; }
`

// bench is an event area, a control block and a context of a GPU in software.
type bench struct {
	t       *testing.T
	ctx     gpu.Context
	ch      gpu.Channel
	area    []byte
	control Control
	at, cat gpu.Ptr
	launch  *gpu.Launch
	poller  *eventqueue.Poller
	number  uint32
	flying  gpu.Fence // the dispatcher
}

func shared(t *testing.T, ctx gpu.Context, n int, at gpu.Ptr) ([]byte, gpu.Ptr) {
	t.Helper()
	fd, err := unix.MemfdCreate("dispatch", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "dispatch")
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(int64(n)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ctx.(gpu.HostMapper).MapHost(f, 0, mem, at)
	if err != nil {
		t.Fatal(err)
	}
	return mem, p
}

func newBench(t *testing.T) *bench {
	t.Helper()
	d, err := soft.NewLocal(soft.Options{MemoryBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &bench{t: t}
	if b.ctx, err = d.NewContext(t.Context(), gpu.ContextOptions{}); err != nil {
		t.Fatal(err)
	}
	if b.ch, err = b.ctx.NewChannel(); err != nil {
		t.Fatal(err)
	}
	b.area, b.at = shared(t, b.ctx, abi.EventAreaBytes, 0x6000_0000_0000)
	var mem []byte
	mem, b.cat = shared(t, b.ctx, ControlBytes, 0x6100_0000_0000)
	b.control = NewControl(mem)
	return b
}

// prepare makes and loads the dispatcher of one of echoPTX's kernels.
func (b *bench) prepare(k *Kernel, params []byte) *eventqueue.Launcher {
	return b.prepareOf(echoPTX, nil, k, params)
}

// prepareOf makes and loads the dispatcher of a kernel of a module that is loaded.
func (b *bench) prepareOf(text string, loaded gpu.Module, k *Kernel, params []byte) *eventqueue.Launcher {
	b.t.Helper()
	m, err := ptx.Parse(text)
	if err != nil {
		b.t.Fatal(err)
	}
	k.ParamBytes = len(params)
	d, err := Build(m, k, func(name string) (variables.Place, error) {
		p, n, err := loaded.Global(name)
		return variables.Place{Address: uint64(p), Bytes: n}, err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	mod, err := b.ctx.LoadModule([]byte(d.PTX))
	if err != nil {
		b.t.Fatalf("%v\n%s", err, d.PTX)
	}
	f, err := mod.Function(d.Entry)
	if err != nil {
		b.t.Fatal(err)
	}
	b.launch = &gpu.Launch{Function: f, Grid: k.Grid, Block: k.Block}
	if b.poller, err = eventqueue.NewPoller(b.area, k.Number, abi.EventRow{Function: 1}, params, k.Entries); err != nil {
		b.t.Fatal(err)
	}
	l, err := eventqueue.Attach(b.area, k.Number)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// start launches the dispatcher.
func (b *bench) start() {
	b.t.Helper()
	b.number++
	b.launch.Params = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(b.at)), uint64(b.cat)), b.number)
	b.control.Launching(b.poller.State())
	f, err := b.ch.Launch(b.launch)
	if err != nil {
		b.t.Fatal(err)
	}
	b.flying = f
}

// ring rings, and launches the dispatcher anew if it asks for that: it has parked.
func (b *bench) ring(ring func() (kick bool)) {
	b.t.Helper()
	if ring() {
		b.left()
		b.start()
	}
}

// left waits for the dispatcher's end, and takes over from it.
func (b *bench) left() {
	b.t.Helper()
	f := b.flying
	if err := b.ch.Wait(b.t.Context(), f); err != nil {
		b.t.Fatal(err)
	}
	if o := b.ch.Outcome(f); o.Err != nil {
		b.t.Fatal(o.Err)
	}
	b.poller.Resume(b.control.State(b.poller.State()))
}

func (b *bench) await(what string, ok func() bool) {
	b.t.Helper()
	proctest.Until(b.t, what, ok)
}

func (b *bench) memory(n int) gpu.Ptr {
	b.t.Helper()
	p, err := b.ctx.Alloc(uint64(n))
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *bench) read(p gpu.Ptr, n int) []byte {
	b.t.Helper()
	out := make([]byte, n)
	f, err := b.ch.CopyOut(out, p)
	if err == nil {
		err = b.ch.Wait(b.t.Context(), f)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// TestEvents has dispatchers of kernels of several shapes run events with parameters of their own, across parkings and
// launches, and checks results, counts and latencies.
func TestEvents(t *testing.T) {
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	for _, c := range []struct {
		name, kernel string
		grid, block  gpu.Dim3
		tail         int // bytes of parameters behind the number
	}{
		{"warp", "echo", one, gpu.Dim3{X: 32, Y: 1, Z: 1}, 0},
		{"part of a warp", "echo", one, gpu.Dim3{X: 5, Y: 1, Z: 1}, 0},
		{"two dimensions", "echo", one, gpu.Dim3{X: 9, Y: 11, Z: 1}, 0},
		{"barriers", "turn", one, gpu.Dim3{X: 64, Y: 1, Z: 1}, 0},
		{"blocks", "echo", gpu.Dim3{X: 6, Y: 1, Z: 1}, gpu.Dim3{X: 40, Y: 1, Z: 1}, 0},
		{"wide parameters", "wide", one, gpu.Dim3{X: 32, Y: 1, Z: 1}, 396},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			threads := int(c.grid.Count() * c.block.Count())
			out := b.memory(4 * threads)
			params := append(binary.LittleEndian.AppendUint64(nil, uint64(out)), make([]byte, 4+c.tail)...)
			l := b.prepare(&Kernel{Number: 3, Name: c.kernel, Grid: c.grid, Block: c.block, Entries: 4}, params)
			sum, events := uint32(0), uint32(0)
			adds := make([]uint32, 4) // what the entries' parameters say
			for range 3 {
				b.start()
				for range 7 {
					e, ok := l.Free()
					if !ok {
						t.Fatal("no free entry")
					}
					events++
					if events%5 < 2 { // others stay as they were, and may have been read ahead
						adds[e] = events
						binary.LittleEndian.PutUint32(l.Params(e)[8:], events)
						if c.tail > 0 {
							adds[e] += 1000
							binary.LittleEndian.PutUint32(l.Params(e)[8+c.tail:], 1000)
						}
					}
					sum += adds[e]
					b.ring(l.Launch)
					b.await("an event's end", func() bool { _, ok := l.Done(); return ok })
					l.Complete()
				}
				b.control.Stop(true)
				b.left()
				b.control.Stop(false)
				if b.control.Resident() {
					t.Error("it has left, and is resident")
				}
			}
			for i, got := range words(b.read(out, 4*threads)) {
				if got != sum {
					t.Fatalf("thread %d has %d, want %d", i, got, sum)
				}
			}
			if got, want := b.poller.Counts(), (eventqueue.Counts{Started: uint64(events), Ended: uint64(events)}); got != want {
				t.Errorf("counts %+v, want %+v", got, want)
			}
			if n := len(b.control.Latencies(nil, 0, events)); n != int(events) {
				t.Errorf("%d latencies", n)
			}
		})
	}
}

// TestEventsInARow: of events that were rung for together each has its own parameters, and the next one's
// entry is looked at while one runs. A ring behind them that finds no busy entry starts nothing.
func TestEventsInARow(t *testing.T) {
	for _, grid := range []uint32{1, 3} {
		b := newBench(t)
		threads := int(32 * grid)
		out := b.memory(4 * threads)
		params := append(binary.LittleEndian.AppendUint64(nil, uint64(out)), make([]byte, 4)...)
		l := b.prepare(&Kernel{Number: 1, Name: "echo", Grid: gpu.Dim3{X: grid, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Entries: 4}, params)
		sum, events := uint32(0), uint32(0)
		adds := make([]uint32, 4) // what the entries' parameters say
		for round := range 12 {
			row := 1 + round%4
			for range row {
				e, ok := l.Free()
				if !ok {
					t.Fatal("no free entry")
				}
				events++
				if round < 4 {
					adds[e] = 1 << events
					binary.LittleEndian.PutUint32(l.Params(e)[8:], adds[e])
				}
				sum += adds[e]
				l.Launch()
			}
			if row < 4 {
				l.Ring()
			}
			b.start()
			for range row {
				b.await("an event's end", func() bool { _, ok := l.Done(); return ok })
				l.Complete()
			}
			b.control.Stop(true)
			b.left()
			b.control.Stop(false)
			for i, got := range words(b.read(out, 4*threads)) {
				if got != sum {
					t.Fatalf("thread %d has %#x, want %#x", i, got, sum)
				}
			}
		}
		if got, want := b.poller.Counts(), (eventqueue.Counts{Started: uint64(events), Ended: uint64(events), Dropped: 9}); got != want {
			t.Errorf("counts %+v, want %+v", got, want)
		}
	}
}

func words(b []byte) []uint32 {
	w := make([]uint32, len(b)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

// TestRingsWithoutEntry: rings that find no busy entry start nothing and are counted, as by the host's
// poller, however many there are; and a flag elsewhere in the queue is used.
func TestRingsWithoutEntry(t *testing.T) {
	b := newBench(t)
	out := b.memory(4 * 32)
	params := append(binary.LittleEndian.AppendUint64(nil, uint64(out)), 1, 0, 0, 0)
	l := b.prepare(&Kernel{Number: 0, Name: "echo", Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Entries: 3}, params)
	b.start()
	for range 1000 {
		b.ring(l.Ring)
	}
	page := b.area[abi.EventPage(0):]
	b.await("all rings to be counted", func() bool { return abi.LoadWord(page, abi.EventDroppedWord) == 1000 })
	_, at := l.Spare()
	e, _ := l.Free()
	entry := b.area[abi.EventQueue(0)+e*abi.EventEntryBytes(12):][:abi.EventEntryBytes(12)]
	binary.LittleEndian.PutUint64(entry[len(entry)-8:], uint64(at))
	abi.StoreWord(b.area, at, uint32(abi.EventBusy))
	b.ring(l.Ring)
	b.await("the event with its flag elsewhere", func() bool { return abi.LoadWord(b.area, at) == uint32(abi.EventDone) })
	for _, bad := range []uint64{0, uint64(at) + 2, uint64(abi.EventQueue(0)) - 4, uint64(abi.EventQueue(1)) - 3, 1 << 40, ^uint64(0)} {
		next := b.area[abi.EventQueue(0)+abi.EventEntryBytes(12):][:abi.EventEntryBytes(12)]
		binary.LittleEndian.PutUint64(next[len(next)-8:], bad)
		before := abi.LoadWord(page, abi.EventDroppedWord)
		b.ring(l.Ring)
		b.await("a ring with a bad flag to be counted", func() bool { return abi.LoadWord(page, abi.EventDroppedWord) == before+1 })
	}
	b.control.Stop(true)
	b.left()
	if got := b.poller.Counts(); got != (eventqueue.Counts{Started: 1, Ended: 1, Dropped: 1006}) {
		t.Errorf("counts %+v", got)
	}
	if got := words(b.read(out, 4))[0]; got != 1 {
		t.Errorf("%d events have run", got)
	}
}

// TestParks: a dispatcher without events parks, asks for kicks before, and the next one takes what was
// rung for meanwhile; one that is told to leave leaves rings to it, too.
func TestParks(t *testing.T) {
	b := newBench(t)
	out := b.memory(4 * 32)
	params := append(binary.LittleEndian.AppendUint64(nil, uint64(out)), 1, 0, 0, 0)
	l := b.prepare(&Kernel{Number: 1, Name: "echo", Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Entries: 3}, params)
	b.start()
	b.left()
	if b.control.Resident() {
		t.Error("it has parked, and is resident")
	}
	l.Free()
	if !l.Launch() {
		t.Error("a ring asks for no kick where nobody polls")
	}
	b.start()
	b.await("the event of before", func() bool { _, ok := l.Done(); return ok })
	l.Complete()
	b.control.Stop(true)
	b.left()
	l.Free()
	l.Launch()
	b.start()
	b.left() // at once
	if got := b.poller.Counts().Started; got != 1 || !b.poller.Pending() {
		t.Errorf("%d events started, pending %v", got, b.poller.Pending())
	}
	b.control.Stop(false)
	b.start()
	b.await("the event of before", func() bool { _, ok := l.Done(); return ok })
	b.left()
}

// TestFault: an event that faults ends the context, and its entry stays busy.
func TestFault(t *testing.T) {
	b := newBench(t)
	l := b.prepare(&Kernel{Number: 1, Name: "trap", Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Entries: 3}, make([]byte, 8))
	l.Free()
	l.Launch()
	b.start()
	if err := b.ch.Wait(t.Context(), b.flying); err != nil && !errors.Is(err, gpu.ErrPoisoned) {
		t.Log(err)
	}
	if err := b.ctx.Fault(); err == nil {
		t.Error("the context has no fault")
	}
	if n := b.control.Counts(); n.Started != 1 || n.Ended != 0 {
		t.Errorf("counts %+v", n)
	}
}

// tallyPTX has a kernel whose threads count in variables of its module, by a table in constant memory.
const tallyPTX = `.version 7.0
.target sm_70
.address_size 64
.global .align 4 .u32 cells[64];
.visible .global .align 8 .u64 events = 100;
.const .align 4 .u32 steps[2] = {1, 10};
.global .align 8 .u64 where = generic(cells) + 128;
.func count (.param .b64 at, .param .b32 by)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<3>;
	ld.param.b64 %rd1, [at];
	ld.param.b32 %r1, [by];
	atom.add.u32 %r2, [%rd1], %r1;
	ret;
}
.visible .entry tally(.param .u64 none)
{
	.reg .b32 %r<8>;
	.reg .b64 %rd<8>;
	.reg .pred %p;
	mov.u32 %r1, %tid.x;
	and.b32 %r2, %r1, 1;
	mov.u64 %rd1, steps;
	mad.wide.u32 %rd1, %r2, 4, %rd1;
	ld.const.u32 %r3, [%rd1];
	mov.u64 %rd2, cells;
	mad.wide.u32 %rd2, %r1, 4, %rd2;
	ld.global.u32 %r4, [%rd2];
	add.u32 %r4, %r4, %r3;
	st.global.u32 [%rd2], %r4;
	ld.global.u64 %rd3, [where];
	{
	.param .b64 at;
	.param .b32 by;
	st.param.b64 [at], %rd3;
	st.param.b32 [by], 1;
	call count, (at, by);
	}
	setp.eq.u32 %p, %r1, 0;
	@%p red.global.add.u64 [events], 1;
	ret;
}
`

// TestVariables: an event kernel sees what the host wrote to its module's variables, and the host what
// the kernel wrote, while the dispatcher stays and after it has left; so does a launch of the original.
func TestVariables(t *testing.T) {
	b := newBench(t)
	loaded, err := b.ctx.LoadModule([]byte(tallyPTX))
	if err != nil {
		t.Fatal(err)
	}
	global := func(name string) gpu.Ptr {
		t.Helper()
		p, _, err := loaded.Global(name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	write := func(name string, v ...uint32) {
		t.Helper()
		var mem []byte
		for _, x := range v {
			mem = binary.LittleEndian.AppendUint32(mem, x)
		}
		f, err := b.ch.CopyIn(global(name), mem)
		if err == nil {
			err = b.ch.Wait(t.Context(), f)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when string, first, second, through uint32, events uint64) {
		t.Helper()
		cells := b.read(global("cells"), 256)
		at := func(i int) uint32 { return binary.LittleEndian.Uint32(cells[4*i:]) }
		if got := binary.LittleEndian.Uint64(b.read(global("events"), 8)); at(0) != first || at(1) != second || at(32) != through || got != events {
			t.Errorf("%s: cells %d, %d and %d, %d events, want %d, %d, %d, %d", when, at(0), at(1), at(32), got, first, second, through, events)
		}
	}
	l := b.prepareOf(tallyPTX, loaded, &Kernel{Number: 2, Name: "tally", Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Entries: 4}, make([]byte, 8))
	fire := func() {
		t.Helper()
		l.Free()
		b.ring(l.Launch)
		b.await("an event's end", func() bool { _, ok := l.Done(); return ok })
		l.Complete()
	}
	b.start()
	fire()
	b.left()
	expect("initial values", 1, 10, 32, 101)
	write("cells", 1000, 2000)
	write("steps", 7, 70)
	write("events", 500, 0)
	b.start()
	fire()
	fire()
	b.left()
	expect("values of the host", 1014, 2140, 96, 502)
	f, err := loaded.Function("tally")
	if err != nil {
		t.Fatal(err)
	}
	fence, err := b.ch.Launch(&gpu.Launch{Function: f, Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Params: make([]byte, 8)})
	if err == nil {
		err = b.ch.Wait(t.Context(), fence)
	}
	if err != nil {
		t.Fatal(err)
	}
	expect("a launch of the original", 1021, 2210, 128, 503)
}
