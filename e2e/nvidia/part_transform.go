package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/vgpu/abi"
)

// papersForm is the form of EffiSha and FLEP: persistent blocks that read the evict word before
// each task.
var papersForm = tenant.Form{Form: uint8(abi.PreemptPersistent), Group: 1, Every: 1}

// transformQuick are the kernels to measure when time is short: one for each kind of body.
var transformQuick = []string{"vecadd", "stencil", "matmul", "nbody", "blackscholes", "mandelbrot", "md5", "kmeans", "nnlayer", "pathfinder", "reduce", "histogram"}

// transformPrograms returns the programs of the corpus that have no kernel at the size of a real
// program's. They run at the corpus's own size.
func (b *bench) transformPrograms() (jobs []tenant.Job) {
	for _, name := range b.appNames() {
		if !slices.ContainsFunc(tenant.Scaled(), func(s string) bool {
			return strings.HasPrefix(s, strings.TrimSuffix(name, "/large"))
		}) {
			jobs = append(jobs, tenant.Job{Case: name})
		}
	}
	return jobs
}

// transformJobs returns the jobs that are measured.
func (b *bench) transformJobs() (jobs []tenant.Job) {
	if b.kind == "soft" || b.tiny {
		return append(b.longKernels(), tenant.Job{Case: "reduce/trivial"})
	}
	for _, name := range pick(b, nil, transformQuick, tenant.Scaled()) {
		jobs = append(jobs, tenant.Job{Scaled: name})
	}
	if b.quick {
		return jobs
	}
	return append(jobs, b.transformPrograms()...)
}

