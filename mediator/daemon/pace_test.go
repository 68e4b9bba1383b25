package daemon

import (
	"cmp"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/mediator/api"
)

// TestPace: rounds are at their soonest where something hangs on the next one.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		active int // guests that work
		quota  bool
		held   bool
		told   int           // launches
		round  time.Duration // 0: 20 ms
		want   accounting.Pace
	}{
		"nobody works":                        {policy: "dfq", want: accounting.Easy},
		"nobody works, by kernel":             {policy: "hpf", want: accounting.Easy},
		"one works":                           {policy: "dfq", active: 1, want: accounting.Easy},
		"two work":                            {policy: "dfq", active: 2, want: accounting.Brisk},
		"one works, by kernel":                {policy: "hpf", active: 1, want: accounting.Brisk},
		"two work, and nothing is decided":    {policy: "none", active: 2, want: accounting.Easy},
		"one is held":                         {policy: "none", active: 2, held: true, want: accounting.Brisk},
		"a quota has to hold":                 {policy: "none", active: 1, quota: true, want: accounting.Brisk},
		"one works, in short kernels":         {policy: "none", active: 1, told: 80, want: accounting.Easy},
		"one works, in very short kernels":    {policy: "none", active: 1, told: 90, want: accounting.Brisk},
		"as short, where rounds are longer":   {policy: "none", active: 1, told: 80, round: 70 * ms, want: accounting.Brisk},
		"very short, where rounds are short":  {policy: "none", active: 1, told: 90, round: 10 * ms, want: accounting.Easy},
		"one is held, and nobody works":       {policy: "dfq", held: true, want: accounting.Brisk},
		"a quota, and nobody works":           {policy: "none", quota: true, want: accounting.Easy},
		"somebody is held who does not work":  {policy: "dfq", held: true, active: 1, want: accounting.Brisk},
		"two work, one of them has a quota":   {policy: "dfq", active: 2, quota: true, want: accounting.Brisk},
		"two work, by a policy of the papers": {policy: "loga-cl", active: 2, want: accounting.Brisk},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.join(1, 1, 3)
			s.join(2, 1, 4)
			if err := s.share.setPolicy(c.policy); err != nil {
				t.Fatal(err)
			}
			s.share.policy = s.policy
			s.share.opened.watch.Round = cmp.Or(c.round, 20*ms)
			if c.quota {
				cap := 0.5
				if _, err := s.guests[1].amend(&api.VMUpdate{Cap: &cap}); err != nil {
					t.Fatal(err)
				}
			}
			if c.held {
				s.next(suspending(2))
			}
			s.clock.Advance(2 * lingering)
			var groups []accounting.GroupTime
			for i := range c.active {
				groups = append(groups, busy(accounting.GroupID(3+i), 5*ms))
			}
			for i := range c.told {
				at := time.Duration(i) * 140 * time.Microsecond
				s.guests[0].page.WorkLog(0).Add(at, at+50*time.Microsecond)
			}
			s.share.Work(20*ms, func(*accounting.Work) {})
			if got := s.poll(20*ms, groups...).Pace; got != c.want {
				t.Errorf("pace %d, want %d", got, c.want)
			}
		})
	}
}
