package executor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

func TestAbsences(t *testing.T) {
	var a offTimes
	check := func(when string, cases ...[3]time.Duration) {
		t.Helper()
		for _, c := range cases {
			if got := a.overlap(c[0], c[1]); got != c[2] {
				t.Errorf("%s: overlap(%d, %d) = %d, want %d", when, c[0], c[1], got, c[2])
			}
		}
	}
	check("never away", [3]time.Duration{0, 100, 0})
	a.set(true, 100, 1)
	check("away since 100", [3]time.Duration{0, 90, 0}, [3]time.Duration{90, 130, 30}, [3]time.Duration{110, 120, 10})
	a.set(false, 140, 1)
	a.set(true, 200, 1)
	a.set(false, 210, 1)
	check("away twice", [3]time.Duration{0, 90, 0}, [3]time.Duration{90, 300, 50}, [3]time.Duration{120, 205, 25}, [3]time.Duration{150, 190, 0}, [3]time.Duration{220, 300, 0})
	a.set(true, 300, 0)
	check("with nothing on the GPU before", [3]time.Duration{90, 300, 0}, [3]time.Duration{300, 310, 10})
	a.set(false, 310, 0)
	for i := range time.Duration(3 * maxOffTimes) {
		a.set(true, 1000+2*i, 1)
		a.set(false, 1001+2*i, 1)
	}
	if n := len(a.intervals); n > maxOffTimes {
		t.Errorf("%d kept", n)
	}
	end := time.Duration(1000 + 6*maxOffTimes)
	check("many times", [3]time.Duration{end - 100, end, 50})
}

// TestOffTimesDoNotCount: the time in which the daemon has a context off the GPU does not count as
// used by its launches, or as used while suspended.
func TestOffTimesDoNotCount(t *testing.T) {
	x := &Executor{}
	x.suspension.set(true, 1000)
	x.offGPU.set(true, 1200, 1)
	x.offGPU.set(false, 1900, 1)
	x.suspension.set(false, 2000)
	if used, late := x.gpuTime(900, 2300); used != 700 || late != 300 {
		t.Errorf("used %d, late %d; want 700 and 300", used, late)
	}
	if used, late := x.gpuTime(1300, 1400); used != 0 || late != 0 {
		t.Errorf("all of it away: used %d, late %d", used, late)
	}
}

// nested is a driver that counts the disables of all callers together, as hardware does, and never
// below zero.
type nested struct {
	fakeGPU
	count, calls int
	err          error
}

func (n *nested) Suspend(gpu.Context) error { n.count++; return n.err }
func (n *nested) Resume(gpu.Context) error {
	n.calls++
	if n.err == nil {
		n.count = max(n.count-1, 0)
	}
	return n.err
}

// TestSelfEnabler: an executor enables its context once if the daemon that disabled it has been
// silent for SuspensionLimit, and never while the daemon wants it disabled.
func TestSelfEnabler(t *testing.T) {
	type at struct {
		now, beat time.Duration
		verdict   ipc.SuspendWord
		disabled  bool
		calls     int // so far
	}
	const s = time.Second
	for name, steps := range map[string][]at{
		"meant":                 {{1 * s, 1 * s, ipc.Suspend, true, 0}, {30 * s, 29 * s, ipc.Suspend, true, 0}},
		"daemon gone":           {{1 * s, 1 * s, ipc.Suspend, true, 0}, {3 * s, 1 * s, ipc.Suspend, true, 0}, {3*s + 1, 1 * s, ipc.Suspend, true, 1}, {9 * s, 1 * s, ipc.Suspend, true, 1}},
		"being enabled":         {{1 * s, 1 * s, ipc.Run, true, 0}, {1*s + enableGrace/2, 1 * s, ipc.Run, false, 0}, {9 * s, 9 * s, ipc.Run, false, 0}},
		"daemon can't":          {{1 * s, 1 * s, ipc.Run, true, 0}, {1*s + enableGrace, 1*s + enableGrace, ipc.Run, true, 1}, {9 * s, 9 * s, ipc.Run, true, 1}},
		"gone after the word":   {{1 * s, 1 * s, ipc.Run, true, 0}, {1*s + 2*ipc.SilenceLimit, 1 * s, ipc.Run, true, 1}},
		"gone, and again later": {{9 * s, 1 * s, ipc.Suspend, true, 1}, {10 * s, 10 * s, ipc.Run, false, 1}, {20 * s, 20 * s, ipc.Suspend, true, 1}, {30 * s, 20 * s, ipc.Suspend, true, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFakeRig(t)
			driver := &nested{count: 1}
			k := selfEnabler{x: r.x, driver: driver}
			for i, step := range steps {
				r.page.Beat(step.beat)
				r.page.SetSuspendWord(step.verdict)
				r.page.SetDisabled(0, step.disabled)
				k.check(step.now)
				if driver.calls != step.calls {
					t.Fatalf("step %d: enabled %d times, want %d", i, driver.calls, step.calls)
				}
			}
		})
	}
}

