package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"vgpud/clock"
	"vgpud/cmd/vgpud/workload"
	"vgpud/mediator/api"
)

// preemptive is the policy that evicts kernels for more urgent ones (FLEP §5.2.1).
const preemptive = "hpf"

const (
	// The two guests are measured in turns without evictions and with them, so that what else the
	// host does falls on both, and each turn is Duration / urgencyPart long.
	urgencyTurns = 3
	urgencyPart  = 6
	// urgencySettle is how long they work under a policy before that.
	urgencySettle = time.Second
	// urgencyLimit is how much longer it may take until both have had a result checked.
	urgencyLimit = 15 * time.Minute
)

// urgentPause is the time between an urgent launch's end and the next launch: about forty a second.
const urgentPause = 20 * time.Millisecond

// quantileLaunches is how many launches there must be for a 99th percentile: of fewer, the worst one
// or two are all there is to say.
const quantileLaunches = 200

// Preemption compares an urgent and a batch guest without and with evictions of the batch guest's
// kernels. Their kernels are preemptible in both cases.
type Preemption struct {
	// UrgentLatency is from an urgent launch to its end, in milliseconds: the mean, since without
	// eviction a launch either finds the GPU free or waits long; then the median, the 99th
	// percentile, left out if there were too few launches for one, and the worst.
	UrgentLatency    Contrast  `json:"urgent_latency_ms"`
	UrgentLatency50  Contrast  `json:"urgent_latency_p50_ms"`
	UrgentLatency99  *Contrast `json:"urgent_latency_p99_ms,omitempty"`
	UrgentLatencyMax Contrast  `json:"urgent_latency_max_ms"`
	// UrgentKernels is the number of those launches.
	UrgentKernels Contrast `json:"urgent_kernels"`
	// Turns is how often each of the two was measured, in alternation.
	Turns int `json:"turns"`
	// BatchThroughputRatio is the rate of batch kernels with eviction over the rate without.
	BatchThroughputRatio float64  `json:"batch_throughput_ratio"`
	BatchKernelsPerSec   Contrast `json:"batch_kernels_per_second"`
	// Eviction is the time from an eviction's start until the kernel has left, in milliseconds.
	Eviction  Quantiles `json:"eviction_ms"`
	Evictions uint64    `json:"evictions"`
	// Verified reports whether each guest had results checked in both cases and none was wrong.
	Verified bool `json:"verified"`
	// Policy is the one that evicts.
	Policy string `json:"policy"`
}

// Contrast is a value without and with eviction.
type Contrast struct {
	None  float64 `json:"none"`
	Evict float64 `json:"evict"`
}

// Quantiles are a median and a 99th percentile.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// urgencyPair returns the guests of the third phase.
func urgencyPair() (batch, urgent *guest) {
	batch = &guest{weight: 1, Plan: workload.Batch(), ready: make(chan struct{})}
	urgent = &guest{weight: 1, ceiling: api.MaxPriority, Plan: workload.Urgent(), ready: make(chan struct{})}
	urgent.PauseMicros = int(urgentPause.Microseconds())
	return batch, urgent
}

// preemption measures the third phase.
func (d *demo) preemption(ctx context.Context) (*Preemption, error) {
	if err := d.removeGuests(ctx); err != nil {
		return nil, err
	}
	batch, urgent := d.urgencyPair()
	d.guests = []*guest{batch, urgent}
	if err := d.startGuests(ctx); err != nil {
		return nil, err
	}
	var none, evict interval
	for turn := range urgencyTurns {
		for _, half := range []struct {
			policy string
			sum    *interval
		}{{"none", &none}, {preemptive, &evict}} {
			b, err := d.measureUrgency(ctx, half.policy, turn, batch, urgent)
			if err != nil {
				return nil, err
			}
			half.sum.add(b)
		}
	}
	p := compare(none, evict)
	return &p, nil
}

// interval is what two guests did beside each other under a policy.
type interval struct {
	seconds   float64
	latencies []float64 // of the urgent guest's launches, in milliseconds
	kernels   uint64    // of the batch guest
	evictions uint64
	eviction  api.Evictions
	verified  bool
	turns     int // that this is the sum of
}

// add adds what happened in another interval under the same policy. The eviction times are those of
// the newer one, which are of the newest evictions.
func (b *interval) add(o interval) {
	b.verified = o.verified && (b.verified || b.turns == 0)
	b.turns++
	b.seconds += o.seconds
	b.latencies = slices.Sorted(slices.Values(slices.Concat(b.latencies, o.latencies)))
	b.kernels += o.kernels
	b.evictions += o.evictions
	b.eviction = o.eviction
}

// measureUrgency runs the two guests under a policy.
func (d *demo) measureUrgency(ctx context.Context, policy string, turn int, batch, urgent *guest) (interval, error) {
	length := d.o.Duration / urgencyPart
	if err := d.progress("policy %s, turn %d of %d, a batch guest (%s) and an urgent one (%s), %v", policy, turn+1, urgencyTurns, batch.describe(), urgent.describe(), length.Round(time.Millisecond)); err != nil {
		return interval{}, err
	}
	if _, err := d.client.UpdateGPU(ctx, gpuName, api.GPUUpdate{Policy: &policy}); err != nil {
		return interval{}, err
	}
	if err := clock.Sleep(ctx, clock.Real{}, urgencySettle); err != nil {
		return interval{}, err
	}
	begin, err := d.snapshot(ctx)
	if err != nil {
		return interval{}, err
	}
	urgent.resetLatencies()
	for rest := length; ; rest = urgencySettle {
		if err := clock.Sleep(ctx, clock.Real{}, rest); err != nil {
			return interval{}, err
		}
		now, err := d.snapshot(ctx)
		if err != nil {
			return interval{}, err
		}
		for _, m := range d.guests {
			select {
			case <-m.instance.ended():
				return interval{}, m.instance.endError()
			default:
			}
		}
		b := intervalOf(batch, urgent, begin, now)
		// On a busy host nothing may have been evicted yet. Where the host left none of them a
		// processor, nothing was evicted yet.
		enough := b.verified && (policy != preemptive || b.evictions > 0)
		if enough || now.at.Sub(begin.at) > length+urgencyLimit {
			return b, nil
		}
	}
}

