package blocks

import (
	"math"
	"math/rand/v2"
)

// phase is what a slot's block waits for.
type phase uint8

const (
	empty     phase = iota
	starting        // its first instruction
	reading         // the word in host memory, which stops the other blocks of its SM
	polling         // the evict word
	recording       // the atomic that records its unit as skipped
	fetching        // the counter, and the word if it polls too
	setting         // the work that it does once
	waiting         // memory, for a task
	issuing         // its share of the issue slots, for a task
)

// slot holds one block on an SM.
type slot struct {
	sm      int32
	phase   phase
	left    int     // remaining tasks of the unit
	fetches int     // by a persistent block
	polled  bool    // the current fetch polls too
	fresh   bool    // the unit's first task has not begun
	first   bool    // the block's first unit has not begun
	weight  float64 // how fast it issues, relative to others
	tag     float64 // the SM's virtual time at which it has issued everything
}

// sm is a streaming multiprocessor. Its issuing blocks share the issue slots by weight: a block of
// weight 1 issues as much as the virtual time advances. None issues during a read of host memory
// (see [Costs.HostRead]).
type sm struct {
	reads   int     // reads of host memory, in progress or waiting
	waiting []int32 // slots whose blocks wait for the bus
	active  []int32 // slots whose blocks issue
	weight  float64 // the sum of the weights of active
	virtual float64
	since   float64 // when virtual was last updated
	due     float64 // when the first of active is done
	queued  float64 // the time of the SM's event in the queue
}

// run is a grid in progress.
type run struct {
	c *Costs
	k Kernel
	f Form

	rng   *rand.Rand
	now   float64
	q     queue
	slots []slot
	sms   []sm

	next    uint64 // the next task or unit to hand out
	units   uint64
	done    uint64 // tasks
	skipped uint64 // units
	live    int
	waits   int // blocks that wait for memory

	wordFree, counterFree, notesFree float64 // when each line is free again

	reading int // blocks that read host memory, including the one that has the bus
	granted int // the SM that gets the bus next if it waits for it

	evictAt float64 // when the word is written
	below   int     // SMs with a lower number are evicted
	inBelow int     // occupied slots of those SMs
	gone    float64 // when inBelow became 0 after the eviction
	fills   []float64

	tasksAt, skippedAt marks

	partial bool // a part of the GPU, too small for a proxy
}

// marks records when a count reached each of two values.
type marks struct {
	at   [2]uint64
	when [2]float64
}

func (m *marks) reached(n uint64, now float64) {
	for i := range m.at {
		if n == m.at[i] {
			m.when[i] = now
		}
	}
}

// each returns the time per increment between the two.
func (m *marks) each() float64 {
	return (m.when[1] - m.when[0]) / float64(m.at[1]-m.at[0])
}

func newRun(c *Costs, k Kernel, f Form, seed uint64) *run {
	r := &run{
		c: c, k: k, f: f, rng: rand.New(rand.NewPCG(seed, 0x5eed)), evictAt: math.Inf(1), below: c.SMs,
		slots: make([]slot, c.Slots(k)), sms: make([]sm, c.SMs), units: f.units(k.Tasks),
	}
	for i := range r.sms {
		r.sms[i].active = make([]int32, 0, k.PerSM)
		r.sms[i].queued = math.Inf(1)
	}
	for i := range r.slots {
		r.slots[i].sm = int32(i % c.SMs)
	}
	for n := range k.PerSM + 1 {
		r.fills = append(r.fills, c.fill(min(n*k.Warps, c.Warps)))
	}
	return r
}

// start launches the grid with the given number of tasks already done.
func (r *run) start(done uint64) {
	r.done = done
	r.next = done
	if r.f.Kind == EarlyExit {
		r.next = done / uint64(r.f.group())
		r.done = r.next * uint64(r.f.group())
	}
	order := r.rng.Perm(r.c.SMs) // SMs by distance
	first := 0
	if r.f.proxied() && !r.partial {
		first = 1 // its slot is the proxy's
		r.live++
	}
	for i := first; i < len(r.slots); i++ {
		if r.f.Kind != Persistent && r.next >= r.limit() {
			break
		}
		wave, at := i/r.c.SMs, i%r.c.SMs
		r.begin(int32(i), float64(wave)*30+r.c.Far*float64(order[at])/float64(r.c.SMs))
	}
	if first == 1 {
		r.live--
	}
}

// limit returns the number of tasks or units to hand out.
func (r *run) limit() uint64 {
	if r.f.Kind == EarlyExit {
		return r.units
	}
	return r.k.Tasks
}

