package place

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const gib = 1 << 30

// v100 is the GPU of the paper's larger machine.
var v100 = Spec{Memory: 16 * gib, SMs: 80, WarpsPerSM: 64, BlocksPerSM: 32, SharedPerSM: 96 << 10, RegistersPerSM: 65536}

// newQueue returns a queue for n GPUs with one guest, 1.
func newQueue(t testing.TB, n int, cfg Config) *Queue {
	t.Helper()
	specs := make([]Spec, n)
	for i := range specs {
		specs[i] = v100
	}
	q, err := NewQueue(cfg, specs)
	if err != nil {
		t.Fatal(err)
	}
	must(t, q.Admit(0, 1, Guest{Weight: 1, Memory: 16 * gib}))
	return q
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFewestWarpsIsChosen is algorithm 3: of the GPUs with memory, the one with the fewest warps.
func TestFewestWarpsIsChosen(t *testing.T) {
	q := newQueue(t, 2, Config{})
	must(t, q.Admit(0, 2, Guest{Weight: 1, Memory: 16 * gib}))
	must(t, q.Submit(0, 1, 1, Request{Memory: 4 * gib, Blocks: 100, Threads: 256}))
	must(t, q.Submit(0, 2, 1, Request{Memory: 2 * gib, Blocks: 10, Threads: 256}))
	must(t, q.Submit(0, 3, 1, Request{Memory: 1 * gib, Blocks: 10, Threads: 256}))
	// Memory is a bound: only GPU 0 has room for the fourth.
	must(t, q.Submit(0, 4, 2, Request{Memory: 16 * gib, Blocks: 1, Threads: 32}))
	got := q.Begin(0, nil)
	want := []Action{
		{Kind: Begin, Task: 1, GPU: 0, Memory: 4 * gib},
		{Kind: Begin, Task: 4, GPU: 1, Memory: 16 * gib},
		{Kind: Begin, Task: 2, GPU: 0, Memory: 2 * gib},
		{Kind: Begin, Task: 3, GPU: 0, Memory: 1 * gib},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("begun (-want +got):\n%s", diff)
	}
	for _, id := range []TaskID{1, 2, 3, 4} {
		must(t, q.Free(time.Second, id))
	}
	for i, g := range q.GPUs() {
		if g.Granted() != 0 || g.Warps() != 0 || g.Tasks() != 0 {
			t.Errorf("GPU %d is not empty: %+v", i, g)
		}
	}
}
