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

// emptyKernel is a module with the kernel "empty", which does nothing.
const emptyKernel = `.version 8.0
.target sm_80
.address_size 64
.visible .entry empty()
{
	ret;
}
`

// LoadEmpty loads a kernel that does nothing.
func LoadEmpty(ctx context.Context, gpu *driver.Context) (*driver.Function, error) {
	m, err := gpu.LoadModule(ctx, []byte(emptyKernel))
	if err != nil {
		return nil, err
	}
	return m.Function(ctx, "empty")
}

// LatencyReport is the result of a latency measurement: a line of JSON.
type LatencyReport struct {
	Ways []Latency `json:"ways"`
}

// Latency is the time of one launch of an empty kernel, from before the call to its return, in one
// way of launching. Times are in seconds. The parts are listed in order. They are means over the
// half of the launches around the median, so that they add up to about the median; where two parts
// overlap, only what the second waits for counts.
type Latency struct {
	Way      string `json:"way"`
	Launches int    `json:"launches"`
	// Doorbells and Interrupts are the fractions of the launches, 0 to 1, in which the guest rang
	// the doorbell, and in which an interrupt woke it.
	Doorbells  float64 `json:"doorbells"`
	Interrupts float64 `json:"interrupts"`
	// Total is the median and Total99 the 99th percentile.
	Total   float64 `json:"total_seconds"`
	Total99 float64 `json:"total_p99_seconds"`
	// Store is the writing of the command into the ring, Doorbell the register write, if any. Fetch
	// lasts from then until the GPU begins, Execute is by the GPU's own clock. Interrupt is from
	// the kernel's end to the guest's interrupt, if any, and Return from there to the caller.
	Store     float64 `json:"store_seconds"`
	Doorbell  float64 `json:"doorbell_seconds"`
	Fetch     float64 `json:"fetch_seconds"`
	Execute   float64 `json:"execute_seconds"`
	Interrupt float64 `json:"interrupt_seconds"`
	Return    float64 `json:"return_seconds"`
	// Clocks is the uncertainty of the GPU's clock against the guest's, half a round trip: Fetch
	// and the part after Execute may be off by so much, in opposite directions.
	Clocks float64 `json:"clocks_seconds"`
}

// longPause is the pause before a launch that finds host and guest asleep: longer than either
// polls.
const longPause = 5 * time.Millisecond

// spinTime is how long a polling guest polls for completions, no longer than others can wait for
// its processor. noSpin is for a guest that is woken each time.
const (
	spinTime = 2 * time.Millisecond
	noSpin   = -1
)

// syncEvery is the number of launches between comparisons of the clocks.
const syncEvery = 16

// measureLatency launches n empty kernels in each way: back to back or with pauses, by a guest that
// polls for the end or sleeps.
func measureLatency(ctx context.Context, bus *timedBus, gpu *driver.Context, n int, out io.Writer) error {
	f, err := LoadEmpty(ctx, gpu)
	if err != nil {
		return err
	}
	l := &launcher{bus: bus, gpu: gpu, launch: driver.Launch{Function: f, Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 32}}}
	var r LatencyReport
	for _, way := range []struct {
		name            string
		spinTime, pause time.Duration
	}{
		{"host polls, guest polls", spinTime, 0},
		{"host polls, guest sleeps", noSpin, 0},
		{"host sleeps, guest polls", spinTime, longPause},
		{"host sleeps, guest sleeps", noSpin, longPause},
	} {
		if l.channel, err = gpu.NewChannel(ctx, driver.ChannelOptions{Spin: way.spinTime}); err != nil {
			return err
		}
		all := make([]sample, 0, n)
		for i := range n {
			if i%syncEvery == 0 {
				if err := l.compareClocks(ctx); err != nil {
					return err
				}
			}
			if err := clock.Sleep(ctx, clock.Real{}, way.pause); err != nil {
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

// sample is one launch. Its times are by this process's clock, from the call.
type sample struct {
	submitted  time.Duration // the enqueueing call returned
	ringing    time.Duration // the doorbell's part of that
	began, end time.Duration // on the GPU
	woken      time.Duration // by an interrupt; 0: it was not
	total      time.Duration
	clocks     time.Duration // uncertainty of began and end
}

// parts are the parts of a launch in order; they add up to the total.
type parts struct{ store, doorbell, fetch, execute, interrupt, back time.Duration }

// parts splits the launch. A doorbell that outlasts the fetch, because the host is faster than the
// write's answer, counts until the GPU begins. If the clocks disagree, a part may be negative by as
// much.
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

// launcher launches one kernel repeatedly.
type launcher struct {
	bus     *timedBus
	gpu     *driver.Context
	channel *driver.Channel
	launch  driver.Launch
	// GPU time + offset is this process's time since epoch, ± within.
	epoch          time.Time
	offset, within time.Duration
}

// compareClocks reads the GPU's time a few times: the shortest round trip is the most accurate.
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

// summarize averages the middle half of the samples, of which there is at least one.
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

// timedBus is a bus that records when doorbells are rung and interrupts come.
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

// Doorbell records how long the write took.
func (b *timedBus) Doorbell(offset uint32) error {
	begin := time.Now()
	err := b.Bus.Doorbell(offset)
	took := time.Since(begin)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doorbells = append(b.doorbells, doorbell{begin, took})
	return err
}

// Wait records when it returned.
func (b *timedBus) Wait(ctx context.Context, vector int) error {
	err := b.Bus.Wait(ctx, vector)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.woken = now
	return err
}

// forget drops the records.
func (b *timedBus) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doorbells, b.woken = b.doorbells[:0], time.Time{}
}

// seen returns how long doorbells rung before submitted took, and when an interrupt came, if one
// did.
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
