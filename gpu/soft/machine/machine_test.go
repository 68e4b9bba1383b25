package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/accounting/nvreg"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// load is a guest that keeps depth launches of equal length queued in one channel.
type load struct {
	length time.Duration
	depth  int
	blocks uint64
	need   Resources

	group *Group
	ch    *Channel
	done  int
}

func newLoad(t testing.TB, m *Machine, l *load) *load {
	t.Helper()
	var err error
	if l.group, err = m.NewGroup(); err != nil {
		t.Fatal(err)
	}
	if l.ch, err = l.group.NewChannel(); err != nil {
		t.Fatal(err)
	}
	for range max(l.depth, 1) {
		l.submit(t, &Launch{})
	}
	return l
}

func (l *load) submit(t testing.TB, la *Launch) {
	t.Helper()
	la.Work = Work{Duration: l.length, Blocks: l.blocks, Need: l.need}
	la.Tag = l
	if err := l.ch.Submit(la); err != nil {
		t.Fatal(err)
	}
}

// run steps m to the end and resubmits launches that finish.
func run(t testing.TB, m *Machine, end time.Duration) {
	t.Helper()
	for {
		evs := m.Step(end)
		if evs == nil {
			return
		}
		for _, e := range evs {
			if l, ok := launchLoad(e); ok && e.Kind == Finished {
				l.done++
				l.submit(t, e.Launch)
			}
		}
	}
}

func launchLoad(e Event) (*load, bool) {
	if e.Launch == nil {
		return nil, false
	}
	l, ok := e.Launch.Tag.(*load)
	return l, ok
}

// none means no cost; a zero field would mean the default.
const none = -1

// Taking turns by command favours long kernels (LoGA §2.2, figure 2).
func TestExclusiveFavoursLongKernels(t *testing.T) {
	m := New(Config{Overhead: none, ExclusiveSwitch: none}, 0, nil)
	a := newLoad(t, m, &load{length: 3 * ms, depth: 4})
	b := newLoad(t, m, &load{length: ms, depth: 4})
	run(t, m, time.Second)
	if got, want := a.group.Usage().Busy, 750*ms; got != want {
		t.Errorf("long kernels got %v of 1s, want %v", got, want)
	}
	if d := a.done - b.done; d < 0 || d > 1 {
		t.Errorf("%d long kernels and %d short ones: want turns", a.done, b.done)
	}
}

// Slices divide the time equally, whatever the length of the kernels.
func TestSlicesDivideTime(t *testing.T) {
	m := New(Config{Mode: Slices}, 0, nil)
	a := newLoad(t, m, &load{length: 30 * ms, depth: 4})
	b := newLoad(t, m, &load{length: ms / 2, depth: 8})
	run(t, m, time.Second)
	ua, ub := a.group.Usage(), b.group.Usage()
	if d := ua.Busy - ub.Busy; d < -3*ms || d > 3*ms {
		t.Errorf("busy %v and %v, want the same", ua.Busy, ub.Busy)
	}
	if ua.Preemptions == 0 {
		t.Error("no launch was preempted")
	}
	// A period has two slices and two switches.
	want := time.Second * 2048 / (2048 + 84)
	if d := m.Totals().Busy - want; d < -3*ms || d > 3*ms {
		t.Errorf("busy %v of 1s, want about %v", m.Totals().Busy, want)
	}
}

// Slices of different lengths give shares in proportion.
func TestSlicesByWeight(t *testing.T) {
	m := New(Config{Mode: Slices}, 0, nil)
	a := newLoad(t, m, &load{length: 20 * ms, depth: 4})
	b := newLoad(t, m, &load{length: 20 * ms, depth: 4})
	a.group.SetSlice(4 * ms)
	b.group.SetSlice(ms)
	run(t, m, time.Second)
	r := float64(a.group.Usage().Busy) / float64(b.group.Usage().Busy)
	if r < 3.95 || r > 4.05 {
		t.Errorf("busy in proportion %.2f, want 4", r)
	}
}

