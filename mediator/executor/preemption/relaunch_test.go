package preemption

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/mediator/vgpu/abi"
)

// hardware carries plans out as an honest kernel would, and counts the runs of each task.
type hardware struct {
	t       rapid.TB
	l       *Launch
	c       Config
	ran     []uint8 // by task
	control Control
	bitmap  []byte // what SkippedBytes asked for
	list    []uint32
	// choose reports whether a block leaves instead of running.
	choose func() bool
}

func newHardware(t rapid.TB, c Config, choose func() bool) *hardware {
	l, err := New(c)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	h := &hardware{t: t, l: l, c: c, ran: make([]uint8, l.Tasks()), choose: choose, bitmap: make([]byte, l.SkippedBytes())}
	for i := range h.bitmap {
		h.bitmap[i] = 0xa5 // what was there before must not matter
	}
	h.control = Control{Next: 0xdead, Skipped: 0xdead, Inside: 0xdead}
	return h
}

func (h *hardware) run(p *Plan) {
	a := &p.Args
	if a.Tasks != uint32(len(h.ran)) || a.Grid != h.c.Grid || a.Group != h.c.Group || a.Every != h.c.Every || a.Control != 0 || a.List != 0 || a.Skipped != 0 {
		h.t.Fatalf("arguments %+v of %+v", a, h.c)
	}
	for _, at := range p.Zero {
		switch at {
		case abi.ControlEvict:
		case abi.ControlNext:
			h.control.Next = 0
		case abi.ControlSkipped:
			h.control.Skipped = 0
		case abi.ControlInside:
			h.control.Inside = 0
		default:
			h.t.Fatalf("zero %#x of the control block", at)
		}
	}
	if !slices.Contains(p.Zero, abi.ControlEvict) {
		h.t.Fatal("the evict word stays")
	}
	clear(h.bitmap[:p.BitmapBytes])
	if uint64(len(p.List))*4 > h.l.ListBytes() {
		h.t.Fatalf("a list of %d units in %d bytes", len(p.List), h.l.ListBytes())
	}
	h.list = append(h.list[:0], p.List...)
	if h.c.Form == abi.PreemptPersistent {
		h.persistent(p)
		return
	}
	blocks := p.Grid[0] * p.Grid[1] * p.Grid[2]
	if blocks != a.Count || a.Flags&abi.PreemptWhole != 0 && p.Grid != h.c.Grid || a.Flags == 0 && (p.Grid[1] != 1 || p.Grid[2] != 1) {
		h.t.Fatalf("a grid of %v for %d units", p.Grid, a.Count)
	}
	for b := range blocks {
		u := a.First + b
		switch {
		case a.Flags&abi.PreemptWhole != 0:
			u = b
		case p.List != nil:
			u = h.list[b]
		}
		if h.choose() && !p.Stay {
			h.skip(a, u)
			continue
		}
		for t := uint64(u) * uint64(a.Group); t < min(uint64(a.Tasks), (uint64(u)+1)*uint64(a.Group)); t++ {
			h.ran[t]++
		}
	}
}

func (h *hardware) skip(a *abi.PreemptArgs, u uint32) {
	slot := h.control.Skipped
	h.control.Skipped++
	if a.Capacity == 0 {
		at := h.bitmap[u/32*4:]
		binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)|1<<(u%32))
		return
	}
	if slot >= a.Capacity {
		h.t.Fatalf("unit %d is the %dth that is skipped, the list holds %d", u, slot+1, a.Capacity)
	}
	binary.LittleEndian.PutUint32(h.bitmap[4*slot:], u)
}

func (h *hardware) persistent(p *Plan) {
	inside := make([]bool, p.Grid[0])
	for i := range inside {
		inside[i] = true
	}
	for left := len(inside); left > 0; {
		for b, in := range inside {
			if !in {
				continue
			}
			if h.choose() && !p.Stay {
				inside[b] = false
				left--
				continue
			}
			first := h.control.Next
			h.control.Next += h.c.Group
			if first >= uint32(len(h.ran)) {
				inside[b] = false
				left--
				continue
			}
			for t := first; t < min(first+h.c.Group, uint32(len(h.ran))); t++ {
				h.ran[t]++
			}
		}
	}
}

// readback returns what the owner reads.
func (h *hardware) readback(evicted bool) Readback {
	return Readback{Control: h.control, Skipped: h.bitmap[:h.l.SkippedRead(h.control)], Evicted: evicted}
}

