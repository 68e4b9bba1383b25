package soft

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
	"vgpud/internal/memfd"
	"vgpud/internal/proctest"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

var modes = []machine.Mode{machine.Exclusive, machine.Slices, machine.CoRun}

// eventRig is a context with an event area.
type eventRig struct {
	*rig
	file *os.File
	area []byte
	ek   gpu.EventKernels
}

func newEventRig(t *testing.T, d gpu.Device, o gpu.ContextOptions) *eventRig {
	t.Helper()
	r := &eventRig{rig: newRig(t, d, o)}
	r.file, r.area = hostMemory(t, abi.EventAreaBytes, memfd.Seals)
	r.ek = r.ctx.(gpu.EventKernels)
	if _, err := r.ek.MapEvents(r.file); err != nil {
		t.Fatal(err)
	}
	return r
}

// kernel returns a registration of one warp.
func (r *eventRig) kernel(number int, name string, entries int, args ...any) *gpu.EventKernel {
	r.t.Helper()
	return &gpu.EventKernel{
		Number: number, Handle: 7, Entries: entries,
		Launch: gpu.Launch{Function: r.function(name), Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Params: params(args...)},
	}
}

func (r *eventRig) register(k *gpu.EventKernel) *eventqueue.Launcher {
	r.t.Helper()
	if err := r.ek.RegisterEventKernel(k); err != nil {
		r.t.Fatal(err)
	}
	l, err := eventqueue.Attach(r.area, k.Number)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// fire launches an event, and kicks where the ring's rule says so.
func (r *eventRig) fire(l *eventqueue.Launcher) {
	r.t.Helper()
	if _, ok := l.Free(); !ok {
		r.t.Fatal("no free entry")
	}
	if l.Launch() {
		r.ek.KickEvents()
	}
}

// await waits for a condition on memory that the GPU shares: it wakes nobody.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	proctest.Until(t, what, ok)
}

func (r *eventRig) complete(l *eventqueue.Launcher) {
	r.t.Helper()
	await(r.t, "an event's end", func() bool { _, ok := l.Done(); return ok })
	l.Complete()
}

// parked waits until the poller of event kernel n asks for kicks past all of its rings.
func (r *eventRig) parked(n int) {
	r.t.Helper()
	page := r.area[abi.EventPage(n):]
	await(r.t, "parking", func() bool {
		return abi.LoadWord(page, abi.EventKickAtWord) == abi.LoadWord(page, abi.EventDoorbellWord)
	})
}

func (r *eventRig) counts(n int) gpu.EventKernelCounts {
	r.t.Helper()
	list, err := r.ek.EventKernelCounts()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range list {
		if c.Number == n {
			return c
		}
	}
	r.t.Fatalf("no counts of event kernel %d in %v", n, list)
	return gpu.EventKernelCounts{}
}

// TestEvents launches a kernel that is registered twice by stores alone, with its own parameters each
// time, resident and parked, and checks each answer.
func TestEvents(t *testing.T) {
	for _, mode := range modes {
		d := newDevice(t, Options{Machine: machine.Config{Mode: mode}})
		r := newEventRig(t, d, gpu.ContextOptions{})
		const n = 40
		in, out := r.alloc(8*n), r.alloc(8*n)
		src, dst := make([]byte, 8*n), make([]byte, 8*n)
		for i := range n {
			binary.LittleEndian.PutUint64(src[8*i:], uint64(i)+100)
		}
		r.wait(r.must(r.ch.CopyIn(in, src)))
		m, err := r.ctx.LoadModule([]byte(doublePTX))
		if err != nil {
			t.Fatal(err)
		}
		double, err := m.Function("double")
		if err != nil {
			t.Fatal(err)
		}
		var ls []*eventqueue.Launcher
		for i := range 2 {
			k := r.kernel(3+i, "empty", 8, out, in)
			k.Function = double
			ls = append(ls, r.register(k))
		}
		for i := range n {
			l := ls[i%2]
			if i%10 == 9 {
				for _, l := range ls {
					for l.Flying() > 0 {
						r.complete(l)
					}
				}
				r.parked(3)
				r.parked(4)
			}
			for e, ok := l.Free(); !ok; e, ok = l.Free() {
				_ = e
				r.complete(l)
			}
			e, _ := l.Free()
			copy(l.Params(e), params(out+gpu.Ptr(8*i), in+gpu.Ptr(8*i)))
			r.fire(l)
		}
		for _, l := range ls {
			for l.Flying() > 0 {
				r.complete(l)
			}
		}
		r.wait(r.must(r.ch.CopyOut(dst, out)))
		for i := range n {
			if got := binary.LittleEndian.Uint64(dst[8*i:]); got != 2*(uint64(i)+100) {
				t.Errorf("%v: event %d answers %d", mode, i, got)
			}
		}
		for i := range 2 {
			c := r.counts(3 + i)
			if c.Started != n/2 || c.Ended != n/2 || c.Dropped != 0 || c.Kernel != "double" || c.P50 <= 0 || c.P99 < c.P50 {
				t.Errorf("%v: counts %+v", mode, c)
			}
			for gone := false; !gone; {
				if gone, err = r.ek.UnregisterEventKernel(3 + i); err != nil {
					t.Fatal(err)
				}
			}
			if s := ls[i].State(); s != abi.EventUnregistered {
				t.Errorf("%v: unregistered, and %v", mode, s)
			}
		}
		if list, err := r.ek.EventKernelCounts(); err != nil || len(list) != 0 {
			t.Errorf("%v: counts of none: %v, %v", mode, list, err)
		}
		if _, err := r.ek.UnregisterEventKernel(3); !errors.Is(err, gpu.ErrNotFound) {
			t.Errorf("%v: unregister again: %v", mode, err)
		}
	}
}

