package blocks

import (
	"math"
	"math/rand/v2"
)

// phase is what a slot's block waits for.
type phase uint8

const (
	empty    phase = iota
	starting       // its first instruction
	reading        // the word in host memory, which keeps its SM's others from going on
	looking        // the word
	noting         // the atomic that notes its unit as skipped
	fetching       // the counter, and the word where it looks too
	setting        // what it does once
	waiting        // memory, for a task
	issuing        // its turns to issue, for a task
)

// slot is room for one block on an SM.
type slot struct {
	sm      int32
	phase   phase
	left    int     // tasks of the unit
	fetches int     // of a persistent block
	looked  bool    // with the fetch that is under way
	fresh   bool    // the unit's first task is to come, with what that issues once
	first   bool    // the block's first unit is to come
	weight  float64 // how fast it issues, against others
	tag     float64 // the SM's turn at which it has issued what it had to
}

// sm is a streaming multiprocessor. Its blocks that issue share its turns by weight: a block of weight 1 issues as much
// as the turn goes on, and none does while a read of host memory is under way (see [Costs.HostRead]).
type sm struct {
	reads  int     // of host memory, under way or asked for
	asks   []int32 // slots whose blocks ask for the bus
	active []int32 // slots whose blocks issue
	weight float64 // of those together
	turn   float64
	since  float64 // when turn was right
	due    float64 // when the first of them is done, as things stand
	queued float64 // of the event that is in the queue for it
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

	next    uint64 // task or unit to hand out
	units   uint64
	done    uint64 // tasks
	skipped uint64 // units
	live    int
	waits   int // blocks that wait for memory

	wordFree, counterFree, notesFree float64 // when each line is free again

	asking  int // blocks that read host memory, one of them now
	granted int // the SM that has the bus next if it asks

	evictAt float64 // when the word is written
	below   int     // SMs with a lower number are asked to leave
	inBelow int     // slots of those that have a block
	gone    float64 // when inBelow became 0 after the eviction
	fills   []float64

	tasksAt, skippedAt marks

	partial bool // a part of the GPU: too small for a proxy
}

// marks are when two numbers were reached.
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

// each is how long one more took between the two.
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