// finish drives the launch to its end.
func (h *hardware) finish(most int) {
	p, done := h.l.First(), false
	for n := 0; !done; n++ {
		if n > most {
			h.t.Fatalf("%d launches and %d of %d tasks left", n, h.l.Remaining(), h.l.Tasks())
		}
		h.run(&p)
		want := uint32(0)
		for _, n := range h.ran {
			if n == 0 {
				want++
			}
		}
		var err error
		if p, done, err = h.l.Next(h.readback(true)); err != nil {
			h.t.Fatal(err)
		}
		if got := h.l.Remaining(); got != want {
			h.t.Fatalf("%d tasks remain, want %d", got, want)
		}
	}
	for t, n := range h.ran {
		if n != 1 {
			h.t.Fatalf("task %d of %d ran %d times", t, len(h.ran), n)
		}
	}
}

func configs(t *rapid.T) Config {
	c := Config{
		Form:  rapid.SampledFrom([]abi.PreemptForm{abi.PreemptSingle, abi.PreemptCoarse, abi.PreemptPersistent}).Draw(t, "form"),
		Group: 1, Every: 1,
	}
	for i := range c.Grid {
		c.Grid[i] = uint32(rapid.IntRange(1, 12).Draw(t, "grid"))
	}
	if c.Form != abi.PreemptSingle {
		c.Group = uint32(rapid.IntRange(1, 300).Draw(t, "group"))
	}
	if c.Form == abi.PreemptPersistent {
		c.Every = uint32(rapid.IntRange(1, 256).Draw(t, "every"))
		c.Resident = uint32(rapid.IntRange(1, 40).Draw(t, "resident"))
	}
	return c
}

// Every task runs exactly once, whatever is skipped.
func TestEveryTaskRunsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := configs(t)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		often := rapid.SampledFrom([]float64{0, 0.02, 0.5, 0.98, 1}).Draw(t, "leave")
		h := newHardware(t, c, func() bool { return rng.Float64() < often })
		h.finish((MaxStalls + 2) * (len(h.ran) + 1))
	})
}

// The same with more skipped units than a list has.
func TestBitmap(t *testing.T) {
	for _, tc := range []struct {
		name  string
		grid  [3]uint32
		group uint32
		leave func(n int, rng *rand.Rand) bool // by the number of blocks so far
	}{
		{"from some unit on", [3]uint32{200_000, 1, 1}, 1, func(n int, _ *rand.Rand) bool { return n > 1000 && n < 200_000 }},
		{"every other", [3]uint32{501, 307, 1}, 1, func(n int, _ *rand.Rand) bool { return n < 200_000 && n%2 == 0 }},
		{"half at random", [3]uint32{1 << 18, 1, 1}, 3, func(_ int, rng *rand.Rand) bool { return rng.IntN(2) == 0 }},
		{"a few and the rest", [3]uint32{70_001, 1, 1}, 1, func(n int, _ *rand.Rand) bool { return n%1000 == 0 || n > 60_000 && n < 140_000 }},
		{"all, some times", [3]uint32{65_537, 1, 1}, 1, func(n int, _ *rand.Rand) bool { return n < 400_000 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rng, n := rand.New(rand.NewPCG(1, 2)), 0
			c := Config{Form: abi.PreemptCoarse, Grid: tc.grid, Group: tc.group, Every: 1}
			h := newHardware(t, c, func() bool { n++; return tc.leave(n, rng) })
			h.finish(200)
		})
	}
}

