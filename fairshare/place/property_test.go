package place

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// world is a queue with what its caller has to carry out.
type world struct {
	q       *Queue
	now     time.Duration
	next    TaskID
	live    []TaskID
	leaving []TaskID
	moving  []TaskID
	stay    map[TaskID]bool // those that can't leave
	n       int             // guests
}

// placers are those that the properties hold for.
var placers = []Placer{Warps{}, GridWarps{}, LeastBusy{}, Blocks{}}

func drawWorld(t *rapid.T) *world {
	n := rapid.IntRange(1, 4).Draw(t, "gpus")
	specs := make([]Spec, n)
	for i := range specs {
		specs[i] = Spec{Memory: uint64(rapid.IntRange(4, 16).Draw(t, "memory")), SMs: 4, WarpsPerSM: 8, BlocksPerSM: 4}
	}
	q, err := NewQueue(Config{Placer: rapid.SampledFrom(placers).Draw(t, "placer")}, specs)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{q: q, stay: map[TaskID]bool{}, n: rapid.IntRange(1, 6).Draw(t, "guests")}
	for id := range w.n {
		w.admit(t, fairshare.GuestID(id))
	}
	return w
}

// admit admits a guest, unless no GPU can hold it.
func (w *world) admit(t *rapid.T, id fairshare.GuestID) {
	g := Guest{
		Weight: rapid.Float64Range(0.1, 10).Draw(t, "weight"), Memory: uint64(rapid.IntRange(1, 16).Draw(t, "limit")),
		Guarantee: rapid.SampledFrom([]float64{0, 0, 0.3, 0.6}).Draw(t, "guarantee"),
		Urgent:    rapid.IntRange(0, 4).Draw(t, "urgent") == 0,
	}
	_ = w.q.Admit(w.now, id, g) // refused where no GPU holds it
}

// do carries out actions.
func (w *world) do() []Action {
	as := w.q.Begin(w.now, nil)
	for _, a := range as {
		switch a.Kind {
		case Leave:
			w.leaving = append(w.leaving, a.Task)
		case Move:
			w.moving = append(w.moving, a.Task)
		case Refuse:
			if a.GPU < 0 {
				w.gone(a.Task)
			}
		}
	}
	return as
}

func (w *world) gone(ids ...TaskID) {
	of := func(id TaskID) bool { return slices.Contains(ids, id) }
	w.live, w.leaving, w.moving = slices.DeleteFunc(w.live, of), slices.DeleteFunc(w.leaving, of), slices.DeleteFunc(w.moving, of)
}

// settle tells that a task has left or moved.
func (w *world) settle() bool {
	done := func(id TaskID, f func(time.Duration, TaskID) error) {
		if w.stay[id] {
			f = w.q.Stayed
		}
		_ = f(w.now, id) // it may have been lost
	}
	switch {
	case len(w.leaving) > 0:
		done(w.leaving[0], w.q.Left)
		w.leaving = w.leaving[1:]
	case len(w.moving) > 0:
		done(w.moving[0], w.q.Moved)
		w.moving = w.moving[1:]
	default:
		return false
	}
	return true
}

