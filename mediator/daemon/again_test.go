package daemon

import (
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// TestPolicyThatIsThere: to say it again forgives nobody anything.
func TestPolicyThatIsThere(t *testing.T) {
	s := newScene(t)
	set := func(name string) any {
		t.Helper()
		if err := s.share.setPolicy(name); err != nil {
			t.Fatal(err)
		}
		return s.share.policy
	}
	first := set("dfq")
	if set("dfq") != first {
		t.Error("it begins anew")
	}
	if set("hpf") == first || set("dfq") == first {
		t.Error("another policy has the first one's account")
	}
}

// TestSuspensionsAreACounter: for how long a guest was suspended never becomes less, whoever
// asked with an instant of before.
func TestSuspensionsAreACounter(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	last := 0.0
	for _, step := range []struct {
		what string
		do   func() float64
	}{
		{"before it was held", func() float64 { g.apply(ipc.Suspend, 100*ms); return g.vm(90*ms, gpu.Counts{}).SuspendedSeconds }},
		{"held", func() float64 { return g.vm(200*ms, gpu.Counts{}).SuspendedSeconds }},
		{"asked earlier", func() float64 { return g.vm(150*ms, gpu.Counts{}).SuspendedSeconds }},
		{"let run before it was asked", func() float64 { g.apply(ipc.Run, 190*ms); return g.vm(210*ms, gpu.Counts{}).SuspendedSeconds }},
		{"held again", func() float64 { g.apply(ipc.Suspend, 300*ms); return g.vm(400*ms, gpu.Counts{}).SuspendedSeconds }},
	} {
		got := step.do()
		if got < last {
			t.Errorf("%s: %v s after %v s", step.what, got, last)
		}
		last = got
	}
	if last != 0.19 {
		t.Errorf("suspended for %v s", last)
	}
}