// Consecutive skipped units are launched from an offset; a list is in order.
func TestPlans(t *testing.T) {
	c := Config{Form: abi.PreemptSingle, Grid: [3]uint32{5, 2, 1}, Group: 1, Every: 1}
	args := abi.PreemptArgs{Tasks: 10, Grid: c.Grid, Group: 1, Every: 1}
	with := func(f func(a *abi.PreemptArgs)) abi.PreemptArgs { a := args; f(&a); return a }
	for _, tc := range []struct {
		name    string
		skipped []uint32
		want    Plan
	}{
		{"a run", []uint32{7, 6, 8}, Plan{
			Grid: [3]uint32{3, 1, 1}, Zero: earlyExitAgain,
			Args: with(func(a *abi.PreemptArgs) { a.First, a.Count, a.Capacity = 6, 3, 3 }),
		}},
		{"one", []uint32{0}, Plan{
			Grid: [3]uint32{1, 1, 1}, Zero: earlyExitAgain,
			Args: with(func(a *abi.PreemptArgs) { a.First, a.Count, a.Capacity = 0, 1, 1 }),
		}},
		{"scattered", []uint32{9, 2, 5, 4}, Plan{
			Grid: [3]uint32{4, 1, 1}, Zero: earlyExitAgain, List: []uint32{2, 4, 5, 9},
			Args: with(func(a *abi.PreemptArgs) { a.Count, a.Capacity = 4, 4 }),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			first := Plan{Grid: c.Grid, Zero: wholeBlock, Args: with(func(a *abi.PreemptArgs) { a.Count, a.Capacity, a.Flags = 10, 10, abi.PreemptWhole })}
			if d := cmp.Diff(first, l.First()); d != "" {
				t.Errorf("the first launch: -want +got\n%s", d)
			}
			got, done, err := l.Next(skipped(tc.skipped...))
			if err != nil || done {
				t.Fatal(done, err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			if _, done, err := l.Next(Readback{}); err != nil || !done {
				t.Error(done, err)
			}
			if l.Launches() != 2 || l.Remaining() != 0 {
				t.Errorf("%d launches, %d tasks remain", l.Launches(), l.Remaining())
			}
		})
	}
}

// skipped returns a readback with a list.
func skipped(units ...uint32) Readback {
	r := Readback{Control: Control{Skipped: uint32(len(units))}, Evicted: true}
	for _, u := range units {
		r.Skipped = binary.LittleEndian.AppendUint32(r.Skipped, u)
	}
	return r
}

// A form is offered up to the bound of the bitmap, which larger groups extend.
func TestBounds(t *testing.T) {
	single := Config{Form: abi.PreemptSingle, Grid: [3]uint32{1, 1, 1}, Group: 1, Every: 1}
	coarse := Config{Form: abi.PreemptCoarse, Grid: [3]uint32{1, 1, 1}, Group: 2, Every: 1}
	persistent := Config{Form: abi.PreemptPersistent, Grid: [3]uint32{1, 1, 1}, Group: 4, Every: 1, Resident: 1056}
	for _, tc := range []struct {
		c    Config
		grid [3]uint32
		want error
	}{
		{single, [3]uint32{MaxUnits, 1, 1}, nil},
		{single, [3]uint32{MaxUnits + 1, 1, 1}, ErrTooManyUnits},
		{coarse, [3]uint32{2 * MaxUnits, 1, 1}, nil},
		{coarse, [3]uint32{2*MaxUnits + 1, 1, 1}, ErrTooManyUnits},
		{persistent, [3]uint32{abi.MaxPreemptTasks, 1, 1}, nil},
		{persistent, [3]uint32{abi.MaxPreemptTasks, 2, 1}, ErrTooManyUnits},
		{persistent, [3]uint32{1 << 31, 1 << 31, 1 << 31}, ErrTooManyUnits},
		{single, [3]uint32{0, 1, 1}, ErrInvalid},
		{single, [3]uint32{1, 1, 0}, ErrInvalid},
		{Config{Form: abi.PreemptSingle, Group: 2, Every: 1}, [3]uint32{1, 1, 1}, ErrInvalid},
		{Config{Form: abi.PreemptCoarse, Group: 2, Every: 2}, [3]uint32{1, 1, 1}, ErrInvalid},
		{Config{Form: abi.PreemptPersistent, Group: 2, Every: 2}, [3]uint32{1, 1, 1}, ErrInvalid},
		{Config{Form: abi.PreemptPersistent, Group: 1 << 20, Every: 1, Resident: 4096}, [3]uint32{abi.MaxPreemptTasks, 1, 1}, ErrTooManyUnits},
		{Config{Form: 3, Group: 1, Every: 1}, [3]uint32{1, 1, 1}, ErrInvalid},
	} {
		tc.c.Grid = tc.grid
		l, err := New(tc.c)
		if !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.c, err, tc.want)
		}
		if err == nil && (l.ListBytes() > 4*MaxList || l.SkippedBytes() > MaxUnits/8) {
			t.Errorf("%+v takes %d and %d bytes", tc.c, l.ListBytes(), l.SkippedBytes())
		}
	}
}

