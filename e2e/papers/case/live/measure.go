package live

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"vgpud/cmd/vgpud/batch"
	"vgpud/cmd/vgpud/workload"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// Calibrate times a kernel alone on the first GPU, with few and with many iterations, and returns what
// makes kernels of its shape of other lengths.
func Calibrate(ctx context.Context, o *batch.Options, shape corpus.ThrottleConfig, few, many int) (func(time.Duration) corpus.ThrottleConfig, error) {
	of := func(iterations int) workload.Work {
		t := shape
		t.Iterations = iterations
		return workload.Work{Kernel: "throttle", Throttle: &t}
	}
	var r workload.SoloReport
	// The first is for a GPU that was idle, which is slow for a while.
	plan := workload.Plan{Preempt: "off", Solo: 10, Work: []workload.Work{of(many), of(few), of(many)}}
	if err := batch.Ask(ctx, o, api.VMSpec{Name: "calibrate", GPU: o.GPUs[0]}, plan, &r); err != nil {
		return nil, err
	}
	if len(r.Seconds) != 3 || r.Seconds[2] <= r.Seconds[1] {
		return nil, fmt.Errorf("%d iterations take %v: no telling what one takes", many, r.Seconds)
	}
	per := (r.Seconds[2] - r.Seconds[1]) / float64(many-few)
	fixed := r.Seconds[1] - per*float64(few)
	return func(d time.Duration) corpus.ThrottleConfig {
		t := shape
		t.Iterations = max(int(math.Round((d.Seconds()-fixed)/per)), 1)
		return t
	}, nil
}

// Compared is a batch that ran in both ways.
type Compared struct {
	Single, Floating *batch.Result
}

// Compare runs jobs by single assignment, then floating.
func Compare(ctx context.Context, o *batch.Options, jobs []batch.Job) (c Compared, err error) {
	if c.Single, err = batch.Run(ctx, *o, batch.Single, jobs); err != nil {
		return c, err
	}
	if c.Floating, err = batch.Run(ctx, *o, batch.Floating, jobs); err != nil {
		return c, err
	}
	return c, c.err()
}

// err returns an error if a job failed for another reason than memory: then the comparison says
// nothing.
func (c *Compared) err() error {
	var errs []error
	for _, r := range []*batch.Result{c.Single, c.Floating} {
		for i := range r.Jobs {
			if e := &r.Jobs[i]; !e.Right() && !e.OutOfMemory {
				errs = append(errs, fmt.Errorf("job %s, %s: %d wrong: %s", e.Name, r.Way, e.Wrong, e.Error))
			}
		}
	}
	return errors.Join(errs...)
}

// Gain returns the throughput of floating over single assignment.
func (c *Compared) Gain() float64 { return batch.Gain(c.Floating, c.Single) }

// OutOfMemory counts the jobs that got no memory.
func (c *Compared) OutOfMemory() int { return c.Single.OutOfMemory + c.Floating.OutOfMemory }

// Begins are how long contexts take to begin, in sorted seconds.
type Begins struct {
	// Floating is from the request until the context could be used, Waited the part of it until it had
	// a GPU, and Plain is the same as Floating of contexts that don't float.
	Floating, Waited, Plain []float64
}

// beginPause is how long a guest waits before each context: until an executor is warm.
const beginPause = 1500 * time.Millisecond

// Begin measures how long contexts take to begin, one after the other in a guest that floats, with a
// warm executor, and as many in one that does not.
func Begin(ctx context.Context, o *batch.Options, times int, memory uint64) (b Begins, err error) {
	measure := func(s api.VMSpec, memory uint64) (workload.BeginReport, error) {
		var r workload.BeginReport
		// The first has no executor that is warm.
		plan := workload.Plan{Begin: &workload.Begin{Times: 1 + times, PauseMicros: beginPause.Microseconds(), MemoryBytes: memory}}
		if err := batch.Ask(ctx, o, s, plan, &r); err != nil {
			return r, err
		}
		if len(r.Seconds) != 1+times {
			return r, fmt.Errorf("%d contexts have begun, want %d", len(r.Seconds), 1+times)
		}
		for _, all := range []*[]float64{&r.Seconds, &r.WaitedSeconds} {
			*all = (*all)[1:]
			slices.Sort(*all)
		}
		return r, nil
	}
	r, err := measure(api.VMSpec{Name: "begins", Float: true}, memory)
	if err != nil {
		return b, err
	}
	b.Floating, b.Waited = r.Seconds, r.WaitedSeconds
	if r, err = measure(api.VMSpec{Name: "begins", GPU: o.GPUs[0]}, 0); err != nil {
		return b, err
	}
	b.Plain = r.Seconds
	return b, nil
}

// Launches are the times of empty kernels, from the call until the kernel is known to have ended, in
// sorted seconds.
type Launches struct {
	Plain, Floating []float64
	// Pairs is what Added returns, of each pair of guests.
	Pairs []float64
}

