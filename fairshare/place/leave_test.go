package place

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUrgentTaskMakesRoom: of several GPUs the one where the fewest bytes leave, and the memory is
// kept for it until they have left.
func TestUrgentTaskMakesRoom(t *testing.T) {
	q := newQueue(t, 2, Config{})
	guests(t, q, 4)
	must(t, q.Admit(0, 9, Guest{Weight: 1, Memory: 16 * gib, Urgent: true}))
	submit(t, q, 0, 1, 1, gig(12))
	submit(t, q, 0, 2, 2, gig(9))
	submit(t, q, 0, 3, 3, gig(5))
	q.Begin(0, nil) // 12 on GPU 0, 9 and 5 on GPU 1
	submit(t, q, sec, 4, 9, gig(6))
	submit(t, q, sec, 5, 4, gig(6))
	wantActions(t, q, sec, Action{Kind: Leave, Task: 2, GPU: 1, Memory: 9 * gib, Why: ForUrgent})
	wantActions(t, q, sec)
	must(t, q.Left(2*sec, 2))
	wantActions(t, q, 2*sec, Action{Kind: Begin, Task: 4, GPU: 1, Memory: 6 * gib})
	if v, _ := q.Task(2); v.State != Waiting || v.Memory != 0 {
		t.Errorf("the task that left is %+v", v)
	}
}

// TestUrgentTasksDoNotEvictEachOther: only tasks of guests that are not urgent leave.
func TestUrgentTasksDoNotEvictEachOther(t *testing.T) {
	q := newQueue(t, 1, Config{})
	must(t, q.Admit(0, 8, Guest{Weight: 1, Memory: 16 * gib, Urgent: true}))
	must(t, q.Admit(0, 9, Guest{Weight: 1, Memory: 16 * gib, Urgent: true}))
	submit(t, q, 0, 1, 8, gig(10))
	q.Begin(0, nil)
	submit(t, q, 0, 2, 9, gig(10))
	wantActions(t, q, 0)
}

// TestIdleMemoryLeaves: a task that has not used its memory for 10 s gives it up where others wait,
// and comes back when it has work.
func TestIdleMemoryLeaves(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 2)
	submit(t, q, 0, 1, 1, gig(10))
	q.Begin(0, nil)
	must(t, q.SetQuiet(sec, 1, true))
	wantActions(t, q, 20*sec) // nobody waits
	must(t, q.SetQuiet(20*sec, 1, false))
	must(t, q.SetQuiet(21*sec, 1, true))
	submit(t, q, 22*sec, 2, 2, gig(10))
	wantActions(t, q, 22*sec)
	at, ok := q.Next(22 * sec)
	if !ok || at != 31*sec {
		t.Fatalf("next at %v, %v, want 31 s", at, ok)
	}
	wantActions(t, q, at, Action{Kind: Leave, Task: 1, GPU: 0, Memory: 10 * gib, Why: IsIdle})
	must(t, q.Left(32*sec, 1))
	wantActions(t, q, 32*sec, Action{Kind: Begin, Task: 2, GPU: 0, Memory: 10 * gib})
	if v, _ := q.Task(1); v.State != Parked {
		t.Errorf("an idle task is %v, want parked", v.State)
	}
	must(t, q.Free(40*sec, 2))
	wantActions(t, q, 40*sec)
	must(t, q.SetQuiet(41*sec, 1, false))
	wantActions(t, q, 41*sec, Action{Kind: Begin, Task: 1, GPU: 0, Memory: 10 * gib})
}

// TestNoMoreLeavesThanIsNeeded: memory on its way off the GPU is waited for.
func TestNoMoreLeavesThanIsNeeded(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 2)
	submit(t, q, 0, 1, 1, gig(8))
	submit(t, q, 0, 2, 1, gig(8))
	q.Begin(0, nil)
	must(t, q.SetQuiet(0, 1, true))
	must(t, q.SetQuiet(0, 2, true))
	submit(t, q, 0, 3, 2, gig(6))
	wantActions(t, q, 10*sec, Action{Kind: Leave, Task: 1, GPU: 0, Memory: 8 * gib, Why: IsIdle})
	wantActions(t, q, 11*sec)
	must(t, q.Left(12*sec, 1))
	wantActions(t, q, 12*sec, Action{Kind: Begin, Task: 3, GPU: 0, Memory: 6 * gib})
}

