package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"vgpud/cmd/vgpud/batch"
	"vgpud/cmd/vgpud/workload"
	"vgpud/gpu/corpus"
)

// MaxGPUs bounds [Options.GPUs].
const MaxGPUs = 8

// The GPUs of the demo with several: small, so that what jobs allocate exists several times on this
// machine, and slow enough that its processors keep up with all of them.
const (
	jobsGPUMemory = 256 << 20
	jobsWarpTime  = time.Microsecond
)

// Batch is the outcome of the demo with several GPUs.
type Batch struct {
	GPUs int `json:"gpus"`
	// Ways are single assignment, then floating.
	Ways []*batch.Result `json:"ways"`
	// ThroughputGain is the throughput of the second over that of the first, and TurnaroundGain how
	// many times as long a job took under the first, on average.
	ThroughputGain float64 `json:"throughput_gain"`
	TurnaroundGain float64 `json:"turnaround_gain"`
}

// jobs returns the batch: jobs like the small and large ones of CASE's evaluation (§5.2), four to a
// GPU. Most of what a job does is host work, also while it has GPU memory, so that GPUs that belong to
// one job at a time are idle for most of the time.
func jobs(gpus int) (all []batch.Job) {
	const mib, ms = 1 << 20, 1000
	kernel := func(blocks, iterations int) *corpus.ThrottleConfig {
		return &corpus.ThrottleConfig{Blocks: blocks, Threads: 128, Iterations: iterations}
	}
	kinds := []batch.Job{
		{Name: "train", Work: workload.Job{
			BeforeMicros: 900 * ms, AfterMicros: 200 * ms, MemoryBytes: 36 * mib,
			Steps: []workload.JobStep{{InBytes: 36 * mib, Launches: 4, Throttle: kernel(64, 40), OutBytes: 12 * mib}},
		}},
		{Name: "search", Work: workload.Job{
			BeforeMicros: 2200 * ms, AfterMicros: 100 * ms, MemoryBytes: 20 * mib,
			Steps: []workload.JobStep{{InBytes: 20 * mib, Launches: 8, Throttle: kernel(32, 30)}, {HostMicros: 500 * ms, OutBytes: 4 * mib}},
		}},
		{Name: "image", Work: workload.Job{
			BeforeMicros: 400 * ms, AfterMicros: 100 * ms, MemoryBytes: 110 * mib,
			Steps: []workload.JobStep{{InBytes: 30 * mib, Launches: 10, Throttle: kernel(64, 60), OutBytes: 30 * mib}, {HostMicros: 1500 * ms}},
		}},
		{Name: "particles", Work: workload.Job{
			BeforeMicros: 1800 * ms, AfterMicros: 200 * ms, MemoryBytes: 150 * mib,
			Steps: []workload.JobStep{{InBytes: 60 * mib, Launches: 2, Throttle: kernel(128, 150), OutBytes: 30 * mib}},
		}},
	}
	for range gpus {
		for _, j := range kinds {
			j.Name = fmt.Sprintf("%s%d", j.Name, 1+len(all)/len(kinds))
			j.Work.OtherBytes = 2 * mib
			all = append(all, j)
		}
	}
	return all
}

// runJobs runs the batch in both ways.
func (d *demo) runJobs(ctx context.Context) (*Batch, error) {
	o := batch.Options{Client: d.client, Program: d.o.Program, Dir: d.dir, Told: func(way batch.Way, ended, of int) {
		if ended%4 == 0 || ended == of {
			_ = d.progress("%s: %d of %d jobs have ended", titles[way], ended, of) // the result is not lost with it
		}
	}}
	for i := range d.o.GPUs {
		o.GPUs = append(o.GPUs, nameOf(i))
	}
	r := &Batch{GPUs: d.o.GPUs}
	all := jobs(d.o.GPUs)
	for _, way := range []batch.Way{batch.Single, batch.Floating} {
		if err := d.progress("%s: starting %d jobs", titles[way], len(all)); err != nil {
			return nil, err
		}
		one, err := batch.Run(ctx, o, way, all)
		if err != nil {
			return nil, err
		}
		r.Ways = append(r.Ways, one)
	}
	single, floating := r.Ways[0], r.Ways[1]
	r.ThroughputGain, r.TurnaroundGain = batch.Gain(floating, single), single.TurnaroundSeconds/floating.TurnaroundSeconds
	return r, nil
}

// titles name the ways for people.
var titles = map[batch.Way]string{batch.Single: "single assignment", batch.Floating: "floating"}

// err returns an error if results are wrong or unchecked.
func (r *Batch) err() error {
	var errs []error
	for _, w := range r.Ways {
		errs = append(errs, w.Err())
	}
	return errors.Join(errs...)
}

// print writes the result as text.
func (r *Batch) print(w io.Writer) error {
	for _, one := range r.Ways {
		if err := printWay(w, one); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\nfloating over single assignment: %.2f times the throughput; a job ends in %.2f times less time on average\n",
		r.ThroughputGain, r.TurnaroundGain)
	return err
}

// printWay writes the jobs of one way.
func printWay(w io.Writer, r *batch.Result) error {
	what := "a job has a GPU for itself while its process lives"
	if r.Way == batch.Floating {
		what = "each job's task is placed on a GPU that has room for it"
	}
	if _, err := fmt.Fprintf(w, "\n%s: %s, %.1f s\n", titles[r.Way], what, r.Seconds); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "JOB\tMIB\tGPU\tWAITED-S\tENDED-S\tKERNELS\tCHECKED\t\n")
	for _, e := range r.Jobs {
		checked := "right"
		if !e.Right() {
			checked = "WRONG"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.2f\t%.2f\t%d\t%s\t\n", e.Name, e.MemoryBytes>>20, nameOf(e.GPU), e.WaitedSeconds, e.Seconds, e.Kernels, checked)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var busy []string
	for _, b := range r.BusyRatio {
		busy = append(busy, fmt.Sprintf("%.1f%%", 100*b))
	}
	_, err := fmt.Fprintf(w, "%d jobs done, %.2f a second; a job ended after %.2f s on average, of which it waited %.2f s for a GPU; %d ran out of memory\nGPUs busy: %s\n",
		r.Done, r.Throughput(), r.TurnaroundSeconds, r.WaitedSeconds, r.OutOfMemory, strings.Join(busy, ", "))
	return err
}
