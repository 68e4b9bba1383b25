package demo

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"vgpud/cmd/vgpud/workload"
	"vgpud/mediator/api"
)

// Result is the outcome of the demo, which -o json prints.
type Result struct {
	Phases []Phase `json:"phases,omitempty"`
	// Preemption is the third phase, with guests of its own.
	Preemption *Preemption `json:"preemption,omitempty"`
	// Batch is the outcome with several GPUs, which has no phases.
	Batch *Batch `json:"batch,omitempty"`
	// Events is the outcome with event kernels, which has no phases.
	Events *EventsResult `json:"events,omitempty"`
}

// Phase is the time under one policy. Ratios and shares are from 0 to 1.
type Phase struct {
	Policy  string  `json:"policy"`
	Seconds float64 `json:"seconds"`
	Guests  []Guest `json:"guests"`
	// Jain is Jain's index of fairness over GPU seconds / weight: 1 is fair.
	Jain float64 `json:"jain"`
	// AccountingCPURatio is the processor time of accounting over the phase's.
	AccountingCPURatio float64 `json:"accounting_cpu_ratio"`
	BusyRatio          float64 `json:"gpu_busy_ratio"`
	Overruns           uint64  `json:"overruns"`
	OverrunSeconds     float64 `json:"overrun_seconds"`
	PollingGaps        uint64  `json:"polling_gaps"`
	PollingGapSeconds  float64 `json:"polling_gap_seconds"`
	RealTime           bool    `json:"real_time"`
	RealTimeProblem    string  `json:"real_time_problem,omitempty"`
}

// Guest is one guest in a phase.
type Guest struct {
	Name    string  `json:"name"`
	Weight  float64 `json:"weight"`
	Kernels uint64  `json:"kernels"`
	Cases   uint64  `json:"cases_checked"`
	// Verified reports whether at least one case was checked in the phase and none was wrong.
	Verified bool `json:"verified"`
	// GPUSeconds is accounting's value and GPUSecondsTruth the GPU's own count. Hardware keeps
	// none: there it is the number of kernels times KernelSeconds, the measured time of one of them
	// alone (0 if they are not all alike).
	GPUSeconds       float64 `json:"gpu_seconds"`
	GPUSecondsTruth  float64 `json:"gpu_seconds_truth"`
	KernelSeconds    float64 `json:"kernel_seconds_alone,omitempty"`
	Share            float64 `json:"share"` // of all guests' GPUSecondsTruth
	Entitled         float64 `json:"entitled"`
	SuspendedSeconds float64 `json:"suspended_seconds"`
	// BackloggedRatio is the part of the phase in which the guest itself counted at least
	// [workload.Backlog] pending launches. A guest with less work may use less than it is entitled
	// to.
	BackloggedRatio float64 `json:"backlogged_ratio"`
}

// enoughWork is the least BackloggedRatio that counts as always having work.
const enoughWork = 0.95

// snapshot is the state at one instant.
type snapshot struct {
	at      time.Time
	vms     map[string]api.VM
	gpu     api.GPU
	reports map[string]workload.Report
}

// phaseOf returns the difference between two snapshots.
func phaseOf(policy string, guests []*guest, a, b snapshot) Phase {
	seconds := b.at.Sub(a.at).Seconds()
	p := Phase{
		Policy: policy, Seconds: seconds,
		AccountingCPURatio: (b.gpu.AccountingCPUSeconds - a.gpu.AccountingCPUSeconds) / seconds,
		BusyRatio:          (b.gpu.BusySeconds - a.gpu.BusySeconds) / seconds,
		Overruns:           b.gpu.Overruns - a.gpu.Overruns, OverrunSeconds: b.gpu.OverrunSeconds - a.gpu.OverrunSeconds,
		PollingGaps: b.gpu.Gaps - a.gpu.Gaps, PollingGapSeconds: b.gpu.GapSeconds - a.gpu.GapSeconds,
		RealTime: b.gpu.RealTime, RealTimeProblem: b.gpu.RealTimeProblem,
	}
	var total, weights float64
	for _, m := range guests {
		before, after := a.vms[m.Name], b.vms[m.Name]
		ra, rb := a.reports[m.Name], b.reports[m.Name]
		g := Guest{
			Name: m.Name, Weight: m.weight, Kernels: after.Kernels - before.Kernels, Cases: rb.Cases - ra.Cases,
			Verified:         rb.Cases > ra.Cases && rb.Wrong == 0 && rb.Error == "",
			GPUSeconds:       after.GPUSeconds - before.GPUSeconds,
			GPUSecondsTruth:  gpuSecondsOwn(after) - gpuSecondsOwn(before),
			KernelSeconds:    m.alone.Seconds(),
			SuspendedSeconds: after.SuspendedSeconds - before.SuspendedSeconds,
		}
		if m.alone > 0 {
			g.GPUSecondsTruth = float64(g.Kernels) * g.KernelSeconds
		}
		if worked := rb.BusySeconds - ra.BusySeconds; worked > 0 {
			g.BackloggedRatio = (rb.BackloggedSeconds - ra.BackloggedSeconds) / worked
		}
		total += g.GPUSecondsTruth
		weights += m.weight
		p.Guests = append(p.Guests, g)
	}
	var sum, squares float64
	for i := range p.Guests {
		g := &p.Guests[i]
		if total > 0 {
			g.Share = g.GPUSecondsTruth / total
		}
		g.Entitled = g.Weight / weights
		x := g.GPUSecondsTruth / g.Weight
		sum += x
		squares += x * x
	}
	if squares > 0 {
		p.Jain = sum * sum / (float64(len(p.Guests)) * squares)
	}
	return p
}

