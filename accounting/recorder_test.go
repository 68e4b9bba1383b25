package accounting_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
	"vgpud/clock"
	"vgpud/internal/proctest"
)

// listener is a handler that adds up its phases.
type listener struct {
	used   map[accounting.GroupID]time.Duration
	sum    time.Duration
	phases int
	pace   accounting.Pace
	failed error
	// told, unless nil, receives the length of each phase.
	told chan time.Duration
	// then, unless nil, is called before the handler returns.
	then func()
}

func (l *listener) PollEnded(p *accounting.Phase) accounting.Plan {
	l.phases++
	l.sum += p.Length()
	for _, g := range p.Groups {
		l.used[g.Group] += g.Busy
	}
	if l.told != nil {
		l.told <- p.Length()
	}
	if l.then != nil {
		l.then()
	}
	return accounting.Plan{Pace: l.pace}
}

func (l *listener) QuietEnded(*accounting.Quiet) { panic("nothing goes unwatched") }
func (l *listener) Failed(err error)             { l.failed = err }

// recorded returns a recorder of three contexts on a simulated GPU. pass advances time by n
// intervals. end stops the recorder, or waits for its end.
func recorded(t *testing.T, room int) (rec *accountingtest.Record, l *listener, r *accounting.Recorder, pass func(n int), end func(wait bool) error) {
	t.Helper()
	return recordedFrom(t, room, func(rec *accountingtest.Record) accounting.EventSource { return rec })
}

