package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/clock"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
)

// reportEvery is the time between two reports.
const reportEvery = 500 * time.Millisecond

// run is a guest at work.
type run struct {
	kernels, cases, wrong  atomic.Uint64
	preemptible, evictions atomic.Uint64
	pause                  time.Duration
	backlog                backlog
	mu                     sync.Mutex
	err                    error
	latencies              []float64
	out                    *json.Encoder
}

// Run works by the plan until ctx ends, which is no error. Wrong results are reported and don't
// stop it; other errors do.
func Run(ctx context.Context, p Plan, out io.Writer) error {
	if err := runPlan(ctx, p, out); err != nil {
		return fmt.Errorf("guest %s: %w", p.Name, err)
	}
	return nil
}

func runPlan(ctx context.Context, p Plan, out io.Writer) error {
	if p.Events != nil && p.Events.Card != nil { // it reaches no device
		return p.Events.play(ctx, out)
	}
	bus, err := p.bus(ctx)
	if err != nil {
		return err
	}
	switch {
	case p.Job != nil:
		return p.runJob(ctx, bus, out)
	case p.Begin != nil:
		return p.measureBegin(ctx, bus, out)
	case p.Measure > 0:
		timed := &timedBus{Bus: bus}
		return withContext(ctx, timed, driver.ContextOptions{}, func(gpu *driver.Context) error {
			return measureLatency(ctx, timed, gpu, p.Measure, out)
		})
	}
	o, err := p.contextOptions()
	if err != nil {
		return errors.Join(err, bus.Close())
	}
	return withContext(ctx, bus, o, func(gpu *driver.Context) error {
		switch {
		case p.Solo > 0:
			return p.measureSolo(ctx, gpu, out)
		case p.Events != nil:
			return p.Events.serve(ctx, gpu, out)
		}
		return p.work(ctx, gpu, out)
	})
}

// withContext opens the device on a bus, and calls do with a context on it.
func withContext(ctx context.Context, bus driver.Bus, o driver.ContextOptions, do func(*driver.Context) error) (err error) {
	dev, err := driver.Open(ctx, bus)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	gpu, err := dev.NewContext(ctx, o)
	if err != nil {
		return err
	}
	return do(gpu)
}

// work does the plan's work in a context.
func (p *Plan) work(ctx context.Context, gpu *driver.Context, out io.Writer) (err error) {
	channels := make([]*driver.Channel, max(p.Channels, 1))
	for i := range channels {
		if channels[i], err = gpu.NewChannel(ctx, driver.ChannelOptions{}); err != nil {
			return err
		}
	}
	workers, err := p.workers(ctx, gpu)
	if err != nil {
		return err
	}
	r := &run{out: json.NewEncoder(out), pause: time.Duration(p.PauseMicros) * time.Microsecond}
	r.backlog.start(time.Now())
	if err := r.report(true); err != nil {
		return err
	}
	if p.Idle {
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			defer cancel() // a worker that fails ends all
			r.work(ctx, channels[w%len(channels)], workers[w], w)
		})
	}
	for clock.Sleep(ctx, clock.Real{}, reportEvery) == nil {
		if err := r.report(false); err != nil {
			return err
		}
	}
	wg.Wait()
	return errors.Join(r.report(false), r.first())
}

// task is a load with the number of launches between two checks.
type task struct {
	*Load
	repeat int
}

// workers loads every worker's cases.
func (p *Plan) workers(ctx context.Context, gpu *driver.Context) ([][]task, error) {
	workers := make([][]task, max(p.Workers, 1))
	for w := range workers {
		for i, work := range p.Work {
			k, c, err := work.Case(p.Seed + uint64(w*len(p.Work)+i))
			if err != nil {
				return nil, err
			}
			l, err := NewLoad(ctx, gpu, k.PTX(corpus.SM80), c)
			if err != nil {
				return nil, err
			}
			if form := forms[p.Preempt]; form != 0 {
				l.Force(form)
			}
			t := task{Load: l, repeat: 1}
			if l.Repeatable() {
				t.repeat = max(work.Repeat, 1)
			}
			workers[w] = append(workers[w], t)
		}
	}
	return workers, nil
}

// work runs the loads in turn, each worker from another start.
func (r *run) work(ctx context.Context, ch *driver.Channel, loads []task, start int) {
	for i := start; ctx.Err() == nil; i++ {
		if r.pause > 0 && clock.Sleep(ctx, clock.Real{}, r.pause) != nil {
			return
		}
		t := loads[i%len(loads)]
		err := t.rounds(ctx, ch, t.repeat, r)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.fail(err)
			if _, ok := errors.AsType[*corpus.Mismatch](err); !ok {
				return
			}
			r.wrong.Add(1)
		}
		r.cases.Add(1)
	}
}

func (r *run) started() { r.backlog.change(1, time.Now()) }

func (r *run) finished(p *driver.Pending, took time.Duration) {
	r.kernels.Add(1)
	if p.Form() != 0 {
		r.preemptible.Add(1)
		r.evictions.Add(p.Evictions())
	}
	r.backlog.change(-1, time.Now())
	if r.pause > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.latencies) < MaxLatencies {
			r.latencies = append(r.latencies, float64(took)/float64(time.Millisecond))
		}
	}
}

// takeLatencies returns the latencies since the last report.
func (r *run) takeLatencies() []float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.latencies
	r.latencies = nil
	return taken
}

func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (r *run) first() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *run) report(ready bool) error {
	busy, backlogged := r.backlog.sums(time.Now())
	rep := Report{
		Ready: ready, Kernels: r.kernels.Load(), Cases: r.cases.Load(), Wrong: r.wrong.Load(),
		BusySeconds: busy.Seconds(), BackloggedSeconds: backlogged.Seconds(),
		Preemptible: r.preemptible.Load(), Evictions: r.evictions.Load(), LatenciesMillis: r.takeLatencies(),
	}
	if err := r.first(); err != nil {
		rep.Error = err.Error()
	}
	if err := r.out.Encode(rep); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
