package accounting

import (
	"cmp"
	"slices"
	"time"
)

// RecordMeterConfig says how a [RecordMeter] reads records of context switches. The zero value of
// each field stands for its default.
type RecordMeterConfig struct {
	// Save is the part of a context's time on the engine that its save takes at the end if it had
	// run out of work, and Preempted the same if a launch was on the GPU: 64 µs and 85 µs, measured
	// on an H100.
	Save, Preempted time.Duration
	// ResumeDelay is how much longer a launch takes because it was preempted, since its blocks
	// don't come back together, until that is learned: 47 µs. On an H100 it was next to nothing for
	// a few blocks, 25 µs for 256 threads on each SM and 70 µs for 2048.
	ResumeDelay time.Duration
	// Load is the longest time that loading the next context is assumed to take, 200 µs. A longer
	// time without a context is idle. TypicalLoad is how long it takes as a rule: 80 µs.
	Load, TypicalLoad time.Duration
	// Keep is how long a report about the past is still accepted, 100 ms, and Late how long if it
	// does not concern work that continues: 20 ms. An executor that reports the end of a launch
	// late has claimed until then that it continues. Both are at least the length of two phases. A
	// report about a time more than Late after a phase's end is not believed.
	Keep, Late time.Duration
}

// WithDefaults returns c with its zero fields replaced by the defaults.
func (c RecordMeterConfig) WithDefaults() RecordMeterConfig {
	setDefault(&c.Save, 64*time.Microsecond)
	setDefault(&c.Preempted, 85*time.Microsecond)
	setDefault(&c.ResumeDelay, 47*time.Microsecond)
	setDefault(&c.Load, 200*time.Microsecond)
	setDefault(&c.TypicalLoad, 80*time.Microsecond)
	setDefault(&c.Keep, 100*time.Millisecond)
	setDefault(&c.Late, 20*time.Millisecond)
	return c
}

// Work is an executor's report of when one context had something on the GPU.
type Work struct {
	// Group is the context's. PID is the process that it belongs to, by which the hardware's
	// records may name it, or 0 if that is not known.
	Group GroupID
	PID   int
	// Intervals are the times on the GPU of the launches that have ended since the last report.
	// They may lie in the past and overlap each other. Impossible ones are ignored.
	Intervals []Interval
	// Since is when the work that is on the GPU now began, at the earliest, or 0 if there is none.
	// An instant in the future counts as now, and one long ago as no more than long ago.
	Since time.Duration
	// Suspended reports whether the context may have been taken off the GPU in the middle of a
	// launch since the last report.
	Suspended bool
}

// RecordMeter is the accounting core for hardware that records its own context switches. A record
// tells which context was on the engine, not which one used it: a context that has run out of work
// stays until another one is wanted, and one that is alone causes no records. So a group is charged
// for the time in which its context was on the engine and its executor had work for it, less the
// time that the context's save took.
//
// If it is not known which context was on the engine, because nothing is recorded or records were
// lost, that is worked out from the reports. How much of a phase had to be guessed for it is in
// Phase.Guessed.
//
// Records and reports may come late, and work that still runs is assumed to run on. So each Cut
// computes the newest time again. A group is charged the difference to what it was charged before.
// If that is negative it is charged nothing until it has caught up. Thus no time is charged twice,
// sums never decrease, and all groups together are never charged more than the time that passed.
//
// Reports are not trusted. Any instants are accepted, do not change what other groups are charged
// for their time on the engine, and are kept within bounds.
//
// It has no clock and waits for nothing. It is not safe for concurrent use.
type RecordMeter struct {
	config    RecordMeterConfig
	residency residency
	contexts  []*contextMeter
	final     time.Duration // time before it is never computed again
	cut       time.Duration // end of the newest Cut
	cuts      uint64
	switches  uint64
	load      charge // for loading contexts

	inference

	working           []*contextMeter // scratch of divide and hidden
	ran               []*contextMeter // scratch of unrecorded
	reported, scratch []Interval      // scratch of Report
}