// check fails unless what is taken adds up.
func (w *world) check(t *rapid.T) {
	q := w.q
	if len(q.tasks) != len(w.live) {
		t.Fatalf("%d tasks, want %d", len(q.tasks), len(w.live))
	}
	granted, warps, grids := make([]uint64, len(q.gpus)), make([]uint64, len(q.gpus)), make([]uint64, len(q.gpus))
	held, asked := make(map[*guest]uint64), make(map[*guest]uint64)
	waiting := 0
	for _, s := range q.tasks {
		held[s.guest] += s.grant + s.left
		asked[s.guest] += s.req.counted()
		if s.state == Waiting || s.state == Parked {
			if s.grant+s.left != 0 {
				t.Fatalf("task %d is %v and has %d bytes", s.id, s.state, s.grant+s.left)
			}
			if s.state == Waiting {
				waiting++
			}
			continue
		}
		granted[s.gpu] += s.grant
		warps[s.gpu] += q.gpus[s.gpu].residentWarps(&s.req)
		grids[s.gpu] += gridWarps(&s.req)
		if s.state == Moving {
			granted[s.from] += s.left
		}
		if s.grant > s.req.Memory || s.state == Placed && s.grant != s.req.Memory {
			t.Fatalf("task %d is %v, has %d and wants %d", s.id, s.state, s.grant, s.req.Memory)
		}
	}
	kept := 0
	for i := range q.gpus {
		g := &q.gpus[i]
		if g.granted != granted[i] || g.granted > g.Memory || g.warps != warps[i] || g.gridWarps != grids[i] {
			t.Fatalf("GPU %d: %d of %d bytes granted, %d warps; the tasks have %d and %d", i, g.granted, g.Memory, g.warps, granted[i], warps[i])
		}
		if g.lost && len(g.tasks) > 0 {
			t.Fatalf("GPU %d is lost and has %d tasks", i, len(g.tasks))
		}
		guarantee := 0.0
		for _, o := range q.guests {
			if o.on[i] > 0 {
				guarantee += o.Guarantee
			}
		}
		if d := g.guarantee - guarantee; d > slack || d < -slack {
			t.Fatalf("GPU %d: guarantees of %g, want %g", i, g.guarantee, guarantee)
		}
		kept += len(q.kept[i])
		if q.tracked {
			w.checkSMs(t, g)
		}
	}
	inOrder := 0
	for _, g := range q.guests {
		if g.held != held[g] || g.asked != asked[g] || g.asked > g.Memory {
			t.Fatalf("guest %d holds %d and asks for %d of %d; its tasks %d and %d", g.id, g.held, g.asked, g.Memory, held[g], asked[g])
		}
		inOrder += len(g.waiting)
		if (len(g.waiting) > 0) != slices.Contains(q.order, g) {
			t.Fatalf("guest %d has %d waiting tasks, in order: %v", g.id, len(g.waiting), slices.Contains(q.order, g))
		}
	}
	if inOrder != waiting || kept > waiting {
		t.Fatalf("%d tasks wait, %d are in order, memory is kept for %d", waiting, inOrder, kept)
	}
	if q.Passed() > q.cfg.Patience {
		t.Fatalf("a task was passed for %v", q.Passed())
	}
}

// checkSMs fails unless an SM's free resources and its tasks' add up.
func (w *world) checkSMs(t *rapid.T, g *GPU) {
	if g.sms.sms == nil {
		return
	}
	for i, m := range g.sms.sms {
		blocks, warps := m.blocks, m.warps
		for _, s := range g.tasks {
			blocks += uint32(s.onSMs[i])
			warps += uint32(s.onSMs[i]) * shapeOf(&g.Spec, &s.req).warps
		}
		if blocks != uint32(g.BlocksPerSM) || warps != uint32(g.WarpsPerSM) {
			t.Fatalf("SM %d has %d blocks and %d warps", i, blocks, warps)
		}
	}
}

// drain ends tasks until none is left. A task ends only while it has what it asked for, so that
// tasks that wait for each other would never end.
func (w *world) drain(t *rapid.T) {
	for steps := 0; len(w.live) > 0; steps++ {
		if steps > 10_000 {
			t.Fatalf("%d tasks are left: %+v", len(w.live), w.q.Tasks())
		}
		acted := len(w.do()) > 0
		w.check(t)
		if w.settle() || acted {
			continue
		}
		if i := slices.IndexFunc(w.live, func(id TaskID) bool {
			v, _ := w.q.Task(id)
			return v.State == Placed || v.State == Parked
		}); i >= 0 {
			id := w.live[i]
			if err := w.q.Free(w.now, id); err != nil {
				t.Fatal(err)
			}
			w.gone(id)
			continue
		}
		at, ok := w.q.Next(w.now)
		if !ok || at <= w.now {
			t.Fatalf("nothing will happen to %d tasks: next %v, %v; %+v", len(w.live), at, ok, w.q.Tasks())
		}
		w.now = at
	}
}

