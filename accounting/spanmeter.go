package accounting

import (
	"cmp"
	"slices"
	"time"
)

// SpanConfig says how a [SpanMeter] reads records of context switches. The zero
// value of each field stands for the default named there.
type SpanConfig struct {
	// Save is how much of a context's time on the engine is its being saved at the
	// end of it, where it had run dry, and Preempted where a launch was on the GPU:
	// 64 µs and 85 µs, measured on an H100.
	Save, Preempted time.Duration
	// Back is by how much a launch that was preempted ends later than its work comes
	// to, since its blocks don't come back together: 47 µs. On an H100 it was next to
	// nothing for a few blocks, 25 µs for 256 threads on each SM and 70 µs for 2048.
	Back time.Duration
	// Load is the most that bringing the next context in is taken to last, 200 µs:
	// a longer time without one is idle.
	Load time.Duration
	// Keep is for how long what is told of the past is still taken in, 100 ms, and
	// Late for how long where it says nothing of work that goes on: 20 ms. An
	// executor that is late to say that a launch has ended says until then that it
	// goes on. Both are at least the length of two phases. What is told of a time more
	// than Late after a phase's end is not believed.
	Keep, Late time.Duration
}

// WithDefaults returns c with its zero fields replaced by the defaults.
func (c SpanConfig) WithDefaults() SpanConfig {
	setDefault(&c.Save, 64*time.Microsecond)
	setDefault(&c.Preempted, 85*time.Microsecond)
	setDefault(&c.Back, 47*time.Microsecond)
	setDefault(&c.Load, 200*time.Microsecond)
	setDefault(&c.Keep, 100*time.Millisecond)
	setDefault(&c.Late, 20*time.Millisecond)
	return c
}

// Work is when one context had something on the GPU, as its executor says.
type Work struct {
	// Group is the context's, and PID the process that it belongs to, by which the
	// hardware's records may know it; 0: not known.
	Group GroupID
	PID   int
	// Spans are the launches that ended and were not told of before, each a time in
	// which it was on the GPU. They may lie in the past, and overlap others. What can't
	// have been is left out.
	Spans []Span
	// Since, where it is not 0, says that something is there now, and has been at
	// the earliest since then. An instant that is yet to come is now, and one that
	// was long ago no more than long ago.
	Since time.Duration
}

// SpanMeter is the accounting core for hardware that records its own context
// switches. A record tells who was on the engine, not who used it: a context that
// has run dry stays until another is wanted, and one that is alone causes no
// records. So a group is charged for the time in which its context was on the
// engine and its executor had work for it, less what the save of the context took.
//
// Where nobody can say who was on the engine, because no record has come yet or
// some were lost, those that had work then share the time; one that is alone has
// all of it.
//
// Both kinds of tale may come late, work that still runs is taken to run on, and
// each Cut reckons anew what the newest time came to. A group is charged the
// difference to what it was charged, and where that would be negative nothing
// until it has caught up: so no time is charged twice, sums never go back, and all
// groups together are never charged more than passed.
//
// What a context is told to have done is not trusted: any instants are taken, change
// nothing about what the others are charged for their time on the engine, and are kept
// within bounds.
//
// It has no clock and waits for nothing. It is not safe for concurrent use.
type SpanMeter struct {
	config    SpanConfig
	residency residency
	contexts  []*contextMeter
	settled   time.Duration // what was before it is reckoned for good
	cut       time.Duration // the newest Cut's end
	cuts      uint64
	switches  uint64
	load      bill // of bringing contexts in
	working   []*contextMeter
	ran       []*contextMeter // scratch of unrecorded
	told, was []Span          // scratch of Worked
}

// contextMeter is one context's part of the meter.
type contextMeter struct {
	owner owner
	group GroupID
	pid   int
	since time.Duration   // what runs, 0 for nothing
	work  spans           // what ran, from settled on
	now   spans           // the same with what runs: scratch of a Cut
	next  int             // of now, that ends next: scratch of share
	ends  []time.Duration // of what ran, in order
	// news is how many launches ended since the last Cut. cost is what the newest launches were charged, which are so many, and
	// ran scratch of unrecorded.
	news           int
	cost, launches float64
	ran            time.Duration
	told           uint64        // cuts, when it was last told of
	heard          time.Duration // the end of that Cut
	busy           bill
	saves          bill
	// preempted is whether it was in the middle of a launch when it last left, as far
	// as was reckoned, and wasPreempted the same at settled.
	preempted, wasPreempted bool

	spans uint64
}

// bill is a sum that is reckoned anew and charged once.
type bill struct{ settled, recent, charged time.Duration }