// A group that is alone on the engine pays for one switch. A group that becomes ready pays more
// than one whose slice comes.
func TestSwitchCosts(t *testing.T) {
	m := New(Config{Mode: Slices, Overhead: none}, 0, nil)
	a := newLoad(t, m, &load{length: ms, depth: 2})
	run(t, m, 100*ms)
	if got := m.Totals().Switching; got != 135*us {
		t.Errorf("alone: %v of switching, want one of 135µs", got)
	}
	b := newLoad(t, m, &load{length: 10 * ms, depth: 2})
	run(t, m, 200*ms)
	u := m.Totals()
	n := time.Duration(u.Switches)
	if want := 135*us + 135*us + (n-1)*84*us; u.Switching < want-84*us || u.Switching > want+84*us {
		t.Errorf("%d switches took %v, want about %v", n, u.Switching, want)
	}
	if a.group.Usage().Switching == 0 || b.group.Usage().Switching == 0 {
		t.Error("a group was switched for nothing")
	}
}

// A kernel that leaves room lets the next one in; one that fills the machine does not (FLEP §2.1).
func TestCoRunUsesWhatIsLeft(t *testing.T) {
	cfg := Config{Mode: CoRun, SMs: 4, SM: Resources{Blocks: 8, Threads: 1024, Registers: 65536, Shared: 1 << 16}, Overhead: none}
	need := Resources{Threads: 256}
	for _, c := range []struct {
		name           string
		first, second  uint64 // blocks; 16 fill the machine
		doneA, doneB   time.Duration
		startB         time.Duration
		lengthA, lengB time.Duration
	}{
		{"both fit", 8, 8, ms, 2 * ms, 0, ms, 2 * ms},
		{"first fills", 16, 8, ms, 3 * ms, ms, ms, 2 * ms},
		{"first has a tail", 24, 8, 2 * ms, 2 * ms, ms, 2 * ms, ms},
		{"second gets half a machine", 8, 16, 4 * ms, 2 * ms, 0, 4 * ms, ms},
		{"machine to itself", 0, 8, ms, 2 * ms, ms, ms, ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(cfg, 0, nil)
			ends := map[string]time.Duration{}
			var ls [2]*Launch
			for i, w := range []Work{
				{Duration: c.lengthA, Blocks: c.first, Need: need},
				{Duration: c.lengB, Blocks: c.second, Need: need},
			} {
				g, _ := m.NewGroup()
				ch, _ := g.NewChannel()
				ls[i] = &Launch{Work: w, Tag: string(rune('A' + i))}
				if err := ch.Submit(ls[i]); err != nil {
					t.Fatal(err)
				}
			}
			for {
				evs := m.Step(100 * ms)
				if evs == nil {
					break
				}
				for _, e := range evs {
					if e.Kind == Finished {
						ends[e.Launch.Tag.(string)] = m.Now()
					}
				}
			}
			want := map[string]time.Duration{"A": c.doneA, "B": c.doneB}
			if diff := cmp.Diff(want, ends); diff != "" {
				t.Errorf("ends (-want +got):\n%s", diff)
			}
			if ls[1].Start() != c.startB {
				t.Errorf("second started at %v, want %v", ls[1].Start(), c.startB)
			}
		})
	}
}

// trace writes register changes as lines.
type trace struct{ b strings.Builder }

func (r *trace) Engine(at time.Duration, s nvreg.EngineState, ch uint32, shown bool) {
	fmt.Fprintf(&r.b, "%v engine %v %d>%d busy=%v", at, s.Context, s.TSGID, s.NextTSGID, s.Busy)
	if shown {
		fmt.Fprintf(&r.b, " channel %d", ch)
	}
	r.b.WriteByte('\n')
}

func (r *trace) Entry(at time.Duration, ch uint32, e nvreg.ChannelEntry) {
	fmt.Fprintf(&r.b, "%v entry %d %v\n", at, ch, e)
}