func TestKeeperTriesAgain(t *testing.T) {
	r := newFakeRig(t)
	driver := &nested{count: 1, err: errors.New("busy")}
	k := selfEnabler{x: r.x, driver: driver}
	r.page.SetDisabled(0, true)
	for i := range 3 {
		k.check(time.Hour + time.Duration(i))
	}
	driver.err = nil
	for i := range 3 {
		k.check(2*time.Hour + time.Duration(i))
	}
	if driver.calls != 4 || driver.count != 0 {
		t.Errorf("%d calls, %d disables left", driver.calls, driver.count)
	}
}

// slicing is a device whose time slices are set.
type slicing struct {
	nested
	set []time.Duration
	err error
}

func (s *slicing) SetTimeslice(_ gpu.Context, d time.Duration) error {
	s.set = append(s.set, d)
	return s.err
}

// TestSelfEnablerSlices: the driver's time slice is restored, once, if the daemon that set another
// is gone.
func TestSelfEnablerSlices(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		sliced bool
		steps  [][2]time.Duration // when, and when the daemon was there last
		calls  int
	}{
		"none set":         {false, [][2]time.Duration{{9 * s, s}}, 0},
		"daemon is there":  {true, [][2]time.Duration{{2 * s, s}, {3 * s, s}}, 0},
		"gone":             {true, [][2]time.Duration{{3*s + 1, s}, {9 * s, s}}, 1},
		"gone, back, gone": {true, [][2]time.Duration{{9 * s, s}, {10 * s, 10 * s}, {20 * s, 11 * s}, {21 * s, 11 * s}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFakeRig(t)
			driver := &slicing{err: errors.New("not allowed")} // that is no reason to ask again and again
			k := selfEnabler{x: r.x, driver: driver, slicer: driver}
			r.page.SetSliced(0, c.sliced)
			r.page.SetSliced(1, true) // another's
			for _, step := range c.steps {
				r.page.Beat(step[1])
				k.restoreSlice(step[0])
			}
			if len(driver.set) != c.calls {
				t.Fatalf("set %v, want %d calls", driver.set, c.calls)
			}
			for _, d := range driver.set {
				if d != gpu.DriverTimeslice {
					t.Errorf("set to %v", d)
				}
			}
		})
	}
}

// TestEndOfADisabledContext: a context is enabled before it is closed, since what it has on the GPU
// would never end. One that its executor has off the GPU, too, is disabled twice.
func TestEndOfADisabledContext(t *testing.T) {
	r := newFakeRig(t)
	driver := &nested{count: 2}
	r.x.o.Device = driver
	r.page.SetDisabled(0, true)
	r.x.preempted = &job{}
	r.x.enableAtEnd()
	if driver.count != 0 {
		t.Errorf("%d disables left", driver.count)
	}
	r.page.SetDisabled(0, false)
	r.x.enableAtEnd()
	if driver.calls != 2 {
		t.Error("enabled though nothing was disabled")
	}
}

// TestNoEvictionDeadlineWhileDisabled: a kernel can't leave while its context is off the GPU, so
// its eviction deadline moves.
func TestNoEvictionDeadlineWhileDisabled(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	sim, _ := r.ignore(g, 1<<31)
	r.x.Step(false)
	unresponsive := func() uint64 { return r.page.Context(0).Counters().Unresponsive }
	sim.Advance(5 * time.Millisecond)
	r.page.SetDisabled(0, true)
	r.x.Step(false)
	sim.Advance(time.Minute)
	r.x.Step(false)
	r.page.SetDisabled(0, false)
	r.x.Step(false)
	sim.Advance(5*time.Millisecond - 1)
	r.x.Step(false)
	if n := unresponsive(); n != 0 {
		t.Fatal("found to lie while it could not leave")
	}
	sim.Advance(1)
	r.x.Step(false)
	if n := unresponsive(); n != 1 {
		t.Errorf("%d unresponsive kernels at the deadline", n)
	}
}

