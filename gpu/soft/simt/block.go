package simt

import "vgpud/gpu"

// Block is a resident thread block.
type Block struct {
	grid        *Grid
	sm          int
	coord       gpu.Dim3
	warps       []warp
	bars        [barriers]barrier
	shared      []byte
	live        int // threads that have not exited
	events      int // that take or are to take a warp's place
	turn        int // the next warp to run
	now         Now
	spent       uint64 // cycles of the current step
	startCycles uint64 // cycles of the block's start that have not been reported
	nextWake    uint64 // the earliest time at which a sleeping path wakes
	fault       *gpu.Fault
	text        []byte // the output that vprintf is composing
	size        int    // size of its memory in bytes
	given       given  // operands of an exchange between lanes at different places
}

// State is the state of a block after a step.
type State uint8

// The states of a block after a step.
const (
	Running  State = iota + 1 // has more to execute: step it again
	Sleeping                  // all its warps sleep: step it again at Result.Wake
	Finished                  // all its threads have exited; the block must not be used again
	Faulted                   // Result.Fault has the reason; the grid must not be stepped again
)

// Now is the time at which a step begins.
type Now struct {
	Cycle       uint64 // %clock64 of the block's SM
	Nanos       uint64 // %globaltimer
	CyclesPerUS uint64 // rate of both clocks during the step; 0 means 1,000
}

// Result is the outcome of a step.
type Result struct {
	State  State
	Cycles uint64     // cost of the step in SM cycles
	Wake   uint64     // if Sleeping, the %globaltimer value to wait for
	Fault  *gpu.Fault // if Faulted
}

// turnLength is the number of instructions that a warp executes before the next warp's turn.
const turnLength = 4096

// SM returns the SM on which the block is resident.
func (b *Block) SM() int { return b.sm }

// Grid returns the block's grid.
func (b *Block) Grid() *Grid { return b.grid }

// Coord returns the block's %ctaid.
func (b *Block) Coord() gpu.Dim3 { return b.coord }

// Step executes about budget warp instructions of the block, with its warps taking turns. It
// returns early if there is nothing left to execute.
func (b *Block) Step(now Now, budget int) Result {
	if now.CyclesPerUS == 0 {
		now.CyclesPerUS = 1000
	}
	b.now, b.spent, b.startCycles = now, b.startCycles, 0
	b.grid.sync()
	for budget > 0 {
		if b.nextWake <= b.nanos(b.spent) {
			b.wake()
		}
		ran := false
		for range b.warps {
			w := &b.warps[b.turn]
			if b.turn++; b.turn == len(b.warps) {
				b.turn = 0
			}
			if w.preempted() {
				n, awake := b.runEvent(w, min(budget, turnLength))
				ran = ran || awake
				if budget -= n; b.fault != nil {
					return Result{State: Faulted, Cycles: b.spent, Fault: b.fault}
				}
				if budget <= 0 {
					break
				}
				continue
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
		if b.live == 0 && b.events == 0 {
			b.grid.retire(b)
			return Result{State: Finished, Cycles: b.spent}
		}
		if ran {
			continue
		}
		if b.nextWake == never {
			b.deadlocked()
			return Result{State: Faulted, Cycles: b.spent, Fault: b.fault}
		}
		if b.nextWake > b.nanos(b.spent) {
			return Result{State: Sleeping, Cycles: b.spent, Wake: b.nextWake}
		}
	}
	return Result{State: Running, Cycles: b.spent}
}

// run gives one warp its turn and returns the number of instructions that it executed.
func (b *Block) run(w *warp, budget int) int {
	w.counts = Counts{}
	if w.watch == nil {
		w.execute(budget)
	} else {
		w.executeWatched(budget)
	}
	b.spent += w.counts.Cycles
	b.grid.counts.add(w.counts)
	return int(max(w.counts.WarpInstructions, 1))
}

// nanos returns %globaltimer after the given cycles of the step.
func (b *Block) nanos(cycles uint64) uint64 {
	return b.now.Nanos + cycles*1000/b.now.CyclesPerUS
}

// never is the nextWake of a block in which nothing sleeps.
const never = ^uint64(0)

// wake makes the paths ready whose time has come, and computes nextWake.
func (b *Block) wake() {
	now := b.nanos(b.spent)
	b.nextWake = never
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
				b.nextWake = min(b.nextWake, p.wake)
			}
		}
		if woken && w.state == warpWaiting {
			w.next()
		}
	}
}

// deadlocked makes the first thread that waits in vain a fault.
func (b *Block) deadlocked() {
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
