package place

import "testing"

// A task that can't leave has what it had, and is told again after 30 s at the earliest; the memory is
// made elsewhere meanwhile.
func TestTaskThatStays(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 3)
	submit(t, q, 0, 1, 1, gig(10))
	submit(t, q, 0, 2, 2, gig(6))
	q.Begin(0, nil)
	must(t, q.SetQuiet(0, 1, true))
	must(t, q.SetQuiet(5*sec, 2, true))
	submit(t, q, 10*sec, 3, 3, gig(6))
	wantActions(t, q, 10*sec, Action{Kind: Leave, Task: 1, GPU: 0, Memory: 10 * gib, Why: IsIdle})
	must(t, q.Stayed(11*sec, 1))
	if v, _ := q.Task(1); v.State != Placed || v.Memory != 10*gib {
		t.Errorf("a task that stays is %+v", v)
	}
	wantActions(t, q, 11*sec)
	if at, ok := q.Next(11 * sec); !ok || at != 15*sec {
		t.Errorf("next at %v, %v, want 15 s", at, ok)
	}
	wantActions(t, q, 15*sec, Action{Kind: Leave, Task: 2, GPU: 0, Memory: 6 * gib, Why: IsIdle})
	must(t, q.Stayed(15*sec, 2))
	if at, ok := q.Next(15 * sec); !ok || at != 41*sec {
		t.Errorf("next at %v, %v, want 41 s", at, ok)
	}
	wantActions(t, q, 41*sec, Action{Kind: Leave, Task: 1, GPU: 0, Memory: 10 * gib, Why: IsIdle})
	must(t, q.Left(42*sec, 1))
	wantActions(t, q, 42*sec, Action{Kind: Begin, Task: 3, GPU: 0, Memory: 6 * gib})
}

// Tasks of a GPU that all wait for more memory and can't leave don't wait for ever: the smallest gets
// no more, and the others go on when it has ended.
func TestGrowthOfTasksThatStay(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 2)
	submit(t, q, 0, 1, 1, gig(6))
	submit(t, q, 0, 2, 2, gig(10))
	q.Begin(0, nil)
	for id := TaskID(1); id <= 2; id++ {
		if granted, err := q.Grow(sec, id, 12*gib); granted || err != nil {
			t.Fatal(granted, err)
		}
	}
	wantActions(t, q, sec, Action{Kind: Leave, Task: 1, GPU: 0, Memory: 6 * gib, Why: Growth})
	must(t, q.Stayed(2*sec, 1))
	wantActions(t, q, 2*sec, Action{Kind: Leave, Task: 2, GPU: 0, Memory: 10 * gib, Why: Growth})
	must(t, q.Stayed(3*sec, 2))
	wantActions(t, q, 3*sec, Action{Kind: Refuse, Task: 1, GPU: 0, Memory: 6 * gib})
	wantActions(t, q, 3*sec)
	must(t, q.Free(4*sec, 1))
	wantActions(t, q, 4*sec, Action{Kind: Grow, Task: 2, GPU: 0, Memory: 12 * gib})
}

// The memory that leaves for an urgent guest's task is that guest's cost from then on.
func TestUrgentGuestPaysForWhatLeaves(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 1)
	must(t, q.Admit(0, 9, Guest{Weight: 2, Memory: 16 * gib, Urgent: true}))
	submit(t, q, 0, 1, 1, gig(12))
	q.Begin(0, nil)
	submit(t, q, 10*sec, 2, 9, gig(8))
	wantActions(t, q, 10*sec, Action{Kind: Leave, Task: 1, GPU: 0, Memory: 12 * gib, Why: ForUrgent})
	must(t, q.Left(13*sec, 1))
	if u := q.Used(13*sec, 1); u != 120*gib {
		t.Errorf("the guest of the task that left has used %g byte-seconds, want 10 s of its 12 GiB", u)
	}
	if u := q.Used(13*sec, 9); u != 18*gib {
		t.Errorf("the urgent guest has used %g byte-seconds, want 3 s of 12 GiB by weight 2", u)
	}
}

// An urgent guest's task does not wait for one that stays after all: another leaves for it, here or on
// another GPU.
func TestUrgentTaskWaitsForNoneThatStays(t *testing.T) {
	q := newQueue(t, 2, Config{})
	guests(t, q, 3)
	must(t, q.Admit(0, 9, Guest{Weight: 1, Memory: 16 * gib, Urgent: true}))
	submit(t, q, 0, 1, 1, gig(8))
	submit(t, q, 0, 2, 2, gig(7))
	submit(t, q, 0, 3, 3, gig(14))
	q.Begin(0, nil)
	submit(t, q, sec, 4, 9, gig(5))
	wantActions(t, q, sec, Action{Kind: Leave, Task: 1, GPU: 1, Memory: 8 * gib, Why: ForUrgent})
	wantActions(t, q, 2*sec) // on its way
	must(t, q.Stayed(3*sec, 1))
	wantActions(t, q, 3*sec, Action{Kind: Leave, Task: 2, GPU: 1, Memory: 7 * gib, Why: ForUrgent})
	must(t, q.Stayed(4*sec, 2))
	wantActions(t, q, 4*sec, Action{Kind: Leave, Task: 3, GPU: 0, Memory: 14 * gib, Why: ForUrgent})
	must(t, q.Left(5*sec, 3))
	wantActions(t, q, 5*sec, Action{Kind: Begin, Task: 4, GPU: 0, Memory: 5 * gib})
}

// A task that left although nobody told it to waits, or wants nothing if it is quiet, and so does one
// that is told to be on the host already.
func TestTaskLeavesUnasked(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 2)
	submit(t, q, 0, 1, 1, gig(6))
	submit(t, q, 0, 2, 2, gig(6))
	q.Begin(0, nil)
	must(t, q.SetQuiet(0, 1, true))
	must(t, q.Left(sec, 1))
	must(t, q.Left(sec, 2))
	submit(t, q, sec, 3, 1, gig(2))
	must(t, q.Park(sec, 3))
	for id, want := range map[TaskID]State{1: Parked, 2: Waiting, 3: Parked} {
		if v, _ := q.Task(id); v.State != want {
			t.Errorf("task %d is %v, want %v", id, v.State, want)
		}
	}
	wantActions(t, q, sec, Action{Kind: Begin, Task: 2, GPU: 0, Memory: 6 * gib})
	if err := q.Park(sec, 2); err == nil {
		t.Error("a placed task is parked")
	}
	must(t, q.SetQuiet(2*sec, 3, false))
	wantActions(t, q, 2*sec, Action{Kind: Begin, Task: 3, GPU: 0, Memory: 2 * gib})
}
