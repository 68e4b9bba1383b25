package executor

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/machine"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// kernel is one of testdata's kernels.
type kernel struct {
	file, name string
	abi.Preempt
}

var kernels = []kernel{
	{"early", "count_single", abi.Preempt{Form: abi.PreemptSingle, Group: 1, Every: 1}},
	{"early", "count_coarse", abi.Preempt{Form: abi.PreemptCoarse, Group: 3, Every: 1}},
	{"persistent", "count_persist", abi.Preempt{Form: abi.PreemptPersistent, Group: 1, Every: 2}},
}

func testdata(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file+".ptx"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// counting is an array of words on the GPU, one for each task, that launches change, with the value
// that they must have.
type counting struct {
	g     *guestEnd
	mem   uint64
	tasks int
	want  uint32
}

func (g *guestEnd) counting(tasks int) *counting {
	g.r.t.Helper()
	return &counting{g: g, mem: g.must(abi.OpMemAlloc, abi.Alloc{Size: uint64(4 * tasks)}).Value[0], tasks: tasks}
}

// check reads the words: every launch has run each of its tasks once, and after those of the launch
// before.
func (c *counting) check() {
	c.g.r.t.Helper()
	const out = staging + 2<<20
	c.g.must(abi.OpCopyOut, abi.Transfer{Dst: out, Src: c.mem, Size: uint64(4 * c.tasks)})
	c.checkWindow(out)
}

func (c *counting) checkWindow(out int) {
	c.g.r.t.Helper()
	wrong := 0
	for task := range c.tasks {
		if got := binary.LittleEndian.Uint32(c.g.r.shared[out+4*task:]); got != c.want {
			if wrong++; wrong < 5 {
				c.g.r.t.Errorf("task %d left %d, want %d", task, got, c.want)
			}
		}
	}
}

// attributed returns a launch's data with attribute records before it.
func attributed(params []byte, attributes ...abi.Attribute) []byte {
	var data []byte
	for i := range attributes {
		var e abi.Entry
		attributes[i].Encode(&e)
		data = append(data, e[:]...)
	}
	return append(data, params...)
}

// preemptible sends a launch of k over the tasks of c, with other attributes too.
func (c *counting) preemptible(g *guestEnd, fn uint64, k kernel, turns uint32, more ...abi.Attribute) {
	g.r.t.Helper()
	l := abi.Launch{Function: fn, Grid: [3]uint32{uint32(c.tasks), 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 12}
	if c.tasks%4 == 0 {
		l.Grid = [3]uint32{uint32(c.tasks / 4), 2, 2}
	}
	params := binary.LittleEndian.AppendUint64(nil, c.mem)
	params = binary.LittleEndian.AppendUint32(params, turns)
	c.want = 5*c.want + turns
	more = append(more, k.Attribute())
	g.send(abi.Header{Op: abi.OpLaunch, Aux: uint16(len(more))}, l, attributed(params, more...)...)
}

// launches returns the guest's launches that are not done, as the daemon sees them.
func (r *rig) launches() (live []ipc.Launch) {
	for i := range ipc.MaxLaunchSlots {
		if s, ok := r.page.LaunchSlot(i).Read(); ok && s.State != slotstate.Done {
			live = append(live, s)
		}
	}
	return live
}

// say calls f with all launch slots, in the daemon's place.
func (r *rig) say(f func(s *ipc.LaunchSlot, v ipc.Launch)) {
	for i := range ipc.MaxLaunchSlots {
		if v, ok := r.page.LaunchSlot(i).Read(); ok {
			f(r.page.LaunchSlot(i), v)
		}
	}
}

func (r *rig) evictAll(below uint32) {
	r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Evict(v.ID, below, r.x.o.Clock.Now(), 0) })
}

func (r *rig) runAll() {
	r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Run(v.ID) })
}

// newest returns the newest launch.
func (r *rig) newest() (v ipc.Launch) {
	for i := range ipc.MaxLaunchSlots {
		if s, ok := r.page.LaunchSlot(i).Read(); ok && s.ID > v.ID {
			v = s
		}
	}
	return v
}

// TestPreemptibleLaunch runs each form to its end without an eviction, twice in the same memory.
func TestPreemptibleLaunch(t *testing.T) { bothWays(t, testGPU, testPreemptibleLaunch) }

