package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/guestagent/driver"
)

// EmptyKernel is a module with the kernel "empty", which does nothing.
const EmptyKernel = `.version 8.0
.target sm_80
.address_size 64
.visible .entry empty()
{
	ret;
}
`

// LatencyReport is what a measurement of launches found: a line of JSON.
type LatencyReport struct {
	Ways []Latency `json:"ways"`
}

// Latency is how long one launch of an empty kernel takes, from before the call
// to its return, in one way of launching. Times are in seconds. The parts are in
// the order in which they happen, means over the half of the launches whose totals
// are around the median, so that they add up to about that; where one goes on
// beside the next only what the next waits for counts.
type Latency struct {
	Way      string `json:"way"`
	Launches int    `json:"launches"`
	// Doorbells and Interrupts are the parts of the launches, 0 to 1, in which the
	// guest had to ring, and was woken rather than looking.
	Doorbells  float64 `json:"doorbells"`
	Interrupts float64 `json:"interrupts"`
	// Total is the median, Total99 what one launch in a hundred exceeds.
	Total   float64 `json:"total_seconds"`
	Total99 float64 `json:"total_p99_seconds"`
	// Store is the command's way into the ring, Doorbell the register write, where
	// there was one. Fetch is from then until the GPU begins, Execute by the GPU's
	// own clock. Interrupt is from the kernel's end to the guest's interrupt, where
	// there was one, and Return from there to the caller.
	Store     float64 `json:"store_seconds"`
	Doorbell  float64 `json:"doorbell_seconds"`
	Fetch     float64 `json:"fetch_seconds"`
	Execute   float64 `json:"execute_seconds"`
	Interrupt float64 `json:"interrupt_seconds"`
	Return    float64 `json:"return_seconds"`
	// Clocks is how far the GPU's clock may be from the guest's, half a round trip:
	// Fetch and what follows Execute may be off by so much, one for the other.
	Clocks float64 `json:"clocks_seconds"`
}

// rest is the pause before a launch that finds everybody asleep: longer than
// anyone looks for work.
const rest = 5 * time.Millisecond

// patience is for how long a guest that is to look for its completions does so,
// no longer than others can wait for its processor, and asleep that of one that is
// to be woken each time.
const (
	patience = 2 * time.Millisecond
	asleep   = -1
)

// syncEvery is after how many launches the clocks are compared anew.
const syncEvery = 16

