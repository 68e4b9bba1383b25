package tune

import (
	"cmp"
	"slices"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Report describes the choice for a class of grids.
type Report struct {
	Class
	// Choice is how launches go, the zero value for the original, and Why says why.
	Choice abi.Preempt
	Why    Why
	// Original and Chosen are the cost of the latest grid as the original and as the choice; 0 if
	// not measured.
	Original, Chosen time.Duration
	// Task is how long a task takes in its slot, and Leaves an estimate of how long the choice
	// takes to leave the GPU.
	Task, Leaves time.Duration
	// Suspend means that a task takes longer than the hardware's own suspension, which is then
	// better.
	Suspend bool
	// Launches counts the launches, Measured those that measured.
	Launches uint64
	Measured int
}

// byUse returns the classes, the latest launched first.
func (t *Tuner) byUse() []*class {
	classes := slices.Clone(t.classes)
	slices.SortFunc(classes, func(a, b *class) int { return cmp.Compare(b.lastUsed, a.lastUsed) })
	return classes
}

// Reports describes all classes, the latest launched first.
func (t *Tuner) Reports() []Report {
	classes := t.byUse()
	all := make([]Report, len(classes))
	for i, c := range classes {
		all[i] = t.report(c)
	}
	return all
}

func (t *Tuner) report(c *class) Report {
	r := Report{Class: c.Class, Choice: c.arms[c.chosen].choice, Why: c.why, Launches: c.launches, Measured: c.measured}
	if c.arms[0].cost.n > 0 {
		r.Original = time.Duration(c.arms[0].cost.low() * float64(c.tasks))
		r.Task = c.taskTime()
		r.Suspend = r.Task > t.params.Suspension
		r.Leaves = t.params.of(c.Threads).leaves(r.Choice, r.Task, c.tasks, max(c.slots, 1))
	}
	if a := &c.arms[c.chosen]; a.cost.n > 0 {
		r.Chosen = time.Duration(a.cost.low() * float64(c.tasks))
	}
	return r
}

// Record is what a tuner learned, in the form in which it is saved.
type Record struct {
	// Latency, Overhead and Suspends are the [Parameters] that the choices were made for.
	Latency  time.Duration `json:"latency_ns,omitempty"`
	Overhead float64       `json:"overhead,omitempty"`
	Suspends time.Duration `json:"suspends_ns,omitempty"`
	Classes  []ClassRecord `json:"classes,omitempty"`
}

// ClassRecord is what was learned of a class of grids.
type ClassRecord struct {
	Class
	Tasks uint64 `json:"tasks"` // of its latest launch
	Slots int    `json:"slots"`
	Why   Why    `json:"why"`
	// The choice, and the cost of a task in nanoseconds as the original and as the choice; Ran is
	// the time of the original on the GPU.
	Form     abi.PreemptForm `json:"form"`
	Group    uint32          `json:"group"`
	Every    uint32          `json:"every"`
	Original float64         `json:"original_ns"`
	Chosen   float64         `json:"chosen_ns"`
	Ran      float64         `json:"ran_ns"`
}

// Record returns the choices that were made, the latest launched class first.
func (t *Tuner) Record() Record {
	r := Record{Latency: t.params.Latency, Overhead: t.params.Overhead, Suspends: t.params.Suspends}
	for _, c := range t.byUse() {

		a := &c.arms[c.chosen]
		if c.why == WhyMeasuring || c.why == WhyUnmeasured || c.arms[0].cost.n == 0 || a.cost.n == 0 {
			continue
		}
		r.Classes = append(r.Classes, ClassRecord{
			Class: c.Class, Tasks: c.tasks, Slots: c.slots, Why: c.why,
			Form: a.choice.Form, Group: a.choice.Group, Every: a.choice.Every,
			Original: c.arms[0].cost.low(), Chosen: a.cost.low(), Ran: c.ran.low(),
		})
	}
	return r
}

// Valid reports whether a class's record is plausible by itself: it may have been read from disk.
func (r *ClassRecord) Valid() bool {
	sane := func(ns float64) bool { return ns > 0 && ns < float64(time.Hour) }
	return r.Tasks > 0 && r.Slots > 0 && r.Slots <= 1<<24 && sane(r.Original) && sane(r.Chosen) && sane(r.Ran) &&
		r.Class == Shape{r.Tasks, r.Threads, r.SharedBytes}.Class() &&
		r.Why > WhyMeasuring && r.Why < whyEnd
}

// Short reports whether launches of the class end by themselves within a latency, as was found when
// the record was made.
func (r *ClassRecord) Short(latency time.Duration) bool {
	return r.Why == WhyShort && time.Duration(r.Ran*float64(r.Tasks)) <= latency
}

// Recall restores what an earlier tuner of the same kernel, on the same GPU, learned. It ignores
// choices that are not offered any more and implausible records. It must be called before the first
// Pick.
func (t *Tuner) Recall(r Record) {
	same := r.Latency == t.params.Latency && r.Overhead == t.params.Overhead && r.Suspends == t.params.Suspends
	for _, k := range r.Classes {
		choice := abi.Preempt{Form: k.Form, Group: k.Group, Every: k.Every}
		if t.forms == 0 || len(t.classes) == MaxClasses || !k.Valid() || !Offered(choice, t.forms, k.Tasks, k.Slots) ||
			slices.ContainsFunc(t.classes, func(c *class) bool { return c.Class == k.Class }) {
			continue
		}
		if k.Why == WhyShort && !k.Short(t.params.Latency) || k.Why != WhyShort && !same {
			continue // it was chosen with other parameters
		}
		c := &class{Class: k.Class, tasks: k.Tasks, slots: k.Slots, candidateSlots: k.Slots, why: k.Why, arms: make([]arm, 1, 1+maxCandidates), measured: t.params.Measure}
		c.arms[0].cost.add(k.Original)
		c.ran.add(k.Ran)
		for _, o := range t.params.of(c.Threads).candidates(t.forms, c.taskTime(), k.Tasks, k.Slots) {
			c.arms = append(c.arms, arm{choice: o})
		}
		c.chosen = slices.IndexFunc(c.arms, func(a arm) bool { return a.choice == choice })
		if c.chosen < 0 { // the candidates have changed
			c.chosen = len(c.arms)
			c.arms = append(c.arms, arm{choice: choice})
		}
		if c.chosen > 0 {
			c.arms[c.chosen].cost.add(k.Chosen)
		}
		if k.Why == WhyShort || k.Why == WhyNoForm || k.Why == WhySuspended {
			c.arms = c.arms[:1]
			c.chosen = 0
		}
		t.classes = append(t.classes, c)
	}
}