// owed is what is still to be charged.
func (b *bill) owed() time.Duration { return max(b.settled+b.recent-b.charged, 0) }

// NewSpanMeter returns a meter that begins at an instant of the GPU's clock.
func NewSpanMeter(c SpanConfig, start time.Duration) *SpanMeter {
	return &SpanMeter{config: c.WithDefaults(), residency: newResidency(start), settled: start, cut: start}
}

// Switched takes in a record. Records come in order.
func (m *SpanMeter) Switched(sw Switch) {
	if m.residency.record(sw) {
		m.switches++
	}
}

// Lost says that records after the newest one are missing.
func (m *SpanMeter) Lost() { m.residency.lost() }

// Worked takes in what a context did since it was last told of. Each context is
// told of before each Cut, also where it did nothing; one that is not has ended.
func (m *SpanMeter) Worked(w *Work) {
	c := m.context(w)
	c.since, c.told = w.Since, m.cuts
	m.told = m.told[:0]
	inOrder := true
	for _, s := range w.Spans {
		s.Start = max(s.Start, m.settled)
		if s.End <= s.Start {
			continue
		}
		n := len(m.told)
		inOrder = inOrder && (n == 0 || m.told[n-1].Start <= s.Start)
		m.told = append(m.told, s)
		if n := len(c.ends); n == 0 || s.End > c.ends[n-1] && n < maxSpans {
			c.ends = append(c.ends, s.End)
			c.news++
		}
	}
	if !inOrder { // they are of several channels, or of somebody who makes them up
		slices.SortFunc(m.told, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	}
	m.was = c.work.merge(m.told, m.was)
}

// Unclaimed asks whose each process is that was on the engine since the last Cut and
// that nobody told of, after all contexts were told of and before the Cut. Whoever's it
// is, is charged for all the time that it was there: nobody says when it ran dry.
func (m *SpanMeter) Unclaimed(now time.Duration, whose func(now time.Duration, pid int) (GroupID, bool)) {
	for i := range m.residency.stays {
		s := &m.residency.stays[i]
		if s.kind != held || s.owner.pid <= 0 || s.to <= m.cut || m.isTold(s.owner) {
			continue
		}
		if g, ok := whose(now, s.owner.pid); ok {
			c := m.of(s.owner)
			if c == nil {
				c = m.context(&Work{PID: s.owner.pid, Group: g})
			}
			m.told = append(m.told[:0], Span{max(m.cut, m.settled), now})
			c.told, c.since = m.cuts, 0
			m.was = c.work.merge(m.told, m.was)
		}
	}
}

// isTold is whether somebody told of a context since the last Cut that records name so.
func (m *SpanMeter) isTold(o owner) bool {
	return slices.ContainsFunc(m.contexts, func(c *contextMeter) bool { return c.owner == o && c.told == m.cuts })
}

// context finds the context's part.
func (m *SpanMeter) context(w *Work) *contextMeter {
	for _, c := range m.contexts {
		if c.pid == w.PID && c.group == w.Group {
			return c
		}
	}
	c := &contextMeter{owner: Switch{PID: w.PID, Group: w.Group}.owner(), group: w.Group, pid: w.PID}
	m.contexts = append(m.contexts, c)
	return c
}

// Cut ends the phase that began at the last Cut, writes what it came to into p,
// and begins the next one. It reuses the memory of p.Groups.
func (m *SpanMeter) Cut(now time.Duration, p *Phase) {
	now = max(now, m.cut)
	final := now
	for _, c := range m.contexts {
		if c.told != m.cuts {
			c.since = 0
		} else {
			c.heard = now
		}
		// It may have told of what came after now; what is later nobody can know.
		c.until(now + m.config.Late)
		c.now = append(c.now[:0], c.work...)
		if c.since != 0 {
			c.since = min(max(c.since, m.settled), now)
			c.now.add(Span{c.since, now})
			final = min(final, c.since)
		}
	}
	lately := 2 * (now - m.cut)
	if old := max(final-max(m.config.Late, lately), now-max(m.config.Keep, lately)); old > m.settled {
		m.reckon(m.settled, old)
		m.settle(old)
	}
	m.reckon(m.settled, now)

	groups := p.Groups[:0]
	*p = Phase{Start: m.cut, End: now, Switches: m.switches, Polls: 1}
	p.Groups = m.charge(groups, p)
	p.Last, p.Running = m.running(now)
	m.cut, m.switches = now, 0
	m.cuts++
	m.contexts = slices.DeleteFunc(m.contexts, func(c *contextMeter) bool { return c.heard < m.settled })
}

// until forgets what it told of the time from t on.
func (c *contextMeter) until(t time.Duration) {
	c.work.until(t)
	i, _ := slices.BinarySearch(c.ends, t)
	c.ends = c.ends[:i]
}

// settle makes what was reckoned up to t final.
func (m *SpanMeter) settle(t time.Duration) {
	m.settled = t
	m.load.settled += m.load.recent
	for _, c := range m.contexts {
		c.busy.settled += c.busy.recent
		c.saves.settled += c.saves.recent
		c.wasPreempted = c.preempted
		c.work.forget(t)
		c.now.forget(t)
		i, _ := slices.BinarySearch(c.ends, t)
		c.ends = slices.Delete(c.ends, 0, i)
	}
	m.residency.forget(t)
}

// charge charges everybody what is owed, as far as there was time for it in p.
func (m *SpanMeter) charge(groups []GroupTime, p *Phase) []GroupTime {
	var owed time.Duration
	for _, c := range m.contexts {
		owed += c.busy.owed()
	}
	length := p.Length()
	busyPart := part(length, owed)
	busy := pay(owed, busyPart)
	switching := m.load.owed()
	for _, c := range m.contexts {
		switching += c.saves.owed()
	}
	switchPart := part(length-busy, switching)
	var paid time.Duration
	for _, c := range m.contexts {
		t := GroupTime{Group: c.group, Busy: pay(c.busy.owed(), busyPart), Switching: pay(c.saves.owed(), switchPart), Spans: c.spans}
		c.busy.charged += t.Busy
		c.learn(t.Busy)
		c.saves.charged += t.Switching
		paid += t.Busy
		p.Switching += t.Switching
		if t.Busy == 0 && t.Switching == 0 {
			continue
		}
		// Contexts of one group are one.
		if i := slices.IndexFunc(groups, func(o GroupTime) bool { return o.Group == t.Group }); i >= 0 {
			groups[i].Busy += t.Busy
			groups[i].Switching += t.Switching
			groups[i].Spans += t.Spans
			continue
		}
		groups = append(groups, t)
	}
	loading := pay(m.load.owed(), switchPart)
	m.load.charged += loading
	p.Switching += loading
	p.Idle = length - paid - p.Switching
	slices.SortFunc(groups, func(a, b GroupTime) int { return int(a.Group) - int(b.Group) })
	return groups
}

// part is how much of what is owed there is room for.
func part(room, owed time.Duration) float64 {
	if owed <= room {
		return 1
	}
	return float64(max(room, 0)) / float64(owed)
}

// pay is that part of an amount.
func pay(owed time.Duration, part float64) time.Duration {
	if part == 1 {
		return owed
	}
	return time.Duration(float64(owed) * part)
}

// reckon works out what the time between two instants came to.
func (m *SpanMeter) reckon(from, to time.Duration) {
	m.load.recent = 0
	for _, c := range m.contexts {
		c.busy.recent, c.saves.recent, c.spans = 0, 0, 0
		c.preempted = c.wasPreempted
	}
	for i := range m.residency.stays {
		s := &m.residency.stays[i]
		if s.from >= to {
			break
		}
		in := Span{max(s.from, from), min(s.to, to)}
		if in.End <= in.Start {
			continue
		}
		switch s.kind {
		case held:
			c := m.of(s.owner)
			if c != nil {
				m.stayed(c, s, in)
			}
			m.unrecorded(c, s, in)
		case vacant:
			if s.to != open {
				m.load.recent += max(in.End-max(in.Start, s.to-m.config.Load), 0)
			}
		default:
			m.share(in)
		}
	}
}

// of finds the context that records name so.
func (m *SpanMeter) of(o owner) *contextMeter {
	for _, c := range m.contexts {
		if c.owner == o || o.pid == 0 && c.group == o.group {
			return c
		}
	}
	return nil
}

// stayed reckons what the part in of a context's stay s came to.
func (m *SpanMeter) stayed(c *contextMeter, s *stay, in Span) {
	back := m.back(c, s, in)
	if s.saved {
		save, preempted := m.save(c, s.to)
		began := max(s.to-save, s.from)
		c.saves.recent += max(in.End-max(in.Start, began), 0)
		if in.End == s.to {
			c.preempted = preempted
		}
		in.End = min(in.End, began)
	}
	busy := max(c.now.overlap(in)-back, 0)
	c.saves.recent += back
	c.busy.recent += busy
	if busy > 0 && s.to > m.cut {
		c.spans++
	}
}

// save is how long it took to save a context that was gone at an instant. If a
// launch ended right before, later than one could have that was in the middle when
// the save began, the save was all that came after: the end is exact, and how long a
// save takes varies by some microseconds. That goes for launches behind it, too: they
// are told to have begun with its end, also where the hardware had not fetched them
// yet and made room for another context instead.
func (m *SpanMeter) save(c *contextMeter, gone time.Duration) (took time.Duration, preempted bool) {
	i, _ := slices.BinarySearch(c.ends, gone)
	if i > 0 && gone-c.ends[i-1] < (m.config.Save+m.config.Preempted)/2 {
		return gone - c.ends[i-1], false
	}
	if busy, _ := c.now.at(gone - 1); busy {
		return m.config.Preempted, true
	}
	return m.config.Save, false
}

// back is how much of the part in of a stay a launch took longer that was preempted
// before and ended in the stay.
func (m *SpanMeter) back(c *contextMeter, s *stay, in Span) time.Duration {
	if !c.preempted {
		return 0
	}
	i, _ := slices.BinarySearch(c.ends, s.from)
	if i == len(c.ends) || c.ends[i] >= s.to {
		return 0
	}
	end := c.ends[i]
	return max(min(end, in.End)-max(end-m.config.Back, s.from, in.Start), 0)
}

// unrecorded reckons the part in of a stay of context c, nil if nobody told of it, in which launches of other contexts ended all
// the same. While the driver recovers from a fault, 0.3 s on an H100, the hardware records nothing, and the context that had the
// fault seems to stay. Each of those others is charged for its launches as much as each of its launches was charged before, as far
// as c had no work. Nobody is charged for that time otherwise, so one that makes up launches is charged itself, and changes nothing
// for anybody else.
func (m *SpanMeter) unrecorded(c *contextMeter, s *stay, in Span) {
	left := in.End - in.Start
	if c != nil {
		left -= c.now.overlap(in)
	}
	if left <= 0 {
		return
	}
	m.ran = m.ran[:0]
	var sum time.Duration
	for _, o := range m.contexts {
		if o == c {
			continue
		}
		if n := o.ended(Span{max(in.Start, s.from+m.config.Load), min(s.to, in.End)}); n > 0 {
			o.ran = min(o.typical(n), o.now.overlap(in))
			sum += o.ran
			m.ran = append(m.ran, o)
		}
	}
	for _, o := range m.ran {
		o.busy.recent += pay(o.ran, part(left, sum))
		o.spans = max(o.spans, 1)
	}
}

// ended returns how many launches of the context ended in a time.
func (c *contextMeter) ended(in Span) int {
	i, _ := slices.BinarySearch(c.ends, in.Start)
	j, _ := slices.BinarySearch(c.ends, in.End)
	return max(j-i, 0)
}

// typical returns what n launches of the context are charged, by what the newest were. The first ones may be anything.
func (c *contextMeter) typical(n int) time.Duration {
	if c.launches < 1 {
		return open
	}
	return time.Duration(float64(n) * c.cost / c.launches)
}

// remembered is of how many launches a context remembers what they were charged.
const remembered = 64

// learn takes in what the context was charged in a phase.
func (c *contextMeter) learn(charged time.Duration) {
	c.cost += float64(charged)
	c.launches += float64(c.news)
	c.news = 0
	if c.launches > remembered {
		c.cost, c.launches = c.cost*remembered/c.launches, remembered
	}
}

// share reckons a time in which nobody knows who was on the engine: those that had
// work have equal parts of it.
func (m *SpanMeter) share(in Span) {
	for _, c := range m.contexts {
		c.next = c.now.after(in.Start)
	}
	for t := in.Start; t < in.End; {
		next := in.End
		m.working = m.working[:0]
		for _, c := range m.contexts {
			if c.next < len(c.now) && c.now[c.next].End <= t {
				c.next++
			}
			busy, until := c.now[c.next:].first(t)
			if next = min(next, until); busy {
				m.working = append(m.working, c)
			}
		}
		for _, c := range m.working {
			c.busy.recent += (next - t) / time.Duration(len(m.working))
			c.spans = max(c.spans, 1)
		}
		t = next
	}
}

// running is the group that was on the engine at the end, and whether it had work.
func (m *SpanMeter) running(now time.Duration) (GroupID, bool) {
	last := m.residency.last()
	for _, c := range m.contexts {
		if c.since != 0 && (last.kind == unknown || last.kind == held && m.of(last.owner) == c) {
			return c.group, true
		}
	}
	if last.kind == held {
		if c := m.of(last.owner); c != nil {
			return c.group, false
		}
	}
	return 0, false
}