// contextMeter is one context's part of the meter.
type contextMeter struct {
	id         contextID
	group      GroupID
	pid        int
	since      time.Duration   // of what runs, 0 for nothing
	suspended  bool            // may have been suspended since the last report
	attributed bool            // nobody reports about it: see Attribute
	past       intervals       // when work ran, from RecordMeter.final on
	all        intervals       // the same with what runs now: scratch of a Cut
	next       int             // index in all of what ends next: scratch of divide and hidden
	ends       []time.Duration // of what ran, in order
	newEnds    int             // launches that ended since the last Cut
	// cost is what the newest launches were charged, and launches how many these are.
	cost, launches float64
	estimate       time.Duration // scratch of unrecorded
	reportedIn     uint64        // value of cuts at the newest report
	reportedAt     time.Duration // end of that Cut
	busy           charge
	saves          charge
	measured       launches
	// spacing is how long the context is on the engine between two sightings, on average, and
	// unseen how long it has been there since the last one, which may be a guess.
	spacing, unseen time.Duration
	doubtful        bool
	// shortest is the shortest time between its newest two sightings, of visited times in a row, in
	// which others seem to have visited the engine.
	shortest time.Duration
	visited  int
	// preempted reports whether the context was in the middle of a launch when it last left the
	// engine, as far as time was computed. wasPreempted is its value at RecordMeter.final.
	preempted, wasPreempted bool

	// runs is how many residences in the present phase it worked in, and visits how many were
	// inferred.
	runs, visits uint64
}

// charge is a sum that is computed again and again, and charged once.
type charge struct{ final, recent, charged time.Duration }

// due returns what is still to be charged.
func (c *charge) due() time.Duration { return max(c.final+c.recent-c.charged, 0) }

// NewRecordMeter returns a meter that begins at an instant of the GPU's clock.
func NewRecordMeter(c RecordMeterConfig, start time.Duration) *RecordMeter {
	return &RecordMeter{config: c.WithDefaults(), residency: newResidency(start), final: start, cut: start}
}

// Record adds a record of a context switch. Records come in order.
func (m *RecordMeter) Record(sw Switch) {
	if m.residency.record(sw) {
		m.switches++
	}
}

// Lost notes that records after the newest one are missing.
func (m *RecordMeter) Lost() { m.residency.lost() }

// Report adds what a context did since its last report. Each context is reported before each Cut,
// even if it did nothing. A context that is not reported has ended.
func (m *RecordMeter) Report(w *Work) {
	c := m.context(w)
	c.since, c.suspended, c.reportedIn, c.attributed = w.Since, w.Suspended, m.cuts, false
	m.reported = m.reported[:0]
	inOrder := true
	for _, v := range w.Intervals {
		v.Start = max(v.Start, m.final)
		if v.End <= v.Start {
			continue
		}
		n := len(m.reported)
		inOrder = inOrder && (n == 0 || m.reported[n-1].Start <= v.Start)
		m.reported = append(m.reported, v)
		if n := len(c.ends); n == 0 || v.End > c.ends[n-1] && n < maxIntervals {
			c.ends = append(c.ends, v.End)
			c.newEnds++
		}
	}
	if !inOrder { // of several channels, or invented
		slices.SortFunc(m.reported, func(a, b Interval) int { return cmp.Compare(a.Start, b.Start) })
	}
	m.scratch = c.past.merge(m.reported, m.scratch)
}

// Attribute calls groupOf for each process that was on the engine since the last Cut and was not
// reported. It must be called after all reports and before the Cut. The group that groupOf returns
// is charged for all the time that the process was there, since no report tells when it ran out of
// work.
func (m *RecordMeter) Attribute(now time.Duration, groupOf func(now time.Duration, pid int) (GroupID, bool)) {
	for i := range m.residency.residences {
		r := &m.residency.residences[i]
		if r.kind != occupied || r.context.pid <= 0 || r.to <= m.cut || m.isReported(r.context) {
			continue
		}
		if g, ok := groupOf(now, r.context.pid); ok {
			c := m.find(r.context)
			if c == nil {
				c = m.context(&Work{PID: r.context.pid, Group: g})
			}
			m.reported = append(m.reported[:0], Interval{max(m.cut, m.final), now})
			c.reportedIn, c.since, c.attributed = m.cuts, 0, true
			m.scratch = c.past.merge(m.reported, m.scratch)
		}
	}
}

// isReported reports whether the context was reported since the last Cut.
func (m *RecordMeter) isReported(id contextID) bool {
	return slices.ContainsFunc(m.contexts, func(c *contextMeter) bool { return c.id == id && c.reportedIn == m.cuts })
}

// context returns the part of a reported context, which it makes if there is none. A context whose
// process is known stays the same if its group changes: one that was made ahead gets its group when
// it is used.
func (m *RecordMeter) context(w *Work) *contextMeter {
	for _, c := range m.contexts {
		if c.pid == w.PID && (c.pid != 0 || c.group == w.Group) {
			c.group = w.Group
			return c
		}
	}
	c := &contextMeter{id: Switch{PID: w.PID, Group: w.Group}.context(), group: w.Group, pid: w.PID}
	m.contexts = append(m.contexts, c)
	return c
}

