package warps

import (
	"math"
	"math/bits"
	"slices"

	"vgpud/gpu/soft/simt"
)

// never is the time of what does not happen by itself.
const never = math.MaxUint64

// frame is an entry of a context's SIMT stack: a trace that is executed, and how far that is.
type frame struct {
	kernel *Kernel
	trace  *warpTrace
	shift  uint64 // of its memory, in lines
	next   int    // the step to issue
	ended  int    // steps that have ended
	last   int    // one more than the last step that has
}

// flight is an instruction in flight.
type flight struct {
	step   int
	done   uint64
	writes regset
	load   bool // it can be dropped and executed again
}

// stage is how far a context's preemption is.
type stage uint8

const (
	running   stage = iota
	flushing        // its pipeline is emptied
	saving          // its registers are written to memory
	lent            // an event executes in it
	restoring       // its registers are read back
)

// context is a warp's place on a core.
type context struct {
	block   *block  // nil if the place is free
	stack   []frame // the last one executes
	age     uint64  // in order of launch
	ready   int     // instructions in its buffer
	arrives uint64  // when the fetch on its way is there; 0 if none is
	missed  bool    // that fetch missed the instruction cache
	flights []flight
	pending regset // registers that flights write
	barrier int    // that it waits at, plus one
	reenter int    // that it goes back to after the event, plus one
	expect  int    // warps that its last barrier waits for, 0 for all
	at      int    // its place on the core
	stage   stage
	event   *event // that preempts it, or that it is of
	until   uint64 // when its registers are saved or restored
	saved   int    // registers that are
	ended   int    // its instructions that had ended when it was last given back; -1 if it never was
}

func (c *context) top() *frame { return &c.stack[len(c.stack)-1] }

// done reports whether the executing trace has been issued to its end.
func (c *context) done() bool { f := c.top(); return f.next == len(f.trace.steps) }

// block is a resident block.
type block struct {
	grid    *launch // nil for an event
	kernel  *Kernel
	warp    bool // an event that has a context but no block's place
	live    int
	arrived [16]int // warps, by barrier
}

// core is one core.
type core struct {
	m        *machine
	contexts []context
	checks   [maxContexts]uint64 // when each context may be able to go on; never where the place is free
	stalled  uint64              // contexts that can't issue until something happens to them, a bit each
	hungry   uint64              // those that may need instructions
	ending   uint64              // those that may have ended
	order    [][]int             // of each scheduler: places in order of age
	greedy   []int               // of each scheduler: the place that it issued from last, or -1
	special  int                 // events and victims that come first
	turn     int                 // the next place to fetch for
	code     map[*Kernel][]bool
	l1       cache
	misses   []uint64 // when each line on its way is there, and of some that are
	full     uint64   // when there is room for another load's lines

	arithmetic [2]uint64 // when each unit is free
	special1   uint64
	accesses   uint64

	blocks, threads, registers, shared int // that are free
	table                              []*event
	events                             int    // that are in the table or execute here
	next, last                         uint64 // when the core is to execute a cycle, and executed one
}

// maxContexts is the most contexts that a core may have.
const maxContexts = 64

func (m *machine) newCore() core {
	c := core{
		m: m, contexts: make([]context, min(m.c.Threads/WarpThreads, maxContexts)), code: map[*Kernel][]bool{}, l1: newCache(m.c.L1Bytes, 4),
		blocks: m.c.Blocks, threads: m.c.Threads, registers: m.c.Registers, shared: m.c.SharedBytes, next: never,
	}
	for i := range c.checks {
		c.checks[i] = never
	}
	for range m.c.Schedulers {
		c.order, c.greedy = append(c.order, nil), append(c.greedy, -1)
	}
	return c
}

// fits reports whether the core has room for a block.
func (c *core) fits(k *Kernel) bool {
	return c.blocks > 0 && c.threads >= k.warps()*WarpThreads && c.registers >= k.room() && c.shared >= k.shared
}