func TestRegistersTellTheStory(t *testing.T) {
	var r trace
	m := New(Config{Mode: Slices, Slice: ms, SliceSwitch: 80 * us, ReadySwitch: 100 * us, Overhead: none,
		EngineLag: 5 * us}, 0, &r)
	for range 2 {
		g, _ := m.NewGroup()
		ch, _ := g.NewChannel()
		if err := ch.Submit(&Launch{Work: Work{Duration: 1500 * us}}); err != nil {
			t.Fatal(err)
		}
	}
	for m.Step(10*ms) != nil {
	}
	want := strings.TrimLeft(`
0s entry 0 enable
0s entry 0 enable|busy|pending
0s entry 1 enable
0s entry 1 enable|busy|pending
5µs engine load 0>1 busy=true
100µs entry 0 enable|busy|on-pbdma|on-eng|pbdma-busy|eng-busy
105µs engine valid 1>0 busy=true channel 0
1.1ms entry 0 enable|busy|pending
1.105ms engine valid 1>0 busy=false
1.105ms engine save 1>2 busy=true
1.155ms engine load 1>2 busy=true
1.2ms entry 1 enable|busy|on-pbdma|on-eng|pbdma-busy|eng-busy
1.205ms engine valid 2>0 busy=true channel 1
2.2ms entry 1 enable|busy|pending
2.205ms engine valid 2>0 busy=false
2.205ms engine save 2>1 busy=true
2.245ms engine load 2>1 busy=true
2.28ms entry 0 enable|busy|on-pbdma|on-eng|pbdma-busy|eng-busy
2.285ms engine valid 1>0 busy=true channel 0
2.78ms entry 0 enable
2.785ms engine valid 1>0 busy=false
2.785ms engine save 1>2 busy=true
2.825ms engine load 1>2 busy=true
2.86ms entry 1 enable|busy|on-pbdma|on-eng|pbdma-busy|eng-busy
2.865ms engine valid 2>0 busy=true channel 1
3.36ms entry 1 enable
3.365ms engine valid 2>0 busy=false
`, "\n")
	if diff := cmp.Diff(want, r.b.String()); diff != "" {
		t.Errorf("registers (-want +got):\n%s", diff)
	}
}

// The duration of a launch may become known while it executes.
func TestOpenLaunch(t *testing.T) {
	for _, mode := range []Mode{Exclusive, Slices, CoRun} {
		for _, settleAt := range []time.Duration{ms, 3 * ms} {
			t.Run(fmt.Sprint(mode, settleAt), func(t *testing.T) {
				m := New(Config{Mode: mode, Overhead: none, ReadySwitch: none, ExclusiveSwitch: none, Live: true}, 0, nil)
				g, _ := m.NewGroup()
				ch, _ := g.NewChannel()
				l := &Launch{Work: Work{Open: true}}
				if err := ch.Submit(l); err != nil {
					t.Fatal(err)
				}
				step := func(to time.Duration) (done bool) {
					for {
						evs := m.Step(to)
						if evs == nil {
							return done
						}
						for _, e := range evs {
							done = done || e.Kind == Finished
						}
					}
				}
				step(0)
				if step(settleAt) {
					t.Fatal("an open launch ended")
				}
				m.Settle(l, 2*ms)
				end := max(settleAt, 2*ms)
				if end > settleAt && step(end-1) {
					t.Error("ended before it was due")
				}
				if !step(end) {
					t.Errorf("has not ended at %v", end)
				}
				if got, want := m.Totals().Overrun, end-2*ms; got != want {
					t.Errorf("overrun %v, want %v", got, want)
				}
				if got := g.Usage().Busy; got != end {
					t.Errorf("busy %v, want %v", got, end)
				}
			})
		}
	}
}

func TestLimitExpiresOnce(t *testing.T) {
	for _, mode := range []Mode{Exclusive, Slices, CoRun} {
		m := New(Config{Mode: mode}, 0, nil)
		g, _ := m.NewGroup()
		ch, _ := g.NewChannel()
		l := &Launch{Work: Work{Open: true, Limit: ms}}
		if err := ch.Submit(l); err != nil {
			t.Fatal(err)
		}
		n := 0
		for {
			evs := m.Step(10 * ms)
			if evs == nil {
				break
			}
			for _, e := range evs {
				if e.Kind == Expired {
					n++
					if l.Elapsed() != ms {
						t.Errorf("%v: expired after %v, want 1ms", mode, l.Elapsed())
					}
				}
			}
		}
		if n != 1 {
			t.Errorf("%v: expired %d times, want once", mode, n)
		}
		m.Kill(l)
		if l.Queued() || ch.Len() != 0 || m.Next() != Never {
			t.Errorf("%v: the machine goes on with a launch that was killed", mode)
		}
	}
}