// Cut ends the phase that began at the last Cut, writes what it came to into p, and begins the next
// one. It reuses the memory of p.Groups.
func (m *RecordMeter) Cut(now time.Duration, p *Phase) {
	now = max(now, m.cut)
	final := now
	for _, c := range m.contexts {
		if c.reportedIn != m.cuts {
			c.since = 0
		} else {
			c.reportedAt = now
		}
		// A report may speak of what comes after now, but not of much later.
		c.dropFrom(now + m.config.Late)
		c.all = append(c.all[:0], c.past...)
		if c.since != 0 {
			c.since = min(max(c.since, m.final), now)
			c.all.add(Interval{c.since, now})
			final = min(final, c.since)
			if c.suspended {
				m.guessed = now - m.cut // where it was is not known without a record
			}
		}
	}
	twoPhases := 2 * (now - m.cut)
	if old := max(final-max(m.config.Late, twoPhases), now-max(m.config.Keep, twoPhases)); old > m.final {
		m.compute(m.final, old)
		m.finalize(old)
	}
	m.learns = true
	m.compute(m.final, now)
	m.learns = false
	m.learnLaunches(now)

	groups := p.Groups[:0]
	*p = Phase{Start: m.cut, End: now, Switches: m.switches, Polls: 1}
	p.Groups = m.charge(groups, p)
	p.Guessed, p.Unreported = min(m.guessed, p.Length()), m.unreported(now)
	p.Last, p.Running = m.running(now)
	m.cut, m.switches, m.guessed = now, 0, 0
	m.cuts++
	m.contexts = slices.DeleteFunc(m.contexts, func(c *contextMeter) bool { return c.reportedAt < m.final })
}

// dropFrom drops what was reported of the time from t on.
func (c *contextMeter) dropFrom(t time.Duration) {
	c.past.dropFrom(t)
	i, _ := slices.BinarySearch(c.ends, t)
	c.ends = c.ends[:i]
}

// finalize makes the result up to t final.
func (m *RecordMeter) finalize(t time.Duration) {
	m.final = t
	if !m.inferred {
		m.inference.last = sighting{}
	}
	for _, q := range m.sightings {
		if q.at <= t {
			m.inference.last = q
		}
	}
	m.load.final += m.load.recent
	for _, c := range m.contexts {
		c.busy.final += c.busy.recent
		c.saves.final += c.saves.recent
		c.wasPreempted = c.preempted
		c.past.dropBefore(t)
		c.all.dropBefore(t)
		i, _ := slices.BinarySearch(c.ends, t)
		c.ends = slices.Delete(c.ends, 0, i)
	}
	m.residency.dropBefore(t)
}

// charge charges what is due, as far as p has time for it.
func (m *RecordMeter) charge(groups []GroupTime, p *Phase) []GroupTime {
	var due time.Duration
	for _, c := range m.contexts {
		due += c.busy.due()
	}
	length := p.Length()
	busyPart := portion(length, due)
	busy := scaled(due, busyPart)
	switching := m.load.due()
	for _, c := range m.contexts {
		switching += c.saves.due()
	}
	switchPart := portion(length-busy, switching)
	var charged time.Duration
	for _, c := range m.contexts {
		t := GroupTime{Group: c.group, Busy: scaled(c.busy.due(), busyPart), Switching: scaled(c.saves.due(), switchPart), Runs: c.runs}
		c.busy.charged += t.Busy
		c.learn(t.Busy)
		c.saves.charged += t.Switching
		charged += t.Busy
		p.Switching += t.Switching
		if t.Busy == 0 && t.Switching == 0 {
			continue
		}
		// Contexts of one group are charged as one.
		if i := slices.IndexFunc(groups, func(o GroupTime) bool { return o.Group == t.Group }); i >= 0 {
			groups[i].Busy += t.Busy
			groups[i].Switching += t.Switching
			groups[i].Runs += t.Runs
			continue
		}
		groups = append(groups, t)
	}
	loading := scaled(m.load.due(), switchPart)
	m.load.charged += loading
	p.Switching += loading
	p.Idle = length - charged - p.Switching
	slices.SortFunc(groups, compareGroups)
	return groups
}

// portion returns the part of an amount that there is room for.
func portion(room, amount time.Duration) float64 {
	if amount <= room {
		return 1
	}
	return float64(max(room, 0)) / float64(amount)
}

// scaled returns that part of an amount.
func scaled(amount time.Duration, part float64) time.Duration {
	if part == 1 {
		return amount
	}
	return time.Duration(float64(amount) * part)
}