// transform measures the overhead of kernels in their chosen forms and, for comparison, in the
// papers' form and cut into slices.
func transform(ctx context.Context, b *bench) error {
	// A guest makes the papers' form of kernels known to be short only if it is configured to.
	all, err := b.open(ctx, seat{setup: tenant.Setup{Name: "guest", Preempt: true}},
		seat{setup: tenant.Setup{Name: "papers", Preempt: true, Forms: papersForm.Form}})
	if err != nil {
		return err
	}
	m, other := all[0], all[1]
	jobs := b.transformJobs()
	var found []formCost
	var untouched []string
	var errs []error
	for i, j := range jobs {
		runs := b.runs()
		if part := time.Duration(i) * b.takes / time.Duration(len(jobs)); time.Since(b.begin) > part+b.takes/10 {
			runs = min(runs, leastRuns)
		}
		c, err := b.formCost(ctx, m, other, j, runs)
		if err != nil { // a failure does not keep the other kernels from being measured
			errs = append(errs, fmt.Errorf("%s: %w", j.Name(), err))
		} else {
			found = append(found, c)
			if c.form.Form == 0 {
				untouched = append(untouched, c.name+" ("+c.form.Why+")")
			}
		}
		_, err = m.ask(ctx, tenant.Request{Reset: true})
		_, oerr := other.ask(ctx, tenant.Request{Reset: true})
		if err = errors.Join(err, oerr); err != nil {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(append(errs, b.transformRows(found, untouched))...)
}

// formCost is a kernel's cost in several ways of launching it.
type formCost struct {
	name                   string
	form                   tenant.Form // of a program: the form of its first kernel that has one
	original               time.Duration
	chosen, papers, sliced []float64 // overheads, by run
	slices                 int
	same                   bool // the results are the original's
}

// formCost measures a kernel or a program. Each run measures every way in turn. papers is the guest
// whose kernels have the papers' form.
func (b *bench) formCost(ctx context.Context, m, papers *member, j tenant.Job, runs int) (c formCost, err error) {
	c.name = j.Name()
	id, form, err := b.tuned(ctx, m, j)
	if err != nil {
		return c, err
	}
	c.form = *form
	original := tenant.Run{Job: id, As: &tenant.Form{}}
	one, err := m.run(ctx, withCount(original, 3, 1))
	if err != nil {
		return c, err
	}
	c.original = figure.Quantile(one.Executed, 0.5)
	before, err := m.anew(ctx, id, original)
	if err != nil {
		return c, err
	}
	// An iteration has enough launches that the host's cost for the iteration is negligible.
	const enough = 12 * time.Millisecond
	most := 16
	chosen, sliced := original, original
	chosen.As = &c.form
	theirs := tenant.Run{As: &papersForm}
	if j.Case == "" {
		if theirs.Job, err = papers.load(ctx, j); err != nil {
			return c, err
		}
	}
	if j.Case != "" { // the tuner chooses a form for each of its kernels
		c.original, most = figure.Quantile(one.Turnarounds, 0.5), 256
		chosen.As, chosen.Check = nil, true
	}
	rounds := int(min(max(enough/max(c.original, 1), 2), time.Duration(most)))
	times := pick(b, 1, 3, 7)
	took := func(m *member, r tenant.Run) (float64, error) {
		ran, err := m.run(ctx, withCount(r, times, rounds))
		if err != nil {
			return 0, err
		}
		return figure.Quantile(ran.Turnarounds, 0.5).Seconds(), nil
	}
	// A slice is as long as the chosen form needs to leave the GPU.
	c.slices = int(min(c.original/max(c.form.Leaves, 50*time.Microsecond)+1, 512))
	sliced.Slices = c.slices
	for range runs {
		base, err := took(m, original)
		if err != nil {
			return c, err
		}
		t := base
		if c.form.Form != 0 { // otherwise the kernel has no form but the original
			if t, err = took(m, chosen); err != nil {
				return c, err
			}
		}
		c.chosen = append(c.chosen, t/base-1)
		if j.Case != "" {
			continue
		}
		if t, err = took(papers, theirs); err == nil { // otherwise the kernel has no such form
			c.papers = append(c.papers, t/base-1)
		}
		if !tenant.Sliceable(j.Scaled) {
			continue
		}
		if t, err = took(m, sliced); err != nil {
			return c, err
		}
		c.sliced = append(c.sliced, t/base-1)
	}
	if c.same = true; c.form.Form != 0 {
		after, err := m.anew(ctx, id, chosen)
		if err != nil {
			return c, err
		}
		c.same = before == after
	}
	b.say("%s: %v, form %d group %d (%s): %+.2f %%, papers' %+.2f %%, %d slices %+.2f %%", c.name, c.original, c.form.Form, c.form.Group, c.form.Why,
		100*figure.Median(c.chosen), 100*figure.Median(c.papers), c.slices, 100*figure.Median(c.sliced))
	return c, nil
}

// anew clears a job's results, lets the run's launches compute them again once, and returns their
// sum.
func (m *member) anew(ctx context.Context, job int, r tenant.Run) (sum uint64, err error) {
	if _, err := m.ask(ctx, tenant.Request{Clear: &job}); err != nil {
		return 0, err
	}
	if _, err := m.run(ctx, withCount(r, 1, 1)); err != nil {
		return 0, err
	}
	a, err := m.ask(ctx, tenant.Request{Sum: &job})
	return a.Sum, err
}

// withCount returns r with the given number of iterations and rounds.
func withCount(r tenant.Run, count, rounds int) tenant.Run {
	r.Count, r.Rounds, r.Depth = count, rounds, 4
	return r
}

func (b *bench) transformRows(found []formCost, untouched []string) error {
	if len(found) == 0 {
		return errors.New("no kernel was measured")
	}
	runs := len(found[0].chosen)
	for _, c := range found {
		runs = min(runs, len(c.chosen))
	}
	var means, worsts []float64
	for run := range runs {
		var overheads []float64
		for _, c := range found {
			overheads = append(overheads, c.chosen[run])
		}
		means, worsts = append(means, figure.GeoMeanLoss(overheads)), append(worsts, slices.Max(overheads))
	}
	var papers, sliced []float64
	table := detail("original, ms", "form", "group", "overhead", "papers' form", "slices", "sliced")
	different := ""
	worst, whose := math.Inf(-1), ""
	for _, c := range found {
		if o := figure.Median(c.chosen); o > worst {
			worst, whose = o, c.name
		}
		if len(c.papers) > 0 {
			papers = append(papers, figure.Median(c.papers))
		}
		if len(c.sliced) > 0 {
			sliced = append(sliced, figure.Median(c.sliced))
		}
		if !c.same {
			different += " " + c.name
		}
		table.Add(c.name, millis(c.original), float64(c.form.Form), float64(c.form.Group), figure.Median(c.chosen),
			figure.Median(c.papers), float64(c.slices), figure.Median(c.sliced))
	}
	how := fmt.Sprintf("%d kernels of the corpus at the size of programs, or programs of it at the corpus' own (with their size in the table), launched by a guest four deep, in the forms that the tuner chose where nothing is configured over the originals, by turns; in geometric means a speed-up counts as 0; sliced, where all blocks do alike: into launches as long as the chosen form takes to leave. Left as originals by the tuner: %d", len(found), len(untouched))
	g := b.row("transform_overhead_geomean", means, how)
	w := b.rowOf("transform_overhead_worst", worst, worsts, how+". The greatest of the kernels' medians over the runs, as those of the baselines are: "+whose+". The spread is that of each run's worst")
	g.Baseline["papers_form"], g.Baseline["sliced"] = figure.GeoMeanLoss(papers), figure.GeoMeanLoss(sliced)
	g.Baseline["effisha_published"], g.Baseline["flep_published"], w.Baseline["effisha_published"] = 0.04, 0.025, 0.08
	if len(papers) > 0 {
		w.Baseline["papers_form"] = figure.Quantile(papers, 1)
	}
	if len(sliced) > 0 {
		w.Baseline["sliced"] = figure.Quantile(sliced, 1)
	}
	g.Detail = table
	var err error
	if different != "" { // the cost of wrong results is meaningless
		err = fmt.Errorf("results differ from the originals':%s", different)
		g.Met, w.Met, g.Why, w.Why = false, false, err.Error(), err.Error()
	}
	b.add(g, w)
	return err
}
