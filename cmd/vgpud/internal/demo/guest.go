package demo

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
	"vgpud/e2e/kernels"
	"vgpud/guestagent/driver"
)

// GuestPlan is what a guest's process does; it comes as JSON on its standard
// input.
type GuestPlan struct {
	Name   string `json:"name"`
	Socket string `json:"socket"`
	Work   []Work `json:"work"`
	// Workers is how many cases are under way at a time, each with buffers of
	// its own; Channels over how many channels.
	Workers  int    `json:"workers"`
	Channels int    `json:"channels"`
	Seed     uint64 `json:"seed"`
}

// GuestReport is what a guest's process says, a line of JSON twice a second and
// at its end.
type GuestReport struct {
	// Ready is said once, when all is loaded and the work begins.
	Ready bool `json:"ready,omitempty"`
	// Kernels ended, Cases were checked, and Wrong of them were wrong.
	Kernels uint64 `json:"kernels"`
	Cases   uint64 `json:"cases"`
	Wrong   uint64 `json:"wrong"`
	// Error is the first thing that went wrong.
	Error string `json:"error,omitempty"`
}

// reportEvery is the time between two reports.
const reportEvery = 500 * time.Millisecond

// guestRun is a guest's process at work.
type guestRun struct {
	kernels, cases, wrong atomic.Uint64
	mu                    sync.Mutex
	err                   error
	out                   *json.Encoder
}

// RunGuest works until ctx ends. Wrong results are reported and do not stop it;
// what keeps it from working does.
func RunGuest(ctx context.Context, p GuestPlan, out io.Writer) (err error) {
	bus, err := driver.DialVFIOUser(ctx, p.Socket)
	if err != nil {
		return fmt.Errorf("guest %s: %w", p.Name, err)
	}
	dev, err := driver.Open(ctx, bus)
	if err != nil {
		return fmt.Errorf("guest %s: %w", p.Name, err)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	gpu, err := dev.NewContext(ctx, driver.ContextOptions{})
	if err != nil {
		return fmt.Errorf("guest %s: %w", p.Name, err)
	}
	channels := make([]*driver.Channel, max(p.Channels, 1))
	for i := range channels {
		if channels[i], err = gpu.NewChannel(ctx, driver.ChannelOptions{}); err != nil {
			return fmt.Errorf("guest %s: %w", p.Name, err)
		}
	}
	loads := make([][]*load, max(p.Workers, 1))
	for w := range loads {
		for i, work := range p.Work {
			l, err := newLoad(ctx, gpu, work, p.Seed+uint64(w*len(p.Work)+i))
			if err != nil {
				return fmt.Errorf("guest %s: %w", p.Name, err)
			}
			loads[w] = append(loads[w], l)
		}
	}
	r := &guestRun{out: json.NewEncoder(out)}
	if err := r.report(true); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for w := range loads {
		wg.Go(func() {
			defer cancel() // one that can't go on ends all
			r.work(ctx, channels[w%len(channels)], loads[w], w)
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

// work goes round and round through the loads, each worker from another start.
func (r *guestRun) work(ctx context.Context, ch *driver.Channel, loads []*load, start int) {
	for i := start; ctx.Err() == nil; i++ {
		err := loads[i%len(loads)].run(ctx, ch, func() { r.kernels.Add(1) })
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.note(err)
			if _, ok := errors.AsType[*kernels.Mismatch](err); !ok {
				return
			}
			r.wrong.Add(1)
		}
		r.cases.Add(1)
	}
}

func (r *guestRun) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (r *guestRun) first() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *guestRun) report(ready bool) error {
	rep := GuestReport{Ready: ready, Kernels: r.kernels.Load(), Cases: r.cases.Load(), Wrong: r.wrong.Load()}
	if err := r.first(); err != nil {
		rep.Error = err.Error()
	}
	if err := r.out.Encode(rep); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
