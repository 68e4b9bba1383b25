package place

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
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

func must(t errorer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// submit submits a task of a guest.
func submit(t testing.TB, q *Queue, now time.Duration, id TaskID, of fairshare.GuestID, r Request) {
	t.Helper()
	must(t, q.Submit(now, id, of, r))
}

// wantActions fails unless Begin answers with want.
func wantActions(t testing.TB, q *Queue, now time.Duration, want ...Action) {
	t.Helper()
	if diff := cmp.Diff(want, q.Begin(now, nil)); diff != "" {
		t.Fatalf("at %v (-want +got):\n%s", now, diff)
	}
}

// errorer is a test, or a case of rapid.
type errorer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// empty fails if something of a GPU is taken.
func empty(t errorer, q *Queue) {
	t.Helper()
	for i, g := range q.GPUs() {
		if g.Granted() != 0 || g.Warps() != 0 || g.gridWarps != 0 || g.Tasks() != 0 || g.guarantee > slack {
			t.Errorf("GPU %d is not empty: %+v", i, g)
		}
	}
}

// TestFewestWarpsIsChosen is algorithm 3: of the GPUs with memory, the one with the fewest warps.
func TestFewestWarpsIsChosen(t *testing.T) {
	q := newQueue(t, 3, Config{})
	must(t, q.Admit(0, 2, Guest{Weight: 1, Memory: 16 * gib}))
	// The first guest comes behind after each begin.
	submit(t, q, 0, 1, 1, Request{Memory: 4 * gib, Blocks: 100, Threads: 256})
	submit(t, q, 0, 2, 1, Request{Memory: 2 * gib, Blocks: 10, Threads: 256})
	submit(t, q, 0, 3, 1, Request{Memory: 1 * gib, Blocks: 10, Threads: 256})
	submit(t, q, 0, 4, 2, Request{Memory: 14 * gib, Blocks: 1, Threads: 32})
	wantActions(t, q, 0,
		Action{Kind: Begin, Task: 4, GPU: 0, Memory: 14 * gib},
		Action{Kind: Begin, Task: 1, GPU: 1, Memory: 4 * gib},
		Action{Kind: Begin, Task: 2, GPU: 2, Memory: 2 * gib},
		// GPU 0 has the fewest warps, and room for it.
		Action{Kind: Begin, Task: 3, GPU: 0, Memory: 1 * gib},
	)
	// It has no room for another two, and of the others GPU 2 has fewer warps.
	submit(t, q, 0, 5, 1, Request{Memory: 2 * gib, Blocks: 1, Threads: 32})
	wantActions(t, q, 0, Action{Kind: Begin, Task: 5, GPU: 2, Memory: 2 * gib})
	for _, id := range []TaskID{1, 2, 3, 4, 5} {
		must(t, q.Free(time.Second, id))
	}
	empty(t, q)
}

// TestMemoryMayBeUsedToTheLastByte: algorithm 3 as printed leaves a task waiting forever that needs
// exactly what a GPU has.
func TestMemoryMayBeUsedToTheLastByte(t *testing.T) {
	q := newQueue(t, 1, Config{})
	submit(t, q, 0, 1, 1, Request{Memory: 16 * gib})
	wantActions(t, q, 0, Action{Kind: Begin, Task: 1, GPU: 0, Memory: 16 * gib})
}

// TestWarpsOfAGrid: what counts is what can be resident, and for [GridWarps] all of the grid.
func TestWarpsOfAGrid(t *testing.T) {
	// 8 warps a block: 8 blocks an SM.
	big := Request{Memory: gib, Blocks: 1 << 40, Threads: 256}
	if got, want := v100.residentWarps(&big), uint64(80*64); got != want {
		t.Errorf("%d resident warps of a huge grid, want %d", got, want)
	}
	if got, want := gridWarps(&big), uint64(1<<43); got != want {
		t.Errorf("%d warps of a huge grid, want %d", got, want)
	}
	// 64 KiB a block: one block an SM.
	shared := Request{Memory: gib, Blocks: 100, Threads: 256, Shared: 64 << 10}
	if got, want := v100.residentWarps(&shared), uint64(80*8); got != want {
		t.Errorf("%d resident warps with much shared memory, want %d", got, want)
	}
	// 128 registers a thread: two blocks of 256 threads an SM.
	regs := Request{Memory: gib, Blocks: 1000, Threads: 256, Registers: 128}
	if got, want := v100.residentWarps(&regs), uint64(80*2*8); got != want {
		t.Errorf("%d resident warps with many registers, want %d", got, want)
	}
	lie := Request{Memory: gib, Blocks: 1<<64 - 1, Threads: 1<<32 - 1}
	if got, most := v100.residentWarps(&lie), uint64(80*64); got > most {
		t.Errorf("%d warps of a lie, want at most %d", got, most)
	}
	if got := gridWarps(&lie); got != mostWarps {
		t.Errorf("%d warps of a lie's grid, want %d", got, uint64(mostWarps))
	}

	for _, c := range []struct {
		placer Placer
		want   int
	}{{Warps{}, 1}, {GridWarps{}, 0}} {
		q := newQueue(t, 2, Config{Placer: c.placer})
		// Two blocks of one warp here, and there a long grid that leaves room on no SM: by resident
		// warps the first is emptier only as long as the second's grid is not.
		q.gpus[0].warps, q.gpus[0].gridWarps = 5120, 5120
		q.gpus[1].warps, q.gpus[1].gridWarps = 5119, 100_000
		submit(t, q, 0, 1, 1, Request{Memory: gib, Blocks: 1, Threads: 32})
		wantActions(t, q, 0, Action{Kind: Begin, Task: 1, GPU: c.want, Memory: gib})
	}
}

// TestLeastBusy chooses by accounting, and by the number of tasks where that is alike.
func TestLeastBusy(t *testing.T) {
	q := newQueue(t, 3, Config{Placer: LeastBusy{}})
	for i, busy := range []float64{0.9, 0.31, 0.33} {
		q.GPUs()[i].Busy = busy
	}
	for id := TaskID(1); id <= 3; id++ {
		submit(t, q, 0, id, 1, Request{Memory: gib})
	}
	wantActions(t, q, 0,
		Action{Kind: Begin, Task: 1, GPU: 1, Memory: gib},
		Action{Kind: Begin, Task: 2, GPU: 2, Memory: gib},
		Action{Kind: Begin, Task: 3, GPU: 1, Memory: gib})
}

// TestLeastBusyStays: a guest goes on where it was last, unless that GPU is lost to it, has more tasks or is
// much busier.
func TestLeastBusyStays(t *testing.T) {
	for _, c := range []struct {
		name string
		busy []float64
		task int // of another guest is there already; -1: none is
		want int
	}{
		{"a little busier", []float64{0, 0.2, 0}, -1, 1}, {"much busier", []float64{0.1, 0.4, 0.1}, -1, 0}, {"another task", []float64{0, 0, 0}, 1, 0},
		{"a task elsewhere", []float64{0, 0, 0}, 0, 1},
	} {
		q := newQueue(t, 3, Config{Placer: LeastBusy{}})
		must(t, q.Admit(0, 2, Guest{Weight: 1, Memory: 16 * gib}))
		if c.task >= 0 {
			must(t, q.Adopt(0, 1, 2, Request{Memory: gib}, c.task))
		}
		for i, busy := range c.busy {
			q.GPUs()[i].Busy = busy
		}
		submit(t, q, 0, 2, 1, Request{Memory: gib, Last: 2})
		t.Log(c.name)
		wantActions(t, q, 0, Action{Kind: Begin, Task: 2, GPU: c.want, Memory: gib})
	}
	if i, ok := (LeastBusy{}).Place(make([]GPU, 2), Set(0).With(0), &Request{Last: 2}); !ok || i != 0 {
		t.Errorf("its GPU may not be: %d, %v", i, ok)
	}
	if i, ok := (LeastBusy{}).Place(make([]GPU, 2), Set(3), &Request{Last: 9}); !ok || i != 0 {
		t.Errorf("there is no such GPU: %d, %v", i, ok)
	}
}

// TestBlocksAreDealtRoundRobin is algorithm 2: the first GPU on whose SMs all blocks find room.
func TestBlocksAreDealtRoundRobin(t *testing.T) {
	small := Spec{Memory: 16 * gib, SMs: 4, WarpsPerSM: 8, BlocksPerSM: 4}
	q, err := NewQueue(Config{Placer: Blocks{}}, []Spec{small, small})
	must(t, err)
	for id := range fairshare.GuestID(8) {
		must(t, q.Admit(0, id, Guest{Weight: 1, Memory: 16 * gib}))
	}
	begin := func(id TaskID, blocks uint64, threads uint32, want ...Action) {
		t.Helper()
		submit(t, q, 0, id, fairshare.GuestID(id), Request{Memory: gib, Blocks: blocks, Threads: threads})
		wantActions(t, q, 0, want...)
	}
	at := func(id TaskID, gpu int) Action { return Action{Kind: Begin, Task: id, GPU: gpu, Memory: gib} }
	// Six blocks of two warps: SMs 0 and 1 get two each, then the next is SM 2.
	begin(1, 6, 64, at(1, 0))
	free := func(gpu int) (warps []uint32) {
		for _, m := range q.gpus[gpu].sms.sms {
			warps = append(warps, m.warps)
		}
		return warps
	}
	if diff := cmp.Diff([]uint32{4, 4, 6, 6}, free(0)); diff != "" {
		t.Errorf("warps free (-want +got):\n%s", diff)
	}
	begin(2, 3, 128, at(2, 0))
	if diff := cmp.Diff([]uint32{0, 4, 2, 2}, free(0)); diff != "" {
		t.Errorf("warps free (-want +got):\n%s", diff)
	}
	// One SM of the first GPU has room for a block of four warps, so a grid of two goes to the
	// second and leaves nothing of what was tried on the first.
	begin(3, 2, 128, at(3, 1))
	if diff := cmp.Diff([]uint32{0, 4, 2, 2}, free(0)); diff != "" {
		t.Errorf("warps free (-want +got):\n%s", diff)
	}
	// A grid that an idle GPU could not hold waits for one that is idle.
	begin(4, 1000, 64)
	must(t, q.Free(0, 3))
	wantActions(t, q, 0, at(4, 1))
	if diff := cmp.Diff([]uint32{0, 0, 0, 0}, free(1)); diff != "" {
		t.Errorf("warps free (-want +got):\n%s", diff)
	}
	for _, id := range []TaskID{1, 2, 4} {
		must(t, q.Free(0, id))
	}
	for gpu := range 2 {
		if diff := cmp.Diff([]uint32{8, 8, 8, 8}, free(gpu)); diff != "" {
			t.Errorf("warps of an idle GPU (-want +got):\n%s", diff)
		}
	}
	empty(t, q)
}

// TestMotivation is CASE's figure 1: of four kernels of two programs no GPU could hold k1 beside k3
// or k2 beside k4, but all run at once where each is placed by what it needs. The drawing is lost;
// the numbers are such as its text says: SMs of k1 and k3, and memory of k2 and k4, exceed a GPU.
func TestMotivation(t *testing.T) {
	p100 := Spec{Memory: 16 * gib, SMs: 56, WarpsPerSM: 64, BlocksPerSM: 32}
	for _, placer := range []Placer{Blocks{}, Warps{}} {
		q, err := NewQueue(Config{Placer: placer}, []Spec{p100, p100})
		must(t, err)
		must(t, q.Admit(0, 1, Guest{Weight: 1, Memory: 16 * gib}))
		must(t, q.Admit(0, 2, Guest{Weight: 1, Memory: 16 * gib}))
		sms := func(n uint64) uint64 { return 2 * n } // of 1,024 threads
		submit(t, q, 0, 1, 1, Request{Memory: 4 * gib, Blocks: sms(40), Threads: 1024})
		submit(t, q, 0, 2, 1, Request{Memory: 10 * gib, Blocks: sms(14), Threads: 1024})
		submit(t, q, 0, 3, 2, Request{Memory: 5 * gib, Blocks: sms(36), Threads: 1024})
		submit(t, q, 0, 4, 2, Request{Memory: 11 * gib, Blocks: sms(16), Threads: 1024})
		q.Begin(0, nil)
		var on [5]int
		for _, v := range q.Tasks() {
			if v.State != Placed {
				t.Fatalf("%T: task %d is %v", placer, v.ID, v.State)
			}
			on[v.ID] = v.GPU
		}
		if on[1] != on[4] || on[2] != on[3] || on[1] == on[2] {
			t.Errorf("%T: k1…k4 are on GPUs %v, want k1 beside k4 and k2 beside k3", placer, on[1:])
		}
		for i, g := range q.GPUs() {
			if most := uint64(56 * 64); g.Warps() > most {
				t.Errorf("%T: GPU %d has %d warps in use of %d", placer, i, g.Warps(), most)
			}
		}
	}
}