// compute works out how the time between two instants was used.
func (m *RecordMeter) compute(from, to time.Duration) {
	m.load.recent = 0
	m.sightings, m.inferred = m.sightings[:0], false
	for _, c := range m.contexts {
		c.busy.recent, c.saves.recent, c.runs, c.visits = 0, 0, 0, 0
		c.preempted = c.wasPreempted
	}
	for i := range m.residency.residences {
		r := &m.residency.residences[i]
		if r.from >= to {
			break
		}
		in := Interval{max(r.from, from), min(r.to, to)}
		if in.End <= in.Start {
			continue
		}
		switch r.kind {
		case occupied:
			c := m.find(r.context)
			if c != nil {
				m.resided(c, r, in)
			}
			m.unrecorded(c, r, in)
		case vacant:
			if r.to != noEnd {
				m.load.recent += max(in.End-max(in.Start, r.to-m.config.Load), 0)
			}
		default:
			m.infer(in)
		}
	}
}

// unreported returns how long contexts were on the engine from the last Cut to now that nobody
// reported about.
func (m *RecordMeter) unreported(now time.Duration) (sum time.Duration) {
	for i := range m.residency.residences {
		r := &m.residency.residences[i]
		if r.kind != occupied || r.to <= m.cut {
			continue
		}
		if c := m.find(r.context); c == nil || c.attributed || c.reportedIn != m.cuts {
			sum += Interval{r.from, r.to}.within(Interval{m.cut, now})
		}
	}
	return sum
}

// find returns the context that records name so, nil if there is none.
func (m *RecordMeter) find(id contextID) *contextMeter {
	for _, c := range m.contexts {
		if c.id == id || id.pid == 0 && c.group == id.group {
			return c
		}
	}
	return nil
}

// resided adds the part in of a context's residence r.
func (m *RecordMeter) resided(c *contextMeter, r *residence, in Interval) {
	delay := m.resumeDelay(c, r, in)
	if r.saved {
		save, preempted := m.save(c, r.to)
		began := max(r.to-save, r.from)
		c.saves.recent += max(in.End-max(in.Start, began), 0)
		if in.End == r.to {
			c.preempted = preempted
		}
		in.End = min(in.End, began)
	}
	busy := max(c.all.overlap(in)-delay, 0)
	c.saves.recent += delay
	c.busy.recent += busy
	if busy > 0 && r.to > m.cut {
		c.runs++
	}
}

// save returns how long it took to save a context that was gone at an instant. If a launch ended
// shortly before, later than one could have that was in the middle when the save began, the save
// was all that came after: that end is exact, and the length of a save varies by some microseconds.
// This holds also if launches were queued behind it. Their reports say that they began with its
// end, although the hardware may not have fetched them yet and may have made room for another
// context instead.
func (m *RecordMeter) save(c *contextMeter, gone time.Duration) (took time.Duration, preempted bool) {
	i, _ := slices.BinarySearch(c.ends, gone)
	if i > 0 && gone-c.ends[i-1] < (m.config.Save+m.config.Preempted)/2 {
		return gone - c.ends[i-1], false
	}
	if c.all.contains(gone - 1) {
		return m.config.Preempted, true
	}
	return m.config.Save, false
}

// resumeDelay returns how much of the part in of a residence a launch took longer because it had
// been preempted, if it ended in the residence.
func (m *RecordMeter) resumeDelay(c *contextMeter, r *residence, in Interval) time.Duration {
	if !c.preempted {
		return 0
	}
	i, _ := slices.BinarySearch(c.ends, r.from)
	if i == len(c.ends) || c.ends[i] >= r.to {
		return 0
	}
	end := c.ends[i]
	return max(min(end, in.End)-max(end-m.resumeDelayOf(c), r.from, in.Start), 0)
}

// divide adds a time in which it is not known which context was on the engine: those that had work
// get equal parts of it.
func (m *RecordMeter) divide(in Interval) {
	for _, c := range m.contexts {
		c.next = c.all.after(in.Start)
	}
	for t := in.Start; t < in.End; {
		next := in.End
		m.working = m.working[:0]
		for _, c := range m.contexts {
			if c.next < len(c.all) && c.all[c.next].End <= t {
				c.next++
			}
			if c.next == len(c.all) {
				continue
			}
			if v := c.all[c.next]; t < v.Start {
				next = min(next, v.Start)
			} else {
				next = min(next, v.End)
				m.working = append(m.working, c)
			}
		}
		for _, c := range m.working {
			c.busy.recent += (next - t) / time.Duration(len(m.working))
			c.runs = max(c.runs, 1)
		}
		t = next
	}
}

// running returns the group that was on the engine at the end, and whether it had work.
func (m *RecordMeter) running(now time.Duration) (GroupID, bool) {
	last := m.residency.last()
	for _, c := range m.contexts {
		if c.since != 0 && (last.kind == unknown || last.kind == occupied && m.find(last.context) == c) {
			return c.group, true
		}
	}
	if last.kind == occupied {
		if c := m.find(last.context); c != nil {
			return c.group, false
		}
	}
	return 0, false
}