// TestNothingIsOvercommittedNorStuck: whatever guests and GPUs do, no memory is granted twice,
// everything adds up, no task is passed for more than 30 s, and every task begins and ends at last
// if those that have what they want end.
func TestNothingIsOvercommittedNorStuck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		any := func(t *rapid.T) TaskID {
			if len(w.live) == 0 {
				t.Skip("no task")
			}
			return rapid.SampledFrom(w.live).Draw(t, "task")
		}
		t.Repeat(map[string]func(*rapid.T){
			"": w.check,
			"submit": func(t *rapid.T) {
				r := Request{
					Memory: uint64(rapid.IntRange(1, 16).Draw(t, "memory")), Blocks: uint64(rapid.IntRange(0, 40).Draw(t, "blocks")),
					Threads: uint32(rapid.IntRange(0, 512).Draw(t, "threads")),
				}
				r.Own = min(rapid.SampledFrom([]uint64{0, 0, 1, 3}).Draw(t, "own"), r.Memory-1)
				w.next++
				if w.q.Submit(w.now, w.next, fairshare.GuestID(rapid.IntRange(0, w.n-1).Draw(t, "guest")), r) == nil {
					w.live = append(w.live, w.next)
					w.stay[w.next] = rapid.IntRange(0, 2).Draw(t, "stays") == 0
				}
			},
			"begin": func(t *rapid.T) { w.do() },
			"time":  func(t *rapid.T) { w.now += time.Duration(rapid.IntRange(1, 40_000).Draw(t, "ms")) * time.Millisecond },
			"grow":  func(t *rapid.T) { _, _ = w.q.Grow(w.now, any(t), uint64(rapid.IntRange(1, 16).Draw(t, "memory"))) },
			"free": func(t *rapid.T) {
				id := any(t)
				if err := w.q.Free(w.now, id); err != nil {
					t.Fatal(err)
				}
				w.gone(id)
			},
			"quiet":  func(t *rapid.T) { _ = w.q.SetQuiet(w.now, any(t), rapid.Bool().Draw(t, "quiet")) },
			"settle": func(t *rapid.T) { w.settle() },
			"leave unasked": func(t *rapid.T) {
				if id := any(t); !slices.Contains(w.moving, id) && !slices.Contains(w.leaving, id) {
					_ = w.q.Left(w.now, id)
				}
			},
			"park": func(t *rapid.T) { _ = w.q.Park(w.now, any(t)) },
			"lose": func(t *rapid.T) {
				w.gone(w.q.Lose(w.now, rapid.IntRange(0, len(w.q.gpus)-1).Draw(t, "gpu"))...)
			},
			"return": func(t *rapid.T) { w.q.Return(rapid.IntRange(0, len(w.q.gpus)-1).Draw(t, "gpu")) },
			"guest dies": func(t *rapid.T) {
				id := fairshare.GuestID(rapid.IntRange(0, w.n-1).Draw(t, "guest"))
				w.gone(w.q.Remove(w.now, id)...)
				w.admit(t, id)
			},
		})
		w.drain(t)
		empty(t, w.q)
	})
}

// TestSharesOfMemoryTime: guests that always have more tasks than fit get memory-time by weight,
// within 3 points, whatever their sizes and lengths.
func TestSharesOfMemoryTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 32).Draw(t, "guests")
		f := newFair(t, n, rapid.Uint64().Draw(t, "seed"))
		f.run(time.Hour)
		if e, who := f.worst(); e > 0.03 {
			t.Errorf("%s: %.1f points from its share", who, 100*e)
		}
	})
}

