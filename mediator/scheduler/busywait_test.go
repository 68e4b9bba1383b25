package scheduler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// TestBusyWaitWhileKernelsLeave: by default guests are told to poll from when a kernel is told to
// leave until a while after the last one was.
func TestBusyWaitWhileKernelsLeave(t *testing.T) {
	for name, c := range map[string]struct {
		mode        BusyWaitMode
		processors  int
		told, after bool // to poll, once a kernel was told to leave, and a second later
	}{
		"auto":              {BusyWaitAuto, minProcessors, true, false},
		"few processors":    {BusyWaitAuto, minProcessors - 1, false, false},
		"configured":        {BusyWaitAlways, 1, true, true},
		"configured not to": {BusyWaitNever, 64, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.sched.launches.busyWait = busyWait{BusyWait: BusyWait{Mode: c.mode}, processors: c.processors}
			batch, urgent := s.join(1, 1, 1), s.join(2, 1, 2)
			s.byKernel()
			wants := func(when string, want bool) {
				t.Helper()
				s.sched.LaunchesChanged()
				for i, g := range s.guests {
					if got := g.o.Page.BusyWait(); got != want {
						t.Errorf("%s: guest %d is told to poll: %v", when, i, got)
					}
				}
			}
			wants("before", c.mode == BusyWaitAlways)
			long := s.submit(batch, ipc.Launch{Evictable: true, Form: 1})
			s.next(run(1))
			s.sched.LaunchesChanged()
			long.Start(s.clock.Now())
			s.submit(urgent, ipc.Launch{})
			s.next(evict(1, 1, 2))
			s.sched.LaunchesChanged()
			wants("a kernel is told to leave", c.told)
			s.clock.Advance(busyWaitFor - time.Nanosecond)
			wants("shortly after", c.told)
			s.clock.Advance(time.Nanosecond)
			wants("long after", c.after)
		})
	}
}

// TestPollLimit: under a policy by priority, the executors of guests whose launches go before
// another's may poll for these.
func TestPollLimit(t *testing.T) {
	const most = 5 * ms
	for name, c := range map[string]struct {
		config     BusyWait
		processors int
		policy     string
		ceilings   []int
		want       []time.Duration
	}{
		"by priority":           {BusyWait{PollLimit: most}, minProcessors, "hpf", []int{0, 2, 1}, []time.Duration{0, most, most}},
		"all as urgent":         {BusyWait{PollLimit: most}, minProcessors, "hpf", []int{2, 2}, []time.Duration{0, 0}},
		"alone":                 {BusyWait{PollLimit: most}, minProcessors, "hpf", []int{2}, []time.Duration{0}},
		"not by priority":       {BusyWait{PollLimit: most}, minProcessors, "ffs", []int{0, 2}, []time.Duration{0, 0}},
		"not about launches":    {BusyWait{PollLimit: most}, minProcessors, "dfq", []int{0, 2}, []time.Duration{0, 0}},
		"few processors":        {BusyWait{PollLimit: most}, minProcessors - 1, "hpf", []int{0, 2}, []time.Duration{0, 0}},
		"few, configured":       {BusyWait{BusyWaitAlways, most}, 1, "hpf", []int{0, 2}, []time.Duration{0, most}},
		"configured not to":     {BusyWait{BusyWaitNever, most}, minProcessors, "hpf", []int{0, 2}, []time.Duration{0, 0}},
		"configured otherwise":  {BusyWait{PollLimit: ms}, minProcessors, "hpf", []int{0, 2}, []time.Duration{0, ms}},
		"configured without it": {BusyWait{}, minProcessors, "hpf", []int{0, 2}, []time.Duration{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.sched.launches.busyWait = busyWait{BusyWait: c.config, processors: c.processors}
			if err := s.sched.SetPolicy(c.policy); err != nil {
				t.Fatal(err)
			}
			for i, ceiling := range c.ceilings {
				s.joinWith(fairshare.GuestID(i+1), GuestOptions{Terms: ipc.Terms{Weight: 1, PriorityCeiling: ceiling}}, uint16(i+1))
			}
			s.sched.Changed(1)
			told := func() (all []time.Duration) {
				for _, g := range s.guests {
					all = append(all, g.o.Page.PollLimit())
				}
				return all
			}
			if diff := cmp.Diff(c.want, told()); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			s.guests[0].o.Page.SetPollLimit(ipc.MaxPollLimit) // its processes may write anything
			s.sched.Changed(1)
			if diff := cmp.Diff(c.want, told()); diff != "" {
				t.Errorf("limits, after a guest's process wrote another (-want +got):\n%s", diff)
			}
			s.sched.Stop()
			if diff := cmp.Diff(make([]time.Duration, len(c.want)), told()); diff != "" {
				t.Errorf("limits, after the daemon left (-want +got):\n%s", diff)
			}
		})
	}
}