func testPreemptibleLaunch(t *testing.T, newRig func(testing.TB) *rig) {
	for _, k := range kernels {
		t.Run(k.Form.String(), func(t *testing.T) {
			r := newRig(t)
			g := r.open()
			fn := g.load(testdata(t, k.file), k.name)
			c := g.counting(64)
			for range 2 {
				c.preemptible(g, fn, k, 10)
				if com := g.receive(1)[0]; com.Status != abi.StatusOK || com.Start == 0 || com.End <= com.Start {
					t.Fatalf("completion %+v", com)
				}
				c.check()
			}
			if n := r.page.Context(0).Counters(); n.Kernels != 2 || n.Evictions != 0 || n.Relaunches != 0 || n.Errors != 0 || n.GPUTime == 0 {
				t.Errorf("counters %+v", n)
			}
			v := r.newest()
			if v.State != slotstate.Done || v.Form != uint32(k.Form) || !v.Evictable || v.Tasks != 64 || v.Threads != 32 || v.InputBytes != 256 ||
				v.Used == 0 || v.Predicted == 0 || v.Kernel == 0 || v.PerSM == 0 || v.Blocks == 0 || v.Failed {
				t.Errorf("the daemon was told %+v", v)
			}
		})
	}
}

// TestEvictAndGoOn evicts each form again and again, from all SMs and from some. Every task runs
// once, and the next command of the channel sees all of the launch's work.
func TestEvictAndGoOn(t *testing.T) { bothWays(t, testGPU, testEvictAndGoOn) }

func testEvictAndGoOn(t *testing.T, newRig func(testing.TB) *rig) {
	for _, k := range kernels {
		for _, below := range []uint32{2, math.MaxUint32} {
			t.Run(fmt.Sprintf("%v below %d", k.Form, below), func(t *testing.T) {
				r := newRig(t)
				g := r.open()
				fn := g.load(testdata(t, k.file), k.name)
				c := g.counting(600)
				// Long enough even if this process has no processor for a while.
				c.preemptible(g, fn, k, 300)
				const out = staging + 1<<20
				g.send(abi.Header{Op: abi.OpCopyOut}, abi.Transfer{Dst: out, Src: c.mem, Size: 2400})
				slot := r.page.Context(0)
				for n := range uint64(3) {
					r.stepUntil("it runs", func() bool {
						v := r.newest()
						return v.State == slotstate.Done || v.State == slotstate.Running && v.Evictions == uint32(n)
					})
					for range 20 {
						r.x.Step(false)
					}
					r.evictAll(below)
					r.stepUntil("it leaves", func() bool { return slot.Counters().Evictions == n+1 || r.newest().State == slotstate.Done })
				}
				cs := g.receive(2)
				if cs[0].Status != abi.StatusOK || cs[1].Status != abi.StatusOK || cs[1].Start < cs[0].End {
					t.Errorf("launch %+v, copy behind it %+v", cs[0], cs[1])
				}
				c.checkWindow(out)
				n, v := slot.Counters(), r.newest()
				// Persistent blocks on the other SMs fetch all tasks.
				finishes := k.Form == abi.PreemptPersistent && below != math.MaxUint32
				if n.Kernels != 1 || (n.Evictions == 0) != finishes || n.Relaunches != n.Evictions || v.Evictions != uint32(n.Evictions) {
					t.Errorf("counters %+v, slot %+v", n, v)
				}
				if n.GPUTime != v.Used || n.GPUTime > time.Duration(cs[0].End-cs[0].Start) || n.Evictions > 0 && n.EvictionTime == 0 {
					t.Errorf("GPU time %v, by the slot %v, from first start to last end %v; evictions took %v",
						n.GPUTime, v.Used, time.Duration(cs[0].End-cs[0].Start), n.EvictionTime)
				}
				if cs[0].Value != [3]uint64{n.Evictions, uint64(v.Used)} {
					t.Errorf("the guest is told %v, want %d evictions and %v", cs[0].Value, n.Evictions, v.Used)
				}
				if slot.Outstanding() != 0 || r.x.launches != 0 || r.x.admittedWork != 0 {
					t.Errorf("%d outstanding, %d launches of %v counted", slot.Outstanding(), r.x.launches, r.x.admittedWork)
				}
			})
		}
	}
}