// referenceHeading returns the heading of the column that the guests' GPU seconds are compared
// with.
func (p *Phase) referenceHeading() string {
	if slices.ContainsFunc(p.Guests, func(g Guest) bool { return g.KernelSeconds > 0 }) {
		return "KERNELS x ALONE"
	}
	return "GPU-S (OWN COUNT)"
}

// checked reports whether each guest had results checked.
func (p *Phase) checked() bool {
	return !slices.ContainsFunc(p.Guests, func(g Guest) bool { return g.Cases == 0 })
}

func gpuSecondsOwn(v api.VM) float64 {
	if v.GPUSecondsOwn == nil {
		return 0
	}
	return *v.GPUSecondsOwn
}

// Err returns an error if any result was wrong or not checked.
func (r *Result) Err() error {
	var errs []error
	for _, p := range r.Phases {
		for _, g := range p.Guests {
			if !g.Verified {
				errs = append(errs, fmt.Errorf("guest %s under %s: results wrong or not checked", g.Name, p.Policy))
			}
		}
	}
	if r.Preemption != nil {
		errs = append(errs, r.Preemption.err())
	}
	if r.Batch != nil {
		errs = append(errs, r.Batch.err())
	}
	if r.Events != nil {
		errs = append(errs, r.Events.err())
	}
	return errors.Join(errs...)
}

// print writes the result as text.
func (r *Result) print(w io.Writer) error {
	for _, p := range r.Phases {
		if err := p.print(w); err != nil {
			return err
		}
	}
	if r.Preemption != nil {
		return r.Preemption.print(w)
	}
	if r.Batch != nil {
		return r.Batch.print(w)
	}
	if r.Events != nil {
		return r.Events.print(w)
	}
	return nil
}

func (p *Phase) print(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "\npolicy %s, %.1f s\n", p.Policy, p.Seconds); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', tabwriter.AlignRight)
	rows := [][]any{{"GUEST", "WEIGHT", "KERNELS", "CHECKED", "GPU-S", p.referenceHeading(), "SHARE", "ENTITLED", "SUSPENDED-S"}}
	for _, g := range p.Guests {
		checked := fmt.Sprintf("%d right", g.Cases)
		if !g.Verified {
			checked = "WRONG"
		}
		rows = append(rows, []any{
			g.Name, g.Weight, g.Kernels, checked, fmt.Sprintf("%.3f", g.GPUSeconds), fmt.Sprintf("%.3f", g.GPUSecondsTruth),
			fmt.Sprintf("%.1f%%", 100*g.Share), fmt.Sprintf("%.1f%%", 100*g.Entitled), fmt.Sprintf("%.2f", g.SuspendedSeconds),
		})
	}
	for _, row := range rows {
		for _, value := range row {
			if _, err := fmt.Fprintf(t, "%v\t", value); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(t); err != nil {
			return err
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, g := range p.Guests {
		if g.BackloggedRatio < enoughWork {
			if _, err := fmt.Fprintf(w, "%s had fewer than %d launches waiting for %.1f%% of the time\n",
				g.Name, workload.Backlog, 100*(1-g.BackloggedRatio)); err != nil {
				return err
			}
		}
	}
	realTime := "yes"
	if !p.RealTime {
		realTime = "no (" + p.RealTimeProblem + ")"
	}
	_, err := fmt.Fprintf(w, "Jain's index %.4f; GPU busy %.1f%%; accounting took %.1f%% of a core\n"+
		"%d overruns (%.3f s); %d polling gaps over 20 µs (%.3f s); real-time priority: %s\n",
		p.Jain, 100*p.BusyRatio, 100*p.AccountingCPURatio, p.Overruns, p.OverrunSeconds, p.PollingGaps, p.PollingGapSeconds, realTime)
	return err
}
