package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"vgpud/e2e/papers/parallel"
)

// measure is a distance that is shown, with its goal.
type measure struct {
	// Name says what is measured, in Unit.
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Goal is the most that the distance may be. Without a goal it is 0.
	Goal float64 `json:"goal,omitempty"`
	// of are the kinds of quotas of the runs that show it.
	of []string
	is func(d *distances) float64
}

// measures are in the page's order.
var measures = []measure{
	{
		Name: "use above a cap, over any 5 s", Unit: "points", Goal: 2, of: []string{capsOfAll, capsOfSome},
		is: func(d *distances) float64 { return d.over },
	},
	{
		Name: "use below a cap that there is room for, over any 5 s", Unit: "points", Goal: 2, of: []string{capsOfAll},
		is: func(d *distances) float64 { return d.under },
	},
	{
		Name: "use below a guarantee, over any 5 s, of the time that kernels of suspended guests left", Unit: "points", Goal: 2,
		of: []string{guarantees}, is: func(d *distances) float64 { return d.taken },
	},
	{
		Name: "use below a guarantee, over any 5 s, of all time", Unit: "points", of: []string{guarantees},
		is: func(d *distances) float64 { return d.lacked },
	},
	{
		Name: "use beyond a budget when it is spent, by the budget's account", Unit: "rounds", Goal: 1, of: []string{budgets},
		is: func(d *distances) float64 { return d.charged },
	},
	{
		Name: "use beyond a budget in the end, by the GPU's own count", Unit: "rounds", Goal: 1, of: []string{budgets},
		is: func(d *distances) float64 { return d.overrun },
	},
	{
		Name: "of that, use by kernels that ran on when the budget was spent", Unit: "rounds", of: []string{budgets},
		is: func(d *distances) float64 { return d.ranOn },
	},
	{
		Name: "of that, use that accounting had missed when the budget was spent", Unit: "rounds", of: []string{budgets},
		is: func(d *distances) float64 { return d.missed },
	},
}

// row is what some runs came to.
type row struct {
	Measure string `json:"measure"`
	Policy  string `json:"policy"`
	Guests  int    `json:"guests"`
	Load    string `json:"load"`
	Worst   worst  `json:"worst"`
}

// report is all results.
type report struct {
	Measures []measure `json:"measures"`
	Policies []string  `json:"policies"`
	Counts   []int     `json:"counts"`
	Rows     []row     `json:"rows"`
}

// makeReport carries runs out and reports what they came to. progress is told how many have ended.
func makeReport(all []*trial, progress func(name string, took time.Duration)) (*report, error) {
	found, err := parallel.Map(len(all), func(i int) (distances, error) {
		begun := time.Now()
		o, err := all[i].run()
		if err != nil {
			return distances{}, fmt.Errorf("%s, %s: %w", all[i].quota, all[i].name(), err)
		}
		progress(all[i].quota+", "+all[i].name(), time.Since(begun))
		return all[i].measure(o), nil
	})
	if err != nil {
		return nil, err
	}
	r := &report{Measures: measures}
	for i := range measures {
		m := &measures[i]
		for j, t := range all {
			if !slices.Contains(m.of, t.quota) {
				continue
			}
			if !slices.Contains(r.Policies, t.policy) {
				r.Policies = append(r.Policies, t.policy)
			}
			if !slices.Contains(r.Counts, t.guests) {
				r.Counts = append(r.Counts, t.guests)
			}
			goal := m.Goal
			if goal == 0 {
				goal = math.Inf(1)
			}
			r.row(m.Name, t).add(m.is(&found[j]), goal, t.quota+", "+t.name())
		}
	}
	return r, nil
}

// row returns the row for a run, which it adds if there is none.
func (r *report) row(measure string, t *trial) *worst {
	at := slices.IndexFunc(r.Rows, func(x row) bool {
		return x.Measure == measure && x.Policy == t.policy && x.Guests == t.guests && x.Load == t.load
	})
	if at < 0 {
		at = len(r.Rows)
		r.Rows = append(r.Rows, row{Measure: measure, Policy: t.policy, Guests: t.guests, Load: t.load})
	}
	return &r.Rows[at].Worst
}

// worst returns the worst of the rows that f wants.
func (r *report) worst(f func(x *row) bool) (w worst) {
	for i := range r.Rows {
		if f(&r.Rows[i]) {
			w.merge(r.Rows[i].Worst)
		}
	}
	return w
}