// TestSpatialEvictionBehind takes a launch off some SMs and gives them back to it while it is behind
// another one of its channel. It does nothing before that one has ended.
func TestSpatialEvictionBehind(t *testing.T) {
	r := newRigOn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1, Machine: machine.Config{Mode: machine.CoRun}}, gpu.ContextOptions{})
	g := r.open()
	k := kernels[2]
	fn := g.load(testdata(t, k.file), k.name)
	c := g.counting(1200)
	ch, met := r.x.channels[0], false
	var w proctest.Wait
	for !met {
		if err := w.Over(); err != nil {
			t.Fatalf("never both on the GPU: %v", err)
		}
		c.preemptible(g, fn, k, 40)
		c.preemptible(g, fn, k, 30)
		r.x.Step(false)
		first, second := ch.job, ch.second
		if second != nil && second.state == running {
			id := second.slot.Launch()
			r.only(id, func(s *ipc.LaunchSlot, v ipc.Launch) { s.Evict(id, 1, 0, 0) })
			r.x.Step(false)
			r.only(id, func(s *ipc.LaunchSlot, v ipc.Launch) { s.Recall(id) })
			for range 50 { // without yielding, so that the first does not end
				r.x.Step(false)
			}
			if met = ch.job == first && ch.second == second && second.run.below == 0; met && (second.state == refilling || second.run.corun != 0) {
				t.Errorf("it is %v, and launched once more as %d, beside the launch before it", second.state, second.run.corun)
			}
		}
		for i, com := range g.receive(2) {
			if com.Status != abi.StatusOK {
				t.Errorf("launch %d: %v", i, com.Status)
			}
		}
	}
	c.check()
}

// TestSpatialEviction takes a launch off some SMs, gives them back to it, and takes it off all.
// Where kernels run side by side a second launch on the same counter fills the freed SMs.
func TestSpatialEviction(t *testing.T) {
	for _, mode := range []machine.Mode{machine.CoRun, machine.Exclusive} {
		t.Run(mode.String(), func(t *testing.T) {
			so := slowGPU
			so.Machine.Mode = mode
			r := newRigOn(t, so, gpu.ContextOptions{})
			g := r.open()
			k := kernels[2]
			fn := g.load(testdata(t, k.file), k.name)
			c := g.counting(1200)
			r.byKernel()
			c.preemptible(g, fn, k, 40)
			r.x.Step(false)
			r.runAll()
			r.x.Step(false)
			slot := r.page.Context(0)
			// The test polls often and does not yield, so that the launch does not end.
			step := func(n int) {
				for range n {
					r.x.Step(false)
				}
			}
			r.evictAll(2)
			step(50)
			if v := r.newest(); v.State != slotstate.ToEvict || slot.Counters().Evictions != 0 {
				t.Fatalf("told to leave two SMs: %+v, %+v", v, slot.Counters())
			}
			r.say(func(s *ipc.LaunchSlot, v ipc.Launch) {
				if !s.Recall(v.ID) || s.Recall(v.ID) {
					t.Error("not told that it may stay, or twice")
				}
			})
			step(50)
			want := uint64(0)
			if mode == machine.CoRun {
				want = 1
			}
			if n := slot.Counters(); n.Relaunches != want || r.newest().State != slotstate.Running {
				t.Errorf("refilled: %+v, %v, want %d more launches", n, r.newest().State, want)
			}
			r.evictAll(1)
			step(20)
			r.evictAll(math.MaxUint32) // more than it was told
			r.stepUntil("it has left", func() bool { return r.newest().State == slotstate.Ready || r.newest().State == slotstate.Done })
			if n := slot.Counters(); n.Evictions != 1 || slot.Outstanding() != 0 {
				t.Errorf("told to leave all: %+v, %d outstanding", n, slot.Outstanding())
			}
			r.page.SetMode(ipc.ModeFree)
			if com := g.receive(1)[0]; com.Status != abi.StatusOK {
				t.Error(com.Status)
			}
			c.check()
		})
	}
}

// TestSuspendedGuestsLaunchLeaves: a guest that is suspended and told to leave is off the GPU until
// it may go on, and the page says that it has work.
func TestSuspendedGuestsLaunchLeaves(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	k := kernels[1]
	fn := g.load(testdata(t, k.file), k.name)
	c := g.counting(800)
	c.preemptible(g, fn, k, 40)
	r.x.Step(false)
	slot := r.page.Context(0)
	r.evictAll(math.MaxUint32)
	for slot.Outstanding() > 0 {
		r.x.Step(true)
		runtime.Gosched()
	}
	used := slot.Counters().GPUTime
	for range 100 {
		r.x.Step(true)
	}
	if v := r.newest(); v.State != slotstate.Ready || v.Used != used || !slot.Backlog() || slot.Outstanding() != 0 || slot.Counters().Kernels != 0 {
		t.Fatalf("held: %+v, backlog %v, %d outstanding, %+v", v, slot.Backlog(), slot.Outstanding(), slot.Counters())
	}
	if com := g.receive(1)[0]; com.Status != abi.StatusOK {
		t.Error(com.Status)
	}
	c.check()
}

