package tune

import (
	"slices"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Report is what a tuner says of a class of grids.
type Report struct {
	Class
	// Choice is how launches go, the zero value for the original, and Why.
	Choice abi.Preempt
	Why    Why
	// Original is what the latest grid costs as the original was measured, Chosen as the choice was; 0: not measured.
	Original, Chosen time.Duration
	// Task is how long a task is in its slot, and Leaves the estimate of how long the choice takes to leave the GPU.
	Task, Leaves time.Duration
	// Suspend says that a task takes longer than the hardware's own suspension, which is the better way then.
	Suspend bool
	// Launches is how many were picked for, Measured how many of them to measure.
	Launches uint64
	Measured int
}

// Reports tells of all classes, those launched last first.
func (t *Tuner) Reports() []Report {
	classes := slices.Clone(t.classes)
	slices.SortFunc(classes, func(a, b *class) int {
		switch {
		case a.used > b.used:
			return -1
		case a.used < b.used:
			return 1
		}
		return 0
	})
	all := make([]Report, len(classes))
	for i, c := range classes {
		all[i] = t.report(c)
	}
	return all
}

func (t *Tuner) report(c *class) Report {
	r := Report{Class: c.Class, Choice: c.arms[c.chosen].choice, Why: c.why, Launches: c.launches, Measured: c.spent}
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

// Record is what a tuner learned, to be kept.
type Record struct {
	Classes []ClassRecord `json:"classes,omitempty"`
}

// ClassRecord is what was learned of a class of grids.
type ClassRecord struct {
	Class
	Tasks uint64 `json:"tasks"` // of its latest launch
	Slots int    `json:"slots"`
	Why   Why    `json:"why"`
	// Choice, and what a task was measured to cost by the original and by the choice, in nanoseconds; Ran is how long
	// the original was on the GPU for it.
	Form     abi.PreemptForm `json:"form"`
	Group    uint32          `json:"group"`
	Every    uint32          `json:"every"`
	Original float64         `json:"original_ns"`
	Chosen   float64         `json:"chosen_ns"`
	Ran      float64         `json:"ran_ns"`
}

// Record returns what is settled, the latest launched first.
func (t *Tuner) Record() Record {
	classes := slices.Clone(t.classes)
	slices.SortFunc(classes, func(a, b *class) int { return int(int64(b.used) - int64(a.used)) })
	var r Record
	for _, c := range classes {
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

// Valid reports whether a class's record makes sense by itself: it may have been on a disk.
func (r *ClassRecord) Valid() bool {
	sane := func(ns float64) bool { return ns > 0 && ns < float64(time.Hour) }
	return r.Tasks > 0 && r.Slots > 0 && r.Slots <= 1<<24 && sane(r.Original) && sane(r.Chosen) && sane(r.Ran) &&
		r.Class == Shape{r.Tasks, r.Threads, r.SharedBytes}.Class() &&
		r.Why > WhyMeasuring && r.Why < whyEnd
}

// Recall begins with what an earlier tuner of the same kernel, on the same GPU, has learned. What is not offered any
// more, or makes no sense, is left out. It is called before the first Pick.
func (t *Tuner) Recall(r Record) {
	for _, k := range r.Classes {
		choice := abi.Preempt{Form: k.Form, Group: k.Group, Every: k.Every}
		if t.forms == 0 || len(t.classes) == MaxClasses || !k.Valid() || !Offered(choice, t.forms, k.Tasks, k.Slots) ||
			slices.ContainsFunc(t.classes, func(c *class) bool { return c.Class == k.Class }) {
			continue
		}
		c := &class{Class: k.Class, tasks: k.Tasks, slots: k.Slots, basis: k.Slots, why: k.Why, arms: make([]arm, 1, 1+maxCandidates), spent: t.params.Measure}
		c.arms[0].cost.add(k.Original)
		c.ran.add(k.Ran)
		for _, o := range t.params.of(c.Threads).candidates(t.forms, c.taskTime(), k.Tasks, k.Slots) {
			c.arms = append(c.arms, arm{choice: o})
		}
		c.chosen = slices.IndexFunc(c.arms, func(a arm) bool { return a.choice == choice })
		if c.chosen < 0 { // what is worth measuring has changed since
			c.chosen = len(c.arms)
			c.arms = append(c.arms, arm{choice: choice})
		}
		if c.chosen > 0 {
			c.arms[c.chosen].cost.add(k.Chosen)
		}
		if k.Why == WhyShort || k.Why == WhyNoForm {
			c.arms = c.arms[:1]
			c.chosen = 0
		}
		t.classes = append(t.classes, c)
	}
}