// conclusions are computed from the rows: for each goal whether it is reached.
func (r *report) conclusions() (lines []string) {
	for _, m := range r.Measures {
		if m.Goal == 0 {
			continue
		}
		w := r.worst(func(x *row) bool { return x.Measure == m.Name })
		held := "yes"
		if w.Beyond > 0 {
			held = fmt.Sprintf("**no**, missed in %d of %d runs", w.Beyond, w.Runs)
		}
		lines = append(lines, fmt.Sprintf("%s: at most %g %s: %s; %.2f at worst (%s).", m.Name, m.Goal, m.Unit, held, w.Value, w.Of))
	}
	return lines
}

// table returns a measure's worst values by policy and number of guests, and by load.
func (r *report) table(m *measure) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	head := "policy"
	for _, n := range r.Counts {
		head += fmt.Sprintf("\t%d guests", n)
	}
	for _, load := range loads {
		head += "\t" + load
	}
	fmt.Fprintln(w, head)
	for _, p := range r.Policies {
		line := p
		for _, n := range r.Counts {
			line += cell(r.worst(func(x *row) bool { return x.Measure == m.Name && x.Policy == p && x.Guests == n }))
		}
		for _, load := range loads {
			line += cell(r.worst(func(x *row) bool { return x.Measure == m.Name && x.Policy == p && x.Load == load }))
		}
		fmt.Fprintln(w, line)
	}
	w.Flush()
	return b.String()
}

// cell returns a value, marked if it is beyond the goal.
func cell(w worst) string {
	if w.Runs == 0 {
		return "\t-"
	}
	mark := ""
	if w.Beyond > 0 {
		mark = "!"
	}
	return fmt.Sprintf("\t%.2f%s", w.Value, mark)
}

// page returns the report as a page of documentation.
func (r *report) page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	b.WriteString("## Goals\n\nEach line is computed from the rows below.\n\n")
	for _, line := range r.conclusions() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	for i := range r.Measures {
		m := &r.Measures[i]
		goal := "no goal"
		if m.Goal > 0 {
			goal = fmt.Sprintf("goal: at most %g", m.Goal)
		}
		fmt.Fprintf(&b, "\n## %s%s, in %s\n\nThe worst of all runs by number of guests, and by load; %s. `!` marks runs beyond the goal.\n\n```\n%s```\n",
			strings.ToUpper(m.Name[:1]), m.Name[1:], m.Unit, goal, r.table(m))
	}
	return b.String()
}

// write writes the report and its page into dir.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "\t")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "quota.json"), append(data, '\n'), 0o644)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "quota.md"), []byte(r.page()), 0o644)
}

// readReport reads what write wrote.
func readReport(dir string) (*report, error) {
	data, err := os.ReadFile(filepath.Join(dir, "quota.json"))
	if err != nil {
		return nil, err
	}
	r := new(report)
	return r, json.Unmarshal(data, r)
}

var pageHead = fmt.Sprintf(`# How well quotas hold

Made by `+"`make bench-quota`"+` in simulated time, the same each time. The daemon's scheduler and its sampler, as they are in
operation, share the soft GPU's machine, which takes one kernel at a time from the guests in turn and runs it to its end. The
values are the GPU's own count, not the accounting's.

A guest's kernels are all of one length, 50 µs to 5 ms. Under `+"`none` and `dfq`"+` the host has fetched up to %d kernels of a guest
to the GPU, and a suspended guest's run to their end. Under the other policies launches wait for verdicts, and kernels leave the
GPU within %v when told. Weights are 1, 2 and 4. The loads:

- steady: kernels always wait
- pauses: one kernel at a time, and a pause of 0.1 to 2 times its length after it
- on and off: kernels wait for 0.3 to 2 s on average, then there are none for 0.1 to 1 s
- come and go: guests are attached for 1.5 to 4 s on average, then not for 0.2 to 1 s
- mixed: each guest has one of these

Caps: either all guests have one, 90 %% of the GPU together, or half of the guests have one of 2 to 60 %%. Guarantees: at most
half of the guests share 30 to 90 %%, with half the least weight of the others. Budgets: half of the guests have one, which they
exhaust. A run counts for %v after a second, or %v where launches wait for verdicts. Windows of %v begin every %v.

What a guest lacked of its cap counts as far as it was held meanwhile. The rest others had, whose kernels came first: under hpf
the shortest do.

A guest is owed its guarantee of the time in which it had work, and the GPU did not switch between contexts or wait for a launch
on its way to it. In the first of its tables the time in which kernels of suspended guests still ran is left out: nothing can
take them off the GPU. A guest that pauses is guaranteed a part of what it uses alone. A guest that is attached again is new to its cap, and may exceed it by a round again.

A round is 12 ms for two guests, and 24 ms for more. Accounting watches a sixth of the time, so what it charges is an estimate.
A budget also counts what the guest's executors measured, as far as the estimate's error can explain the difference, and what the
kernels on the GPU will use.

Of the policies about launches FLEP's two are tried.

`, ahead, leaves, length, lengthByKernel, window, step)