// TestPreemptRefusals: impossible launches are refused, and the channel goes on.
func TestPreemptRefusals(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	k := kernels[1]
	fn, plain := g.load(testdata(t, k.file), k.name), g.load(incPTX, "inc")
	cooperative := abi.Attribute{ID: abi.AttributeCooperative}
	cooperative.PutUint32(0, 1)
	launch := func(fn uint64, grid [3]uint32, paramBytes int, attributes ...abi.Attribute) abi.Status {
		l := abi.Launch{Function: fn, Grid: grid, Block: [3]uint32{32, 1, 1}, ParamBytes: uint32(paramBytes)}
		return g.call(abi.Header{Op: abi.OpLaunch, Aux: uint16(len(attributes))}, l, attributed(make([]byte, paramBytes), attributes...)...).Status
	}
	one := [3]uint32{1, 1, 1}
	form := abi.Attribute{ID: abi.AttributePreempt}
	form.PutUint32(0, 64)
	reserved := k.Attribute()
	reserved.PutUint32(3, 1)
	for name, c := range map[string]struct{ got, want abi.Status }{
		"a plain kernel":          {launch(plain, one, 8, k.Attribute()), abi.StatusInvalidValue},
		"no attribute":            {launch(fn, one, 12), abi.StatusInvalidValue},
		"its arguments sent":      {launch(fn, one, 112, k.Attribute()), abi.StatusInvalidValue},
		"a parameter too few":     {launch(fn, one, 8, k.Attribute()), abi.StatusInvalidValue},
		"no such form":            {launch(fn, one, 12, form), abi.StatusInvalidValue},
		"reserved words":          {launch(fn, one, 12, reserved), abi.StatusMalformed},
		"cooperative":             {launch(fn, one, 12, k.Attribute(), cooperative), abi.StatusInvalidValue},
		"more units than a list":  {launch(fn, [3]uint32{math.MaxInt32, 1, 1}, 12, k.Attribute()), abi.StatusInvalidValue},
		"more tasks than numbers": {launch(fn, [3]uint32{math.MaxInt32, 2, 1}, 12, k.Attribute()), abi.StatusInvalidValue},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if len(r.launches()) != 0 || len(r.faults) != 0 {
		t.Errorf("slots %+v, faults %+v", r.launches(), r.faults)
	}
	c := g.counting(8)
	c.preemptible(g, fn, k, 1)
	g.receive(1)
	c.check()
}

// two returns a rig with two preemptible launches of a channel on the GPU, one behind the other,
// and a plain one that waits for both. On a busy host the first may have ended by then; then it
// makes another rig.
func two(t testing.TB, newRig func(testing.TB) *rig, k kernel) (r *rig, g *guestEnd, c *counting) {
	t.Helper()
	for range 20 {
		r = newRig(t)
		if g, c = r.two(k); r.page.Context(0).Outstanding() == 2 && len(r.launches()) == 2 {
			return r, g, c
		}
		g.receive(3)
	}
	t.Fatalf("%d launches on the GPU, %d slots, want both preemptible ones", r.page.Context(0).Outstanding(), len(r.launches()))
	return nil, nil, nil
}

func (r *rig) two(k kernel) (g *guestEnd, c *counting) {
	r.t.Helper()
	g = r.open()
	fn, inc := g.load(testdata(r.t, k.file), k.name), g.load(incPTX, "inc")
	c = g.counting(400)
	mem := g.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	c.preemptible(g, fn, k, 30)
	c.preemptible(g, fn, k, 20)
	l, params := launchOf(inc, 32, mem)
	g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	r.x.Step(false)
	return g, c
}

// TestTwoOnTheGPU evicts the first of two launches on the GPU, the second, and both. They compute
// the same as one after the other.
func TestTwoOnTheGPU(t *testing.T) { bothWays(t, slowGPU, testTwoOnTheGPU) }

func testTwoOnTheGPU(t *testing.T, newRig func(testing.TB) *rig) {
	for _, k := range kernels {
		for _, which := range []uint64{1, 2, 3} {
			if which == 2 && k.Form != abi.PreemptCoarse {
				continue // the form makes no difference there
			}
			t.Run(fmt.Sprintf("%v %b", k.Form, which), func(t *testing.T) {
				r, g, c := two(t, newRig, k)
				for range 3 {
					r.say(func(s *ipc.LaunchSlot, v ipc.Launch) {
						if v.ID&which != 0 {
							s.Evict(v.ID, math.MaxUint32, 0, 0)
						}
					})
					for range 200 {
						r.x.Step(false)
						runtime.Gosched()
					}
				}
				for i, com := range g.receive(3) {
					if com.Status != abi.StatusOK {
						t.Errorf("launch %d: %v", i, com.Status)
					}
				}
				c.check()
				if n := r.page.Context(0).Counters(); n.Kernels != 3 || n.Relaunches == 0 || r.page.Context(0).Outstanding() != 0 || r.x.launches != 0 {
					t.Errorf("%+v, %d launches", n, r.x.launches)
				}
			})
		}
	}
}