// A disabled group is preempted under Slices, and otherwise finishes the launch that it began.
func TestDisabledGroupWaits(t *testing.T) {
	for _, mode := range []Mode{Exclusive, Slices, CoRun} {
		t.Run(mode.String(), func(t *testing.T) {
			m := New(Config{Mode: mode, Overhead: none, ReadySwitch: none, SliceSwitch: none, ExclusiveSwitch: none}, 0, nil)
			a := newLoad(t, m, &load{length: 2 * ms, depth: 3})
			b := newLoad(t, m, &load{length: 2 * ms, depth: 3})
			run(t, m, ms)
			a.group.SetEnabled(false)
			before := a.group.Usage().Busy
			run(t, m, 20*ms)
			want := ms
			if mode == Slices {
				want = 0
			}
			if got := a.group.Usage().Busy - before; got != want {
				t.Errorf("disabled, it ran %v more, want %v", got, want)
			}
			a.group.SetEnabled(true)
			run(t, m, 40*ms)
			ua, ub := a.group.Usage().Busy, b.group.Usage().Busy
			if d := ub - ua; d < 15*ms || d > 20*ms {
				t.Errorf("busy %v, the other %v; want it back and 19 ms behind", ua, ub)
			}
		})
	}
}

func TestGroupNumbersAreNotReusedSoon(t *testing.T) {
	m := New(Config{Groups: 3}, 0, nil)
	var ids []uint16
	for range 5 {
		g, err := m.NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, g.ID())
		g.Close()
	}
	if diff := cmp.Diff([]uint16{1, 2, 3, 1, 2}, ids); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
}

func BenchmarkStep(b *testing.B) {
	for _, mode := range []Mode{Exclusive, Slices, CoRun} {
		b.Run(mode.String(), func(b *testing.B) {
			var shown Shown
			m := New(Config{Mode: mode}, 0, &shown)
			for i := range 16 {
				newLoad(b, m, &load{length: time.Duration(i+1) * 100 * us, depth: 4, blocks: 64, need: Resources{Threads: 256}})
			}
			b.ReportAllocs()
			launches := m.Totals().Launches
			for b.Loop() {
				run(b, m, m.Now()+ms)
			}
			b.ReportMetric(float64(m.Totals().Launches-launches)/float64(b.N), "launches/op")
		})
	}
}

// An evicted launch leaves within the given time and can be submitted again with the rest of its
// work. A launch that finishes first ends normally.
func TestEvict(t *testing.T) {
	for _, mode := range []Mode{Exclusive, Slices, CoRun} {
		t.Run(mode.String(), func(t *testing.T) {
			m := New(Config{Mode: mode, Overhead: -1, ExclusiveSwitch: -1, SliceSwitch: -1, ReadySwitch: -1}, 0, nil)
			g, err := m.NewGroup()
			if err != nil {
				t.Fatal(err)
			}
			c, err := g.NewChannel()
			if err != nil {
				t.Fatal(err)
			}
			l := &Launch{Work: Work{Duration: 10 * ms}}
			next := func(want EventKind) {
				t.Helper()
				for {
					evs := m.Step(m.Now() + time.Second)
					if evs == nil {
						t.Fatalf("no event %v", want)
					}
					for _, e := range evs {
						if e.Launch == l && e.Kind == want {
							return
						}
						if e.Launch == l && e.Kind >= Preempted && e.Kind != Switched {
							t.Fatalf("%v, want %v", e.Kind, want)
						}
					}
				}
			}
			submit := func() {
				t.Helper()
				if err := c.Submit(l); err != nil {
					t.Fatal(err)
				}
			}
			submit()
			m.Evict(l, 0) // it has not begun, so Evict does nothing
			next(Started)
			start := m.Now()
			m.Step(start + 4*ms)
			m.Evict(l, 50*us)
			next(Evicted)
			if got := m.Now() - start; got != 4*ms+50*us {
				t.Errorf("it left after %v", got)
			}
			l.Duration = 10*ms - (m.Now() - start)
			submit()
			next(Started)
			m.Evict(l, time.Second)
			next(Finished)
			if got := m.Now() - start; got < 10*ms-us || got > 10*ms+us {
				t.Errorf("both parts took %v", got)
			}
			if u := g.Usage(); u.Evictions != 1 || u.Launches != 1 {
				t.Errorf("%+v", u)
			}
		})
	}
}

