package tune

import (
	"time"

	"vgpud/mediator/vgpu/abi"
)

// MaxClasses bounds the classes of grids that a Tuner knows; the one that was not launched for the longest is dropped
// for another.
const MaxClasses = 16

// Tuner chooses for one kernel. Its memory is bounded.
type Tuner struct {
	params  Parameters
	forms   abi.PreemptForm
	classes []*class
	clock   uint64 // launches
	rounds  int
}

// New returns a tuner for a kernel that has these forms beside the original. No forms is a tuner that answers the
// original and measures nothing.
func New(p Parameters, forms abi.PreemptForm) *Tuner {
	return &Tuner{params: p.withDefaults(), forms: forms}
}

// Forms are the forms that the tuner chooses from.
func (t *Tuner) Forms() abi.PreemptForm { return t.forms }

// Rounds is how many rounds of measuring have ended. When it has changed, there is something new in Record.
func (t *Tuner) Rounds() int { return t.rounds }

// Ticket is a launch that was picked for. Its zero value is nobody's.
type Ticket struct {
	c       *class
	arm     int8
	measure bool // to measure its arm, in that round
	round   uint32
	tasks   uint64
}

// Measures reports whether how long the launch takes is of use; also of other launches Observe may be told.
func (k Ticket) Measures() bool { return k.measure }

// Measured reports whether launches of the same choice have been measured before, be it by an earlier tuner. Like the
// tuner's methods, it must not be called beside them.
func (k Ticket) Measured() bool { return k.c != nil && k.c.arms[k.arm].cost.n > 0 }

// class is what is known of a class of grids.
type class struct {
	Class
	slots    int
	basis    int     // slots for which the candidates were found
	rebased  int     // how often those turned out to be wrong
	tasks    uint64  // of the latest launch
	arms     []arm   // the original first
	ran      samples // nanoseconds a task that the original was on the GPU
	chosen   int
	why      Why
	round    uint32 // of measuring
	open     bool   // a round is under way
	spent    int    // launches that measured, ever
	since    int    // launches since the last round
	long     int    // a score of launches that took longer than the latency wanted
	used     uint64 // the tuner's clock at the latest launch
	launches uint64
}

// arm is a choice and what it was measured to cost, beside its time on the GPU also what its launches need before and
// after.
type arm struct {
	choice  abi.Preempt
	cost    samples       // nanoseconds a task
	left    int           // measurements still wanted in this round
	out     int           // launches under way that will be one
	chances int           // launches still allowed in this round to get the measurements
	proving uint32        // the latest round in which it was measured more often, to be sure of its cost
	fell    [bounds]uint8 // how often it was given up for breaking a bound
}

// chances is how many launches there may be for each measurement that is wanted: some are lost.
const chances = 3

// want has the arm measured that many times more in this round.
func (a *arm) want(times int) { a.left, a.chances = times, chances*times }

// Pick chooses for a launch. slots is how many of the kernel's blocks the GPU holds at once, as the driver says; 0 where
// it has not said yet, and the launch is an original that is not measured unless it was known before. The
// ticket must be given to Observe or Lost when the launch has ended, or could not begin.
func (t *Tuner) Pick(s Shape, slots int) (abi.Preempt, Ticket) {
	if t.forms == 0 || s.Tasks == 0 {
		return abi.Preempt{}, Ticket{}
	}
	c := t.class(s.Class(), slots > 0)
	if c == nil {
		return abi.Preempt{}, Ticket{}
	}
	t.clock++
	c.used, c.tasks = t.clock, s.Tasks
	if slots > 0 {
		c.slots = slots
	}
	c.launches++
	if c.basis > 0 && c.rebased < mostRebased && (5*c.slots < 4*c.basis || 4*c.slots > 5*c.basis) {
		c.rebased++
		t.explore(c)
	}
	if !c.open {
		c.since++
		if c.why != WhyShort && c.why != WhyNoForm && c.since > t.params.Again*c.spent {
			c.begin(t.params.Measure)
		}
	}
	i := c.next()
	if !Offered(c.arms[i].choice, t.forms, s.Tasks, c.slots) {
		i = 0
	}
	a := &c.arms[i]
	k := Ticket{c: c, arm: int8(i), round: c.round, tasks: s.Tasks, measure: c.open && a.left > a.out}
	if k.measure {
		a.out++
		a.chances--
		c.spent++
	}
	return a.choice, k
}

// class finds a class, or makes one if it may.
func (t *Tuner) class(key Class, may bool) *class {
	oldest := 0
	for i, c := range t.classes {
		if c.Class == key {
			return c
		}
		if c.used < t.classes[oldest].used {
			oldest = i
		}
	}
	if !may {
		return nil
	}
	c := &class{Class: key, arms: make([]arm, 1, 1+maxCandidates)}
	c.begin(t.params.Measure)
	if len(t.classes) < MaxClasses {
		t.classes = append(t.classes, c)
	} else {
		t.classes[oldest] = c
	}
	return c
}

