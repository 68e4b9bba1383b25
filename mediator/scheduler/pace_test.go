package scheduler

import (
	"cmp"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/mediator/ipc"
)

// TestPace: the next round comes soon if a decision depends on it.
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
		"no guest works":                          {policy: "dfq", want: accounting.Easy},
		"no guest works, by kernel":               {policy: "hpf", want: accounting.Easy},
		"one works":                               {policy: "dfq", active: 1, want: accounting.Easy},
		"two work":                                {policy: "dfq", active: 2, want: accounting.Brisk},
		"one works, by kernel":                    {policy: "hpf", active: 1, want: accounting.Brisk},
		"two work, and nothing is decided":        {policy: "none", active: 2, want: accounting.Easy},
		"one is suspended":                        {policy: "none", active: 2, held: true, want: accounting.Brisk},
		"a quota has to hold":                     {policy: "none", active: 1, quota: true, want: accounting.Brisk},
		"one works, in short kernels":             {policy: "none", active: 1, told: 80, want: accounting.Easy},
		"one works, in very short kernels":        {policy: "none", active: 1, told: 90, want: accounting.Brisk},
		"as short, where rounds are longer":       {policy: "none", active: 1, told: 80, round: 70 * ms, want: accounting.Brisk},
		"very short, where rounds are short":      {policy: "none", active: 1, told: 90, round: 10 * ms, want: accounting.Easy},
		"one is suspended, and no guest works":    {policy: "dfq", held: true, want: accounting.Brisk},
		"a quota, and no guest works":             {policy: "none", quota: true, want: accounting.Easy},
		"a guest is suspended that does not work": {policy: "dfq", held: true, active: 1, want: accounting.Brisk},
		"two work, one of them has a quota":       {policy: "dfq", active: 2, quota: true, want: accounting.Brisk},
		"two work, by a policy of the papers":     {policy: "loga-cl", active: 2, want: accounting.Brisk},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.join(1, 1, 3)
			s.join(2, 1, 4)
			if err := s.sched.SetPolicy(c.policy); err != nil {
				t.Fatal(err)
			}
			s.sched.mu.Lock()
			s.sched.policy = s.policy
			s.sched.mu.Unlock()
			s.sched.gpu.Watch.Round = cmp.Or(c.round, 20*ms)
			if c.quota {
				s.guests[1].SetTerms(ipc.Terms{Weight: 1, Cap: 0.5})
			}
			if c.held {
				s.next(suspending(2))
			}
			s.clock.Advance(2 * stayActive)
			var groups []accounting.GroupTime
			for i := range c.active {
				groups = append(groups, busy(accounting.GroupID(3+i), 5*ms))
			}
			for i := range c.told {
				at := time.Duration(i) * 140 * time.Microsecond
				s.guests[0].o.Page.WorkLog(0).Add(at, at+50*time.Microsecond)
			}
			s.sched.Work(20*ms, func(*accounting.Work) {})
			if got := s.poll(20*ms, groups...).Pace; got != c.want {
				t.Errorf("pace %d, want %d", got, c.want)
			}
		})
	}
}
