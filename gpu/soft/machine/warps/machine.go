package warps

import (
	"errors"
	"fmt"
)

// launch is a grid of the background in progress.
type launch struct {
	Grid
	next, ended int
}

// machine is a run in progress.
type machine struct {
	c      Config
	o      Options
	now    uint64
	cores  []core
	shared memory
	ages   uint64
	turn   int

	background []Grid
	current    *launch
	begins     uint64 // when the next grid of the background does

	sources *sources
	waiting []*event
	inside  int // events that have arrived and not ended
	rate    float64
	rateAt  uint64
	freed   bool // something is free, or has arrived

	steps, issued, slots, idle uint64
	dropped, saved, restored   uint64
	reasons                    [reasons]int
	result                     Result
}

// Result is what came of a run.
type Result struct {
	// Cycles is how long it took.
	Cycles uint64
	// Steps is the number of instructions that ended, and Issued that were issued: those that were
	// dropped are issued again.
	Steps, Issued uint64
	// Slots is the number of times that a scheduler could have issued.
	Slots uint64
	// Waits is how long each event waited from its arrival until it could begin, and Times until it
	// ended.
	Waits, Times []uint64
	// Preempted is the number of events that preempted a warp, Flushes how long each of those took
	// to, and Reasons how many of the victims had each [Reason].
	Preempted int
	Flushes   []uint64
	Reasons   map[Reason]int
	// Left is by [Left].
	Left [3]Remainder
	// Dropped is the number of loads that were executed again, Saved of registers written to
	// memory and Restored of those read back.
	Dropped, Saved, Restored uint64
	// Lines is the number of lines that the memory moved.
	Lines uint64
}

// ErrEndless means that a run did not end in time, or that nothing in it could go on.
var ErrEndless = errors.New("the run does not end")

// longest bounds a run, in cycles.
const longest = 1 << 22

// Run executes the background's grids one after the other while events arrive, until the background
// has ended. Without a background it ends after the given number of events.
func Run(c Config, o Options, background []Grid, e Events, events int, seed uint64) (Result, error) {
	return newMachine(c, o, background, e, seed).run(events)
}

func newMachine(c Config, o Options, background []Grid, e Events, seed uint64) *machine {
	m := &machine{c: c, o: o, background: background, freed: true}
	m.shared = memory{c: &m.c, l2: newCache(c.L2Bytes, 16)}
	m.cores = make([]core, c.Cores)
	for i := range m.cores {
		m.cores[i] = m.newCore()
	}
	if e.Sources > 0 {
		m.sources = newSources(e, c.Dispatch, seed)
	}
	return m
}

// over reports whether the run has ended.
func (m *machine) over(alone bool, events int) bool {
	if alone {
		return len(m.result.Times) >= events
	}
	return m.current == nil && len(m.background) == 0
}

func (m *machine) run(events int) (Result, error) {
	alone := len(m.background) == 0
	for {
		if over, err := m.cycle(alone, events); err != nil {
			return Result{}, err
		} else if over {
			return m.outcome(), nil
		}
		next := m.next()
		if next == never {
			return Result{}, fmt.Errorf("cycle %d: nothing is left to happen: %w", m.now, ErrEndless)
		}
		m.now = next
	}
}

// cycle executes one cycle, and reports whether the run is over.
func (m *machine) cycle(alone bool, events int) (over bool, err error) {
	if m.now > longest {
		return false, fmt.Errorf("%d cycles: %w", m.now, ErrEndless)
	}
	if m.sources != nil {
		for _, e := range m.sources.arrive(m.now) {
			m.waiting = append(m.waiting, e)
			m.under(1)
			m.freed = true
		}
	}
	m.launch()
	if m.over(alone, events) {
		return true, nil
	}
	if m.freed {
		m.freed = false
		if err := m.dispatch(); err != nil {
			return false, err
		}
	}
	for i := range m.cores {
		if c := &m.cores[i]; c.next <= m.now {
			c.cycle()
		}
	}
	return false, nil
}

// outcome returns the result of a run that is over.
func (m *machine) outcome() Result {
	r := m.result
	for i := range m.cores {
		m.idle += (m.now - min(m.now, m.cores[i].last)) * uint64(m.c.Schedulers)
	}
	r.Cycles, r.Steps, r.Issued, r.Slots = m.now, m.steps, m.issued, m.slots+m.idle
	r.Dropped, r.Saved, r.Restored, r.Lines = m.dropped, m.saved, m.restored, m.shared.moved
	r.Reasons = make(map[Reason]int)
	for _, reason := range Reasons() {
		r.Reasons[reason] = m.reasons[reason]
	}
	return r
}

// next returns the next cycle in which something happens.
func (m *machine) next() uint64 {
	if m.freed {
		return m.now + 1
	}
	at := uint64(never)
	for i := range m.cores {
		at = min(at, m.cores[i].next)
	}
	if m.sources != nil {
		at = min(at, m.sources.next())
	}
	if m.current == nil && len(m.background) > 0 {
		at = min(at, m.begins)
	}
	if at == never {
		return never
	}
	return max(at, m.now+1)
}

// launch begins the background's next grid when the one before has ended and this one has been
// dispatched.
func (m *machine) launch() {
	if m.current != nil && m.current.ended == m.current.Blocks {
		m.current = nil
		m.begins = m.now + m.c.Dispatch
		if len(m.background) == 0 {
			return
		}
	}
	if m.current == nil && len(m.background) > 0 && m.now >= m.begins {
		m.current = &launch{Grid: m.background[0]}
		m.background = m.background[1:]
		m.freed = true
	}
}

// dispatch gives events and blocks what is free.
func (m *machine) dispatch() error {
	hold := false
	kept := m.waiting[:0]
	for _, e := range m.waiting {
		placed, drains := m.place(e)
		if !placed {
			kept = append(kept, e)
			hold = hold || drains && m.o.Technique != Ordered && m.o.Technique != Reserve
		}
	}
	m.waiting = kept
	g := m.current
	if g == nil || hold {
		return nil
	}
	cores := len(m.cores)
	if m.o.Technique == Reserve {
		cores /= 2
	}
	for began := true; began && g.next < g.Blocks; {
		began = false
		for i := range cores {
			c := &m.cores[i]
			if g.next == g.Blocks || !c.fits(g.Kernel) || !m.spare(c, g.Kernel) {
				continue
			}
			warps, shift := g.trace(g.next)
			c.begin(&block{grid: g, kernel: g.Kernel, live: len(warps)}, warps, shift, nil)
			g.next++
			began = true
		}
	}
	if g.next == 0 && g.ended == 0 && m.inside == 0 {
		return fmt.Errorf("kernel %s: a block of %d threads, %d registers each and %d bytes of shared memory fits no core: %w",
			g.Kernel.name, g.Kernel.threads, g.Kernel.registers, g.Kernel.shared, ErrEndless)
	}
	return nil
}
