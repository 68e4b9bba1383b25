package warps

import (
	"slices"

	"vgpud/gpu/soft/simt"
)

// Reason is something that a victim's pipeline has to be emptied of. A victim may have several
// (figure 11b).
type Reason uint8

// The reasons.
const (
	Pipeline      Reason = iota // an instruction is in flight
	Scoreboard                  // one that has registers reserved
	Load                        // one that is a load
	FetchMiss                   // instructions are fetched from behind the instruction cache
	Barrier                     // the warp waits at a barrier
	MemoryBarrier               // and at a fence
	reasons
)

// Reasons are all reasons in the order of figure 11b.
func Reasons() []Reason {
	return []Reason{Pipeline, Scoreboard, Load, FetchMiss, Barrier, MemoryBarrier}
}

// String returns the reason's name.
func (r Reason) String() string {
	return [...]string{"pipeline", "scoreboard", "load", "fetch miss", "barrier", "memory barrier"}[r]
}

// Left is what a victim's pipeline has still to be emptied of when the optimisations have done at
// once what they can.
type Left uint8

// The parts of a warp's state that may be left.
const (
	Nothing   Left = iota
	LoadLeft       // a load, which a later instruction that has ended or will keeps from being dropped
	OtherLeft      // other instructions, or a barrier
)

// Remainder is how many victims had one kind of remainder, and how many cycles their preemptions
// took together.
type Remainder struct {
	Victims int
	Cycles  uint64
}

// may reports whether an event may preempt a context (§IV.D): a warp of the background with at least
// as many registers. One that has been preempted executes an instruction before it is again, on which
// the paper is silent: the oldest warp of a core could be held for ever, and the warps of a block
// never meet at a barrier.
func (c *core) may(e *event, x *context) bool {
	if x.block == nil || x.block.grid == nil || x.stage != running || x.done() {
		return false
	}
	if x.ended == x.top().ended {
		return false // it has made no progress since it was preempted last
	}
	need := e.kernel.registers
	return need <= x.block.kernel.registers || c.m.o.AnyRegisters && c.registers >= need*WarpThreads
}

// victim returns the context that an event is to preempt, or nil.
func (c *core) victim(e *event) *context {
	var best *context
	var wait uint64
	for i := range c.contexts {
		x := &c.contexts[i]
		if !c.may(e, x) {
			continue
		}
		better := best == nil
		switch c.m.o.Victims {
		case Oldest:
			better = better || x.age < best.age
		case Newest:
			better = better || x.age > best.age
		case Ready:
			w := c.wait(x)
			better = better || w < wait || w == wait && x.age > best.age
			if better {
				wait = w
			}
		}
		if better {
			best = x
		}
	}
	return best
}

// wait returns how long a context's pipeline takes to empty, as far as that can be known.
func (c *core) wait(x *context) (cycles uint64) {
	const barrier = 1 << 20 // until other warps are there
	now, keep := c.m.now, x.firstDroppable()
	for i := range x.flights {
		f := &x.flights[i]
		if c.m.o.Flush&Replay != 0 && f.step >= keep {
			continue
		}
		cycles = max(cycles, max(f.done, now)-now)
	}
	if x.barrier != 0 && c.m.o.Flush&Skip == 0 {
		cycles += barrier
	}
	if c.m.o.Flush&Buffer == 0 {
		cycles += uint64(x.ready)
	}
	return cycles
}

// firstDroppable returns the first step from which on there is nothing but loads in flight. No later
// instruction has ended or will (§IV.D).
func (x *context) firstDroppable() int {
	first := x.top().last
	for i := range x.flights {
		if f := &x.flights[i]; !f.load {
			first = max(first, f.step+1)
		}
	}
	return first
}

// take begins an event's preemption of a context.
func (c *core) take(x *context, e *event) {
	x.stage, x.event, e.victim, e.core = flushing, e, x, c
	c.special++
	e.chosen = c.m.now
	if need := e.kernel.registers * WarpThreads; c.registers >= need {
		c.registers -= need // now, or two victims would wait for each other's
		e.reserved = true
	}
	f := x.top()
	has := [reasons]bool{
		Pipeline: len(x.flights) > 0, FetchMiss: x.missed, Barrier: x.barrier != 0,
		MemoryBarrier: len(x.flights) > 0 && x.ready > 0 && f.kernel.ops[f.trace.steps[f.next].Op].class == simt.OpFence,
	}
	for i := range x.flights {
		has[Scoreboard] = has[Scoreboard] || x.flights[i].writes != regset{}
		has[Load] = has[Load] || x.flights[i].load
	}
	for r := range has {
		if has[r] {
			c.m.reasons[r]++
		}
	}
}

// preempt brings the events in the core's table a cycle on.
func (c *core) preempt() {
	for i := 0; i < len(c.table); {
		if e := c.table[i]; c.advance(e) {
			c.table = slices.Delete(c.table, i, i+1)
			c.m.freed = true // there is room in the table
		} else {
			i++
		}
	}
}