// TestEventsBeside: an idle poller gives the GPU to a neighbour at once, its own context's launches
// are not kept waiting either, and events are answered beside the neighbour's kernels.
func TestEventsBeside(t *testing.T) {
	for _, mode := range modes {
		d := newDevice(t, Options{Machine: machine.Config{Mode: mode}})
		r := newEventRig(t, d, gpu.ContextOptions{Label: "card"})
		batch := newRig(t, d, gpu.ContextOptions{Label: "batch"})
		l := r.register(r.kernel(0, "empty", 4))
		r.fire(l)
		r.complete(l)
		const kernels, each = 20, 2 * time.Millisecond
		var last gpu.Fence
		for range kernels {
			last = batch.launch("spin", 1, 32, uint64(each))
		}
		if o := batch.wait(last); o.Err != nil {
			t.Fatal(o.Err)
		}
		r.parked(0)
		for range kernels {
			last = batch.launch("spin", 1, 32, uint64(each))
		}
		for range 10 {
			r.fire(l)
			r.complete(l)
		}
		batch.wait(last)
		full := r.launch("spin", 64, 1024, uint64(time.Millisecond)) // fills the GPU
		r.fire(l)
		r.complete(l)
		if o := r.wait(full); o.Err != nil {
			t.Errorf("%v: a launch of the same context: %v", mode, o.Err)
		}
	}
}

// TestEventsAreCharged: a poller that is on the GPU is charged for it, until it parks.
func TestEventsAreCharged(t *testing.T) {
	d := newDevice(t, Options{Machine: machine.Config{Mode: machine.Slices}})
	r := newEventRig(t, d, gpu.ContextOptions{Label: "card"})
	l := r.register(r.kernel(0, "empty", 4))
	busy := func() time.Duration {
		u, err := d.Usage()
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range u.Labels {
			if g.Label == "card" {
				return g.Busy
			}
		}
		return 0
	}
	before := busy()
	r.fire(l)
	r.complete(l)
	r.parked(0)
	if used := busy() - before; used < parkAfter {
		t.Errorf("charged %v for an event and waiting %v for the next", used, parkAfter)
	}
	r.vecadd(8)
	if c := r.counts(0); c.Resident {
		t.Errorf("a kernel of the context brings the poller back: %+v", c)
	}
}

// TestEventsHeld: a context that is held starts nothing, and what was rung for meanwhile starts after.
func TestEventsHeld(t *testing.T) {
	d := newDevice(t, Options{})
	r := newEventRig(t, d, gpu.ContextOptions{})
	l := r.register(r.kernel(0, "empty", 4))
	if err := r.ek.HoldEvents(true); err != nil {
		t.Fatal(err)
	}
	r.fire(l)
	r.ek.KickEvents()
	for range 100 {
		if c := r.counts(0); c.Started != 0 || c.Resident {
			t.Fatalf("held, and %+v", c)
		}
	}
	if err := r.ek.HoldEvents(false); err != nil {
		t.Fatal(err)
	}
	r.complete(l)
}

