package tune

import (
	"slices"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// MaxClasses bounds the classes of grids that a Tuner keeps. The class that was not launched for
// the longest is replaced.
const MaxClasses = 16

// Tuner chooses the form of one kernel's launches. Its memory is bounded.
type Tuner struct {
	params  Parameters
	forms   abi.PreemptForm
	classes []*class
	clock   uint64 // launches
	rounds  int
}

// New returns a tuner for a kernel that has these forms beside the original. Without forms it
// always chooses the original and measures nothing.
func New(p Parameters, forms abi.PreemptForm) *Tuner {
	return &Tuner{params: p.withDefaults(), forms: forms}
}

// Rounds returns how many rounds of measuring have ended. When it changes, Record has something
// new.
func (t *Tuner) Rounds() int { return t.rounds }

// Ticket identifies a launch for which Pick chose. The zero Ticket stands for no launch.
type Ticket struct {
	c       *class
	arm     int8
	measure bool // the launch measures its arm, in that round
	round   uint32
	tasks   uint64
}

// Measured reports whether launches of the same choice have been measured before, perhaps by an
// earlier tuner. It must not run concurrently with the tuner's methods.
func (k Ticket) Measured() bool { return k.c != nil && k.c.arms[k.arm].cost.n > 0 }

// class is what is known of a class of grids.
type class struct {
	Class
	slots          int
	candidateSlots int     // slots for which the candidates were found
	reexplored     int     // how often that number turned out to be wrong
	tasks          uint64  // of the latest launch
	arms           []arm   // the original first
	known          []arm   // what was measured of arms, up to maxKnown, when something else was wanted
	ran            samples // nanoseconds per task of the original on the GPU
	chosen         int
	why            Why
	round          uint32 // of measuring
	postponed      int    // launches of this round that were to measure but could not yet
	measuring      bool   // a round is under way
	measured       int    // launches that measured, in total
	sinceRound     int    // launches since the last round
	longScore      int    // a score of launches that took longer than the wanted latency
	lastUsed       uint64 // the tuner's clock at the latest launch
	launches       uint64
}

// arm is a choice and its measured cost, which beside the time on the GPU includes what launches
// need before and after.
type arm struct {
	choice      abi.Preempt
	cost        samples       // nanoseconds per task
	remaining   int           // measurements still wanted in this round
	inFlight    int           // launches under way that will be one
	attempts    int           // launches still allowed in this round to get the measurements
	provenRound uint32        // the latest round in which it was measured more often, to be sure of its cost
	dropped     [bounds]uint8 // how often it was dropped for breaking each bound
}

// maxKnown bounds the arms that a class remembers: those for two sets of parameters.
const maxKnown = 2 * maxCandidates

// attemptsPer is how many launches may be spent on each wanted measurement: some are discarded.
const attemptsPer = 3

// schedule asks for that many more measurements of the arm in this round.
func (a *arm) schedule(times int) { a.remaining, a.attempts = times, attemptsPer*times }

// SetWanted replaces the parameters. Choices for other parameters are made anew, by what was measured
// already and, of other candidates, by what a round measures.
func (t *Tuner) SetWanted(p Parameters) {
	if p = p.withDefaults(); p == t.params {
		return
	}
	t.params = p
	for _, c := range t.classes {
		switch base := &c.arms[0].cost; {
		case base.n == 0 || t.forms == 0:
		case c.original() <= p.Latency:
			c.arms, c.chosen, c.why, c.longScore = c.arms[:1], 0, WhyShort, 0
			c.measuring, c.sinceRound = false, 0
			c.round++
		default:
			c.longScore, c.why = t.params.Measure, WhyMeasuring
			c.remember()
			t.explore(c)
			t.recollect(c)
		}
	}
}

// remember keeps what was measured of a class's arms beside the original.
func (c *class) remember() {
	for _, a := range c.arms[1:] {
		if a.cost.n == 0 {
			continue
		}
		c.known = slices.DeleteFunc(c.known, func(k arm) bool { return k.choice == a.choice })
		c.known = append(c.known, arm{choice: a.choice, cost: a.cost})
	}
	c.known = c.known[max(len(c.known)-maxKnown, 0):]
}

// recollect has a round that begins measure only what is not known.
func (t *Tuner) recollect(c *class) {
	if !c.measuring {
		return
	}
	for i := range c.arms {
		a := &c.arms[i]
		if j := slices.IndexFunc(c.known, func(k arm) bool { return k.choice == a.choice }); j >= 0 {
			a.cost = c.known[j].cost
		}
		if a.cost.n > 0 {
			a.remaining = 0
		}
	}
	t.advance(c)
}

// original returns how long the original takes with the latest grid.
func (c *class) original() time.Duration { return time.Duration(c.ran.low() * float64(c.tasks)) }

// Pick chooses the form of a launch. slots is how many of the kernel's blocks the GPU holds at
// once; if it is 0, for unknown, an unknown class gets the original, unmeasured. The ticket must be
// given to Observe, Discard or Postpone when the launch has ended or could not start. Launches that
// [Parameters.AtOnce] has go in a form measure nothing.
func (t *Tuner) Pick(s Shape, slots int) (abi.Preempt, Ticket) {
	if t.forms == 0 || s.Tasks == 0 {
		return abi.Preempt{}, Ticket{}
	}
	c := t.class(s.Class(), slots > 0)
	if c == nil {
		return abi.Preempt{}, Ticket{}
	}
	t.clock++
	c.lastUsed, c.tasks = t.clock, s.Tasks
	if slots > 0 {
		c.slots = slots
	}
	c.launches++
	if t.params.AtOnce && c.new() {
		if choice := first(t.forms, s.Tasks, c.slots); choice.Form != 0 {
			return choice, Ticket{}
		}
	}
	if c.candidateSlots > 0 && c.reexplored < maxReexplored && (5*c.slots < 4*c.candidateSlots || 4*c.slots > 5*c.candidateSlots) {
		c.reexplored++
		t.explore(c)
	}
	if !c.measuring {
		c.sinceRound++
		if c.why != WhyShort && c.why != WhyNoForm && c.why != WhySuspended && c.sinceRound > t.params.Again*c.measured {
			c.startRound(t.params.Measure)
		}
	}
	i := c.nextArm()
	if !Offered(c.arms[i].choice, t.forms, s.Tasks, c.slots) {
		i = 0
	}
	a := &c.arms[i]
	k := Ticket{c: c, arm: int8(i), round: c.round, tasks: s.Tasks, measure: c.measuring && a.remaining > a.inFlight}
	if k.measure {
		a.inFlight++
		a.attempts--
		c.measured++
	}
	return a.choice, k
}

// AtOnce reports whether the next launch is the first of its class, and goes in a form if the kernel
// has one for it and slots are known.
func (t *Tuner) AtOnce(s Shape) bool {
	if !t.params.AtOnce || t.forms == 0 || s.Tasks == 0 {
		return false
	}
	key := s.Class()
	for _, c := range t.classes {
		if c.Class == key {
			return false
		}
	}
	return true
}

// new reports whether nothing is known of the class: this is its first launch.
func (c *class) new() bool { return c.launches == 1 && c.arms[0].cost.n == 0 }

// class finds a class, or creates it if may is true.
func (t *Tuner) class(key Class, may bool) *class {
	oldest := 0
	for i, c := range t.classes {
		if c.Class == key {
			return c
		}
		if c.lastUsed < t.classes[oldest].lastUsed {
			oldest = i
		}
	}
	if !may {
		return nil
	}
	c := &class{Class: key, arms: make([]arm, 1, 1+maxCandidates)}
	c.startRound(t.params.Measure)
	if len(t.classes) < MaxClasses {
		t.classes = append(t.classes, c)
	} else {
		t.classes[oldest] = c
	}
	return c
}

// startRound starts a round of measuring each arm that many times.
func (c *class) startRound(times int) {
	c.measuring, c.sinceRound, c.postponed = true, 0, 0
	c.round++
	for i := range c.arms {
		c.arms[i].inFlight = 0
		c.arms[i].schedule(times)
	}
}

// nextArm returns the arm to launch: in a round, of those yet to be measured the one that was
// launched least, so that all are measured under the same conditions; otherwise the chosen one.
func (c *class) nextArm() int {
	if !c.measuring {
		return c.chosen
	}
	best := -1
	for i := range c.arms {
		a := &c.arms[i]
		if a.remaining > a.inFlight && a.attempts > 0 && (best < 0 || a.attempts > c.arms[best].attempts) {
			best = i
		}
	}
	if best < 0 {
		return c.chosen // the launches that measure have not ended yet
	}
	return best
}

// Observe records the end of a launch: ran is its time on the GPU, cost that with what it needed
// beside, since the GPU may have waited until the end was noticed.
func (t *Tuner) Observe(k Ticket, ran, cost time.Duration) {
	if k.c == nil {
		return
	}
	if ran <= 0 {
		t.Discard(k)
		return
	}
	c := k.c
	if k.arm == 0 {
		if ran > t.params.Latency {
			c.longScore = min(c.longScore+1, 2*t.params.Measure)
		} else {
			c.longScore = max(c.longScore-1, 0)
		}
	}
	if k.measure && c.measuring && k.round == c.round {
		// Only these count: all arms are measured by equally many launches of each round, so that
		// they stay comparable when the work of the launches changes.
		a := &c.arms[k.arm]
		a.cost.add(perTask(max(cost, ran), k.tasks))
		if k.arm == 0 {
			c.ran.add(perTask(ran, k.tasks))
		}
		a.inFlight, a.remaining = max(a.inFlight-1, 0), max(a.remaining-1, 0)
		t.abandon(c, a)
		t.advance(c)
	}
	if !c.measuring && c.why == WhyShort && c.longScore >= t.params.Measure {
		// It was short and no longer is: measure everything again.
		c.arms[0].cost, c.ran = samples{}, samples{}
		c.why = WhyMeasuring
		c.startRound(t.params.Measure)
	}
}

// Discard records that a launch ended in a way that says nothing about its cost: it failed, was
// evicted, or was not timed.
func (t *Tuner) Discard(k Ticket) {
	if c := k.c; c != nil && k.measure && c.measuring && k.round == c.round {
		c.arms[k.arm].inFlight = max(c.arms[k.arm].inFlight-1, 0)
		t.advance(c)
	}
}

// maxPostponed bounds the launches of a round that are postponed, should what they wait for not come.
const maxPostponed = 4096

// Postpone is Discard for a launch that went as the original because it is not known yet whether the
// choice can be launched. A later launch measures the choice instead, so that a program that
// launches before that is known does not use up the attempts to measure.
func (t *Tuner) Postpone(k Ticket) {
	c := k.c
	if c == nil || !k.measure || !c.measuring || k.round != c.round || c.postponed == maxPostponed {
		t.Discard(k)
		return
	}
	c.postponed++
	c.measured--
	a := &c.arms[k.arm]
	a.inFlight = max(a.inFlight-1, 0)
	a.attempts++
}

// abandon stops measuring an arm that is far too costly.
func (t *Tuner) abandon(c *class, a *arm) {
	const farTooDear = 1.25
	if base := &c.arms[0].cost; a != &c.arms[0] && base.n > 0 && a.cost.n >= 2 && a.cost.low() > farTooDear*base.low() {
		a.remaining = 0
	}
}

// advance ends a round when no more measurements are to come.
func (t *Tuner) advance(c *class) {
	for i := range c.arms {
		a := &c.arms[i]
		if a.remaining > 0 && (a.inFlight > 0 || a.attempts > 0) {
			return
		}
	}
	var all ratings
	var best int
	if c.arms[0].cost.n > 0 && len(c.arms) > 1 {
		var doubted int
		if all, best, doubted = t.decide(c); doubted > 0 {
			t.measureMore(c, doubted)
			return
		}
	}
	c.measuring, c.sinceRound = false, 0
	t.rounds++
	switch base := &c.arms[0].cost; {
	case base.n == 0:
		c.chosen, c.why = 0, WhyUnmeasured
	case len(c.arms) > 1:
		c.finishRound(best, &all)
	case c.longScore < max(t.params.Measure/2, 1):
		c.chosen, c.why = 0, WhyShort
	default:
		t.explore(c)
	}
}

// maxReexplored bounds how often new candidates are found because the GPU holds more or fewer
// blocks than was reported.
const maxReexplored = 3

// explore starts to measure the candidates.
func (t *Tuner) explore(c *class) {
	c.candidateSlots, c.chosen = c.slots, 0
	c.arms = c.arms[:1]
	for _, choice := range t.params.of(c.Threads).candidates(t.forms, c.taskTime(), c.tasks, c.slots) {
		c.arms = append(c.arms, arm{choice: choice})
	}
	if len(c.arms) == 1 {
		c.measuring, c.chosen, c.why = false, 0, WhyNoForm
		if t.params.leavesToHardware(c.taskTime()) {
			c.why = WhySuspended
		}
		return
	}
	c.startRound(t.params.Measure)
}

// taskTime returns how long a task of the original takes in its slot.
func (c *class) taskTime() time.Duration {
	return time.Duration(c.ran.low() * float64(min(c.tasks, uint64(c.slots))))
}