// pausing is a context that limits its kernels' time itself.
type pausing struct {
	fakeContext
	paused []bool
}

func (p *pausing) Pause(off bool) { p.paused = append(p.paused, off) }

func TestPausingContextIsTold(t *testing.T) {
	r := newFakeRig(t)
	p := &pausing{}
	r.x.o.Context = p
	for _, off := range []bool{false, true, true, false} {
		r.page.SetDisabled(0, off)
		r.x.Step(off)
	}
	if len(p.paused) != 2 || !p.paused[0] || p.paused[1] {
		t.Errorf("told %v", p.paused)
	}
}

// TestTimeAfterSelfEnabler: a context that its own executor has enabled is on the GPU, whatever the
// page still says, and its kernels' time counts.
func TestTimeAfterSelfEnabler(t *testing.T) {
	r := newFakeRig(t)
	p := &pausing{}
	r.x.o.Context = p
	k := selfEnabler{x: r.x, driver: &nested{count: 1}}
	disable := func(yes bool) {
		r.page.SetDisabled(0, yes)
		r.x.Step(yes)
	}
	disable(true)
	bell := r.page.Context(0).Futex()
	k.check(time.Hour) // nobody has been there for long
	if r.page.Context(0).Futex() == bell {
		t.Error("nobody is told")
	}
	r.x.Step(true)
	if want := []bool{true, false}; !slices.Equal(p.paused, want) {
		t.Fatalf("told %v, want %v", p.paused, want)
	}
	disable(false) // a daemon came, and enabled it once more
	disable(true)
	k.check(time.Hour)
	r.x.Step(true)
	disable(false)
	if want := []bool{true, false, true, false}; !slices.Equal(p.paused, want) {
		t.Errorf("told %v, want %v", p.paused, want)
	}
}

// handled is a context with handles.
type handled struct {
	gpu.Context
	files []*os.File
	err   error
}

func (h *handled) Handles() (gpu.Handles, error) {
	return gpu.Handles{Files: h.files, Names: json.RawMessage(`{"client":7}`)}, h.err
}

type handledGPU struct {
	*soft.Device
	files []*os.File
	err   error
}

func (d *handledGPU) NewContext(ctx context.Context, o gpu.ContextOptions) (gpu.Context, error) {
	c, err := d.Device.NewContext(ctx, o)
	return &handled{c, d.files, d.err}, err
}

// TestHandlesAreHandedOver: a vm that takes handles gets them after the context is ready, and the
// executor keeps no copy.
func TestHandlesAreHandedOver(t *testing.T) {
	for name, c := range map[string]struct {
		takes bool
		err   error
		sent  bool
	}{
		"to vm":                  {true, nil, true},
		"not to an older vm":     {false, nil, false},
		"not where there's none": {true, errors.New("no driver"), false},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			var files []*os.File
			if c.sent {
				files = append(files, theirs)
			}
			vm, ended := serve(t, ipc.Setup{Guest: "g", Slot: 2, Header: abi.HeaderBytes(testChannels), Handles: c.takes}, func(context.Context, ipc.GPU) (gpu.Device, error) {
				d, err := soft.NewLocal(soft.Options{MemoryBytes: 1 << 20, Priority: -1})
				return &handledGPU{d, files, c.err}, err
			})
			if m, err := vm.Receive(); err != nil || m.Kind != ipc.KindReady {
				t.Fatalf("%+v, %v", m, err)
			}
			if err := vm.Shut(10 * time.Second); err != nil {
				t.Fatal(err)
			}
			m, err := vm.Receive()
			if !c.sent {
				if !errors.Is(err, io.EOF) {
					t.Errorf("got %+v, %v, want nothing", m, err)
				}
				if err := errors.Join(theirs.Close(), ours.Close()); err != nil {
					t.Error(err)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
				return
			}
			if err != nil || m.Kind != ipc.KindHandles || len(m.Files) != 1 {
				t.Fatalf("got %+v, %v", m, err)
			}
			if h, err := m.ReadHandles(); err != nil || h.Slot != 2 || string(h.Names) != `{"client":7}` {
				t.Errorf("got %+v, %v", h, err)
			}
			if err := m.CloseFiles(); err != nil {
				t.Error(err)
			}
			// The last copy is closed now.
			if n, err := ours.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("a copy is left open: %d, %v", n, err)
			}
			if err := ours.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
