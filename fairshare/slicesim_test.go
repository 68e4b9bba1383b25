package fairshare_test

import (
	"math"
	"math/rand/v2"
	"time"

	"vgpud/fairshare"
)

// slicedGuest is a guest of a GPU that time-slices contexts.
type slicedGuest struct {
	id          fairshare.GuestID
	weight      float64
	quota       fairshare.Quota
	contexts    []*slicedContext
	used        time.Duration
	noWork      time.Duration
	told        slicedCounts // when the policy was last told
	suspended   bool
	heldAt      time.Duration
	suspensions int
	slice       time.Duration
}

// slicedCounts are the counters whose changes the policy gets.
type slicedCounts struct{ used, noWork time.Duration }

// slicedContext is a channel group. Its executor keeps launches on the GPU: at least sixteen, and
// up to sixty that take 8 ms together.
type slicedContext struct {
	g      *slicedGuest
	length func() time.Duration // of the next kernel
	think  time.Duration        // between a kernel's end and the next launch; 0: it always has more
	batch  int                  // how many it launches before it waits for them and thinks; 0: 1
	depth  int                  // how many are on the GPU at most; 0: its executor's limit
	queue  []time.Duration      // what is on the GPU
	full   bool                 // nothing has ended since its executor filled the queue
	next   time.Duration        // when the executor launches more, if something has ended
	loads  time.Duration        // for how long before its first launch it has work that needs no GPU
	ended  int                  // kernels
	since  time.Duration        // when it began to wait for its turn
	slept  bool                 // it waited so long that its executor and its program slept
	spans  uint64               // turns, since the policy was last told
}

// slicedGPU takes turns among contexts with work, as an H100 does. A turn ends with its slice, or
// when the work ends that was there when it began, even if more has arrived since. Each switch
// takes its time.
type slicedGPU struct {
	now      time.Duration
	guests   []*slicedGuest
	contexts []*slicedContext
	turn     int
	// current has the GPU for the remaining slice, left, once the switch to it is over.
	current   *slicedContext
	left      time.Duration
	fetched   int // launches that were there when its turn began
	switching time.Duration
	busy      time.Duration
	idle      time.Duration
	idled     time.Duration // idle time when the policy was last told
	toldAt    time.Duration // when the policy was last told
	resting   bool          // no guest had work then
	sets      int           // number of slices set
	cost      time.Duration // of a switch
	deep      time.Duration // after which a suspended guest's work is taken off the GPU; below 0: never
	policy    fairshare.Policy
	rand      *rand.Rand
}

const (
	// refill is how long an executor takes to notice a kernel's end and launch another.
	refill = 40 * us
	// wakeup is how much longer that takes if both slept, as they do after pollFor.
	wakeup     = 140 * us
	pollFor    = 200 * us
	switching  = 82 * us
	sliceRound = 20 * ms
	// restingRound is a round's length while no guest has work.
	restingRound = 80 * ms
)

func newSlicedGPU(seed uint64, guests ...*slicedGuest) *slicedGPU {
	return newSlicedGPUUnder("dfq", seed, guests...)
}

func newSlicedGPUUnder(policy string, seed uint64, guests ...*slicedGuest) *slicedGPU {
	p, err := fairshare.New(policy, fairshare.Options{})
	if err != nil {
		panic(err)
	}
	s := &slicedGPU{policy: fairshare.Bound(p), rand: rand.New(rand.NewPCG(seed, 3)), cost: switching}
	for i, g := range guests {
		g.id, g.slice = fairshare.GuestID(i+1), fairshare.DefaultSlice
		s.guests = append(s.guests, g)
		for _, c := range g.contexts {
			c.g = g
			s.contexts = append(s.contexts, c)
		}
	}
	return s
}

// feed lets executors put launches on the GPU.
func (s *slicedGPU) feed() {
	for _, c := range s.contexts {
		if c.g.suspended || c.full || c.next > s.now {
			continue
		}
		c.full = true
		if len(c.queue) == 0 {
			c.since = s.now
		}
		if c.think > 0 {
			if len(c.queue) == 0 {
				for range max(c.batch, 1) {
					c.queue = append(c.queue, c.length())
				}
			}
			continue
		}
		var sum time.Duration
		for _, k := range c.queue {
			sum += k
		}
		least := c.depth
		if least == 0 {
			least = 16
		}
		for len(c.queue) < least || c.depth == 0 && len(c.queue) < 60 && sum < 8*ms {
			k := c.length()
			c.queue = append(c.queue, k)
			sum += k
		}
	}
}

// works reports whether c has work, on the GPU or not.
func (s *slicedGPU) works(c *slicedContext) bool {
	if c.ended == 0 && s.now >= c.next-c.loads {
		return true
	}
	return len(c.queue) > 0 || c.think == 0 && c.next <= s.now+refill || c.next <= s.now
}

// runnable reports whether c could have the GPU.
func (s *slicedGPU) runnable(c *slicedContext) bool {
	off := c.g.suspended && s.deep >= 0 && s.now >= c.g.heldAt+s.deep
	return len(c.queue) > 0 && !off
}

// run advances the simulation to time t.
func (s *slicedGPU) run(t time.Duration) {
	for s.now < t {
		s.feed()
		before := s.now
		s.step(t)
		for _, g := range s.guests {
			if len(g.contexts) == 1 && !s.works(g.contexts[0]) {
				g.noWork += s.now - before
			}
		}
	}
}