// TestIdleTaskWithWorkComesBack: if it has work again while it leaves, it waits.
func TestIdleTaskWithWorkComesBack(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 2)
	submit(t, q, 0, 1, 1, gig(10))
	q.Begin(0, nil)
	must(t, q.SetQuiet(0, 1, true))
	submit(t, q, 0, 2, 2, gig(10))
	wantActions(t, q, 10*sec, Action{Kind: Leave, Task: 1, GPU: 0, Memory: 10 * gib, Why: IsIdle})
	must(t, q.SetQuiet(10*sec, 1, false))
	must(t, q.Left(11*sec, 1))
	if v, _ := q.Task(1); v.State != Waiting {
		t.Errorf("it is %v, want waiting", v.State)
	}
}

// TestLostGPU takes its tasks with it. A task that no other GPU can hold is refused, and one that was
// on its way there stays where it was.
func TestLostGPU(t *testing.T) {
	q, err := NewQueue(Config{}, []Spec{{Memory: 16 * gib, SMs: 1, WarpsPerSM: 64}, {Memory: 8 * gib, SMs: 1, WarpsPerSM: 64}})
	must(t, err)
	guests(t, q, 4)
	submit(t, q, 0, 1, 1, gig(16))
	submit(t, q, 0, 2, 2, gig(5))
	submit(t, q, 0, 3, 3, gig(3))
	q.Begin(0, nil)
	if _, err := q.Grow(0, 2, 9*gib); err != nil {
		t.Fatal(err)
	}
	must(t, q.Free(sec, 1))
	wantActions(t, q, sec, Action{Kind: Move, Task: 2, GPU: 0, Memory: 9 * gib, Why: Growth})
	submit(t, q, sec, 4, 1, gig(7))
	submit(t, q, sec, 5, 4, gig(15))
	wantActions(t, q, sec, Action{Kind: Begin, Task: 4, GPU: 0, Memory: 7 * gib})
	if diff := cmp.Diff([]TaskID{4}, q.Lose(2*sec, 0)); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
	wantActions(t, q, 2*sec,
		Action{Kind: Refuse, Task: 2, GPU: 1, Memory: 5 * gib},
		Action{Kind: Refuse, Task: 5, GPU: -1})
	if v, _ := q.Task(2); v.State != Placed || v.Wants != 5*gib {
		t.Errorf("the task whose growth was refused is %+v", v)
	}
	if _, ok := q.Task(5); ok {
		t.Error("the refused task is still there")
	}
	if f := q.GPUs()[0].Free(); f != 0 || !q.GPUs()[0].Lost() {
		t.Errorf("%d bytes are free on a lost GPU", f)
	}
	q.Return(0)
	submit(t, q, 3*sec, 6, 4, gig(15))
	wantActions(t, q, 3*sec, Action{Kind: Begin, Task: 6, GPU: 0, Memory: 15 * gib})
	must(t, q.Free(3*sec, 2))
	must(t, q.Free(3*sec, 3))
	must(t, q.Free(3*sec, 6))
	empty(t, q)
}

// TestTaskThatMovesAwayIsLostWithItsSource: its memory is not all on one of them.
func TestTaskThatMovesAwayIsLostWithItsSource(t *testing.T) {
	q := newQueue(t, 2, Config{})
	guests(t, q, 3)
	submit(t, q, 0, 1, 1, gig(10))
	submit(t, q, 0, 2, 2, gig(8))
	submit(t, q, 0, 3, 3, gig(8))
	q.Begin(0, nil)
	if _, err := q.Grow(0, 2, 12*gib); err != nil {
		t.Fatal(err)
	}
	must(t, q.Free(sec, 1))
	a := q.Begin(sec, nil)
	if len(a) != 1 || a[0].Kind != Move {
		t.Fatalf("%+v, want a move", a)
	}
	if diff := cmp.Diff([]TaskID{2, 3}, q.Lose(2*sec, 1)); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
	empty(t, q)
}
