package scheduler

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// TestLeft: the policy is told once, at the end of the phase in which a guest with a cap left, what the
// guest used in it; of no other guest's channel group, and of no guest without a cap or a key.
func TestLeft(t *testing.T) {
	s := newScene(t)
	capped := ipc.Terms{Weight: 1, Cap: 0.1}
	s.joinWith(1, GuestOptions{Key: "a", Terms: capped}, 1, 2)
	s.joinWith(2, GuestOptions{Key: "b", Terms: ipc.Terms{Weight: 1}}, 3)
	s.joinWith(3, GuestOptions{Terms: capped}, 4)
	s.poll(10*ms, busy(1, ms), busy(2, ms), busy(3, ms), busy(4, ms))
	for range 3 {
		s.leave(0)
	}
	s.sched.Changed(1) // as the daemon does
	// A newcomer has one of the groups.
	next := s.joinWith(4, GuestOptions{Key: "a", Terms: capped}, 2)
	s.poll(10*ms, busy(1, 3*ms), busy(2, 4*ms), busy(3, ms), busy(4, ms))
	s.poll(10*ms, busy(1, ms), busy(2, ms))
	last := s.policy.left[len(s.policy.left)-4:]
	want := [][]fairshare.Left{nil, nil, {{Key: "a", Used: 3 * ms}}, nil}
	if diff := cmp.Diff(want, last); diff != "" {
		t.Errorf("told of those that left (-want +got):\n%s", diff)
	}
	if got := next.Bill().Used; got != 5*ms {
		t.Errorf("the newcomer used %v", got)
	}
	keys := s.policy.states[len(s.policy.states)-1]
	if len(keys) != 1 || keys[0].Key != "a" {
		t.Errorf("guests are %+v", keys)
	}
}
