package scheduler

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/launchqueue"
)

// TestLaunchModes: at most one guest's launches go ahead, and only if they would be let run
// whatever else there is.
func TestLaunchModes(t *testing.T) {
	for name, c := range map[string]struct {
		policy   string
		preempts bool
		ceilings []int
		want     []ipc.Mode
	}{
		"the most urgent":          {"hpf", true, []int{0, 2, 1}, []ipc.Mode{ipc.ModeByKernel, ipc.ModeAhead, ipc.ModeByKernel}},
		"two as urgent":            {"hpf", true, []int{0, 2, 2}, []ipc.Mode{ipc.ModeByKernel, ipc.ModeByKernel, ipc.ModeByKernel}},
		"no turns by itself":       {"hpf", false, []int{0, 2}, []ipc.Mode{ipc.ModeByKernel, ipc.ModeByKernel}},
		"not by priority":          {"ffs", true, []int{0, 2}, []ipc.Mode{ipc.ModeByKernel, ipc.ModeByKernel}},
		"alone":                    {"ffs", false, []int{0}, []ipc.Mode{ipc.ModeAhead}},
		"alone, not about kernels": {"dfq", true, []int{0}, []ipc.Mode{ipc.ModeFree}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if err := s.sched.SetPolicy(c.policy); err != nil {
				t.Fatal(err)
			}
			s.sched.gpu.Properties.Preempts = c.preempts
			for i, ceiling := range c.ceilings {
				s.joinWith(fairshare.GuestID(i+1), GuestOptions{Terms: ipc.Terms{Weight: 1, PriorityCeiling: ceiling}}, uint16(i+1))
			}
			s.sched.Changed(1)
			var got []ipc.Mode
			for _, g := range s.guests {
				got = append(got, g.o.Page.Mode())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("modes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGoneAhead: to the policy, a launch that went to the GPU by itself waits until its verdict,
// which has the others leave.
func TestGoneAhead(t *testing.T) {
	s := newScene(t)
	batch, urgent := s.join(1, 1, 1), s.join(2, 1, 2)
	s.byKernel()
	long := s.submit(batch, ipc.Launch{Evictable: true, Form: 1})
	s.next(run(1))
	s.sched.LaunchesChanged()
	long.Start(s.clock.Now())

	urgent.setLaunchMode(ipc.ModeAhead, false)
	urgent.SetTerms(ipc.Terms{Weight: 1, PriorityCeiling: 3})
	below := s.submit(urgent, ipc.Launch{Priority: 2})
	s.sched.LaunchesChanged()
	if l := s.policy.launches[len(s.policy.launches)-1]; len(l) != 2 || l[1].Running || below.State() != slotstate.Ready {
		t.Fatalf("a launch that is less urgent than it might be: %+v, %v", l, below.State())
	}
	below.Abandon(0)
	s.sched.LaunchesChanged()

	short := s.submit(urgent, ipc.Launch{Priority: 3})
	if !short.Grant() {
		t.Fatal("the launch did not go to the GPU")
	}
	short.Start(s.clock.Now())
	s.next(evict(1, 1, 2), run(3))
	s.sched.LaunchesChanged()
	if l := s.policy.launches[len(s.policy.launches)-1]; len(l) != 2 || l[1].Running {
		t.Errorf("the policy is shown %+v", l)
	}
	if long.State() != slotstate.ToEvict || short.State() != slotstate.Running {
		t.Errorf("the batch launch is %v, the urgent one %v", long.State(), short.State())
	}
	s.sched.LaunchesChanged()
	s.sched.Changed(2)
	if l := s.policy.launches[len(s.policy.launches)-1]; len(l) != 2 || !l[1].Running {
		t.Errorf("after the verdict the policy is shown %+v", l)
	}
	if got := s.sched.Status(); got.Launches != (launchqueue.Counts{Running: 1, Leaving: 1}) {
		t.Errorf("launches %+v", got.Launches)
	}
	short.Finish(ms)
	s.sched.LaunchesChanged()
}

// TestConfiguredBusyWait: if it is configured, executors poll under a policy about launches, and
// not after the scheduler has stopped.
func TestConfiguredBusyWait(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	wants := func(why string, want bool) {
		t.Helper()
		s.sched.Changed(1)
		if got := g.o.Page.BusyWait(); got != want {
			t.Errorf("%s: %v", why, got)
		}
	}
	s.byKernel()
	wants("not configured", false)
	s.sched.SetBusyWait(BusyWait{Mode: BusyWaitAlways})
	wants("configured", true)
	if err := s.sched.SetPolicy("dfq"); err != nil {
		t.Fatal(err)
	}
	wants("a policy about guests", false)
	if err := s.sched.SetPolicy("hpf"); err != nil {
		t.Fatal(err)
	}
	wants("a policy about launches", true)
	s.sched.Stop()
	if g.o.Page.BusyWait() {
		t.Error("after the daemon left")
	}
}