// begin makes a block resident.
func (c *core) begin(b *block, warps []warpTrace, shift uint64, e *event) {
	if !b.warp {
		c.blocks--
	}
	c.threads -= len(warps) * WarpThreads
	c.registers -= len(warps) * WarpThreads * b.kernel.registers
	c.shared -= b.kernel.shared
	place := 0
	for i := range warps {
		for c.contexts[place].block != nil {
			place++
		}
		x := &c.contexts[place]
		stack := append(x.stack[:0], frame{kernel: b.kernel, trace: &warps[i], shift: shift})
		*x = context{at: place, block: b, stack: stack, age: c.m.ages, flights: x.flights[:0], event: e, ended: -1}
		c.wake(x)
		if e != nil {
			c.special++
		}
		c.m.ages++
		s := place % len(c.order)
		c.order[s] = append(c.order[s], place)
	}
	c.next = c.m.now
}

// wake has a context looked at in the next cycle that is executed.
func (c *core) wake(x *context) {
	bit := uint64(1) << x.at
	c.checks[x.at] = c.m.now
	c.stalled &^= bit
	c.hungry |= bit
}

// sooner has a context looked at no later than at.
func (c *core) sooner(x *context, at uint64) { c.checks[x.at] = min(c.checks[x.at], at) }

// cycle executes one cycle, and sets when the next one is to be executed.
func (c *core) cycle() {
	now := c.m.now
	c.m.idle += (now - c.last) * uint64(len(c.order)) // of cycles before this
	c.last = now + 1
	for i, at := range c.checks[:len(c.contexts)] {
		if at <= now {
			c.retire(&c.contexts[i])
		}
	}
	if len(c.table) > 0 {
		c.preempt()
	}
	issued := 0
	for s := range c.order {
		if c.issue(s) {
			issued++
		}
	}
	c.m.issued += uint64(issued)
	c.m.slots += uint64(len(c.order))
	fetched := c.fetch()
	for ; c.ending != 0; c.ending &= c.ending - 1 {
		c.finish(bits.TrailingZeros64(c.ending))
	}
	if issued > 0 || fetched || len(c.table) > 0 {
		c.next = now + 1
		return
	}
	c.next = never
	for _, at := range c.checks[:len(c.contexts)] {
		c.next = min(c.next, at)
	}
	if c.next != never {
		c.next = max(c.next, now+1)
	}
}

// retire ends what is done of a context's flights, and takes in what was fetched.
func (c *core) retire(x *context) {
	now := c.m.now
	c.stalled &^= 1 << x.at
	if x.arrives != 0 && x.arrives <= now {
		f := x.top()
		x.ready, x.arrives, x.missed = min(c.m.c.Buffer, len(f.trace.steps)-f.next), 0, false
	}
	kept := x.flights[:0]
	for _, f := range x.flights {
		if f.done > now {
			kept = append(kept, f)
			continue
		}
		x.pending.remove(&f.writes)
		x.top().end(f.step)
	}
	x.flights = kept
	if x.stage == restoring && x.until <= now {
		c.resume(x)
	}
	c.checks[x.at] = x.soonest(now)
	if len(x.flights) == 0 && x.done() {
		c.ending |= 1 << x.at
	}
}

// end records that a step has ended.
func (f *frame) end(step int) {
	f.ended++
	f.last = max(f.last, step+1)
}

// soonest returns when something happens to a context by itself.
func (x *context) soonest(now uint64) uint64 {
	at := uint64(never)
	if x.arrives != 0 {
		at = x.arrives
	}
	for i := range x.flights {
		at = min(at, x.flights[i].done)
	}
	if x.stage == saving || x.stage == restoring {
		at = min(at, x.until)
	}
	if at == never {
		return never
	}
	return max(at, now+1)
}

