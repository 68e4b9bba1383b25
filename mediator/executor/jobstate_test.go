package executor

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// jobTransitions are all transitions, with the reason for each.
var jobTransitions = []struct {
	from jobState
	e    jobEvent
	to   jobState
	why  string
}{
	{waiting, turnCame, preparing, "it has its turn, and room"},
	{waiting, turnGivenUp, waiting, "it was told to leave before it used the turn"},
	{preparing, turnLost, waiting, "the daemon took its turn back, or it is not the next of its channel"},
	{preparing, turnGivenUp, waiting, "it was told to leave before it started"},
	{preparing, kernelLaunched, running, "what it needs is in GPU memory"},
	{running, evictionAsked, leaving, "the daemon wants its SMs"},
	{leaving, evictionAsked, leaving, "the daemon wants more of them"},
	{refilling, evictionAsked, leaving, "the daemon changed its mind"},
	{deferred, evictionAsked, deferred, "it does nothing already"},
	{leaving, evictionRecall, running, "the daemon does not want them any more"},
	{deferred, evictionRecall, deferred, "the launch before it is not over"},
	{leaving, refillWanted, refilling, "blocks that have left come back (FLEP figure 4c)"},
	{refilling, refillDone, running, "they have come back, or could not"},
	{running, earlierLeaves, deferred, "the launch before it would be overtaken"},
	{leaving, earlierLeaves, deferred, "likewise"},
	{refilling, earlierLeaves, deferred, "likewise"},
	{leaving, kernelPreempted, preempted, "it did not leave in time, and the hardware takes it off"},
	{deferred, kernelPreempted, preempted, "likewise"},
	{preempted, turnGivenUp, preempted, "it was told to leave before it was back"},
	{preempted, earlierLeaves, deferred, "it is back, and the launch before it was told to leave"},
	{preempted, contextResumed, running, "its turn has come, or another launch of the context needs the GPU"},
	{running, kernelLeft, readingControl, "only what it left tells what it has done"},
	{leaving, kernelLeft, readingControl, "likewise"},
	{refilling, kernelLeft, readingControl, "likewise"},
	{deferred, kernelLeft, readingControl, "likewise"},
	{readingControl, skippedWanted, readingSkipped, "it skipped units"},
	{readingControl, workRemains, preparing, "it is one of several runs, or left unasked"},
	{readingSkipped, workRemains, preparing, "likewise"},
	{readingControl, turnGivenUp, waiting, "it was told to leave"},
	{readingSkipped, turnGivenUp, waiting, "likewise"},
}

// TestJobTransitions: there are these transitions, and the end of the job from each state, and no
// others.
func TestJobTransitions(t *testing.T) {
	want := [jobStates][jobEvents]jobState{}
	for s := waiting; s < over; s++ {
		want[s][jobEnded] = over
	}
	for _, tr := range jobTransitions {
		if want[tr.from][tr.e] != 0 || tr.why == "" {
			t.Errorf("%v, event %d: listed twice, or without a reason", tr.from, tr.e)
		}
		want[tr.from][tr.e] = tr.to
	}
	for s := range jobState(jobStates) {
		for e := range jobEvent(jobEvents) {
			if got := nextJobState[s][e]; got != want[s][e] {
				t.Errorf("%v, event %d: %v, want %v", s, e, got, want[s][e])
			}
		}
	}
}

// TestJobRoom: whatever happens to a job, it has room on the GPU from its turn to its next wait for
// one, or its end, and gives it back once. A transition that there is not ends the process.
func TestJobRoom(t *testing.T) {
	r := newFakeRig(t)
	r.open()
	ch := r.x.channels[0]
	rapid.Check(t, func(t *rapid.T) {
		j := &job{ch: ch, p: &pending{estimate: estimate{work: 1}}, state: waiting}
		for j.state != over {
			e := jobEvent(rapid.IntRange(0, jobEvents-1).Draw(t, "event"))
			next := nextJobState[j.state][e]
			if next == 0 {
				before := j.state
				if !panics(func() { j.to(e) }) || j.state != before {
					t.Fatalf("event %d of a job that is %v was taken", e, before)
				}
				continue
			}
			if e == turnCame {
				r.x.reserve(j.p.estimate)
			}
			j.to(e)
			want := 0
			if j.state != waiting && j.state != over {
				want = 1
			}
			if r.x.admitted != want || j.state.hasRoom() != (want == 1) {
				t.Fatalf("%v: %d launches have room, want %d", j.state, r.x.admitted, want)
			}
		}
	})
	for s := range jobState(jobStates) {
		if on := s == running || s == leaving || s == refilling || s == deferred; s.onGPU() != on {
			t.Errorf("%v on the GPU: %v", s, s.onGPU())
		}
		if fmt.Sprint(s) == "" {
			t.Errorf("state %d has no name", s)
		}
	}
}

// panics reports whether f does.
func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