// begin puts the next block into slot i, after a delay.
func (r *run) begin(i int32, delay float64) {
	s := &r.slots[i]
	s.left, s.fetches, s.fresh, s.first = 0, 0, true, true
	s.weight = 1 + r.c.Unequal*(2*r.rng.Float64()-1)
	switch r.f.Kind {
	case Original:
		r.next++
		s.left = 1
	case EarlyExit:
		g := uint64(r.f.group())
		s.left = int(min(g, r.k.Tasks-r.next*g))
		r.next++
	}
	r.live++
	if int(s.sm) < r.below {
		r.inBelow++
	}
	r.wait(i, starting, r.now+delay+r.c.Start)
}

// leave removes slot i's block and starts the next one if there is one.
func (r *run) leave(i int32) {
	s := &r.slots[i]
	s.phase = empty
	r.live--
	if int(s.sm) < r.below {
		if r.inBelow--; r.inBelow == 0 && r.now >= r.evictAt {
			r.gone = r.now
		}
	}
	if r.f.Kind != Persistent && r.next < r.limit() {
		r.begin(i, 0)
	}
}

func (r *run) wait(i int32, p phase, until float64) {
	r.slots[i].phase = p
	r.q.push(event{at: until, id: i})
}

// serve queues n requests at a line or bus that takes each time for one, and returns when the last
// is served.
func (r *run) serve(free *float64, n int, each float64) float64 {
	*free = max(*free, r.now) + float64(n)*each
	return *free
}

// readWord reads the evict word and returns when its value has arrived, without the block's
// agreement on it.
func (r *run) readWord() float64 {
	switch r.f.Word {
	case OwnLine, ProxyOne:
		return r.serve(&r.wordFree, 1, r.c.LineRead)
	case AllThreads, Proxy:
		return r.serve(&r.wordFree, r.k.Warps, r.c.LineRead)
	case BesideCounter:
		return r.serve(&r.counterFree, 1, r.c.LineMixed)
	}
	panic("blocks: a word in host memory is read by readHost")
}

// readHost makes slot i's block request the word over the bus. Nothing else proceeds in its SM
// until the word has arrived.
func (r *run) readHost(i int32) {
	s := &r.slots[i]
	s.phase = reading
	m := &r.sms[s.sm]
	m.waiting = append(m.waiting, i)
	r.addReads(s.sm, 1)
	if r.reading++; r.reading == 1 {
		r.grant()
	}
}

// grant gives the bus to the next waiting block, with SMs taking turns.
func (r *run) grant() {
	for len(r.sms[r.granted].waiting) == 0 {
		r.granted = (r.granted + 1) % len(r.sms)
	}
	m := &r.sms[r.granted]
	i := m.waiting[0]
	m.waiting = m.waiting[1:]
	r.granted = (r.granted + 1) % len(r.sms)
	n := 1
	if r.f.Word == HostMemoryAll {
		n = r.k.Warps
	}
	r.wait(i, reading, r.now+max(float64(n)*r.c.HostEach, r.c.HostRead))
}

// addReads changes an SM's number of reads of host memory by n.
func (r *run) addReads(id int32, n int) {
	m := &r.sms[id]
	r.settle(m)
	m.reads += n
	r.schedule(id)
}

// visible returns when blocks read the new word.
func (r *run) visible() float64 {
	switch r.f.Word {
	case HostMemory, HostMemoryAll:
		return r.evictAt + r.c.SeenHost
	case Proxy, ProxyOne:
		// At worst the proxy needs one and a half reads, and a write.
		return r.evictAt + r.c.SeenHost + 1.5*r.c.HostRead + r.c.Poll
	}
	return r.evictAt + r.c.Seen
}

func (r *run) evicted(s *slot) bool { return int(s.sm) < r.below && r.now >= r.visible() }

// poll makes slot i's early-exit block read the word.
func (r *run) poll(i int32) {
	if r.f.hosted() {
		r.readHost(i)
		return
	}
	r.wait(i, polling, r.readWord()+r.c.Poll)
}

// fetch makes slot i's persistent block fetch its next tasks, and poll if it is time to.
func (r *run) fetch(i int32) {
	s := &r.slots[i]
	s.polled = s.fetches%max(r.f.Every, 1) == 0
	s.fetches++
	switch {
	case s.polled && r.f.hosted():
		r.readHost(i)
	case s.polled:
		r.take(i, r.readWord()+r.c.PollBeside)
	default:
		r.take(i, r.now)
	}
}

// take makes slot i's block take tasks from the counter and continue when it also knows the word.
func (r *run) take(i int32, known float64) {
	each := r.c.LineAtomic
	if r.f.Word == BesideCounter {
		each = r.c.LineMixed
	}
	r.wait(i, fetching, max(known, r.serve(&r.counterFree, 1, each))+r.c.Fetch)
}