// After an eviction from some SMs a second launch takes them, on the same counter.
func TestRefill(t *testing.T) {
	c := Config{Form: abi.PreemptPersistent, Grid: [3]uint32{100, 1, 1}, Group: 3, Every: 1, Resident: 4}
	turn := 0
	h := newHardware(t, c, func() bool { turn++; return turn > 8 && turn < 12 })
	if _, err := h.l.Refill(2); !errors.Is(err, ErrInvalid) {
		t.Errorf("refilled what is not under way: %v", err)
	}
	p := h.l.First()
	second, err := h.l.Refill(2)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Plan{Grid: [3]uint32{2, 1, 1}, Args: p.Args, Zero: persistentAgain}, second); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	h.run(&p)
	h.run(&second)
	if _, done, err := h.l.Next(h.readback(true)); err != nil || !done {
		t.Fatal(done, err)
	}
	if _, err := h.l.Refill(2); !errors.Is(err, ErrInvalid) {
		t.Errorf("refilled what is done: %v", err)
	}
	early, err := New(Config{Form: abi.PreemptCoarse, Grid: [3]uint32{100, 1, 1}, Group: 3, Every: 1})
	if err != nil {
		t.Fatal(err)
	}
	early.First()
	if _, err := early.Refill(1); !errors.Is(err, ErrInvalid) {
		t.Errorf("refilled an early exit: %v", err)
	}
}

// A launch that is evicted again and again before it gets anything done asks to stay.
func TestStay(t *testing.T) {
	for _, form := range []abi.PreemptForm{abi.PreemptSingle, abi.PreemptCoarse, abi.PreemptPersistent} {
		h := newHardware(t, Config{Form: form, Grid: [3]uint32{7, 1, 1}, Group: 1, Every: 1, Resident: 2}, func() bool { return true })
		h.finish(MaxStalls + 2)
		if got, want := h.l.Launches(), MaxStalls+1; got != want {
			t.Errorf("%v: %d launches, want %d", form, got, want)
		}
	}
}

// A launch that is not evicted allocates only itself.
func TestNothingIsAllocatedWithoutEviction(t *testing.T) {
	c := Config{Form: abi.PreemptCoarse, Grid: [3]uint32{MaxUnits, 1, 1}, Group: 1, Every: 1}
	if n := testing.AllocsPerRun(100, func() {
		l, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		l.First()
		if _, done, err := l.Next(Readback{}); !done || err != nil {
			t.Fatal(done, err)
		}
	}); n > 1 {
		t.Errorf("%v allocations, want the launch's own", n)
	}
}

func BenchmarkNext(b *testing.B) {
	// A vector add of 1,048,576 blocks in groups of eight, evicted in its middle.
	c := Config{Form: abi.PreemptCoarse, Grid: [3]uint32{1 << 20, 1, 1}, Group: 8, Every: 1}
	var bitmap []byte
	for b.Loop() {
		l, err := New(c)
		if err != nil {
			b.Fatal(err)
		}
		l.First()
		if bitmap == nil {
			bitmap = make([]byte, l.SkippedBytes())
			for i := 1 << 13; i < 1<<14; i++ {
				bitmap[i] = 0xff
			}
		}
		r := Readback{Control: Control{Skipped: 1 << 16}, Evicted: true}
		r.Skipped = bitmap[:l.SkippedRead(r.Control)]
		if _, done, err := l.Next(r); done || err != nil {
			b.Fatal(done, err)
		}
	}
}

// TestWhole: a first launch of any form that was not told to leave is over without a readback,
// once, and a later one is not.
func TestWhole(t *testing.T) {
	for _, form := range []abi.PreemptForm{abi.PreemptSingle, abi.PreemptCoarse, abi.PreemptPersistent} {
		c := Config{Form: form, Grid: [3]uint32{10, 1, 1}, Group: 1, Every: 1, Resident: 4}
		l, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if l.Whole() {
			t.Errorf("%v: done before it began", form)
		}
		l.First()
		if !l.Whole() || l.Remaining() != 0 || l.Whole() {
			t.Errorf("%v: not done, once, with %d tasks remaining", form, l.Remaining())
		}

		if err := l.Reset(c); err != nil {
			t.Fatal(err)
		}
		l.First()
		left := Readback{Evicted: true, Control: Control{Next: 4}}
		if form.EarlyExit() {
			left = Readback{Evicted: true, Control: Control{Skipped: 2}, Skipped: []byte{1, 0, 0, 0, 5, 0, 0, 0}}
		}
		if _, done, err := l.Next(left); done || err != nil {
			t.Fatalf("%v: done %v, %v", form, done, err)
		}
		if l.Whole() {
			t.Errorf("%v: a launch of what was left is taken for the whole", form)
		}
	}
}