// issue has a scheduler issue an instruction, and reports whether it did: greedy, then oldest,
// behind events and raised victims.
func (c *core) issue(s int) bool {
	if c.special > 0 {
		for _, place := range c.order[s] {
			if c.stalled>>place&1 != 0 {
				continue
			}
			if x := &c.contexts[place]; c.first(x) && c.tryIssue(x) {
				return true
			}
		}
	}
	if g := c.greedy[s]; g >= 0 && c.stalled>>g&1 == 0 && c.contexts[g].block != nil && c.tryIssue(&c.contexts[g]) {
		return true
	}
	for _, place := range c.order[s] {
		if c.stalled>>place&1 == 0 && place != c.greedy[s] && c.tryIssue(&c.contexts[place]) {
			c.greedy[s] = place
			return true
		}
	}
	return false
}

// first reports whether a context is scheduled before others.
func (c *core) first(x *context) bool {
	if x.event == nil {
		return false
	}
	if x.stage == flushing {
		return c.m.o.Flush&Raise != 0
	}
	return c.m.prioritizes()
}

// tryIssue issues a context's next instruction if it can.
func (c *core) tryIssue(x *context) bool {
	if x.ready == 0 || x.barrier != 0 || x.stage == saving || x.stage == restoring {
		c.stalled |= 1 << x.at
		return false
	}
	f := x.top()
	step := &f.trace.steps[f.next]
	o := &f.kernel.ops[step.Op]
	if x.pending.meets(&o.uses) || o.class == simt.OpFence && len(x.flights) > 0 {
		c.stalled |= 1 << x.at // until a flight ends
		return false
	}
	now := c.m.now
	done := now + o.latency
	switch o.unit {
	case arithmeticUnit:
		u := &c.arithmetic[0]
		if c.arithmetic[1] < *u {
			u = &c.arithmetic[1]
		}
		if *u > now {
			c.sooner(x, *u)
			return false
		}
		*u = now + o.busy
	case specialUnit:
		if c.special1 > now {
			c.sooner(x, c.special1)
			return false
		}
		c.special1 = now + o.busy
	case memoryUnit:
		var ok bool
		if done, ok = c.access(x, f, step, o); !ok {
			return false
		}
	}
	x.flights = append(x.flights, flight{step: f.next, done: done, writes: o.writes, load: o.class == simt.OpLoad})
	x.pending.join(&o.writes)
	c.sooner(x, done)
	f.next++
	x.ready--
	if f.next < len(f.trace.steps) && f.kernel.ops[f.trace.steps[f.next].Op].place != o.place+1 {
		x.ready = 0 // a branch was taken
	}
	if x.ready == 0 {
		c.hungry |= 1 << x.at
	}
	if (o.class == simt.OpBarrier || o.class == simt.OpArrive) && step.Arrives {
		c.arrive(x, int(step.Barrier), int(step.Expect), o.class == simt.OpBarrier)
	}
	return true
}

// access has the core's memory unit execute an instruction, and returns when it ends. It reports
// false if the unit has no room for it.
func (c *core) access(x *context, f *frame, step *simt.Step, o *op) (done uint64, ok bool) {
	m, now := c.m, c.m.now
	if c.accesses > now {
		c.sooner(x, c.accesses)
		return 0, false
	}
	if step.Lines == 0 {
		c.accesses = now + 1
		return now + m.c.SharedLatency, true
	}
	at := f.trace.lineAt[f.next]
	lines := f.trace.lines[at : at+uint32(step.Lines)]
	if o.class == simt.OpLoad {
		if c.full <= now && len(c.misses)+len(lines) > m.c.Misses {
			c.misses = slices.DeleteFunc(c.misses, func(t uint64) bool { return t <= now })
			if n := len(c.misses); n > 0 && n+len(lines) > m.c.Misses {
				c.full = slices.Min(c.misses)
			}
		}
		if c.full > now { // loads wait for one another here
			c.sooner(x, c.full)
			return 0, false
		}
	}
	for i, l := range lines {
		when := now + uint64(i)
		switch o.class {
		case simt.OpLoad:
			done = max(done, c.load(l+f.shift, when))
		case simt.OpStore:
			m.shared.store(l+f.shift, when)
			done = max(done, when+1)
		default: // an atomic is executed in the GPU's cache
			done = max(done, m.shared.load(l+f.shift, when))
		}
	}
	c.accesses = now + uint64(len(lines))
	return done, true
}

