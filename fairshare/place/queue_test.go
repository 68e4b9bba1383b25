package place

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
)

const sec = time.Second

// guests admits guests 1 to n with a limit of a GPU.
func guests(t testing.TB, q *Queue, n int) {
	t.Helper()
	for id := range n {
		must(t, q.Admit(0, fairshare.GuestID(id+1), Guest{Weight: 1, Memory: 16 * gib}))
	}
}

// gig is a request of n GiB.
func gig(n uint64) Request { return Request{Memory: n * gib, Blocks: 1, Threads: 32} }

// TestOrderIsByWeightedMemoryTime: the guest that used the least memory-time by weight comes first,
// whichever task came first.
func TestOrderIsByWeightedMemoryTime(t *testing.T) {
	q := newQueue(t, 1, Config{})
	must(t, q.Admit(0, 2, Guest{Weight: 4, Memory: 16 * gib}))
	submit(t, q, 0, 1, 1, gig(8))
	submit(t, q, 0, 2, 2, gig(8))
	q.Begin(0, nil)
	submit(t, q, 0, 3, 1, gig(8))
	submit(t, q, 0, 4, 2, gig(8))
	must(t, q.Free(10*sec, 1)) // 80 of weight 1
	wantActions(t, q, 10*sec, Action{Kind: Begin, Task: 4, GPU: 0, Memory: 8 * gib})
	if got, want := q.Used(10*sec, 1), 80.0*gib; got != want {
		t.Errorf("guest 1 used %g, want %g", got, want)
	}
	if got, want := q.Used(10*sec, 2), 20.0*gib; got != want {
		t.Errorf("guest 2 used %g, want %g", got, want)
	}
	// Of 8 GiB for guest 2 four times as long counts as much.
	must(t, q.Free(10*sec, 4))
	must(t, q.Free(60*sec, 2))
	wantActions(t, q, 60*sec, Action{Kind: Begin, Task: 3, GPU: 0, Memory: 8 * gib})
}

// TestIdleGuestSavesNothing: a guest that comes, or comes back, is brought up to the others.
func TestIdleGuestSavesNothing(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 3)
	submit(t, q, 0, 1, 1, gig(16))
	q.Begin(0, nil)
	submit(t, q, 0, 2, 2, gig(16))
	q.Begin(0, nil)
	must(t, q.Free(100*sec, 1))
	q.Begin(100*sec, nil) // guest 2's
	submit(t, q, 100*sec, 3, 1, gig(16))
	q.Begin(100*sec, nil)
	must(t, q.Free(300*sec, 2))
	q.Begin(300*sec, nil) // guest 1 used 1,600, guest 2 3,200
	submit(t, q, 300*sec, 4, 2, gig(16))
	submit(t, q, 300*sec, 5, 3, gig(16))
	q.Begin(300*sec, nil)
	if got, want := q.Used(300*sec, 3), 1600.0*gib; got != want {
		t.Errorf("a guest that was idle starts with %g, want %g", got, want)
	}
}

// TestFirstIsPassedForLimitedTime: others pass the first task for 30 s, then memory is kept for it.
func TestFirstIsPassedForLimitedTime(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 3)
	submit(t, q, 0, 1, 1, gig(8))
	q.Begin(0, nil)
	submit(t, q, 0, 2, 2, gig(12))
	submit(t, q, 0, 3, 1, gig(4))
	wantActions(t, q, 0, Action{Kind: Begin, Task: 3, GPU: 0, Memory: 4 * gib})
	at, ok := q.Next(0)
	if !ok || at != 30*sec {
		t.Errorf("next at %v, %v, want 30 s", at, ok)
	}
	must(t, q.Free(29*sec, 3))
	submit(t, q, 29*sec, 4, 1, gig(4))
	wantActions(t, q, 29*sec, Action{Kind: Begin, Task: 4, GPU: 0, Memory: 4 * gib})
	must(t, q.Free(30*sec, 4))
	submit(t, q, 30*sec, 5, 1, gig(4))
	wantActions(t, q, 30*sec)
	if v, _ := q.Task(2); v.KeptOn != 0 || v.Passed != 2 {
		t.Errorf("the first was passed %d times, kept on %d, want 2 and 0", v.Passed, v.KeptOn)
	}
	if got := q.Passed(); got != 29*sec {
		t.Errorf("passed for %v, want 29 s", got)
	}
	must(t, q.Free(31*sec, 1))
	wantActions(t, q, 31*sec,
		Action{Kind: Begin, Task: 2, GPU: 0, Memory: 12 * gib},
		Action{Kind: Begin, Task: 5, GPU: 0, Memory: 4 * gib})
}