// advance brings an event a cycle on, and reports whether it executes.
func (c *core) advance(e *event) bool {
	now := c.m.now
	if e.victim == nil {
		if c.fitsWarp(e.kernel) {
			c.m.start(c, e)
			return true
		}
		x := c.victim(e)
		if x == nil {
			return false
		}
		c.take(x, e)
	}
	x := e.victim
	if x.stage == flushing {
		c.flush(x)
		if now == e.chosen {
			e.left = x.left()
		}
		if len(x.flights) > 0 || x.ready > 0 || x.arrives != 0 || x.barrier != 0 {
			return false
		}
		if !e.reserved {
			c.save(x, e.kernel.registers)
		}
	}
	if x.stage == saving && x.until > now {
		return false
	}
	c.lend(x, e)
	return true
}

// flush empties a context's pipeline, as far as the optimisations allow.
func (c *core) flush(x *context) {
	if c.m.o.Flush&Buffer != 0 {
		x.ready, x.arrives, x.missed = 0, 0, false
	}
	if c.m.o.Flush&Skip != 0 && x.barrier != 0 {
		x.reenter, x.barrier = x.barrier, 0
		x.block.arrived[x.reenter-1]--
		x.ready, x.arrives, x.missed = 0, 0, false // what is behind it must not be executed yet
	}
	if c.m.o.Flush&Replay == 0 {
		return
	}
	first := x.firstDroppable()
	kept := x.flights[:0]
	for _, f := range x.flights {
		if f.step < first {
			kept = append(kept, f)
			continue
		}
		c.drop(x.top(), f)
		x.pending.remove(&f.writes)
		x.top().next = min(x.top().next, f.step)
		x.ready, x.arrives, x.missed = 0, 0, false // what follows it is fetched again
		c.m.dropped++
	}
	x.flights = kept
}

// left returns what a context's pipeline has still to be emptied of.
func (x *context) left() Left {
	left := Nothing
	if x.barrier != 0 || x.ready > 0 || x.arrives != 0 {
		left = OtherLeft
	}
	for i := range x.flights {
		if x.flights[i].load {
			return LoadLeft
		}
		left = OtherLeft
	}
	return left
}

// drop releases what the core keeps for a load in flight.
func (c *core) drop(f *frame, in flight) {
	at := f.trace.lineAt[in.step]
	for _, l := range f.trace.lines[at : at+uint32(f.trace.steps[in.step].Lines)] {
		l += f.shift
		if have := c.l1.find(l); have != nil && have.ready > c.m.now {
			if i := slices.Index(c.misses, have.ready); i >= 0 {
				c.misses = slices.Delete(c.misses, i, i+1)
				c.full = 0
			}
			*have = line{}
		}
	}
}

// saveArea is where registers are saved, in lines of memory: far from any kernel's own.
const saveArea = 1 << 50

// save writes the first n registers of a context to memory, a line each (§IV.D).
func (c *core) save(x *context, n int) {
	x.stage, x.saved = saving, n
	x.until = c.transfer(x, func(line, when uint64) uint64 { return c.m.shared.store(line, when) })
	c.sooner(x, x.until)
	c.m.saved += uint64(n)
}

// transfer moves a context's saved registers, and returns when the last has been moved.
func (c *core) transfer(x *context, move func(line, when uint64) uint64) (done uint64) {
	begin := max(c.accesses, c.m.now)
	for i := range uint64(x.saved) {
		done = max(done, move(saveArea+x.age<<10+i, begin+i))
	}
	c.accesses = begin + uint64(x.saved)
	return done
}

// lend has an event execute in a context: its first instruction and all lanes are pushed on the
// context's SIMT stack.
func (c *core) lend(x *context, e *event) {
	x.stage = lent
	warps, shift := e.trace()
	x.stack = append(x.stack, frame{kernel: e.kernel, trace: &warps[0], shift: shift})
	c.wake(x)
	e.began = c.m.now + 1 // what chooses and pushes takes a cycle at least
	if c.m.o.Skip {
		x.top().next = len(warps[0].steps)
	}
}

// giveBack ends an event, pops it off its victim's stack, and gives the victim its registers back.
func (c *core) giveBack(x *context) {
	e := x.event
	x.stack = x.stack[:len(x.stack)-1]
	x.ready, x.arrives, x.missed = 0, 0, false
	c.events--
	c.m.ended(e)
	if x.saved == 0 {
		c.registers += e.kernel.registers * WarpThreads
		c.resume(x)
		return
	}
	x.stage = restoring
	x.until = c.transfer(x, c.m.shared.load)
	c.sooner(x, x.until)
}

// resume has a victim go on, at the barrier that it skipped if it did.
func (c *core) resume(x *context) {
	c.m.restored += uint64(x.saved)
	x.stage, x.event, x.saved, x.ended = running, nil, 0, x.top().ended
	c.special--
	c.wake(x)
	c.m.freed = true // it may be preempted again
	if x.reenter == 0 {
		return
	}
	id := x.reenter - 1
	x.reenter = 0
	x.barrier = id + 1
	x.block.arrived[id]++
	c.open(x.block, id, x.expect)
}