// task begins slot i's next task.
func (r *run) task(i int32) {
	if r.k.Latency <= 0 && r.k.Bytes <= 0 {
		r.issue(i)
		return
	}
	r.waits++
	wait := r.k.Latency + r.k.Bytes/r.c.Bandwidth*float64(r.waits)
	r.wait(i, waiting, r.now+wait*(1+r.c.Jitter*(2*r.rng.Float64()-1)))
}

// issue makes slot i's block issue its task's instructions.
func (r *run) issue(i int32) {
	s := &r.slots[i]
	s.phase = issuing
	rest := r.k.Issue + r.f.PerTask
	if s.fresh {
		rest += r.f.PerUnit
		s.fresh = false
	}
	if s.first {
		rest += r.f.PerBlock
		s.first = false
	}
	m := &r.sms[s.sm]
	r.settle(m)
	s.tag = m.virtual + rest/s.weight
	m.active = append(m.active, i)
	m.weight += s.weight
	r.schedule(s.sm)
}

// settle advances an SM's virtual time to now.
func (r *run) settle(m *sm) {
	if dt := r.now - m.since; dt > 0 && len(m.active) > 0 && m.reads == 0 {
		m.virtual += dt * r.fills[len(m.active)] / m.weight
	}
	m.since = r.now
}

// schedule computes when the first of an SM's blocks finishes issuing.
func (r *run) schedule(id int32) {
	m := &r.sms[id]
	if len(m.active) == 0 || m.reads > 0 {
		m.due = math.Inf(1)
		return
	}
	first := math.Inf(1)
	for _, i := range m.active {
		first = min(first, r.slots[i].tag)
	}
	m.due = r.now + max(first-m.virtual, 0)*m.weight/r.fills[len(m.active)]
	// If other blocks came since, this is later than the queued event, which then reschedules.
	if m.due < m.queued {
		m.queued = m.due
		r.q.push(event{at: m.due, id: ^id})
	}
}

// issued ends the tasks of an SM's blocks that have finished issuing.
func (r *run) issued(id int32) {
	m := &r.sms[id]
	m.queued = math.Inf(1)
	r.settle(m)
	const done = 1e-6
	for n := 0; n < len(m.active); {
		i := m.active[n]
		s := &r.slots[i]
		if s.tag > m.virtual+done {
			n++
			continue
		}
		m.active = append(m.active[:n], m.active[n+1:]...)
		if m.weight -= s.weight; len(m.active) == 0 {
			m.weight = 0
		}
		r.ended(i)
	}
	r.schedule(id)
}

// ended ends slot i's task.
func (r *run) ended(i int32) {
	s := &r.slots[i]
	r.done++
	r.tasksAt.reached(r.done, r.now)
	s.left--
	switch {
	case s.left > 0:
		r.task(i)
	case r.f.Kind == Persistent:
		r.fetch(i)
	default:
		r.leave(i)
	}
}

// step advances the run to its next event, and reports whether there was one.
func (r *run) step() bool {
	if len(r.q) == 0 {
		return false
	}
	e := r.q.pop()
	if e.id < 0 {
		if e.at == r.sms[^e.id].queued {
			r.now = e.at
			r.issued(^e.id)
		}
		return true
	}
	r.now = e.at
	i := e.id
	s := &r.slots[i]
	switch s.phase {
	case starting:
		switch {
		case r.f.Kind == EarlyExit:
			r.poll(i)
		default:
			r.wait(i, setting, r.now+r.k.Setup)
		}
	case reading:
		r.addReads(s.sm, -1)
		if r.reading--; r.reading > 0 {
			r.grant()
		}
		if r.f.Kind == EarlyExit {
			r.wait(i, polling, r.now+r.c.Poll)
		} else {
			r.take(i, r.now+r.c.PollBeside)
		}
	case polling:
		if r.evicted(s) {
			r.wait(i, recording, r.serve(&r.notesFree, 1, r.c.LineAtomic)+r.c.Note)
			break
		}
		r.wait(i, setting, r.now+r.k.Setup)
	case recording:
		r.skipped++
		r.skippedAt.reached(r.skipped, r.now)
		r.leave(i)
	case setting:
		if r.f.Kind == Persistent {
			r.fetch(i)
		} else {
			r.task(i)
		}
	case fetching:
		switch {
		case s.polled && r.evicted(s), r.next >= r.k.Tasks:
			// A real block polls before it fetches and leaves the counter alone; here the two
			// overlap.
			r.leave(i)
		default:
			n := min(uint64(r.f.group()), r.k.Tasks-r.next)
			r.next += n
			s.left, s.fresh = int(n), true
			r.task(i)
		}
	case waiting:
		r.waits--
		r.issue(i)
	}
	return true
}

// finish runs to the end.
func (r *run) finish() {
	for r.step() {
	}
}
