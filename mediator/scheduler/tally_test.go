package scheduler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vgpud/accounting"
)

func TestTally(t *testing.T) {
	// Of 2 ms 1 was busy, a quarter spent switching, with three switches.
	polled := accounting.Phase{End: 2 * ms, Groups: []accounting.GroupTime{busy(1, 1*ms)}, Idle: ms / 2, Switching: ms / 2, Switches: 3, Polls: 9, Gaps: 1, GapTime: ms / 4}
	watched := accounting.Phase{Start: 2 * ms, End: 3 * ms, Idle: 1 * ms, Polls: 5}
	quiet := accounting.Quiet{Watched: watched, Unwatched: 5 * ms}
	for _, c := range []struct {
		name  string
		do    func(*tally) float64
		scale float64
		want  tally
	}{
		{"a polling phase alone", func(t *tally) float64 { return t.polled(&polled, 0, 0) }, 1,
			tally{busy: ms, idle: ms / 2, switching: ms / 2, watched: 2 * ms, switches: 3, rounds: 1, polls: 9, gaps: 1, gapTime: ms / 4}},
		{"a quiet phase alone waits", func(t *tally) float64 { t.quieted(&quiet); return 1 }, 1,
			tally{idle: ms, watched: ms, polls: 5, unwatched: 5 * ms}},
		{"the polling phase stands for the quiet one", func(t *tally) float64 { t.quieted(&quiet); return t.polled(&polled, 0, 0) }, 3.5,
			tally{busy: 7 * ms / 2, idle: 1*ms + 7*ms/4, switching: 7 * ms / 4, watched: 3 * ms, switches: 11, rounds: 1, polls: 14, gaps: 1, gapTime: ms / 4}},
		{"but not for what is known", func(t *tally) float64 { t.quieted(&quiet); t.know(1 * ms); return t.polled(&polled, 2*ms, 0) }, 2,
			tally{busy: 3*ms + 2*ms, idle: 2 * ms, switching: ms, watched: 3 * ms, switches: 6, rounds: 1, polls: 14, gaps: 1, gapTime: ms / 4}},
		{"no more is known than passed", func(t *tally) float64 { t.quieted(&quiet); t.know(time.Hour); return t.polled(&polled, time.Hour, 0) }, 1,
			tally{busy: 6 * ms, idle: 3 * ms / 2, switching: ms / 2, watched: 3 * ms, switches: 3, rounds: 1, polls: 14, gaps: 1, gapTime: ms / 4}},
		{"nor for what held guests left", func(t *tally) float64 { t.quieted(&quiet); return t.polled(&polled, 0, 1*ms) }, 6,
			tally{busy: ms, idle: ms + ms/2 + 5*ms/2, switching: ms/2 + 5*ms/2, watched: 3 * ms, switches: 18, rounds: 1, polls: 14, gaps: 1, gapTime: ms / 4}},
		{"a phase of no length stands for nothing", func(t *tally) float64 { t.quieted(&quiet); return t.polled(&accounting.Phase{}, 0, 0) }, 1,
			tally{idle: ms, watched: ms, polls: 5, rounds: 1, unwatched: 5 * ms}},
		{"a clock that went back", func(t *tally) float64 {
			t.quieted(&accounting.Quiet{Watched: accounting.Phase{Start: 5 * ms, End: 5 * ms}, Unwatched: -1 * ms})
			return t.polled(&polled, 0, 0)
		}, 1, tally{busy: ms, idle: ms / 2, switching: ms / 2, watched: 2 * ms, switches: 3, rounds: 1, polls: 9, gaps: 1, gapTime: ms / 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got tally
			if scale := c.do(&got); scale != c.scale {
				t.Errorf("scale %v, want %v", scale, c.scale)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(tally{}), cmpopts.IgnoreFields(tally{}, "busyLately")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBusyRatioFollows(t *testing.T) {
	var tl tally
	full, empty := phase(10*ms, busy(1, 10*ms)), phase(10*ms)
	for range 10 * int(memory/(10*ms)) {
		tl.polled(&full, 0, 0)
	}
	if tl.busyLately < 0.999 {
		t.Errorf("after a long time of work: %v", tl.busyLately)
	}
	for range 10 * int(memory/(10*ms)) {
		tl.polled(&empty, 0, 0)
	}
	if tl.busyLately > 0.001 {
		t.Errorf("after a long time without: %v", tl.busyLately)
	}
}