// TestGuestFarAheadDoesNotPass: memory is kept for the first before it was passed for 30 s if the
// guest that would pass used more than the first could have in that time.
func TestGuestFarAheadDoesNotPass(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 2)
	submit(t, q, 0, 1, 1, gig(8))
	submit(t, q, 0, 2, 1, gig(8))
	q.Begin(0, nil)
	submit(t, q, 0, 3, 2, gig(10))
	q.Begin(0, nil)
	must(t, q.Free(18*sec, 1)) // guest 1 used 288, 30 s of guest 2's 10 GiB are 300
	submit(t, q, 18*sec, 4, 1, gig(4))
	wantActions(t, q, 18*sec, Action{Kind: Begin, Task: 4, GPU: 0, Memory: 4 * gib})
	submit(t, q, 20*sec, 5, 1, gig(4))
	wantActions(t, q, 20*sec)
	if v, _ := q.Task(3); v.KeptOn != 0 {
		t.Errorf("no memory is kept for the first: %+v", v)
	}
}

// TestKeptMemoryIsOnOneGPU: while memory is kept on one GPU, others begin elsewhere, and the task
// takes whichever GPU has room first.
func TestKeptMemoryIsOnOneGPU(t *testing.T) {
	q := newQueue(t, 2, Config{})
	guests(t, q, 2)
	for id := TaskID(1); id <= 2; id++ {
		submit(t, q, 0, id, 1, gig(7))
	}
	q.Begin(0, nil)
	submit(t, q, 0, 3, 2, gig(12))
	submit(t, q, 0, 4, 1, gig(1))
	q.Begin(0, nil)
	must(t, q.Free(30*sec, 4))
	q.Begin(30*sec, nil)
	v, _ := q.Task(3)
	if v.KeptOn < 0 {
		t.Fatalf("nothing is kept: %+v", v)
	}
	other := 1 - v.KeptOn
	submit(t, q, 31*sec, 5, 1, gig(1))
	wantActions(t, q, 31*sec, Action{Kind: Begin, Task: 5, GPU: other, Memory: gib})
	must(t, q.Free(32*sec, 5))
	for _, v := range q.Tasks() {
		if v.GPU == other {
			must(t, q.Free(32*sec, v.ID))
		}
	}
	wantActions(t, q, 32*sec, Action{Kind: Begin, Task: 3, GPU: other, Memory: 12 * gib})
	if n := len(q.kept[0]) + len(q.kept[1]); n != 0 {
		t.Errorf("memory is kept for %d tasks that run", n)
	}
}