// TestEventFault: an event that faults poisons its context and is named, with all registrations; the
// rows of the table are free, neighbours go on, and a successor registers anew in the same area.
func TestEventFault(t *testing.T) {
	for _, c := range []struct {
		kernel string
		args   []any
		limit  time.Duration
		want   error
	}{
		{"store", []any{gpu.Ptr(8)}, 0, nil},
		{"forever", nil, 2 * time.Millisecond, gpu.ErrTimeLimit},
	} {
		d := newDevice(t, Options{Machine: machine.Config{Mode: machine.Slices}})
		r := newEventRig(t, d, gpu.ContextOptions{KernelTimeLimit: c.limit})
		other := newEventRig(t, d, gpu.ContextOptions{})
		good, bad := r.register(r.kernel(0, "empty", 4)), r.register(r.kernel(1, c.kernel, 4, c.args...))
		neighbour := other.register(other.kernel(1, "empty", 4))
		r.fire(good)
		r.complete(good)
		r.fire(bad)
		await(t, "the fault", func() bool { return bad.State() == abi.EventFailed })
		if _, err := r.ek.EventKernelCounts(); err != nil {
			t.Fatal(err)
		}
		err := r.ctx.Fault()
		var fault *gpu.Fault
		if !errors.As(err, &fault) || fault.Kernel != c.kernel || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: fault %v", c.kernel, err)
		}
		if good.State() != abi.EventFailed {
			t.Errorf("%s: the other kernel is %v", c.kernel, good.State())
		}
		if err := r.ek.RegisterEventKernel(r.kernel(5, "empty", 4)); !errors.As(err, &fault) {
			t.Errorf("%s: registering in a poisoned context: %v", c.kernel, err)
		}
		other.fire(neighbour)
		other.complete(neighbour)
		if err := r.ctx.Close(); err != nil {
			t.Fatal(err)
		}
		next := &eventRig{rig: newRig(t, d, gpu.ContextOptions{}), file: r.file, area: r.area}
		next.ek = next.ctx.(gpu.EventKernels)
		if _, err := next.ek.MapEvents(next.file); err != nil {
			t.Fatal(err)
		}
		l := next.register(next.kernel(1, "empty", 4))
		next.fire(l)
		next.complete(l)
	}
}

// TestEventTimeLimit: the limit is each event's. Events that together take longer than it, and a
// poller that waits for longer, are not ended.
func TestEventTimeLimit(t *testing.T) {
	d := newDevice(t, Options{Machine: machine.Config{Mode: machine.Slices}})
	r := newEventRig(t, d, gpu.ContextOptions{KernelTimeLimit: 4 * time.Millisecond})
	l := r.register(r.kernel(0, "spin", 4, uint64(time.Millisecond)))
	for range 12 {
		r.fire(l)
		r.complete(l)
	}
	r.parked(0)
	r.fire(l)
	r.complete(l)
	if err := r.ctx.Fault(); err != nil {
		t.Error(err)
	}
}

