package batch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/cmd/vgpud/child"
	"vgpud/cmd/vgpud/workload"
	"vgpud/mediator/api"
)

// Way is how jobs are given GPUs.
type Way string

// The ways.
const (
	Single   Way = "single"
	Floating Way = "floating"
)

// Job is a job of a batch.
type Job struct {
	Name string
	// Work is what it does. Its Floats is set as the way wants it.
	Work workload.Job
}

// Options are what a batch runs on.
type Options struct {
	// Client is the daemon's, and GPUs are the names of its GPUs, which are for the batch alone.
	Client *api.Client
	GPUs   []string
	// Program returns a process of vgpud.
	Program func(args ...string) (*exec.Cmd, error)
	// Dir is the directory of the processes' logs.
	Dir string
	// BAR2Bytes is the size of the memory that a guest shares with the host.
	BAR2Bytes uint64
	// Told is called when a job has ended, if it is set, with how many have. Calls may be concurrent.
	Told func(way Way, ended, of int)
}

// BAR2 is the default of [Options.BAR2Bytes].
const BAR2 = 32 << 20

// guest is a virtual GPU on which jobs run, one at a time.
type guest struct {
	name, socket string
	gpu          int // its only one, or -1
}

// batch is a batch that runs.
type batch struct {
	o      Options
	way    Way
	guests []guest
	result Result
	ended  atomic.Int64
}

// Run runs jobs in one way. Jobs that fail are in the result, and are no error.
func Run(ctx context.Context, o Options, way Way, jobs []Job) (_ *Result, err error) {
	b := &batch{o: o, way: way, result: Result{Way: way, Jobs: make([]Ended, len(jobs))}}
	if b.o.BAR2Bytes == 0 {
		b.o.BAR2Bytes = BAR2
	}
	defer func() { err = errors.Join(err, b.deleteGuests()) }()
	if err := b.createGuests(ctx, len(jobs)); err != nil {
		return nil, err
	}
	before, err := b.busy(ctx)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := b.runJobs(ctx, jobs); err != nil {
		return nil, err
	}
	after, err := b.busy(ctx)
	if err != nil {
		return nil, err
	}
	b.result.sum(begin, before, after)
	return &b.result, nil
}

// createGuests creates the guests: one for each GPU, or one for each job.
func (b *batch) createGuests(ctx context.Context, jobs int) error {
	n := jobs
	if b.way == Single {
		n = len(b.o.GPUs)
	}
	for i := range n {
		s := api.VMSpec{Name: fmt.Sprintf("%s%d", b.way, i), BAR2Bytes: b.o.BAR2Bytes}
		g := guest{name: s.Name, gpu: -1}
		if b.way == Single {
			s.GPU, g.gpu = b.o.GPUs[i], i
		} else {
			s.Float = true
		}
		v, err := b.o.Client.CreateVM(ctx, s)
		if err != nil {
			return err
		}
		g.socket = v.Socket
		b.guests = append(b.guests, g)
	}
	return nil
}

// endLimit bounds the time in which the guests end.
const endLimit = 5 * time.Minute

func (b *batch) deleteGuests() error {
	var errs []error
	for _, g := range b.guests {
		errs = append(errs, b.o.deleteGuest(g.name))
	}
	return errors.Join(errs...)
}

func (o *Options) deleteGuest(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	return o.Client.ForceDeleteVM(ctx, name)
}

// busy returns for how long each GPU was busy since its start.
func (b *batch) busy(ctx context.Context) ([]float64, error) {
	all, err := b.o.Client.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	var busy []float64
	for _, name := range b.o.GPUs {
		for _, g := range all {
			if g.Name == name {
				busy = append(busy, g.BusySeconds)
			}
		}
	}
	if len(busy) != len(b.o.GPUs) {
		return nil, fmt.Errorf("the daemon has not all of the GPUs %v", b.o.GPUs)
	}
	return busy, nil
}

// runJobs runs the jobs: each guest takes the next one when it has none.
func (b *batch) runJobs(ctx context.Context, jobs []Job) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(b.guests))
	var next atomic.Int64
	var wg sync.WaitGroup
	for i, g := range b.guests {
		wg.Go(func() {
			for errs[i] == nil {
				n := int(next.Add(1)) - 1
				if n >= len(jobs) {
					return
				}
				if errs[i] = b.runJob(ctx, &g, n, jobs[n]); errs[i] != nil {
					cancel()
				} else if ended := b.ended.Add(1); b.o.Told != nil {
					b.o.Told(b.way, int(ended), len(jobs))
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// runJob runs a job on a guest, and waits for its end.
func (b *batch) runJob(ctx context.Context, g *guest, n int, j Job) error {
	j.Work.Floats = b.way == Floating
	r := &b.result.Jobs[n]
	plan := workload.Plan{Name: j.Name, Socket: g.socket, Seed: uint64(1 + n), Preempt: "off", Job: &j.Work}
	if err := b.o.process(ctx, fmt.Sprintf("%s-job%d", b.way, n), plan, &r.JobReport); err != nil {
		return err
	}
	r.Name, r.MemoryBytes = j.Name, j.Work.MemoryBytes+j.Work.OtherBytes
	if g.gpu >= 0 {
		r.GPU = g.gpu
	}
	return nil
}

// Ask creates a guest, has a process of its carry out a plan, reads its report, and deletes the guest.
func Ask(ctx context.Context, o *Options, s api.VMSpec, p workload.Plan, report any) (err error) {
	if s.BAR2Bytes == 0 {
		s.BAR2Bytes = BAR2
	}
	v, err := o.Client.CreateVM(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.deleteGuest(v.Name)) }()
	p.Name, p.Socket = v.Name, v.Socket
	return o.process(ctx, v.Name, p, report)
}

// process has a process carry out a plan, and reads its report.
func (o *Options) process(ctx context.Context, name string, plan workload.Plan, report any) error {
	text, err := json.Marshal(plan)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	cmd, err := o.Program("demo-guest")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(text), &out
	p, err := child.Start(o.Dir, name, cmd)
	if err != nil {
		return err
	}
	select {
	case <-p.Ended():
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.Kill())
	}
	if err := p.Err(); err != nil {
		return err
	}
	if err := json.Unmarshal(out.Bytes(), report); err != nil {
		return fmt.Errorf("%s: an unreadable report %q: %w", name, out.Bytes(), err)
	}
	return nil
}
