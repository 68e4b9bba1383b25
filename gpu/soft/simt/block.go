package simt

import "vgpud/gpu"

// Block is a resident thread block.
type Block struct {
	grid   *Grid
	sm     int
	coord  gpu.Dim3
	warps  []warp
	bars   [barriers]barrier
	shared []byte
	live   int // threads that have not exited
	turn   int // the warp to run next
	now    Now
	spent  uint64 // cycles of the step under way
	owed   uint64 // cycles of its start, not yet reported
	alarm  uint64 // the earliest time that a path sleeps for
	fault  *gpu.Fault
	text   []byte // what vprintf is composing
	size   int    // bytes of its memory
	given  given  // what lanes of one warp exchange from different places
}

// State is what became of a block in a step.
type State uint8

// The states a block can be in after a step.
const (
	Running  State = iota + 1 // more to do: step it again
	Sleeping                  // all its warps wait for a time: step it again at Result.Wake
	Finished                  // its threads have all exited; the block must not be used again
	Faulted                   // Result.Fault says why; the grid must not be stepped any more
)

// Now is the time at which a step begins.
type Now struct {
	Cycle       uint64 // %clock64 of the block's SM
	Nanos       uint64 // %globaltimer
	CyclesPerUS uint64 // rate at which both advance during the step; 0: 1,000
}

// Result is the outcome of a step.
type Result struct {
	State  State
	Cycles uint64     // SM cycles spent, by the cost model
	Wake   uint64     // Sleeping: the %globaltimer value to wait for
	Fault  *gpu.Fault // Faulted
}

// turnLength is how many instructions a warp runs before it is another's turn.
const turnLength = 4096

// SM is where the block is resident.
func (b *Block) SM() int { return b.sm }

// Grid is the grid the block belongs to.
func (b *Block) Grid() *Grid { return b.grid }

// Coord is the block's %ctaid.
func (b *Block) Coord() gpu.Dim3 { return b.coord }

// Step executes about budget warp instructions of the block, its warps taking
// turns. It returns early when nothing is left to do.
func (b *Block) Step(now Now, budget int) Result {
	if now.CyclesPerUS == 0 {
		now.CyclesPerUS = 1000
	}
	b.now, b.spent, b.owed = now, b.owed, 0
	b.grid.sync()
	for budget > 0 {
		if b.alarm <= b.nanos(b.spent) {
			b.wake()
		}
		ran := false
		for range b.warps {
			w := &b.warps[b.turn]
			if b.turn++; b.turn == len(b.warps) {
				b.turn = 0
			}
			if w.state != warpReady {
				continue
			}
			ran = true
			budget -= b.run(w, min(budget, turnLength))
			if b.fault != nil {
				return Result{State: Faulted, Cycles: b.spent, Fault: b.fault}
			}
			if budget <= 0 {
				break
			}
		}
		if b.live == 0 {
			b.grid.retire(b)
			return Result{State: Finished, Cycles: b.spent}
		}
		if ran {
			continue
		}
		if b.alarm == never {
			b.stuck()
			return Result{State: Faulted, Cycles: b.spent, Fault: b.fault}
		}
		if b.alarm > b.nanos(b.spent) {
			return Result{State: Sleeping, Cycles: b.spent, Wake: b.alarm}
		}
	}
	return Result{State: Running, Cycles: b.spent}
}

// run gives one warp its turn and returns how many instructions it took.
func (b *Block) run(w *warp, budget int) int {
	w.counts = Counts{}
	w.execute(budget)
	b.spent += w.counts.Cycles
	b.grid.counts.add(w.counts)
	return int(max(w.counts.WarpInstructions, 1))
}

// nanos is %globaltimer after so many cycles of the step.
func (b *Block) nanos(cycles uint64) uint64 {
	return b.now.Nanos + cycles*1000/b.now.CyclesPerUS
}

// never is the alarm of a block in which nothing sleeps.
const never = ^uint64(0)

// wake readies the paths whose time has come, and sets the alarm for the next.
func (b *Block) wake() {
	now := b.nanos(b.spent)
	b.alarm = never
	for i := range b.warps {
		w := &b.warps[i]
		woken := false
		for k := range w.paths {
			p := &w.paths[k]
			switch {
			case p.wait != waitTime:
			case p.wake <= now:
				p.wait, woken = ready, true
			default:
				b.alarm = min(b.alarm, p.wake)
			}
		}
		if woken && w.state == warpWaiting {
			w.next()
		}
	}
}

// stuck makes the first thread that waits for what can't come a fault.
func (b *Block) stuck() {
	for i := range b.warps {
		w := &b.warps[i]
		for _, p := range w.paths {
			w.mask, w.pc = p.mask, p.pc
			in := p.res
			if in == nil {
				in = &w.prog.code[max(p.pc-1, 0)]
				if p.wait == waitWarp {
					in = &w.prog.code[p.pc]
				}
			}
			w.raise(gpu.FaultBarrier, in, first(p.mask))
			return
		}
	}
}