// recordedFrom is recorded with another source.
func recordedFrom(t *testing.T, room int, source func(*accountingtest.Record) accounting.EventSource) (rec *accountingtest.Record, l *listener, r *accounting.Recorder, pass func(n int), end func(wait bool) error) {
	t.Helper()
	now := &clock.Sim{}
	gpu := h100()
	now.Advance(gpu.Now())
	rng := rand.New(rand.NewPCG(3, 4))
	rec = &accountingtest.Record{GPU: gpu, Clock: now, Room: room}
	for i := range 3 {
		c := &accountingtest.RecordedContext{PID: 10 + i, Group: accounting.GroupID(i), Kernel: accountingtest.Random(rng, 300*us, 0.6)}
		gpu.Add(c)
		rec.Contexts = append(rec.Contexts, c)
	}
	l = &listener{used: make(map[accounting.GroupID]time.Duration)}
	r, err := accounting.NewRecorder(accounting.RecordedGPU{Name: "gpu0", Source: source(rec), Work: rec, Handler: l, Config: accounting.RecorderConfig{Period: 10 * ms}}, now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	pass = func(n int) {
		for range n {
			now.AwaitWaiters(1)
			now.Advance(10 * ms)
		}
		now.AwaitWaiters(1)
	}
	return rec, l, r, pass, func(wait bool) error {
		if !wait {
			cancel()
		}
		defer cancel()
		return <-ended
	}
}

// unpausable returns a record that can't be paused.
func unpausable(rec *accountingtest.Record) accounting.EventSource {
	return struct{ accounting.EventSource }{rec}
}

// TestRecorder tests that one interval after another is reported, and that contexts are charged
// what they used.
func TestRecorder(t *testing.T) {
	rec, l, r, pass, end := recorded(t, 0)
	pass(200)
	for i, c := range rec.Contexts {
		if off := l.used[c.Group] - c.Busy(); off > ms || off < -ms {
			t.Errorf("context %d: charged %v of %v", i, l.used[c.Group], c.Busy())
		}
	}
	if l.phases != 200 || l.sum != 2000*ms {
		t.Errorf("%d phases of %v", l.phases, l.sum)
	}
	if r.CPU() <= 0 || r.CPU() > 2*time.Second || r.Missed() != 0 {
		t.Errorf("took %v of a processor, %d losses", r.CPU(), r.Missed())
	}
	if err := end(false); err != nil || l.failed != nil {
		t.Errorf("ended with %v, told of %v", err, l.failed)
	}
}

// TestUnrecorded tests that, without records, contexts are charged by the reports of their work.
// Contexts with slices of equal length are charged about what they used.
func TestUnrecorded(t *testing.T) {
	rec, l, r, pass, end := recordedFrom(t, 0, func(rec *accountingtest.Record) accounting.EventSource {
		return accounting.Unrecorded{Clock: rec}
	})
	pass(300)
	var used, charged time.Duration
	for i, c := range rec.Contexts {
		off := float64(l.used[c.Group]-c.Busy()) / float64(l.sum)
		if off > 0.03 || off < -0.03 {
			t.Errorf("context %d: charged %v of %v", i, l.used[c.Group], c.Busy())
		}
		used, charged = used+c.Busy(), charged+l.used[c.Group]
	}
	// The hardware's switching time belongs to no context, and can't be determined here.
	if charged < used || charged > l.sum {
		t.Errorf("charged %v of %v that were used, in %v", charged, used, l.sum)
	}
	if r.Missed() != 0 {
		t.Errorf("%d losses", r.Missed())
	}
	if err := end(false); err != nil {
		t.Error(err)
	}
}

// TestRecorderAtItsPace tests that phases are longer if the handler allows it, on the same grid,
// and that the charges are the same.
func TestRecorderAtItsPace(t *testing.T) {
	rec, l, _, pass, end := recorded(t, 0)
	for _, c := range []struct {
		pace   accounting.Pace
		phases int
	}{{accounting.Easy, 66}, {accounting.Brisk, 198}} {
		l.pace = c.pace
		pass(3) // the handler is asked at the end of a phase
		before := l.phases
		pass(198)
		if got := l.phases - before; got != c.phases {
			t.Errorf("pace %d: %d phases in 198 intervals, want %d", c.pace, got, c.phases)
		}
		for i, r := range rec.Contexts {
			if off := l.used[r.Group] - r.Busy(); off > ms || off < -ms {
				t.Errorf("pace %d: context %d: charged %v of %v", c.pace, i, l.used[r.Group], r.Busy())
			}
		}
	}
	if err := end(false); err != nil {
		t.Error(err)
	}
}

// TestRecorderNotify tests that a channel that is added or removed ends a phase, but not before a
// quarter of its length. The next phase has the usual length.
func TestRecorderNotify(t *testing.T) {
	rec, l, r, pass, end := recorded(t, 0)
	pass(2)
	l.told = make(chan time.Duration)
	now := rec.Clock.(*clock.Sim)
	for _, c := range []struct {
		name          string
		before, after time.Duration // Notify
		want          time.Duration
	}{
		{name: "in the first quarter", before: ms, after: 3 * ms / 2, want: 5 * ms / 2},
		{name: "in the second", before: 4 * ms, want: 4 * ms},
		{name: "not at all", after: 7 * ms / 2, want: 7 * ms / 2}, // the rest of the interval
		{name: "not at all, again", after: 10 * ms, want: 10 * ms},
	} {
		now.Advance(c.before)
		if c.before > 0 {
			r.Notify(0)
			r.Notify(0) // several channels at a time
		}
		if c.before > 0 && c.after > 0 {
			select {
			case got := <-l.told:
				t.Fatalf("notified %s, a phase of %v", c.name, got)
			case <-time.After(100 * time.Millisecond): // long enough to mean never
			}
		}
		now.Advance(c.after)
		if got := proctest.Receive(t, "the end of the phase, notified "+c.name, l.told); got != c.want {
			t.Errorf("notified %s, a phase of %v, want %v", c.name, got, c.want)
		}
		now.AwaitWaiters(1)
	}
	if err := end(false); err != nil {
		t.Error(err)
	}
}

// TestRecorderNotifyMeanwhile tests that a channel that is added while a phase is being computed
// ends the next phase early.
func TestRecorderNotifyMeanwhile(t *testing.T) {
	rec, l, r, pass, end := recorded(t, 0)
	pass(1)
	l.then = func() { r.Notify(0); l.then = nil }
	pass(1)
	l.told = make(chan time.Duration)
	rec.Clock.(*clock.Sim).Advance(10 * ms / 4)
	if got := proctest.Receive(t, "the end of the phase", l.told); got != 10*ms/4 {
		t.Errorf("a phase of %v", got)
	}
	if err := end(false); err != nil {
		t.Error(err)
	}
}

// flood is a record of more switches than one read returns.
type flood struct {
	*accountingtest.Record
	left int
}

func (f *flood) Read(buf []accounting.Switch) (n int, err error) {
	now, err := f.Now()
	for ; n < len(buf) && f.left > 0; n++ {
		buf[n] = accounting.Switch{Clock: now, PID: 10, On: f.left%2 == 0}
		f.left--
	}
	return n, err
}

// TestRecorderReadsAll tests that all switches of an interval are known at its end, however many
// there were.
func TestRecorderReadsAll(t *testing.T) {
	f := &flood{left: 5000}
	_, _, _, pass, end := recordedFrom(t, 0, func(rec *accountingtest.Record) accounting.EventSource {
		f.Record = rec
		return f
	})
	pass(1)
	if f.left > 0 {
		t.Errorf("%d switches of 5000 were left", f.left)
	}
	if err := end(false); err != nil {
		t.Error(err)
	}
}

// TestRecorderWithoutRoom tests that the sums are about right although records are lost repeatedly.
func TestRecorderWithoutRoom(t *testing.T) {
	rec, l, r, pass, end := recordedFrom(t, 12, unpausable)
	pass(300)
	var charged, used time.Duration
	for _, c := range rec.Contexts {
		charged, used = charged+l.used[c.Group], used+c.Busy()
	}
	if r.Missed() < 100 {
		t.Fatalf("%d losses: the test has no point", r.Missed())
	}
	if charged > used*103/100 || charged < used*97/100 {
		t.Errorf("charged %v in all, used %v", charged, used)
	}
	if err := end(false); err != nil {
		t.Error(err)
	}
}

// TestRecorderFails tests that a record that can no longer be read ends the recorder, and that the
// handler is informed.
func TestRecorderFails(t *testing.T) {
	rec, l, _, pass, end := recorded(t, 0)
	pass(2)
	gone := errors.New("fell off the bus")
	rec.Err = gone
	rec.Clock.(*clock.Sim).Advance(10 * ms)
	if err := end(true); !errors.Is(err, gone) || !errors.Is(l.failed, gone) {
		t.Errorf("ended with %v, told of %v", err, l.failed)
	}
}

// TestRecorderConfig tests which intervals are valid.
func TestRecorderConfig(t *testing.T) {
	for d, ok := range map[time.Duration]bool{0: true, ms: true, 10 * ms: true, 250 * ms: true, ms - 1: false, -ms: false, time.Second: false} {
		c := accounting.RecorderConfig{Period: d}
		if err := c.Validate(); (err == nil) != ok {
			t.Errorf("interval %v: %v", d, err)
		}
		if poll, quiet := accounting.NewPlanner(c.Watch()).Mean(accounting.Load{Active: 5}); ok && (poll != c.WithDefaults().Period || quiet != 0) {
			t.Errorf("interval %v: rounds of %v and %v", d, poll, quiet)
		}
		for p, i := accounting.NewPlanner(c.Watch()), 0; ok && i < 5; i++ {
			if got, want := p.Next(accounting.Load{Active: 5}), (accounting.Piece{Poll: c.WithDefaults().Period, Last: true}); got != want {
				t.Errorf("interval %v: %+v, want %+v, since phases end on a grid", d, got, want)
			}
		}
	}
}