// measureLatency launches n empty kernels in each way: one after the other and
// with pauses, by a guest that looks for the end and by one that sleeps.
func measureLatency(ctx context.Context, bus *timedBus, gpu *driver.Context, n int, out io.Writer) error {
	m, err := gpu.LoadModule(ctx, []byte(EmptyKernel))
	if err != nil {
		return err
	}
	f, err := m.Function(ctx, "empty")
	if err != nil {
		return err
	}
	l := &launcher{bus: bus, gpu: gpu, launch: driver.Launch{Function: f, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 32}}}
	var r LatencyReport
	for _, way := range []struct {
		name           string
		patience, rest time.Duration
	}{
		{"host looks, guest looks", patience, 0},
		{"host looks, guest sleeps", asleep, 0},
		{"host sleeps, guest looks", patience, rest},
		{"host sleeps, guest sleeps", asleep, rest},
	} {
		if l.channel, err = gpu.NewChannel(ctx, driver.ChannelOptions{Spin: way.patience}); err != nil {
			return err
		}
		all := make([]sample, 0, n)
		for i := range n {
			if i%syncEvery == 0 {
				if err := l.compareClocks(ctx); err != nil {
					return err
				}
			}
			if err := clock.Sleep(ctx, clock.Real{}, way.rest); err != nil {
				return err
			}
			s, err := l.once(ctx)
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		if err := l.channel.Close(); err != nil {
			return err
		}
		r.Ways = append(r.Ways, summarize(way.name, all))
	}
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// sample is one launch. Its times are of this process's clock, from the call.
type sample struct {
	submitted  time.Duration // the enqueueing call returned
	ringing    time.Duration // how much of that was a doorbell
	began, end time.Duration // on the GPU
	woken      time.Duration // by an interrupt; 0: it wasn't
	total      time.Duration
	clocks     time.Duration // how far began and end may be off
}

// parts are a launch's, in order; their sum is the total.
type parts struct{ store, doorbell, fetch, execute, interrupt, back time.Duration }

// parts splits the launch. A doorbell that outlasts the fetch, since the host is
// quicker than its answer, counts until the GPU begins. Where clocks disagree a
// part may come out below 0 by as much.
func (s sample) parts() parts {
	p := parts{store: s.submitted - s.ringing, execute: s.end - s.began}
	p.doorbell = max(min(s.ringing, s.began-p.store), 0)
	p.fetch = s.began - p.store - p.doorbell
	noticed := s.end
	if s.woken > 0 {
		p.interrupt = s.woken - s.end
		noticed = s.woken
	}
	p.back = s.total - noticed
	return p
}

// launcher launches one kernel again and again.
type launcher struct {
	bus     *timedBus
	gpu     *driver.Context
	channel *driver.Channel
	launch  driver.Launch
	// GPU time + offset is this process's time since epoch, to within.
	epoch          time.Time
	offset, within time.Duration
}

// compareClocks asks the GPU for its time a few times: the shortest round trip
// tells most.
func (l *launcher) compareClocks(ctx context.Context) error {
	const asks = 20
	l.epoch, l.within = time.Now(), -1
	for range asks {
		before := time.Since(l.epoch)
		gpu, err := l.gpu.Timestamp(ctx)
		if err != nil {
			return err
		}
		if half := (time.Since(l.epoch) - before) / 2; l.within < 0 || half < l.within {
			l.within, l.offset = half, before+half-gpu
		}
	}
	return nil
}

func (l *launcher) once(ctx context.Context) (sample, error) {
	var p driver.Pending
	l.bus.forget()
	begin := time.Now()
	if err := l.channel.Enqueue(ctx, &p, &l.launch); err != nil {
		return sample{}, err
	}
	submitted := time.Now()
	if err := p.Wait(ctx); err != nil {
		return sample{}, err
	}
	s := sample{total: time.Since(begin), submitted: submitted.Sub(begin), clocks: l.within}
	began, end := p.Times()
	since := begin.Sub(l.epoch)
	s.began, s.end = began+l.offset-since, end+l.offset-since
	var woken time.Time
	s.ringing, woken = l.bus.seen(submitted)
	if !woken.IsZero() {
		s.woken = woken.Sub(begin)
	}
	return s, nil
}

// summarize takes the middle of everything; there is at least one sample.
func summarize(way string, all []sample) Latency {
	slices.SortFunc(all, func(a, b sample) int { return cmp.Compare(a.total, b.total) })
	n := len(all)
	r := Latency{Way: way, Launches: n, Total: all[n/2].total.Seconds(), Total99: all[n*99/100].total.Seconds()}
	middle := all[n/4 : n-n/4]
	for _, s := range middle {
		p, per := s.parts(), 1/float64(len(middle))
		for sum, d := range map[*float64]time.Duration{
			&r.Store: p.store, &r.Doorbell: p.doorbell, &r.Fetch: p.fetch, &r.Execute: p.execute,
			&r.Interrupt: p.interrupt, &r.Return: p.back, &r.Clocks: s.clocks,
		} {
			*sum += d.Seconds() * per
		}
	}
	for _, s := range all {
		if s.ringing > 0 {
			r.Doorbells += 1 / float64(n)
		}
		if s.woken > 0 {
			r.Interrupts += 1 / float64(n)
		}
	}
	return r
}

// timedBus is a bus that notes when doorbells are rung and interrupts come.
type timedBus struct {
	driver.Bus

	mu        sync.Mutex
	doorbells []doorbell
	woken     time.Time
}

type doorbell struct {
	begin time.Time
	took  time.Duration
}

// Doorbell notes how long the write took.
func (b *timedBus) Doorbell(offset uint32) error {
	begin := time.Now()
	err := b.Bus.Doorbell(offset)
	took := time.Since(begin)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doorbells = append(b.doorbells, doorbell{begin, took})
	return err
}

// Wait notes when it returned.
func (b *timedBus) Wait(ctx context.Context, vector int) error {
	err := b.Bus.Wait(ctx, vector)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.woken = now
	return err
}

// forget drops what was noted.
func (b *timedBus) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doorbells, b.woken = b.doorbells[:0], time.Time{}
}

// seen is for how long doorbells were rung before submitted, and when an
// interrupt came, if one did.
func (b *timedBus) seen(submitted time.Time) (ringing time.Duration, woken time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.doorbells {
		if d.begin.Before(submitted) {
			ringing += d.took
		}
	}
	return ringing, b.woken
}
