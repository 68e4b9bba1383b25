package slotstate

import (
	"errors"
	"testing"
)

// transition is one transition, with the sentence that it rests on.
type transition struct {
	from  State
	cause Cause
	to    State
	text  string
}

// transitions are all transitions. The quotations are of EffiSha §6.1 unless they name another
// section.
var transitions = []transition{
	{None, Claimed, Prep, "When a kernel stub gets created, it is before the host thread reaches the kernel invocation; the kernel is in a preparation state (PREP)."},
	{Done, Claimed, Prep, "the kernel state turns to DONE and the kernel stub gets reclaimed for other usage"},
	{Prep, Initialised, Ready, "The kernel then transits to the READY state, indicating that it is ready to be launched."},
	{Ready, Scheduled, ToRun, "When the EffiSha daemon changes its state to TORUN,"},
	{ToRun, Launched, Running, "the host thread may launch the kernel and the state of the kernel becomes RUNNING."},
	{Running, Asked, ToEvict, "When the EffiSha daemon changes its state to TOEVICT,"},
	{ToRun, Asked, ToEvict, "ours: the GPU is wanted for another before the executor used the turn"},
	{ToEvict, Launched, ToEvict, "ours: it was told to leave some SMs before it started, or while the executor was starting it"},
	{Running, Launched, Running, "ours: it was told that it may stay before it started"},
	{ToEvict, Evicted, Ready, "the GPU kernel evicts from GPU voluntarily and the kernel goes back to the READY state."},
	{Running, Finished, Done, "When the GPU kernel finishes, the kernel state turns to DONE"},
	{ToEvict, Finished, Done, "§6.2: During the execution of a GPU kernel, when a GPU thread finds no more block-task left, it changes the kState field of the stub to \"DONE\". Otherwise, […] before grabing a new task, it checks whether the kState is now \"TOEVICT\"."},
	{ToEvict, Recalled, Running, "ours, for FLEP §4.1: All the CTAs, which run on SMs of ID smaller than spa_P, should quit execution; All the other CTAs keep running"},
	{Running, Evicted, Ready, "ours: a guest can write its kernel's evict word too; the kernel then waits for its turn like one that was asked"},
	{ToRun, Withdrawn, Ready, "ours: its executor does something else, and the GPU would be idle"},
	{Prep, Abandoned, Done, "ours: its context ended"},
	{Ready, Abandoned, Done, "ours"},
	{ToRun, Abandoned, Done, "ours"},
	{Running, Abandoned, Done, "ours"},
	{ToEvict, Abandoned, Done, "ours"},
}

// TestEveryTransition makes each transition, and is refused every other, with states and causes out
// of range too.
func TestEveryTransition(t *testing.T) {
	type key struct {
		from  State
		cause Cause
	}
	known := map[key]State{}
	for _, tr := range transitions {
		if tr.text == "" {
			t.Errorf("%v %v: no source", tr.from, tr.cause)
		}
		known[key{tr.from, tr.cause}] = tr.to
	}
	if len(known) != len(transitions) {
		t.Fatal("a transition is listed twice")
	}
	for s := range 256 {
		for c := range 256 {
			from, cause := State(s), Cause(c)
			got, err := Next(from, cause)
			if want, ok := known[key{from, cause}]; ok {
				if got != want || err != nil {
					t.Errorf("Next(%v, %v) = %v, %v, want %v", from, cause, got, err, want)
				}
				continue
			}
			if refused, ok := errors.AsType[RefusedError](err); !ok || refused != (RefusedError{from, cause}) || got != from {
				t.Errorf("Next(%v, %v) = %v, %v, want it refused", from, cause, got, err)
			}
		}
	}
}

// TestFigure7 takes a kernel through EffiSha's figure 7, with two evictions.
func TestFigure7(t *testing.T) {
	s := None
	for i, step := range []struct {
		cause Cause
		want  State
	}{
		{Claimed, Prep},      // KR = GetAKernelStub();
		{Initialised, Ready}, // InitStub(KR,initPriority);
		{Scheduled, ToRun},   // while (KR.kState != TORUN);
		{Launched, Running},  // KR.kState=RUNNING; AGpuKernel<<< … >>> (arg1, arg2);
		{Asked, ToEvict},     // if (KR.kState == TOEVICT){
		{Evicted, Ready},     // if (lastThreadToExit) KR.kState = READY; return;
		{Scheduled, ToRun},   // if (KR.kState == TORUN) {
		{Launched, Running},  // KR.kState=RUNNING; AGpuKernel<<< … >>> (arg1, arg2);
		{Asked, ToEvict},
		{Evicted, Ready},
		{Scheduled, ToRun},
		{Launched, Running},
		{Finished, Done}, // while (KR.kState != DONE)
	} {
		var err error
		if s, err = Next(s, step.cause); s != step.want || err != nil {
			t.Fatalf("step %d: %v, %v, want %v", i, s, err, step.want)
		}
	}
}

// TestAlwaysAnEnd: a launch can be abandoned in any state, so no slot is lost with its executor;
// and the daemon's causes make the daemon's transitions only.
func TestAlwaysAnEnd(t *testing.T) {
	for s := Prep; s < Done; s++ {
		if got, err := Next(s, Abandoned); got != Done || err != nil {
			t.Errorf("abandoned while %v: %v, %v", s, got, err)
		}
	}
	for s := range State(states) {
		if n, err := Next(s, Withdrawn); err == nil && (s != ToRun || n != Ready) {
			t.Errorf("%v is withdrawn to %v", s, n)
		}
		if n, err := Next(s, Scheduled); err == nil && (s != Ready || n != ToRun) {
			t.Errorf("%v is scheduled to %v", s, n)
		}
		if n, err := Next(s, Asked); err == nil && (s != Running && s != ToRun || n != ToEvict) {
			t.Errorf("%v is asked to %v", s, n)
		}
	}
	for s, want := range map[State]string{Ready: "ready", ToEvict: "to evict", 9: "State(9)"} {
		if s.String() != want {
			t.Errorf("%d is named %q, want %q", s, s, want)
		}
	}
	for s := range State(states) {
		if want := s == ToRun || s == Running || s == ToEvict; s.OnGPU() != want {
			t.Errorf("%v on the GPU: %v", s, s.OnGPU())
		}
	}
	for s := range 256 {
		if got, want := State(s).Valid(), s <= int(Done); got != want {
			t.Errorf("%v is a state: %v", State(s), got)
		}
	}
	if Cause(99).String() != "Cause(99)" || Evicted.String() != "evicted" {
		t.Error("names of causes")
	}
}
