package accounting

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is a status in a test's script.
func at(clock time.Duration, change ...func(*Status)) Status {
	st := Status{Clock: clock}
	for _, c := range change {
		c(&st)
	}
	return st
}

func runs(g GroupID) func(*Status) {
	return func(st *Status) { st.Valid, st.Group, st.Busy = true, g, true }
}

func rests(g GroupID) func(*Status) { return func(st *Status) { st.Valid, st.Group = true, g } }

func switches(s SwitchState, from, to GroupID) func(*Status) {
	return func(st *Status) { st.Valid, st.Group, st.Switch, st.Next, st.Busy = true, from, s, to, true }
}

func entry(e EntryState) func(*Status) { return func(st *Status) { st.Entry = e } }

func TestMeter(t *testing.T) {
	tests := []struct {
		name   string
		idle   IdleMode
		script []Status // the first begins the phase, the last cuts it
		want   Phase
	}{
		{
			name:   "time between switches, LoGA figure 6",
			script: []Status{at(0, runs(2)), at(10, runs(1)), at(25, runs(1)), at(30, runs(2)), at(50, runs(2))},
			want: Phase{End: 50, Switches: 2, Polls: 5, Last: 2, Running: true, Groups: []GroupTime{
				{Group: 1, Busy: 20, Runs: 1}, {Group: 2, Busy: 30, Runs: 2}}},
		},
		{
			name:   "no switch: all to the group seen at the end",
			script: []Status{at(100, runs(7)), at(150, runs(7)), at(1100, runs(7))},
			want: Phase{Start: 100, End: 1100, Polls: 3, Last: 7, Running: true,
				Groups: []GroupTime{{Group: 7, Busy: 1000, Runs: 1}}},
		},
		{
			name:   "a resident group that has run dry is idle",
			script: []Status{at(0, runs(3)), at(4, rests(3)), at(10, runs(3)), at(11, rests(3)), at(20, rests(3))},
			want: Phase{End: 20, Idle: 15, Polls: 5, Last: 0,
				Groups: []GroupTime{{Group: 3, Busy: 5, Runs: 2}}},
		},
		{
			name:   "nothing valid is idle",
			script: []Status{at(0), at(10)},
			want:   Phase{End: 10, Idle: 10, Polls: 2},
		},
		{
			name: "switching time is nobody's, and noted with whom it serves",
			script: []Status{at(0, runs(1)), at(5, switches(Saving, 1, 0)), at(7, switches(Loading, 0, 2)),
				at(10, runs(2)), at(20, switches(Switching, 2, 1)), at(24, runs(1)), at(30, runs(1))},
			want: Phase{End: 30, Switching: 9, Switches: 2, Polls: 7, Last: 1, Running: true, Groups: []GroupTime{
				{Group: 1, Busy: 11, Switching: 6, Runs: 2}, {Group: 2, Busy: 10, Switching: 3, Runs: 1}}},
		},
		{
			name: "idle by entry, as LoGA told it",
			idle: IdleByEntry,
			script: []Status{at(0, runs(1), entry(EntryPending)), at(6, runs(1), entry(EntryIdle)),
				at(9, rests(1), entry(EntryPending)), at(10, runs(1), entry(EntryUnknown)), at(20, rests(1), entry(EntryIdle))},
			want: Phase{End: 20, Idle: 3, Polls: 5, Groups: []GroupTime{{Group: 1, Busy: 17, Runs: 2}}},
		},
		{
			name: "idle compared goes by the busy bit and reports the difference",
			idle: IdleCompared,
			script: []Status{at(0, runs(1), entry(EntryPending)), at(6, runs(1), entry(EntryIdle)),
				at(8, rests(1), entry(EntryPending)), at(11, rests(1), entry(EntryIdle)), at(20, rests(1), entry(EntryIdle))},
			want: Phase{End: 20, Idle: 12, EntryOnly: 3, BusyOnly: 2, Polls: 5,
				Groups: []GroupTime{{Group: 1, Busy: 8, Runs: 1}}},
		},
		{
			name:   "a clock that steps back loses nothing",
			script: []Status{at(10, runs(1)), at(8, runs(2)), at(20, runs(1)), at(30, runs(1))},
			want: Phase{Start: 10, End: 30, Switches: 2, Polls: 4, Last: 1, Running: true, Groups: []GroupTime{
				{Group: 1, Busy: 10, Runs: 2}, {Group: 2, Busy: 10, Runs: 1}}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := NewMeter(Config{Idle: test.idle})
			var got Phase
			for i, st := range test.script {
				switch i {
				case 0:
					m.Begin(st)
				case len(test.script) - 1:
					m.Cut(st, &got)
				default:
					m.Observe(st)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("phase (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMeterCutsWithoutLoss tests that a cut begins the next phase at the same time, with nothing
// carried over.
func TestMeterCutsWithoutLoss(t *testing.T) {
	m := NewMeter(Config{})
	var a, b Phase
	m.Begin(at(0, runs(1)))
	m.Cut(at(10, runs(1)), &a)
	m.Observe(at(15, runs(2)))
	m.Cut(at(20, runs(2)), &b)
	want := Phase{Start: 10, End: 20, Switches: 1, Polls: 3, Last: 2, Running: true, Groups: []GroupTime{
		{Group: 1, Busy: 5, Runs: 1}, {Group: 2, Busy: 5, Runs: 1}}}
	if diff := cmp.Diff(want, b); diff != "" {
		t.Errorf("second phase (-want +got):\n%s", diff)
	}
	if got := b.Of(2).Busy + a.Of(1).Busy; got != 15 {
		t.Errorf("Of: %d, want 15", got)
	}
	if got := b.Of(9); got != (GroupTime{Group: 9}) {
		t.Errorf("Of an unseen group: %+v", got)
	}
}

func TestMeterCountsGaps(t *testing.T) {
	m := NewMeter(Config{})
	m.Begin(at(0, runs(1)))
	for _, now := range []time.Duration{1_000, 2_000, 22_000, 22_500, 122_500} {
		m.Host(now)
	}
	m.Pause(at(20, runs(1)))
	m.Resume(at(30, runs(1)))
	m.Host(9_000_000) // slept on purpose
	var p Phase
	m.Cut(at(9_000_000, runs(1)), &p)
	if p.Gaps != 1 || p.GapTime != 100_000 || p.MaxGap != 100_000 {
		t.Errorf("gaps %d, %v, longest %v; want 1, 100µs, 100µs", p.Gaps, p.GapTime, p.MaxGap)
	}
}

// TestMeterCountsGapsAcrossCuts tests that polling continues across a cut: a gap right after the
// cut is counted.
func TestMeterCountsGapsAcrossCuts(t *testing.T) {
	m := NewMeter(Config{})
	m.Begin(at(0, runs(1)))
	m.Host(1_000)
	var p Phase
	m.Cut(at(10, runs(1)), &p)
	m.Host(101_000)
	if m.Cut(at(20, runs(1)), &p); p.Gaps != 1 || p.GapTime != 100_000 {
		t.Errorf("%d gaps of %v, want 1 of 100µs", p.Gaps, p.GapTime)
	}
}

// TestMeterPieces tests that a phase in pieces is the sum of its pieces.
func TestMeterPieces(t *testing.T) {
	m := NewMeter(Config{})
	m.Begin(at(0, runs(1)))
	m.Observe(at(4, runs(2)))
	m.Pause(at(10, runs(2)))
	m.Resume(at(60, runs(2))) // maybe another command, maybe the same
	m.Pause(at(65, rests(2)))
	m.Resume(at(100, runs(1)))
	var p Phase
	m.Cut(at(110, runs(1)), &p)
	want := Phase{End: 110, Pauses: 85, Switches: 2, Polls: 7, Last: 1, Running: true, Groups: []GroupTime{
		{Group: 1, Busy: 14, Runs: 2}, {Group: 2, Busy: 11, Runs: 2}}}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("phase (-want +got):\n%s", diff)
	}
	if p.Length() != 25 || p.Busy() != 25 {
		t.Errorf("length %d, busy %d, want 25", p.Length(), p.Busy())
	}
}