// start launches the grid with the given number of tasks done already.
func (r *run) start(done uint64) {
	r.done = done
	r.next = done
	if r.f.Kind == EarlyExit {
		r.next = done / uint64(r.f.group())
		r.done = r.next * uint64(r.f.group())
	}
	order := r.rng.Perm(r.c.SMs) // SMs by their distance
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

// limit is how many tasks or units there are to hand out.
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

// leave takes slot i's block off and puts another there if there is one.
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

// serve queues n requests at a line or bus that takes each for so long, and returns when the last is served.
func (r *run) serve(free *float64, n int, each float64) float64 {
	*free = max(*free, r.now) + float64(n)*each
	return *free
}

// askWord reads the evict word and returns when its value is there, without the block's agreement on it.
func (r *run) askWord() float64 {
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

// readHost has slot i's block ask for the word over the bus. Until that is back nothing else goes on in its SM.
func (r *run) readHost(i int32) {
	s := &r.slots[i]
	s.phase = reading
	m := &r.sms[s.sm]
	m.asks = append(m.asks, i)
	r.hold(s.sm, 1)
	if r.asking++; r.asking == 1 {
		r.grant()
	}
}

// grant gives the bus to the next block that asks for it, of each SM in turn.
func (r *run) grant() {
	for len(r.sms[r.granted].asks) == 0 {
		r.granted = (r.granted + 1) % len(r.sms)
	}
	m := &r.sms[r.granted]
	i := m.asks[0]
	m.asks = m.asks[1:]
	r.granted = (r.granted + 1) % len(r.sms)
	n := 1
	if r.f.Word == HostMemoryAll {
		n = r.k.Warps
	}
	r.wait(i, reading, r.now+max(float64(n)*r.c.HostEach, r.c.HostRead))
}

// hold tells an SM of n reads of host memory more, or fewer.
func (r *run) hold(id int32, n int) {
	m := &r.sms[id]
	r.settle(m)
	m.reads += n
	r.foresee(id)
}

// visible is when blocks read the new word.
func (r *run) visible() float64 {
	switch r.f.Word {
	case HostMemory, HostMemoryAll:
		return r.evictAt + r.c.SeenHost
	case Proxy, ProxyOne:
		// The proxy's next read but one at worst, and its write.
		return r.evictAt + r.c.SeenHost + 1.5*r.c.HostRead + r.c.Look
	}
	return r.evictAt + r.c.Seen
}

func (r *run) evicted(s *slot) bool { return int(s.sm) < r.below && r.now >= r.visible() }

// look has slot i's early-exit block read the word.
func (r *run) look(i int32) {
	if r.f.hosted() {
		r.readHost(i)
		return
	}
	r.wait(i, looking, r.askWord()+r.c.Look)
}

// fetch has slot i's persistent block fetch its next tasks, and look where it is time to.
func (r *run) fetch(i int32) {
	s := &r.slots[i]
	s.looked = s.fetches%max(r.f.Every, 1) == 0
	s.fetches++
	switch {
	case s.looked && r.f.hosted():
		r.readHost(i)
	case s.looked:
		r.draw(i, r.askWord()+r.c.LookBeside)
	default:
		r.draw(i, r.now)
	}
}

// draw has slot i's block take tasks from the counter, and go on with them when it knows the word too.
func (r *run) draw(i int32, known float64) {
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

// issue has slot i's block take its turns.
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
	s.tag = m.turn + rest/s.weight
	m.active = append(m.active, i)
	m.weight += s.weight
	r.foresee(s.sm)
}

// settle brings an SM's turn up to now.
func (r *run) settle(m *sm) {
	if dt := r.now - m.since; dt > 0 && len(m.active) > 0 && m.reads == 0 {
		m.turn += dt * r.fills[len(m.active)] / m.weight
	}
	m.since = r.now
}

// foresee finds out when the first of an SM's blocks is done issuing.
func (r *run) foresee(id int32) {
	m := &r.sms[id]
	if len(m.active) == 0 || m.reads > 0 {
		m.due = math.Inf(1)
		return
	}
	first := math.Inf(1)
	for _, i := range m.active {
		first = min(first, r.slots[i].tag)
	}
	m.due = r.now + max(first-m.turn, 0)*m.weight/r.fills[len(m.active)]
	// When others came since, it is later than the event that is queued, and that one finds out.
	if m.due < m.queued {
		m.queued = m.due
		r.q.push(event{at: m.due, id: ^id})
	}
}

// issued ends the issuing of those of an SM's blocks that have nothing left to.
func (r *run) issued(id int32) {
	m := &r.sms[id]
	m.queued = math.Inf(1)
	r.settle(m)
	const done = 1e-6
	for n := 0; n < len(m.active); {
		i := m.active[n]
		s := &r.slots[i]
		if s.tag > m.turn+done {
			n++
			continue
		}
		m.active = append(m.active[:n], m.active[n+1:]...)
		if m.weight -= s.weight; len(m.active) == 0 {
			m.weight = 0
		}
		r.ended(i)
	}
	r.foresee(id)
}

// ended is a task's end.
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

// step carries the run to its next event, and reports whether there was one.
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
			r.look(i)
		default:
			r.wait(i, setting, r.now+r.k.Setup)
		}
	case reading:
		r.hold(s.sm, -1)
		if r.asking--; r.asking > 0 {
			r.grant()
		}
		if r.f.Kind == EarlyExit {
			r.wait(i, looking, r.now+r.c.Look)
		} else {
			r.draw(i, r.now+r.c.LookBeside)
		}
	case looking:
		if r.evicted(s) {
			r.wait(i, noting, r.serve(&r.notesFree, 1, r.c.LineAtomic)+r.c.Note)
			break
		}
		r.wait(i, setting, r.now+r.k.Setup)
	case noting:
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
		case s.looked && r.evicted(s), r.next >= r.k.Tasks:
			// A real block looks before it fetches and leaves the counter alone; here the two overlap.
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