// load returns when a line is there for a load.
func (c *core) load(number, now uint64) uint64 {
	hit := now + c.m.c.L1Latency
	if l := c.l1.find(number); l != nil {
		return max(l.ready, hit)
	}
	done := c.m.shared.load(number, now)
	c.l1.insert(number, done)
	c.misses = append(c.misses, done)
	return done
}

// fetch brings instructions for one context, and reports whether one needed them.
func (c *core) fetch() bool {
	n := len(c.contexts)
	for c.hungry != 0 {
		place := bits.TrailingZeros64(bits.RotateLeft64(c.hungry, -c.turn)) + c.turn
		place %= maxContexts
		c.hungry &^= 1 << place
		x := &c.contexts[place]
		if x.block == nil || x.ready > 0 || x.arrives != 0 || x.stage == flushing || x.stage == saving || x.stage == restoring || x.done() {
			continue
		}
		c.turn = (place + 1) % n
		now := c.m.now
		f := x.top()
		page := f.kernel.ops[f.trace.steps[f.next].Op].place / 16 // instructions of 8 bytes in a line
		have := c.code[f.kernel]
		if have == nil {
			have = make([]bool, len(f.kernel.ops)/16+1)
			c.code[f.kernel] = have
		}
		x.arrives = now + 1
		if !have[page] {
			have[page] = true
			x.arrives, x.missed = now+c.m.c.L2Latency, true
		}
		c.sooner(x, x.arrives)
		return true
	}
	return false
}

// arrive has a context arrive at a barrier, and wait there if it is to.
func (c *core) arrive(x *context, id, expect int, wait bool) {
	if x.stage == lent {
		return // the event's only warp
	}
	b := x.block
	b.arrived[id]++
	x.expect = expect
	if wait {
		x.barrier = id + 1
		x.ready = 0
		c.hungry |= 1 << x.at
	}
	c.open(b, id, expect)
}

// open opens a barrier at which all have arrived: expect warps, or if that is 0 all of the block.
func (c *core) open(b *block, id, expect int) {
	if expect == 0 {
		expect = b.live
	}
	if b.arrived[id] == 0 || b.arrived[id] < expect {
		return
	}
	b.arrived[id] = 0
	for i := range c.contexts {
		if x := &c.contexts[i]; x.block == b && x.barrier == id+1 {
			x.barrier = 0
			c.wake(x)
		}
	}
}

// finish ends a context whose trace has ended.
func (c *core) finish(place int) {
	x := &c.contexts[place]
	f := x.top()
	if f.next < len(f.trace.steps) || len(x.flights) > 0 || x.barrier != 0 || x.stage == flushing || x.stage == saving || x.stage == restoring {
		return
	}
	c.m.steps += uint64(f.ended)
	if x.stage == lent {
		c.giveBack(x)
		return
	}
	b := x.block
	if x.event != nil {
		c.special--
		c.events--
		c.m.ended(x.event)
	}
	s := place % len(c.order)
	c.order[s] = slices.DeleteFunc(c.order[s], func(p int) bool { return p == place })
	if c.greedy[s] == place {
		c.greedy[s] = -1
	}
	x.block, x.event = nil, nil
	c.checks[place] = never
	c.stalled |= 1 << place
	b.live--
	if b.live > 0 {
		for id := range b.arrived {
			c.open(b, id, 0)
		}
		return
	}
	if !b.warp {
		c.blocks++
	}
	c.threads += b.kernel.warps() * WarpThreads
	c.registers += b.kernel.room()
	c.shared += b.kernel.shared
	if b.grid != nil {
		b.grid.ended++
	}
	c.m.freed = true
}