// intervalOf returns what happened between two snapshots.
func intervalOf(batch, urgent *guest, begin, now snapshot) interval {
	b := interval{
		seconds: now.at.Sub(begin.at).Seconds(), latencies: urgent.sortedLatencies(),
		kernels:   now.vms[batch.Name].Kernels - begin.vms[batch.Name].Kernels,
		evictions: now.gpu.Evictions.Count - begin.gpu.Evictions.Count, eviction: now.gpu.Evictions,
	}
	b.verified = len(b.latencies) > 0
	for _, m := range []*guest{batch, urgent} {
		before, after := begin.reports[m.Name], now.reports[m.Name]
		b.verified = b.verified && after.Cases > before.Cases && after.Wrong == 0 && after.Error == ""
	}
	return b
}

// compare compares the two intervals.
func compare(none, evict interval) Preemption {
	rate := func(b interval) float64 { return float64(b.kernels) / b.seconds }
	p := Preemption{
		UrgentLatency:      Contrast{mean(none.latencies), mean(evict.latencies)},
		UrgentLatency50:    Contrast{quantile(none.latencies, 50), quantile(evict.latencies, 50)},
		UrgentLatencyMax:   Contrast{quantile(none.latencies, 100), quantile(evict.latencies, 100)},
		Turns:              min(none.turns, evict.turns),
		UrgentKernels:      Contrast{float64(len(none.latencies)), float64(len(evict.latencies))},
		BatchKernelsPerSec: Contrast{rate(none), rate(evict)},
		Eviction:           Quantiles{1e3 * evict.eviction.P50, 1e3 * evict.eviction.P99},
		Evictions:          evict.evictions,
		Verified:           none.verified && evict.verified, Policy: preemptive,
	}
	if min(len(none.latencies), len(evict.latencies)) >= quantileLaunches {
		p.UrgentLatency99 = &Contrast{quantile(none.latencies, 99), quantile(evict.latencies, 99)}
	}
	if rate(none) > 0 {
		p.BatchThroughputRatio = rate(evict) / rate(none)
	}
	return p
}

// mean returns the mean of values, or 0 without any.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// quantile returns the least of the sorted values that at least percent of them don't exceed, or 0
// without any.
func quantile(sorted []float64, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}

// removeGuests ends the guests and deletes their virtual GPUs, to make room for others.
func (d *demo) removeGuests(ctx context.Context) error {
	if err := d.endGuests(); err != nil {
		return err
	}
	for _, m := range d.guests {
		if err := d.client.ForceDeleteVM(ctx, m.Name); err != nil {
			return err
		}
		m.socket = ""
	}
	d.removed = append(d.removed, d.guests...)
	d.guests = nil
	return nil
}

// err returns an error if a result was wrong or not checked, or if the urgent guest never evicted
// the other.
func (p *Preemption) err() error {
	var errs []error
	if !p.Verified {
		errs = append(errs, errors.New("a batch and an urgent guest: results wrong or not checked"))
	}
	if p.Evictions == 0 {
		errs = append(errs, fmt.Errorf("a batch and an urgent guest: nothing was evicted under %s", p.Policy))
	}
	return errors.Join(errs...)
}

// print writes the comparison as text.
func (p *Preemption) print(w io.Writer) error {
	right := "all checked results right"
	if !p.Verified {
		right = "results WRONG or not checked"
	}
	// The tail is a quantile only if there were enough launches; otherwise it is the worst of them.
	tail := func(of func(Contrast) float64) string {
		if p.UrgentLatency99 != nil {
			return fmt.Sprintf("99%% %.2f ms, worst %.2f ms", of(*p.UrgentLatency99), of(p.UrgentLatencyMax))
		}
		return fmt.Sprintf("worst %.2f ms", of(p.UrgentLatencyMax))
	}
	without := func(c Contrast) float64 { return c.None }
	with := func(c Contrast) float64 { return c.Evict }
	_, err := fmt.Fprintf(w, "\nan urgent guest beside a batch guest, %d turns each in alternation, %s\n"+
		"urgent latency without eviction: mean %.2f ms, median %.2f ms, %s of %.0f launches\n"+
		"urgent latency with it, by %s: mean %.2f ms, median %.2f ms, %s of %.0f launches\n"+
		"batch throughput: %.1f kernels/s without, %.1f with: %.1f%%\n"+
		"%d evictions; a kernel left in %.2f ms (median), 99%% in %.2f ms\n",
		p.Turns, right, p.UrgentLatency.None, p.UrgentLatency50.None, tail(without), p.UrgentKernels.None,
		p.Policy, p.UrgentLatency.Evict, p.UrgentLatency50.Evict, tail(with), p.UrgentKernels.Evict,
		p.BatchKernelsPerSec.None, p.BatchKernelsPerSec.Evict, 100*p.BatchThroughputRatio,
		p.Evictions, p.Eviction.P50, p.Eviction.P99)
	return err
}

// resetLatencies drops the latencies so far.
func (m *guest) resetLatencies() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latencies = nil
}

// sortedLatencies returns the latencies since then.
func (m *guest) sortedLatencies() []float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.latencies))
}