// Added returns by which part launches of contexts that float take longer, by the medians.
func (l *Launches) Added() float64 { return Median(l.Floating)/Median(l.Plain) - 1 }

// Median returns the median of sorted values, of which there is at least one.
func Median(sorted []float64) float64 { return sorted[len(sorted)/2] }

// launchesDropped is how many launches of a turn don't count: until everybody polls.
const launchesDropped = 5

// Launch measures what launches take in a context that floats and in one that does not, on the same GPU:
// of so many pairs of guests, each in rounds with a turn of so many launches for both, which begin by
// turns.
func Launch(ctx context.Context, o *batch.Options, pairs, rounds, turn int) (l Launches, err error) {
	for i := range pairs {
		if err := l.pair(ctx, o, i%2 == 1, rounds, turn); err != nil {
			return l, err
		}
	}
	slices.Sort(l.Plain)
	slices.Sort(l.Floating)
	return l, nil
}

// pair measures a pair of guests, of which the one that floats comes first if floats is set.
func (l *Launches) pair(ctx context.Context, o *batch.Options, floats bool, rounds, turn int) (err error) {
	if err := cordon(ctx, o, true); err != nil {
		return err
	}
	specs := []api.VMSpec{{Name: "plain", GPU: o.GPUs[0]}, {Name: "floats", Float: true}}
	if floats {
		slices.Reverse(specs)
	}
	var all []*launcher
	for _, s := range specs {
		x, oerr := open(ctx, o, s)
		if err = oerr; err != nil {
			break
		}
		all = append(all, x)
		defer func() { err = errors.Join(err, x.close()) }()
	}
	if err := errors.Join(err, cordon(ctx, o, false)); err != nil {
		return err
	}
	plain, floating := all[0], all[1]
	if floats {
		plain, floating = floating, plain
	}
	for i := range rounds {
		first, second := plain, floating
		if i%2 == 1 {
			first, second = floating, plain
		}
		for _, x := range []*launcher{first, second} {
			if err := x.turn(ctx, turn); err != nil {
				return err
			}
		}
	}
	slices.Sort(plain.all)
	slices.Sort(floating.all)
	l.Pairs = append(l.Pairs, Median(floating.all)/Median(plain.all)-1)
	l.Plain, l.Floating = append(l.Plain, plain.all...), append(l.Floating, floating.all...)
	return nil
}

// cordon keeps tasks off all GPUs but the first, or no more.
func cordon(ctx context.Context, o *batch.Options, off bool) (err error) {
	for _, name := range o.GPUs[1:] {
		_, cerr := o.Client.UpdateGPU(ctx, name, api.GPUUpdate{Cordoned: &off})
		err = errors.Join(err, cerr)
	}
	return err
}

// launcher launches an empty kernel in a guest of its own.
type launcher struct {
	o       *batch.Options
	name    string
	dev     *driver.Device
	channel *driver.Channel
	launch  driver.Launch
	all     []float64 // the times of all turns, in seconds
}

// launchTask is what the context of a launcher that floats asks for.
var launchTask = driver.Task{MemoryBytes: 64 << 20, Blocks: 1, Threads: 32}

// open creates a guest with a context.
func open(ctx context.Context, o *batch.Options, s api.VMSpec) (_ *launcher, err error) {
	s.BAR2Bytes = batch.BAR2
	v, err := o.Client.CreateVM(ctx, s)
	if err != nil {
		return nil, err
	}
	l := &launcher{o: o, name: v.Name}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	bus, err := driver.DialVFIOUser(ctx, v.Socket)
	if err != nil {
		return nil, err
	}
	if l.dev, err = driver.Open(ctx, bus); err != nil {
		return nil, err
	}
	var c driver.ContextOptions
	if s.Float {
		c.Task = &launchTask
	}
	gpu, err := l.dev.NewContext(ctx, c)
	if err != nil {
		return nil, err
	}
	f, err := workload.LoadEmpty(ctx, gpu)
	if err != nil {
		return nil, err
	}
	if l.channel, err = gpu.NewChannel(ctx, driver.ChannelOptions{}); err != nil {
		return nil, err
	}
	l.launch = driver.Launch{Function: f, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 32}}
	return l, nil
}

// turn launches so many kernels that count, each after the one before.
func (l *launcher) turn(ctx context.Context, n int) error {
	for i := range n + launchesDropped {
		var p driver.Pending
		begin := time.Now()
		if err := l.channel.Enqueue(ctx, &p, &l.launch); err != nil {
			return err
		}
		if err := p.Wait(ctx); err != nil {
			return err
		}
		if i >= launchesDropped {
			l.all = append(l.all, time.Since(begin).Seconds())
		}
	}
	return nil
}

// closeLimit bounds the time in which a guest is deleted.
const closeLimit = time.Minute

func (l *launcher) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var err error
	if l.dev != nil {
		err = l.dev.Close()
	}
	return errors.Join(err, l.o.Client.ForceDeleteVM(ctx, l.name))
}