// TestAdmission: some GPU has to hold a guest's limit and have room for its guarantee.
func TestAdmission(t *testing.T) {
	q, err := NewQueue(Config{}, []Spec{{Memory: 8 * gib, SMs: 1}, {Memory: 16 * gib, SMs: 1}})
	must(t, err)
	q.GPUs()[1].PinnedGuarantee = 0.6
	for _, c := range []struct {
		name string
		g    Guest
		want error
	}{
		{"fits", Guest{Weight: 1, Memory: 16 * gib}, nil},
		{"too large", Guest{Weight: 1, Memory: 17 * gib}, ErrNoGPU},
		{"too large for its GPUs", Guest{Weight: 1, Memory: 16 * gib, GPUs: Set(0).With(0)}, ErrNoGPU},
		{"guarantee beside a pinned one", Guest{Weight: 1, Memory: 16 * gib, Guarantee: 0.5}, ErrNoGPU},
		{"guarantee elsewhere", Guest{Weight: 1, Memory: 8 * gib, Guarantee: 0.5}, nil},
		{"no weight", Guest{Memory: gib}, ErrEmpty},
		{"no limit", Guest{Weight: 1}, ErrEmpty},
		{"guarantee below 0", Guest{Weight: 1, Memory: gib, Guarantee: -1}, ErrEmpty},
	} {
		if err := q.Admit(0, 1, c.g); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if _, err := NewQueue(Config{}, nil); !errors.Is(err, ErrNoGPU) {
		t.Errorf("a queue for no GPUs: %v", err)
	}
}

// TestGuaranteesOfOneGPU: a task waits for a GPU that has room for its guest's guarantee.
func TestGuaranteesOfOneGPU(t *testing.T) {
	q := newQueue(t, 2, Config{})
	q.GPUs()[1].PinnedGuarantee = 0.5
	for id := fairshare.GuestID(1); id <= 3; id++ {
		must(t, q.Admit(0, id, Guest{Weight: 1, Memory: 4 * gib, Guarantee: 0.6}))
	}
	submit(t, q, 0, 1, 1, gig(1))
	submit(t, q, 0, 2, 2, gig(1))
	submit(t, q, 0, 3, 1, gig(1))
	// A guest's second task is covered by the same guarantee.
	wantActions(t, q, 0,
		Action{Kind: Begin, Task: 1, GPU: 0, Memory: gib},
		Action{Kind: Begin, Task: 3, GPU: 0, Memory: gib})
	must(t, q.Free(sec, 1))
	wantActions(t, q, sec)
	must(t, q.Free(sec, 3))
	wantActions(t, q, sec, Action{Kind: Begin, Task: 2, GPU: 0, Memory: gib})
	// With a smaller guarantee it may go beside the pinned guests.
	submit(t, q, sec, 4, 3, gig(1))
	wantActions(t, q, sec)
	must(t, q.Admit(sec, 3, Guest{Weight: 1, Memory: 4 * gib, Guarantee: 0.5}))
	wantActions(t, q, sec, Action{Kind: Begin, Task: 4, GPU: 1, Memory: gib})
	must(t, q.Admit(sec, 3, Guest{Weight: 1, Memory: 4 * gib, Guarantee: 0.25}))
	if got := q.GPUs()[1].guarantee; got != 0.25 {
		t.Errorf("guarantees of GPU 1 are %g, want 0.25", got)
	}
}

// TestRefusals: what can never be is refused at once, and changes nothing.
func TestRefusals(t *testing.T) {
	q := newQueue(t, 1, Config{})
	must(t, q.Admit(0, 2, Guest{Weight: 1, Memory: 4 * gib}))
	submit(t, q, 0, 1, 2, gig(3))
	for _, c := range []struct {
		name string
		do   func() error
		want error
	}{
		{"no memory", func() error { return q.Submit(0, 2, 1, Request{}) }, ErrEmpty},
		{"all memory there is", func() error { return q.Submit(0, 2, 1, Request{Memory: 1<<64 - 1}) }, ErrNoGPU},
		{"more than a GPU", func() error { return q.Submit(0, 2, 1, gig(17)) }, ErrNoGPU},
		{"over the limit", func() error { return q.Submit(0, 2, 2, gig(2)) }, ErrLimit},
		{"begun twice", func() error { return q.Submit(0, 1, 2, gig(1)) }, ErrExists},
		{"no such guest", func() error { return q.Submit(0, 2, 9, gig(1)) }, ErrUnknown},
		{"adopted where it does not fit", func() error { return q.Adopt(0, 2, 1, gig(1), 1) }, ErrNoGPU},
		{"free what is not there", func() error { return q.Free(0, 2) }, ErrUnknown},
		{"grow what is not there", func() error { _, err := q.Grow(0, 2, gib); return err }, ErrUnknown},
		{"grow to nothing", func() error { _, err := q.Grow(0, 1, 0); return err }, ErrEmpty},
		{"grow over the limit", func() error { _, err := q.Grow(0, 1, 5*gib); return err }, ErrLimit},
		{"grow over a GPU", func() error { _, err := q.Grow(0, 1, 1<<64-1); return err }, ErrNoGPU},
		{"moved, but was not told to", func() error { return q.Moved(0, 1) }, ErrState},
		{"left, but was not told to", func() error { return q.Left(0, 1) }, ErrState},
		{"moved and not there", func() error { return q.Moved(0, 2) }, ErrUnknown},
		{"left and not there", func() error { return q.Left(0, 2) }, ErrUnknown},
		{"quiet and not there", func() error { return q.SetQuiet(0, 2, true) }, ErrUnknown},
	} {
		before := q.Tasks()
		if err := c.do(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if diff := cmp.Diff(before, q.Tasks()); diff != "" {
			t.Errorf("%s changed (-before +after):\n%s", c.name, diff)
		}
	}
}

// TestRemovedGuestLeavesNothing: a guest's end frees what it has and what it waits for.
func TestRemovedGuestLeavesNothing(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 2)
	submit(t, q, 0, 1, 1, gig(10))
	q.Begin(0, nil)
	submit(t, q, 0, 2, 2, gig(10))
	submit(t, q, 0, 3, 1, gig(1))
	if diff := cmp.Diff([]TaskID{1, 3}, q.Remove(sec, 1)); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	wantActions(t, q, sec, Action{Kind: Begin, Task: 2, GPU: 0, Memory: 10 * gib})
	q.Remove(2*sec, 2)
	empty(t, q)
	if q.Remove(2*sec, 2) != nil || q.Used(2*sec, 2) != 0 {
		t.Error("a removed guest is still there")
	}
}

// TestAdoptedTaskKeepsItsGPU: after a restart placed tasks are where they were, and new ones wait.
func TestAdoptedTaskKeepsItsGPU(t *testing.T) {
	q := newQueue(t, 2, Config{})
	must(t, q.Adopt(0, 7, 1, gig(10), 1))
	want := []View{{ID: 7, Guest: 1, State: Placed, GPU: 1, Memory: 10 * gib, Wants: 10 * gib, Warps: 1, KeptOn: -1}}
	if diff := cmp.Diff(want, q.Tasks()); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
	submit(t, q, 0, 8, 1, gig(6))
	wantActions(t, q, 0, Action{Kind: Begin, Task: 8, GPU: 0, Memory: 6 * gib})
}

// TestKeptWhereNothingIsLeft: memory that is kept for a task on a GPU that guests outside of the queue
// then have is kept on another one, and others don't pass the task for ever.
func TestKeptWhereNothingIsLeft(t *testing.T) {
	q := newQueue(t, 2, Config{})
	guests(t, q, 3)
	submit(t, q, 0, 1, 1, gig(8))
	submit(t, q, 0, 2, 1, gig(8))
	q.Begin(0, nil) // one on each GPU
	submit(t, q, 0, 3, 2, gig(12))
	submit(t, q, 0, 4, 3, gig(4))
	q.Begin(0, nil) // 4 passes 3
	q.Begin(DefaultPatience, nil)
	v, _ := q.Task(3)
	if v.KeptOn < 0 {
		t.Fatal("nothing is kept for a task that was passed for long")
	}
	q.GPUs()[v.KeptOn].Pinned = q.GPUs()[v.KeptOn].Memory
	submit(t, q, DefaultPatience, 5, 3, gig(4))
	for _, a := range q.Begin(DefaultPatience, nil) {
		t.Errorf("%+v, where memory is kept for another", a)
	}
	if now, _ := q.Task(3); now.KeptOn != 1-v.KeptOn {
		t.Errorf("memory is kept on GPU %d, want %d", now.KeptOn, 1-v.KeptOn)
	}
}
