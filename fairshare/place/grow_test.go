package place

import (
	"testing"
)

// TestGrowth: more memory is there at once where the GPU has it, and less is given back.
func TestGrowth(t *testing.T) {
	q := newQueue(t, 1, Config{})
	submit(t, q, 0, 1, 1, gig(4))
	q.Begin(0, nil)
	grow := func(memory uint64) {
		t.Helper()
		if ok, err := q.Grow(0, 1, memory); !ok || err != nil {
			t.Fatalf("grow to %d: %v, %v", memory, ok, err)
		}
		if got := q.GPUs()[0].Granted(); got != memory {
			t.Errorf("granted %d, want %d", got, memory)
		}
	}
	grow(16 * gib)
	grow(2 * gib)
	must(t, q.Free(0, 1))
	empty(t, q)
}

// TestGrowingTaskWaits for memory that another gives back.
func TestGrowingTaskWaits(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 3)
	submit(t, q, 0, 1, 1, gig(8))
	submit(t, q, 0, 2, 2, gig(8))
	q.Begin(0, nil)
	if ok, err := q.Grow(sec, 1, 12*gib); ok || err != nil {
		t.Fatalf("grow: %v, %v", ok, err)
	}
	wantActions(t, q, sec)
	// Free memory serves the task that grows before one that waits.
	submit(t, q, sec, 3, 3, gig(8))
	must(t, q.Free(2*sec, 2))
	wantActions(t, q, 2*sec, Action{Kind: Grow, Task: 1, GPU: 0, Memory: 12 * gib})
}

// TestGrowingTaskMoves to a GPU that has all it wants, and holds both until it has moved.
func TestGrowingTaskMoves(t *testing.T) {
	q := newQueue(t, 2, Config{})
	guests(t, q, 3)
	submit(t, q, 0, 1, 1, gig(8))
	submit(t, q, 0, 2, 2, gig(10))
	q.Begin(0, nil) // 2 on GPU 0, 1 on GPU 1
	submit(t, q, 0, 3, 3, gig(8))
	q.Begin(0, nil)
	v, _ := q.Task(3)
	if v.GPU != 1 {
		t.Fatalf("task 3 is on GPU %d", v.GPU)
	}
	if _, err := q.Grow(sec, 1, 12*gib); err != nil {
		t.Fatal(err)
	}
	wantActions(t, q, sec)
	must(t, q.Free(2*sec, 2))
	wantActions(t, q, 2*sec, Action{Kind: Move, Task: 1, GPU: 0, Memory: 12 * gib, Why: Growth})
	if a, b := q.GPUs()[0].Granted(), q.GPUs()[1].Granted(); a != 12*gib || b != 16*gib {
		t.Errorf("granted %d and %d while it moves, want 12 and 16 GiB", a, b)
	}
	must(t, q.Moved(3*sec, 1))
	if b := q.GPUs()[1].Granted(); b != 8*gib {
		t.Errorf("granted %d after it moved, want 8 GiB", b)
	}
	must(t, q.Free(3*sec, 1))
	must(t, q.Free(3*sec, 3))
	empty(t, q)
}

// TestTasksThatAllGrowDoNotDeadlock: where each task of a GPU waits for what the others have, the
// smallest leaves at once and comes back with all that it wants.
func TestTasksThatAllGrowDoNotDeadlock(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 2)
	submit(t, q, 0, 1, 1, gig(8))
	submit(t, q, 0, 2, 2, gig(7))
	q.Begin(0, nil)
	for id := TaskID(1); id <= 2; id++ {
		if ok, err := q.Grow(sec, id, 12*gib); ok || err != nil {
			t.Fatalf("grow: %v, %v", ok, err)
		}
	}
	wantActions(t, q, sec, Action{Kind: Leave, Task: 2, GPU: 0, Memory: 7 * gib, Why: Growth})
	// Nobody else has to leave while it does.
	wantActions(t, q, sec)
	must(t, q.Left(2*sec, 2))
	wantActions(t, q, 2*sec, Action{Kind: Grow, Task: 1, GPU: 0, Memory: 12 * gib})
	must(t, q.Free(3*sec, 1))
	wantActions(t, q, 3*sec, Action{Kind: Begin, Task: 2, GPU: 0, Memory: 12 * gib})
}

// TestGrowthThatWaitsLongLeaves: a task does not hold memory for ever that it can't go on with.
func TestGrowthThatWaitsLongLeaves(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 2)
	submit(t, q, 0, 1, 1, gig(8))
	submit(t, q, 0, 2, 2, gig(8))
	q.Begin(0, nil)
	if _, err := q.Grow(sec, 1, 12*gib); err != nil {
		t.Fatal(err)
	}
	wantActions(t, q, sec)
	at, ok := q.Next(sec)
	if !ok || at != 31*sec {
		t.Fatalf("next at %v, %v, want 31 s", at, ok)
	}
	wantActions(t, q, at, Action{Kind: Leave, Task: 1, GPU: 0, Memory: 8 * gib, Why: Growth})
}

// TestWaitingTaskMayWantMore: it then waits for a GPU that has that much.
func TestWaitingTaskMayWantMore(t *testing.T) {
	q := newQueue(t, 1, Config{})
	guests(t, q, 2)
	submit(t, q, 0, 1, 1, gig(10))
	q.Begin(0, nil)
	submit(t, q, 0, 2, 2, gig(4))
	if ok, err := q.Grow(0, 2, 8*gib); ok || err != nil {
		t.Fatalf("grow: %v, %v", ok, err)
	}
	wantActions(t, q, 0)
	must(t, q.Free(sec, 1))
	wantActions(t, q, sec, Action{Kind: Begin, Task: 2, GPU: 0, Memory: 8 * gib})
}
