package accounting_test

import (
	"testing"
	"time"

	"vgpud/accounting"
)

// reports is a meter that gets its records and reports from the test, from 1 ms on.
type reports struct {
	meter *accounting.RecordMeter
	now   time.Duration
	phase accounting.Phase
}

func newReports() *reports {
	return &reports{meter: accounting.NewRecordMeter(accounting.RecordMeterConfig{}, ms), now: ms}
}

// switched adds records.
func (x *reports) switched(records ...accounting.Switch) {
	for _, r := range records {
		x.meter.Record(r)
	}
}

// cut ends a phase at now with the contexts' reports, and returns what group 1 is charged.
func (x *reports) cut(now time.Duration, did ...accounting.Work) time.Duration {
	x.now = now
	for i := range did {
		x.meter.Report(&did[i])
	}
	x.meter.Cut(now, &x.phase)
	return x.phase.Of(1).Busy
}

// TestRecordMeterBelievesNothingOfLater tests that a report about a time long after the end of the
// phase is ignored, and that one about the immediate future is accepted.
func TestRecordMeterBelievesNothingOfLater(t *testing.T) {
	x := newReports()
	x.switched(accounting.Switch{Clock: ms, PID: 1, On: true})
	got := x.cut(10*ms, accounting.Work{PID: 1, Group: 1, Intervals: []accounting.Interval{{Start: 12 * ms, End: 14 * ms}, {Start: 40 * ms, End: 50 * ms}}})
	for now := 20 * ms; now <= 60*ms; now += 10 * ms {
		got += x.cut(now, accounting.Work{PID: 1, Group: 1})
	}
	if got != 2*ms {
		t.Errorf("charged %v, want 2ms", got)
	}
}

// TestRecordMeterAddsUpAGroup tests that two processes of one group are charged as one.
func TestRecordMeterAddsUpAGroup(t *testing.T) {
	x := newReports()
	x.switched(accounting.Switch{Clock: ms, PID: 1, On: true}, accounting.Switch{Clock: 4 * ms, PID: 1}, accounting.Switch{Clock: 5 * ms, PID: 2, On: true})
	got := x.cut(10*ms, accounting.Work{PID: 1, Group: 1, Since: ms}, accounting.Work{PID: 2, Group: 1, Since: ms})
	if want := 8*ms - 85*us; got != want || len(x.phase.Groups) != 1 {
		t.Errorf("charged %v, want %v: %v", got, want, x.phase.Groups)
	}
}

// TestRecordMeterForgetsContexts tests that contexts that no longer exist are not kept.
func TestRecordMeterForgetsContexts(t *testing.T) {
	x := newReports()
	for i := range 1000 {
		x.cut(x.now+10*ms, accounting.Work{PID: 100 + i, Group: 1, Intervals: []accounting.Interval{{Start: x.now, End: x.now + ms}}})
	}
	if kept := x.meter.Kept(); kept > 100 {
		t.Errorf("%d instants and contexts are kept of 1000 contexts", kept)
	}
}

// TestRecordMeterTakesBackWhatRan tests a launch that is reported as running until its executor
// notices, long after, that it had ended. Its context is charged no more than the launch took.
func TestRecordMeterTakesBackWhatRan(t *testing.T) {
	x := newReports()
	x.switched(accounting.Switch{Clock: ms, PID: 1, On: true})
	var got time.Duration
	for now := 10 * ms; now <= 60*ms; now += 10 * ms {
		got += x.cut(now, accounting.Work{PID: 1, Group: 1, Since: 2 * ms})
	}
	got += x.cut(70*ms, accounting.Work{PID: 1, Group: 1, Intervals: []accounting.Interval{{Start: 2 * ms, End: 12 * ms}}})
	for now := 80 * ms; now <= 160*ms; now += 10 * ms {
		got += x.cut(now, accounting.Work{PID: 1, Group: 1, Since: 80 * ms})
	}
	if got != 90*ms {
		t.Errorf("charged %v, want 90ms", got)
	}
}

// TestRecordMeterSilence tests that a context without further reports has ended.
func TestRecordMeterSilence(t *testing.T) {
	x := newReports()
	x.switched(accounting.Switch{Clock: ms, PID: 1, On: true})
	got := x.cut(10*ms, accounting.Work{PID: 1, Group: 1, Since: ms})
	for now := 20 * ms; now <= 200*ms; now += 10 * ms {
		got += x.cut(now)
	}
	if got != 9*ms {
		t.Errorf("charged %v, want 9ms", got)
	}
}

// TestRecordMeterLosesTheFirst tests that, if records were lost before the first one, that one says
// nothing about the time before it.
func TestRecordMeterLosesTheFirst(t *testing.T) {
	x := newReports()
	x.meter.Lost()
	x.switched(accounting.Switch{Clock: 6 * ms, PID: 1})
	x.cut(16*ms, accounting.Work{PID: 1, Group: 1, Since: ms}, accounting.Work{PID: 2, Group: 2, Since: ms})
	if a, b := x.phase.Of(1).Busy, x.phase.Of(2).Busy; a != 2500*us || b != a {
		t.Errorf("charged %v and %v, want 2.5ms each", a, b)
	}
}

// TestRecordMeterRecordsThatSayNothing tests that a switch to the context that is on the engine,
// and a switch away from one that is not, change nothing.
func TestRecordMeterRecordsThatSayNothing(t *testing.T) {
	x := newReports()
	x.switched(
		accounting.Switch{Clock: ms, PID: 1, On: true}, accounting.Switch{Clock: 3 * ms, PID: 2},
		accounting.Switch{Clock: 4 * ms, PID: 1, On: true},
	)
	got := x.cut(10*ms, accounting.Work{PID: 1, Group: 1, Since: ms})
	if got != 9*ms || x.phase.Switches != 1 {
		t.Errorf("charged %v after %d switches, want 9ms after 1", got, x.phase.Switches)
	}
}

// TestRecordMeterLongVacancy tests that a context restored long after another was saved took no
// longer than a restore takes: no context needed the engine before.
func TestRecordMeterLongVacancy(t *testing.T) {
	x := newReports()
	x.switched(accounting.Switch{Clock: ms, PID: 1, On: true}, accounting.Switch{Clock: 3 * ms, PID: 1}, accounting.Switch{Clock: 13 * ms, PID: 2, On: true})
	x.cut(20*ms, accounting.Work{PID: 1, Group: 1, Since: ms}, accounting.Work{PID: 2, Group: 2, Since: 13 * ms})
	if want := 85*us + 200*us; x.phase.Switching != want {
		t.Errorf("%v of switching, want %v", x.phase.Switching, want)
	}
}

// TestRecordMeterSpansOfSeveralChannels tests that reported intervals may arrive in any order.
func TestRecordMeterSpansOfSeveralChannels(t *testing.T) {
	x := newReports()
	x.switched(accounting.Switch{Clock: ms, PID: 1, On: true})
	got := x.cut(10*ms, accounting.Work{PID: 1, Group: 1, Intervals: []accounting.Interval{{Start: 6 * ms, End: 8 * ms}, {Start: 2 * ms, End: 3 * ms}, {Start: 4 * ms, End: 5 * ms}}})
	if got != 4*ms {
		t.Errorf("charged %v, want 4ms", got)
	}
}