// TestUnregisterEnds: what was rung for before ends first, and later rings start nothing.
func TestUnregisterEnds(t *testing.T) {
	d := newDevice(t, Options{Machine: machine.Config{Mode: machine.Slices}})
	r := newEventRig(t, d, gpu.ContextOptions{})
	l := r.register(r.kernel(0, "spin", 8, uint64(time.Millisecond)))
	for range 6 {
		r.fire(l)
	}
	gone, err := r.ek.UnregisterEventKernel(0)
	if gone || err != nil {
		t.Fatalf("unregistered with events under way: %v, %v", gone, err)
	}
	r.fire(l)
	for !gone {
		if _, err := r.ek.UnregisterEventKernel(0); errors.Is(err, gpu.ErrNotFound) {
			gone = true
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		r.complete(l)
	}
	if e, ok := l.Done(); ok {
		t.Errorf("entry %d, rung for after the end, was launched", e)
	}
	r.register(r.kernel(0, "empty", 4)) // the number is free
}

// TestRegisterEventRefuses: what is refused leaves everything as it was.
func TestRegisterEventRefuses(t *testing.T) {
	d := newDevice(t, Options{})
	r := newEventRig(t, d, gpu.ContextOptions{Label: "guest"})
	plain := newRig(t, d, gpu.ContextOptions{})
	for name, change := range map[string]func(k *gpu.EventKernel){
		"no number":          func(k *gpu.EventKernel) { k.Number = -1 },
		"a number too high":  func(k *gpu.EventKernel) { k.Number = abi.MaxEventKernels },
		"no entries":         func(k *gpu.EventKernel) { k.Entries = 0 },
		"too many entries":   func(k *gpu.EventKernel) { k.Entries = abi.MaxEventEntries + 1 },
		"no grid":            func(k *gpu.EventKernel) { k.Grid.Y = 0 },
		"a block too large":  func(k *gpu.EventKernel) { k.Block.X = 2048 },
		"too few parameters": func(k *gpu.EventKernel) { k.Function = r.function("store") },
		"shared memory":      func(k *gpu.EventKernel) { k.SharedBytes = 1 << 30 },
		"another context's":  func(k *gpu.EventKernel) { k.Function = plain.function("empty") },
	} {
		k := r.kernel(0, "empty", 4)
		change(k)
		if err := r.ek.RegisterEventKernel(k); !errors.Is(err, gpu.ErrInvalidLaunch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := plain.ctx.(gpu.EventKernels).RegisterEventKernel(&gpu.EventKernel{Entries: 1, Launch: gpu.Launch{
		Function: plain.function("empty"), Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}}}); !errors.Is(err, gpu.ErrInvalidLaunch) {
		t.Errorf("without an area: %v", err)
	}
	if _, err := r.ek.MapEvents(r.file); err == nil {
		t.Error("a second area is accepted")
	}
	short, _ := hostMemory(t, abi.EventAreaBytes/2, memfd.Seals)
	if _, err := plain.ctx.(gpu.EventKernels).MapEvents(short); err == nil {
		t.Error("a short area is accepted")
	}
	unsealed, _ := hostMemory(t, abi.EventAreaBytes, 0)
	if _, err := plain.ctx.(gpu.EventKernels).MapEvents(unsealed); err == nil {
		t.Error("an area that can shrink is accepted")
	}
	for n := range abi.MaxEventKernels {
		r.register(r.kernel(n, "empty", 4))
	}
	if err := r.ek.RegisterEventKernel(r.kernel(3, "empty", 4)); !errors.Is(err, gpu.ErrInvalidLaunch) {
		t.Errorf("a number that is taken: %v", err)
	}
	same := newEventRig(t, d, gpu.ContextOptions{Label: "guest"})
	if err := same.ek.RegisterEventKernel(same.kernel(3, "empty", 4)); !errors.Is(err, gpu.ErrFull) {
		t.Errorf("one more of the owner's other context: %v", err)
	}
	other := newEventRig(t, d, gpu.ContextOptions{Label: "other"})
	for n := range abi.MaxEventKernels {
		other.register(other.kernel(n, "empty", 4))
	}
	third := newEventRig(t, d, gpu.ContextOptions{Label: "third"})
	if err := third.ek.RegisterEventKernel(third.kernel(0, "empty", 4)); !errors.Is(err, gpu.ErrFull) {
		t.Errorf("a full table: %v", err)
	}
	if err := other.ctx.Close(); err != nil {
		t.Fatal(err)
	}
	third.register(third.kernel(0, "empty", 4))
}

// TestEventsHostile: rings faster than anything ends, doorbell words that jump, flags and parameters
// that change under way, and pointers to flags that lead elsewhere harm nobody, and are bounded.
func TestEventsHostile(t *testing.T) {
	d := newDevice(t, Options{Machine: machine.Config{Mode: machine.Slices}})
	r := newEventRig(t, d, gpu.ContextOptions{Label: "bad"})
	good := newRig(t, d, gpu.ContextOptions{Label: "good"})
	l := r.register(r.kernel(0, "spin", 4, uint64(100*time.Microsecond)))
	for round := range uint32(200) {
		for range 100 {
			if l.Ring() {
				r.ek.KickEvents()
			}
		}
		abi.StoreWord(r.area, abi.EventPage(0)+abi.EventDoorbellWord, round*0x9e3779b9)
		for e := range 4 {
			binary.LittleEndian.PutUint64(l.Params(e), uint64(round)*1000)
			binary.LittleEndian.PutUint64(r.area[abi.EventQueue(0)+e*abi.EventEntryBytes(8)+8:], uint64(round)*uint64(e+1)*977)
			abi.StoreWord(r.area, abi.EventQueue(0)+4*abi.EventEntryBytes(8)+4*e, round%3)
		}
		for w := range 16 {
			abi.StoreWord(r.area, abi.EventPage(0)+64*w, round)
		}
	}
	good.vecadd(1000)
	if err := good.ctx.Fault(); err != nil {
		t.Error(err)
	}
	if c := r.counts(0); c.Dropped == 0 {
		t.Errorf("nothing was counted: %+v", c)
	}
}