// side submits a launch to a new channel of g.
func side(t *testing.T, g *Group, w Work) *Launch {
	t.Helper()
	c, err := g.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	l := &Launch{Work: w}
	if err := c.Submit(l); err != nil {
		t.Fatal(err)
	}
	return l
}

// Launches of several channels of a group execute side by side if their blocks fit, spread over the
// SMs, and the group is charged once.
func TestLaunchesOfAGroupSideBySide(t *testing.T) {
	for _, mode := range []Mode{Exclusive, Slices} {
		t.Run(mode.String(), func(t *testing.T) {
			m := New(Config{Mode: mode, SMs: 4, Overhead: none, ReadySwitch: none, ExclusiveSwitch: none}, 0, nil)
			g, err := m.NewGroup()
			if err != nil {
				t.Fatal(err)
			}
			small := Work{Duration: 10 * ms, Blocks: 1, Need: Resources{Threads: 32}}
			var all []*Launch
			for range 4 {
				all = append(all, side(t, g, small))
			}
			whole := side(t, g, Work{Duration: ms, Blocks: 100, Need: Resources{Threads: 1024}})
			for m.Step(ms) != nil {
			}
			var sms []int
			for _, l := range all {
				if l.Elapsed() != ms {
					t.Errorf("a launch has executed for %v of 1ms", l.Elapsed())
				}
				for sm, n := range l.Placed() {
					if n > 0 {
						sms = append(sms, sm)
					}
				}
			}
			if diff := cmp.Diff([]int{0, 1, 2, 3}, sms); diff != "" {
				t.Errorf("SMs of the blocks (-want +got):\n%s", diff)
			}
			if whole.Elapsed() != 0 {
				t.Error("a launch executes without room for its blocks")
			}
			for m.Step(20*ms) != nil {
			}
			if got := g.Usage(); got.Busy != 11*ms || got.Launches != 5 {
				t.Errorf("%d launches and %v, want 5 and 11ms", got.Launches, got.Busy)
			}
		})
	}
}

// A group whose launches keep coming gives the engine to the launch of another group that waits.
func TestSideBySideTakesTurns(t *testing.T) {
	m := New(Config{SMs: 4, Overhead: none, ExclusiveSwitch: none}, 0, nil)
	var loads []*load
	first := newLoad(t, m, &load{length: 3 * ms, depth: 2, blocks: 1, need: Resources{Threads: 32}})
	loads = append(loads, first)
	for i := range 3 {
		l := &load{length: 3*ms + time.Duration(i)*us, blocks: 1, need: Resources{Threads: 32}, group: first.group}
		var err error
		if l.ch, err = first.group.NewChannel(); err != nil {
			t.Fatal(err)
		}
		l.submit(t, &Launch{})
		l.submit(t, &Launch{})
		loads = append(loads, l)
	}
	other := newLoad(t, m, &load{length: 3 * ms, depth: 2, blocks: 1, need: Resources{Threads: 32}})
	run(t, m, 600*ms)
	if n := other.done; n < 90 || n > 101 {
		t.Errorf("the other group had %d turns of 100", n)
	}
	for _, l := range loads {
		if l.done < other.done-2 || l.done > other.done+2 {
			t.Errorf("a channel had %d turns, the other group %d", l.done, other.done)
		}
	}
}