// TestLargeTasksGetTheirShare beside small ones that always fit.
func TestLargeTasksGetTheirShare(t *testing.T) {
	q, err := NewQueue(Config{}, []Spec{v100})
	must(t, err)
	f := &fair{q: q, guests: []fairGuest{
		{weight: 1, size: func() uint64 { return 13 * gib }, length: func() time.Duration { return 5 * sec }},
		{weight: 1, size: func() uint64 { return gib }, length: func() time.Duration { return 4 * sec }},
	}}
	f.start(t)
	f.run(2 * time.Hour)
	if e, who := f.worst(); e > 0.03 {
		t.Errorf("%s: %.1f points from its share", who, 100*e)
	}
	if p := q.Passed(); p > DefaultPatience {
		t.Errorf("passed for %v", p)
	}
}

// fair is guests that always have more tasks than fit.
type fair struct {
	q      *Queue
	guests []fairGuest
	now    time.Duration
	ids    TaskID
	ends   []end
	of     map[TaskID]int
}

type fairGuest struct {
	weight float64
	size   func() uint64
	length func() time.Duration
}

type end struct {
	at time.Duration
	id TaskID
}

// newFair returns guests of weights 1 and 2. Each always asks for 24 GiB at least, more than its
// share.
func newFair(t errorer, n int, seed uint64) *fair {
	t.Helper()
	r := newRand(seed)
	big := v100
	big.Memory = 32 * gib
	specs := make([]Spec, max(1, n/8))
	for i := range specs {
		specs[i] = big
	}
	q, err := NewQueue(Config{}, specs)
	must(t, err)
	f := &fair{q: q}
	for range n {
		most, mean := 1+r.IntN(7), 1+9*r.Float64()
		f.guests = append(f.guests, fairGuest{
			weight: float64(1 + r.IntN(2)),
			size:   func() uint64 { return uint64(float64(gib) * (1 + float64(most)*r.Float64())) },
			length: func() time.Duration { return time.Duration((0.2 + 2*mean*r.Float64()) * float64(sec)) },
		})
	}
	f.start(t)
	return f
}

func (f *fair) start(t errorer) {
	t.Helper()
	f.of = make(map[TaskID]int)
	for i, g := range f.guests {
		must(t, f.q.Admit(0, fairshare.GuestID(i), Guest{Weight: g.weight, Memory: f.q.gpus[0].Memory}))
		f.more(i)
	}
}

// more submits tasks of a guest until its limit is reached.
func (f *fair) more(i int) {
	for {
		f.ids++
		if f.q.Submit(f.now, f.ids, fairshare.GuestID(i), Request{Memory: f.guests[i].size(), Blocks: 10, Threads: 64}) != nil {
			return
		}
		f.of[f.ids] = i
	}
}

func (f *fair) run(until time.Duration) {
	for f.now < until {
		for _, a := range f.q.Begin(f.now, nil) {
			e := end{f.now + f.guests[f.of[a.Task]].length(), a.Task}
			i, _ := slices.BinarySearchFunc(f.ends, e, func(a, b end) int { return int(a.at - b.at) })
			f.ends = slices.Insert(f.ends, i, e)
		}
		e := f.ends[0]
		at, ok := f.q.Next(f.now)
		if ok && at < e.at {
			f.now = at
			continue
		}
		f.ends = f.ends[1:]
		f.now = e.at
		if err := f.q.Free(f.now, e.id); err != nil {
			panic(err)
		}
		f.more(f.of[e.id])
	}
}

// worst returns the largest difference between a guest's share of the memory-time and its part by
// weight.
func (f *fair) worst() (e float64, who string) {
	total, weights := 0.0, 0.0
	used := make([]float64, len(f.guests))
	for i, g := range f.guests {
		used[i] = f.q.Used(f.now, fairshare.GuestID(i)) * g.weight
		total += used[i]
		weights += g.weight
	}
	for i, g := range f.guests {
		got, want := used[i]/total, g.weight/weights
		if d := max(got-want, want-got); d > e {
			e, who = d, fmt.Sprintf("guest %d of %d on %d GPUs, weight %g, has %.3f, not %.3f", i, len(f.guests), len(f.q.gpus), g.weight, got, want)
		}
	}
	return e, who
}