// begin begins a round of measuring, each arm so many times.
func (c *class) begin(times int) {
	c.open, c.since = true, 0
	c.round++
	for i := range c.arms {
		c.arms[i].out = 0
		c.arms[i].want(times)
	}
}

// next is the arm to launch: in a round, the one that was launched least of those that are to be measured, so that all
// are measured under the same conditions; else the chosen.
func (c *class) next() int {
	if !c.open {
		return c.chosen
	}
	best := -1
	for i := range c.arms {
		a := &c.arms[i]
		if a.left > a.out && a.chances > 0 && (best < 0 || a.chances > c.arms[best].chances) {
			best = i
		}
	}
	if best < 0 {
		return c.chosen // what was launched to measure has not ended yet
	}
	return best
}

// Observe tells how long a launch that Pick chose for ran on the GPU, where that is all it cost.
func (t *Tuner) Observe(k Ticket, ran time.Duration) { t.ObserveCost(k, ran, ran) }

// ObserveCost is Observe for a launch that cost more than its time on the GPU: the GPU may have waited until it was found
// to be done.
func (t *Tuner) ObserveCost(k Ticket, ran, cost time.Duration) {
	if k.c == nil {
		return
	}
	if ran <= 0 {
		t.Lost(k)
		return
	}
	c := k.c
	if k.arm == 0 {
		if ran > t.params.Latency {
			c.long = min(c.long+1, 2*t.params.Measure)
		} else {
			c.long = max(c.long-1, 0)
		}
	}
	if k.measure && c.open && k.round == c.round {
		// Only these count: all arms are measured by as many launches of each round, so that they stay comparable
		// when what the launches have to do changes.
		a := &c.arms[k.arm]
		a.cost.add(perTask(max(cost, ran), k.tasks))
		if k.arm == 0 {
			c.ran.add(perTask(ran, k.tasks))
		}
		a.out, a.left = max(a.out-1, 0), max(a.left-1, 0)
		t.abandon(c, a)
		t.advance(c)
	}
	if !c.open && c.why == WhyShort && c.long >= t.params.Measure {
		// It was short and is not any more: all is measured anew.
		c.arms[0].cost, c.ran = samples{}, samples{}
		c.why = WhyMeasuring
		c.begin(t.params.Measure)
	}
}

// Lost tells that a launch that Pick chose for ended in a way that says nothing about its cost: it failed, was taken
// off the GPU meanwhile, or was not timed.
func (t *Tuner) Lost(k Ticket) {
	if c := k.c; c != nil && k.measure && c.open && k.round == c.round {
		c.arms[k.arm].out = max(c.arms[k.arm].out-1, 0)
		t.advance(c)
	}
}

// abandon stops measuring what is far too dear.
func (t *Tuner) abandon(c *class, a *arm) {
	const farTooDear = 1.25
	if base := &c.arms[0].cost; a != &c.arms[0] && base.n > 0 && a.cost.n >= 2 && a.cost.low() > farTooDear*base.low() {
		a.left = 0
	}
}

// advance ends a round when all is measured that will be.
func (t *Tuner) advance(c *class) {
	for i := range c.arms {
		a := &c.arms[i]
		if a.left > 0 && (a.out > 0 || a.chances > 0) {
			return
		}
	}
	var all ratings
	var best int
	if c.arms[0].cost.n > 0 && len(c.arms) > 1 {
		var doubted int
		if all, best, doubted = t.decide(c); doubted > 0 {
			t.prove(c, doubted)
			return
		}
	}
	c.open, c.since = false, 0
	t.rounds++
	switch base := &c.arms[0].cost; {
	case base.n == 0:
		c.chosen, c.why = 0, WhyUnmeasured
	case len(c.arms) > 1:
		c.choose(best, &all)
	case c.long < max(t.params.Measure/2, 1):
		c.chosen, c.why = 0, WhyShort
	default:
		t.explore(c)
	}
}

// mostRebased bounds how often candidates are found anew since the GPU holds more or fewer blocks than was said.
const mostRebased = 3

// explore begins to measure the candidates.
func (t *Tuner) explore(c *class) {
	c.basis, c.chosen = c.slots, 0
	c.arms = c.arms[:1]
	for _, choice := range t.params.of(c.Threads).candidates(t.forms, c.taskTime(), c.tasks, c.slots) {
		c.arms = append(c.arms, arm{choice: choice})
	}
	if len(c.arms) == 1 {
		c.open, c.chosen, c.why = false, 0, WhyNoForm
		return
	}
	c.begin(t.params.Measure)
}

// taskTime is how long a task of the original is in its slot.
func (c *class) taskTime() time.Duration {
	return time.Duration(c.ran.low() * float64(min(c.tasks, uint64(c.slots))))
}
