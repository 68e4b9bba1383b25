package warps

import (
	"math"
	"math/rand/v2"
)

// Events are launches of a kernel of one block. Each of several sources launches the next one when
// its last has ended.
type Events struct {
	Kernel  *Kernel
	Sources int
	// Gap is the mean of the random time between an event's end and the next doorbell; 0 for none.
	Gap uint64
}

// event is one launch.
type event struct {
	kernel  *Kernel
	number  int // of its trace
	source  int
	arrived uint64 // at the scheduler of blocks
	chosen  uint64 // when its victim was
	began   uint64
	victim  *context
	core    *core
	// reserved reports whether the event has registers of its own rather than its victim's.
	reserved bool
	left     Left
}

// eventArea is where events' memory is, in lines: beyond the background's.
const eventArea = 1 << 45

// trace returns the event's warps.
func (e *event) trace() ([]warpTrace, uint64) {
	g := Grid{Kernel: e.kernel}
	warps, shift := g.trace(e.number)
	return warps, shift + eventArea
}

// single reports whether a kernel may go straight to a core's table: one warp that needs no shared
// memory (§IV.C).
func (k *Kernel) single() bool { return k.warps() == 1 && k.shared == 0 }

// preempts reports whether an event is carried out on cores' own.
func (m *machine) preempts(k *Kernel) bool {
	return (m.o.Technique == Preempt || m.o.Technique == Adaptive) && k.single()
}

// prioritizes reports whether events are scheduled before other warps (§IV.D).
func (m *machine) prioritizes() bool {
	return m.o.Technique == Preempt || m.o.Technique == Adaptive
}

// sources makes events arrive.
type sources struct {
	Events
	rng    *rand.Rand
	due    []uint64 // when each source's next event arrives; never while one is under way
	number int
}

func newSources(e Events, dispatch, seed uint64) *sources {
	s := &sources{Events: e, rng: rand.New(rand.NewPCG(seed, 0xed9e))}
	for range e.Sources {
		s.due = append(s.due, s.after(0, dispatch)+s.rng.Uint64N(dispatch+1))
	}
	return s
}

// after returns when the event arrives that a source launches after now.
func (s *sources) after(now, dispatch uint64) uint64 {
	if s.Gap > 0 {
		now += uint64(-math.Log(1-s.rng.Float64()) * float64(s.Gap))
	}
	return now + dispatch
}

// arrive returns the events that arrive now.
func (s *sources) arrive(now uint64) (all []*event) {
	for i := range s.due {
		if s.due[i] > now {
			continue
		}
		s.due[i] = never
		all = append(all, &event{kernel: s.Kernel, number: s.number, source: i, arrived: now})
		s.number++
	}
	return all
}

// next returns when the next event arrives.
func (s *sources) next() uint64 {
	at := uint64(never)
	for _, d := range s.due {
		at = min(at, d)
	}
	return at
}

// fitsWarp reports whether a context and registers for an event are free.
func (c *core) fitsWarp(k *Kernel) bool {
	return c.threads >= WarpThreads && c.registers >= k.room()
}

// place finds a core for an event, and reports whether it found one. Otherwise the event waits, and
// drains reports whether that is for blocks of the background to end.
func (m *machine) place(e *event) (placed, drains bool) {
	straight := m.preempts(e.kernel)
	if m.o.Technique == Ordered && m.current != nil && m.current.next < m.current.Blocks {
		return false, false
	}
	best := m.least(func(c *core) bool {
		if straight {
			return c.fitsWarp(e.kernel)
		}
		return c.fits(e.kernel)
	})
	if best != nil {
		best.events++
		m.start(best, e)
		return true, false
	}
	if !straight {
		return false, true
	}
	if best = m.least(func(c *core) bool { return len(c.table) < m.c.Table && c.victim(e) != nil }); best != nil {
		best.events++
		best.table = append(best.table, e)
		best.next = m.now
		return true, false
	}
	// It waits for room in a table, or if it can preempt none, for what drains.
	return false, m.least(func(c *core) bool { return len(c.table) == m.c.Table }) == nil
}

// least returns the core with the fewest events among those that are for events and of which ok
// holds; of several, cores take turns.
func (m *machine) least(ok func(*core) bool) *core {
	var best *core
	n := len(m.cores)
	for k := range n {
		i := (m.turn + k) % n
		if m.o.Technique == Reserve && i < n/2 {
			continue
		}
		if c := &m.cores[i]; (best == nil || c.events < best.events) && ok(c) {
			best = c
		}
	}
	if best != nil {
		m.turn = (m.turn + 1) % n
	}
	return best
}

// start begins an event in a free context.
func (m *machine) start(c *core, e *event) {
	e.began, e.core = m.now, c
	if m.o.Skip {
		c.events--
		m.ended(e)
		return
	}
	warps, shift := e.trace()
	c.begin(&block{kernel: e.kernel, live: len(warps), warp: m.preempts(e.kernel)}, warps, shift, e)
}

// ended records an event's end.
func (m *machine) ended(e *event) {
	m.result.Waits = append(m.result.Waits, e.began-e.arrived)
	m.result.Times = append(m.result.Times, m.now-e.arrived)
	if e.victim != nil {
		m.result.Preempted++
		m.result.Flushes = append(m.result.Flushes, e.began-e.chosen)
		m.result.Left[e.left].Victims++
		m.result.Left[e.left].Cycles += e.began - e.chosen
	}
	m.under(-1)
	m.sources.due[e.source] = m.sources.after(m.now, m.c.Dispatch)
}

// memoryOfRate is the time, in cycles, over which Adaptive averages how many events there are.
const memoryOfRate = 20_000

// under changes the number of events under way, and takes the average that Adaptive goes by.
func (m *machine) under(change int) {
	keep := math.Exp(-float64(m.now-m.rateAt) / memoryOfRate)
	m.rate = m.rate*keep + float64(m.inside)*(1-keep)
	m.rateAt = m.now
	m.inside += change
}

// spare reports whether, after a block has begun on a core, there is still room for the events that
// Adaptive expects.
func (m *machine) spare(c *core, k *Kernel) bool {
	if m.o.Technique != Adaptive || m.sources == nil {
		return true
	}
	m.under(0)
	e := m.sources.Kernel
	want := int(math.Ceil(1.25 * m.rate))
	have := m.inside
	for i := range m.cores {
		o := &m.cores[i]
		threads, registers := o.threads, o.registers
		if o == c {
			threads, registers = threads-k.warps()*WarpThreads, registers-k.room()
		}
		have += min(threads/WarpThreads, registers/e.room())
	}
	return have >= min(want, len(m.cores)*m.c.Threads/WarpThreads/2)
}
