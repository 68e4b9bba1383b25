package warps

import (
	"testing"

	"vgpud/gpu/soft/simt"
	"vgpud/ptx"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// small is a GPU that is quick to simulate and soon full.
var small = func() Config {
	c := TableII
	c.Cores, c.Threads, c.Registers, c.Blocks = 2, 128, 4608, 4
	c.L1Bytes, c.L2Bytes, c.Misses = 4<<10, 16<<10, 8
	return c
}()

// ops are the instructions that random traces have.
var ops = []simt.Op{
	{Class: simt.OpInteger, Line: 1, Reads: []simt.Register{1, 2}, Writes: []simt.Register{3}},
	{Class: simt.OpFloatMul, Line: 2, Reads: []simt.Register{3, 4}, Writes: []simt.Register{1}},
	{Class: simt.OpDoubleDiv, Line: 3, Reads: []simt.Register{1}, Writes: []simt.Register{5}},
	{Class: simt.OpLoad, Space: ptx.GlobalSpace, Line: 4, Reads: []simt.Register{6}, Writes: []simt.Register{2}},
	{Class: simt.OpLoad, Space: ptx.GlobalSpace, Line: 5, Reads: []simt.Register{6}, Writes: []simt.Register{7}},
	{Class: simt.OpStore, Space: ptx.GlobalSpace, Line: 6, Reads: []simt.Register{6, 2}},
	{Class: simt.OpAtomic, Space: ptx.GlobalSpace, Line: 7, Reads: []simt.Register{6}, Writes: []simt.Register{8}},
	{Class: simt.OpLoad, Space: ptx.SharedSpace, Line: 8, Reads: []simt.Register{6}, Writes: []simt.Register{9}},
	{Class: simt.OpFence, Line: 9},
	{Class: simt.OpBranch, Line: 10, Reads: []simt.Register{3}},
	{Class: simt.OpBarrier, Line: 11},
	{Class: simt.OpExit, Line: 12},
}

const barrierOp, exitOp = 10, 11

// anyTrace draws what a grid executed: each warp of a block passes as many barriers.
func anyTrace(t *rapid.T, blocks, warps, length int) *simt.Trace {
	tr := &simt.Trace{Ops: ops}
	for range blocks {
		var b simt.BlockTrace
		rounds := rapid.IntRange(1, 3).Draw(t, "rounds")
		for range warps {
			var w simt.WarpTrace
			for r := range rounds {
				for _, o := range rapid.SliceOfN(rapid.Uint32Range(0, barrierOp-1), length/4, length).Draw(t, "ops") {
					s := simt.Step{Op: o, Mask: ^uint32(0)}
					if ops[o].Space == ptx.GlobalSpace {
						n := rapid.IntRange(1, 4).Draw(t, "lines")
						s.Lines = uint16(n)
						for range n {
							w.Lines = append(w.Lines, rapid.Uint64Range(1000, 1400).Draw(t, "line"))
						}
					}
					w.Steps = append(w.Steps, s)
				}
				if r < rounds-1 {
					w.Steps = append(w.Steps, simt.Step{Op: barrierOp, Mask: ^uint32(0), Arrives: true})
				}
			}
			w.Steps = append(w.Steps, simt.Step{Op: exitOp, Mask: ^uint32(0)})
			b.Warps = append(b.Warps, w)
		}
		tr.Blocks = append(tr.Blocks, b)
	}
	return tr
}

// drawn is a random run.
type drawn struct {
	o          Options
	background []Grid
	events     Events
	seed       uint64
}

func draw(t *rapid.T) drawn {
	warps := rapid.SampledFrom([]int{4, 1, 2}).Draw(t, "warps")
	bg := NewKernel("background", anyTrace(t, 2, warps, 20), rapid.SampledFrom([]int{36, 32, 16, 28}).Draw(t, "registers"), 32*warps, 0)
	ev := NewKernel("event", anyTrace(t, 2, 1, 20), rapid.SampledFrom([]int{16, 32, 40}).Draw(t, "event registers"), 32, rapid.SampledFrom([]int{0, 0, 0, 1024}).Draw(t, "shared"))
	return drawn{
		o: Options{
			Technique: rapid.SampledFrom([]Technique{Preempt, Preempt, Preempt, Ordered, Drain, Reserve, Adaptive}).Draw(t, "technique"), Victims: Victims(rapid.IntRange(0, int(Ready)).Draw(t, "victims")),
			Flush: Flush(rapid.IntRange(0, int(All)).Draw(t, "flush")), AnyRegisters: rapid.Bool().Draw(t, "any registers"), Skip: rapid.Bool().Draw(t, "skip"),
		},
		background: []Grid{{bg, rapid.IntRange(1, 200).Draw(t, "blocks")}, {bg, rapid.IntRange(1, 20).Draw(t, "more")}},
		events:     Events{Kernel: ev, Sources: rapid.IntRange(0, 3).Draw(t, "sources"), Gap: rapid.Uint64Range(0, 500).Draw(t, "gap")},
		seed:       rapid.Uint64().Draw(t, "seed"),
	}
}

// steps returns the number of instructions of the first n blocks of a kernel's grid.
func steps(k *Kernel, n int) (all uint64) {
	for i := range n {
		for _, w := range k.blocks[i%len(k.blocks)] {
			all += uint64(len(w.steps))
		}
	}
	return all
}

// sound checks a core between two cycles: instructions have ended once or are in flight up to the
// next one, and no warp is past a barrier that others of its block have not come to.
func sound(t *rapid.T, c *core) {
	passed, arrived := map[*block]int{}, map[*block]int{}
	for i := range c.contexts {
		x := &c.contexts[i]
		if x.block == nil {
			continue
		}
		f := x.top()
		if f.ended+len(x.flights) != f.next && !c.m.o.Skip {
			t.Fatalf("%d instructions have ended and %d are in flight before number %d", f.ended, len(x.flights), f.next)
		}
		if x.block.grid == nil {
			continue
		}
		n := 0
		for _, s := range x.stack[0].trace.steps[:x.stack[0].next] {
			if s.Op == barrierOp {
				n++
			}
		}
		if a, ok := arrived[x.block]; !ok || n < a {
			arrived[x.block] = n
		}
		if x.barrier != 0 || x.reenter != 0 {
			n--
			if last := x.stack[0].trace.steps[x.stack[0].next-1]; last.Op != barrierOp {
				t.Fatalf("a warp that is to wait at a barrier has executed %v", ops[last.Op])
			}
		}
		passed[x.block] = max(passed[x.block], n)
	}
	for b, n := range passed {
		if n > arrived[b] {
			t.Fatalf("a warp is past %d barriers where another has come to %d", n, arrived[b])
		}
	}
}

// However warps are preempted, each instruction ends once, registers are given back, and no cycle is
// lost.
func TestNothingIsLost(t *testing.T) {
	preempted, saved, dropped := 0, uint64(0), uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		want := uint64(0)
		for _, g := range d.background {
			want += steps(g.Kernel, g.Blocks)
		}
		m := newMachine(small, d.o, d.background, d.events, d.seed)
		for {
			over, err := m.cycle(false, 0)
			if err != nil {
				t.Fatalf("%+v, %d waiting, %d inside, background %+v of %d: %v", d.o, len(m.waiting), m.inside, m.current, len(m.background), err)
			}
			if over {
				break
			}
			for i := range m.cores {
				sound(t, &m.cores[i])
			}
			m.now = m.next()
		}
		r := m.outcome()
		if !d.o.Skip {
			for i := range m.cores {
				for j := range m.cores[i].contexts {
					if x := &m.cores[i].contexts[j]; x.block != nil && x.block.grid != nil {
						t.Fatalf("a warp of the background is still there: %+v", x)
					}
				}
			}
			events := r.Steps - want
			least, most := steps(d.events.Kernel, 1), steps(d.events.Kernel, 2)-steps(d.events.Kernel, 1)
			if least > most {
				least, most = most, least
			}
			if n := uint64(len(r.Times)); events < n*least || events > n*most {
				t.Fatalf("%d events executed %d instructions, each has %d to %d", n, events, least, most)
			}
		} else if r.Steps != want {
			t.Fatalf("%d instructions ended, want %d", r.Steps, want)
		}
		if all := r.Cycles * uint64(small.Cores*small.Schedulers); r.Slots != all {
			t.Fatalf("%d slots in %d cycles, want %d", r.Slots, r.Cycles, all)
		}
		for i := range m.cores {
			c := &m.cores[i]
			registers, threads := c.registers, c.threads
			for j := range c.contexts { // events that are under way
				if x := &c.contexts[j]; x.block != nil {
					registers += x.block.kernel.registers * WarpThreads
					threads += WarpThreads
				}
			}
			if registers != small.Registers || threads != small.Threads {
				t.Fatalf("core %d has %d registers and room for %d threads", i, registers, threads)
			}
		}
		if r.Saved != r.Restored {
			t.Fatalf("%d registers saved, %d restored", r.Saved, r.Restored)
		}
		preempted, saved, dropped = preempted+r.Preempted, saved+r.Saved, dropped+r.Dropped
	})
	t.Logf("%d warps preempted, %d registers saved, %d loads dropped", preempted, saved, dropped)
	if preempted == 0 || saved == 0 || dropped == 0 {
		t.Errorf("%d warps preempted, %d registers saved, %d loads dropped: not everything happened", preempted, saved, dropped)
	}
}

// Cycles in which nothing happens are left out, which changes nothing, and the same run has the same
// result.
func TestSkippedCyclesChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		var all [3]Result
		for i := range all {
			m := newMachine(small, d.o, d.background, d.events, d.seed)
			for over, err := m.cycle(false, 0); !over; over, err = m.cycle(false, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if i == 1 {
					m.now++
				} else {
					m.now = m.next()
				}
			}
			all[i] = m.outcome()
		}
		if diff := cmp.Diff(all[0], all[1]); diff != "" {
			t.Fatalf("with every cycle: -left out +every\n%s", diff)
		}
		if diff := cmp.Diff(all[0], all[2]); diff != "" {
			t.Fatalf("again: -first +second\n%s", diff)
		}
	})
}