// step runs until the next event, or t.
func (s *slicedGPU) step(t time.Duration) {
	switch {
	case s.switching > 0:
		step := min(s.switching, t-s.now)
		s.now, s.switching = s.now+step, s.switching-step
	case s.current != nil && s.runnable(s.current) && s.left > 0 && s.fetched > 0:
		s.execute(s.current, t)
	default:
		s.next()
	}
}

// next gives the GPU to the next context with work, or leaves it idle for a while.
func (s *slicedGPU) next() {
	for range s.contexts {
		s.turn = (s.turn + 1) % len(s.contexts)
		c := s.contexts[s.turn]
		if !s.runnable(c) {
			continue
		}
		if s.current != c {
			if s.current != nil && len(s.current.queue) > 0 {
				s.current.since = s.now
			}
			s.switching = s.cost
			c.spans++
			c.slept = s.now+s.cost-c.since > pollFor
		}
		s.current, s.left = c, c.g.slice
		s.fetched = len(c.queue)
		return
	}
	s.idle += 10 * us
	s.now += 10 * us
}

// execute runs a context's oldest kernel until its end, the slice's, or t.
func (s *slicedGPU) execute(c *slicedContext, t time.Duration) {
	step := min(t-s.now, s.left, c.queue[0])
	if !c.full && c.next > s.now {
		step = min(step, c.next-s.now)
	}
	s.now += step
	s.left -= step
	c.g.used += step
	s.busy += step
	if c.queue[0] -= step; c.queue[0] == 0 {
		s.fetched--
		c.ended++
		if c.queue = c.queue[1:]; c.full && (c.think == 0 || len(c.queue) == 0) {
			c.full, c.next = false, s.now+refill+c.think
			if c.slept && len(c.queue) == 0 {
				c.next += wakeup
			}
			c.slept = false
		}
	}
}

// round runs one round.
func (s *slicedGPU) round() {
	s.run(s.toldAt + sliceRound)
	s.tell()
}

// until runs until t, which may be in the middle of a round. A round in which no guest had work is
// followed by a longer one.
func (s *slicedGPU) until(t time.Duration) {
	for s.now < t {
		due := s.toldAt + sliceRound
		if s.resting {
			due = s.toldAt + restingRound
		}
		if s.run(min(due, t)); s.now >= due {
			s.tell()
		}
	}
}

// tell reports the ended round to the policy, as a polling phase.
func (s *slicedGPU) tell() {
	length := s.now - s.toldAt
	s.toldAt, s.resting = s.now, true
	st := fairshare.State{Round: sliceRound, Slices: limits}
	for _, g := range s.guests {
		used, noWork := g.used-g.told.used, g.noWork-g.told.noWork
		g.told = slicedCounts{g.used, g.noWork}
		work, groups, spans := false, 0, uint64(0)
		for _, c := range g.contexts {
			if s.works(c) {
				work = true
				groups++
			}
			if c == s.current {
				c.spans++ // which goes on
			}
			spans += c.spans
			c.spans = 0
		}
		if g.suspended {
			noWork = 0 // how much of its work waits elsewhere is not known
		}
		// The error of accounting.
		seen := time.Duration(float64(used) * (1 + 0.01*(2*s.rand.Float64()-1)))
		s.resting = s.resting && !work && used == 0
		st.Guests = append(st.Guests, fairshare.Guest{
			ID: g.id, Weight: g.weight, Quota: g.quota, Used: seen, Active: work || used > 0, Backlogged: work, Suspended: g.suspended, Groups: groups,
			Idle: s.idle - s.idled, Runs: spans, NoWork: noWork,
		})
	}
	s.idled = s.idle
	verdicts, _ := s.policy.Decide(s.now, fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: length, Watched: length, Spread: true}, st)
	for _, v := range verdicts {
		g := s.guests[v.Guest-1]
		switch v.Action {
		case fairshare.Slice:
			if math.Abs(float64(v.Slice-g.slice)) > 0.05*float64(g.slice) {
				s.sets++
				g.slice = v.Slice
			}
		case fairshare.Suspend:
			g.suspensions++
			g.suspended, g.heldAt = true, s.now
		case fairshare.Resume:
			g.suspended = false
		}
	}
}

// shares returns the guests' fractions of the time used over d, and the fraction of d in which the
// GPU executed.
func (s *slicedGPU) shares(d time.Duration) (parts []float64, busy float64) {
	before := make([]time.Duration, len(s.guests))
	var sum time.Duration
	for i, g := range s.guests {
		before[i] = g.used
	}
	start, was := s.now, s.busy
	for s.now < start+d {
		s.round()
	}
	for i, g := range s.guests {
		sum += g.used - before[i]
	}
	for i, g := range s.guests {
		parts = append(parts, float64(g.used-before[i])/float64(sum))
	}
	return parts, float64(s.busy-was) / float64(s.now-start)
}

// around returns a function that draws a kernel's length within a tenth of d.
func around(r *rand.Rand, d time.Duration) func() time.Duration {
	return func() time.Duration { return time.Duration(float64(d) * (0.95 + 0.1*r.Float64())) }
}

// saturating returns a guest that always has kernels of one length, in some contexts.
func saturating(r *rand.Rand, weight float64, contexts int, length time.Duration) *slicedGuest {
	g := &slicedGuest{weight: weight}
	for range contexts {
		g.contexts = append(g.contexts, &slicedContext{length: around(r, length)})
	}
	return g
}
