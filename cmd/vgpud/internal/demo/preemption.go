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

// preemptive is the policy that takes kernels off the GPU for more urgent ones
// (FLEP §5.2.1).
const preemptive = "hpf"

const (
	// contestPart is the part of a phase's length, as a divisor, for which the two
	// guests are watched without evictions, and then with them.
	contestPart = 4
	// contestSettle is how long they work under a policy before that.
	contestSettle = time.Second
	// contestLimit is how much longer it may get, until a result of both was checked.
	contestLimit = 15 * time.Minute
)

// urgentPause is between an urgent launch's end and the next: some forty times a
// second.
const urgentPause = 20 * time.Millisecond

// Preemption is what it does for an urgent guest, and to a batch guest, that the
// urgent one's kernels take the GPU from the batch one's. Both have the kernels
// that leave when told in both cases; without eviction nobody tells them.
type Preemption struct {
	// UrgentLatency is from an urgent launch to its end, in milliseconds: the mean,
	// since without eviction a launch either finds the GPU free or waits long; then
	// the median, and what one launch in a hundred exceeds.
	UrgentLatency   Contrast `json:"urgent_latency_ms"`
	UrgentLatency50 Contrast `json:"urgent_latency_p50_ms"`
	UrgentLatency99 Contrast `json:"urgent_latency_p99_ms"`
	UrgentKernels   Contrast `json:"urgent_kernels"`
	// BatchThroughputRatio is the batch kernels per second with eviction over
	// those without.
	BatchThroughputRatio float64  `json:"batch_throughput_ratio"`
	BatchKernelsPerSec   Contrast `json:"batch_kernels_per_second"`
	// Eviction is from the word that a kernel is to leave until it has left, in
	// milliseconds.
	Eviction  Quantiles `json:"eviction_ms"`
	Evictions uint64    `json:"evictions"`
	// Verified: each guest had results checked in both cases and none was wrong.
	Verified bool `json:"verified"`
	// Policy is the one that evicts.
	Policy string `json:"policy"`
}

// Contrast is something without and with eviction.
type Contrast struct {
	None  float64 `json:"none"`
	Evict float64 `json:"evict"`
}

// Quantiles are a median and what one value in a hundred exceeds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// rivals are the guests of the third phase.
func rivals() (batch, urgent *member) {
	batch = &member{weight: 1, Plan: workload.Batch(), ready: make(chan struct{})}
	urgent = &member{weight: 1, ceiling: api.MaxPriority, Plan: workload.Urgent(), ready: make(chan struct{})}
	urgent.PauseMicros = int(urgentPause.Microseconds())
	return batch, urgent
}

// preemption measures the third phase.
func (d *demo) preemption(ctx context.Context) (*Preemption, error) {
	if err := d.retire(ctx); err != nil {
		return nil, err
	}
	batch, urgent := d.rivals()
	d.members = []*member{batch, urgent}
	if err := d.startGuests(ctx); err != nil {
		return nil, err
	}
	none, err := d.contest(ctx, "none", batch, urgent)
	if err != nil {
		return nil, err
	}
	evict, err := d.contest(ctx, preemptive, batch, urgent)
	if err != nil {
		return nil, err
	}
	p := contrast(none, evict)
	return &p, nil
}

// bout is what two guests did against each other under a policy.
type bout struct {
	seconds   float64
	latencies []float64 // of the urgent guest's launches, in milliseconds
	kernels   uint64    // of the batch guest
	evictions uint64
	eviction  api.Evictions
	verified  bool
}

// contest has them work under a policy.
func (d *demo) contest(ctx context.Context, policy string, batch, urgent *member) (bout, error) {
	length := d.o.Duration / contestPart
	if err := d.say("policy %s, a batch guest (%s) and an urgent one (%s), %v", policy, batch.describe(), urgent.describe(), length); err != nil {
		return bout{}, err
	}
	if _, err := d.client.UpdateGPU(ctx, gpuName, api.GPUUpdate{Policy: &policy}); err != nil {
		return bout{}, err
	}
	if err := clock.Sleep(ctx, clock.Real{}, contestSettle); err != nil {
		return bout{}, err
	}
	begin, err := d.look(ctx)
	if err != nil {
		return bout{}, err
	}
	urgent.forgetLatencies()
	for rest := length; ; rest = contestSettle {
		if err := clock.Sleep(ctx, clock.Real{}, rest); err != nil {
			return bout{}, err
		}
		now, err := d.look(ctx)
		if err != nil {
			return bout{}, err
		}
		for _, m := range d.members {
			select {
			case <-m.guest.ended():
				return bout{}, m.guest.why()
			default:
			}
		}
		b := boutOf(batch, urgent, begin, now)
		// Where the host left none of them a processor, nothing was evicted yet.
		enough := b.verified && (policy != preemptive || b.evictions > 0)
		if enough || now.at.Sub(begin.at) > length+contestLimit {
			return b, nil
		}
	}
}

// boutOf is what happened between two looks.
func boutOf(batch, urgent *member, begin, now look) bout {
	b := bout{
		seconds: now.at.Sub(begin.at).Seconds(), latencies: urgent.sortedLatencies(),
		kernels:   now.vms[batch.Name].Kernels - begin.vms[batch.Name].Kernels,
		evictions: now.gpu.Evictions.Count - begin.gpu.Evictions.Count, eviction: now.gpu.Evictions,
	}
	b.verified = len(b.latencies) > 0
	for _, m := range []*member{batch, urgent} {
		before, after := begin.reports[m.Name], now.reports[m.Name]
		b.verified = b.verified && after.Cases > before.Cases && after.Wrong == 0 && after.Error == ""
	}
	return b
}

// contrast holds the two against each other.
func contrast(none, evict bout) Preemption {
	rate := func(b bout) float64 { return float64(b.kernels) / b.seconds }
	p := Preemption{
		UrgentLatency:      Contrast{mean(none.latencies), mean(evict.latencies)},
		UrgentLatency50:    Contrast{quantile(none.latencies, 50), quantile(evict.latencies, 50)},
		UrgentLatency99:    Contrast{quantile(none.latencies, 99), quantile(evict.latencies, 99)},
		UrgentKernels:      Contrast{float64(len(none.latencies)), float64(len(evict.latencies))},
		BatchKernelsPerSec: Contrast{rate(none), rate(evict)},
		Eviction:           Quantiles{1e3 * evict.eviction.P50, 1e3 * evict.eviction.P99},
		Evictions:          evict.evictions,
		Verified:           none.verified && evict.verified, Policy: preemptive,
	}
	if rate(none) > 0 {
		p.BatchThroughputRatio = rate(evict) / rate(none)
	}
	return p
}

// mean is the mean of values, 0 where there are none.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// quantile is the least of the sorted values that at least percent of them don't
// exceed, 0 where there are none.
func quantile(sorted []float64, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}

// retire ends the guests and takes their virtual GPUs away, for others to come.
func (d *demo) retire(ctx context.Context) error {
	if err := d.endGuests(); err != nil {
		return err
	}
	for _, m := range d.members {
		if err := d.client.ForceDeleteVM(ctx, m.Name); err != nil {
			return err
		}
		m.socket = ""
	}
	d.retired = append(d.retired, d.members...)
	d.members = nil
	return nil
}

// err is not nil where a result was wrong or not checked, or where the urgent
// guest never took the GPU from the other.
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

// print writes it for people.
func (p *Preemption) print(w io.Writer) error {
	right := "all checked results right"
	if !p.Verified {
		right = "results WRONG or not checked"
	}
	_, err := fmt.Fprintf(w, "\nan urgent guest beside a batch guest, %s\n"+
		"urgent latency without eviction: mean %.2f ms, median %.2f ms, 99%% %.2f ms\n"+
		"urgent latency with it, by %s: mean %.2f ms, median %.2f ms, 99%% %.2f ms\n"+
		"batch throughput: %.1f kernels/s without, %.1f with: %.1f%%\n"+
		"%d evictions; a kernel left in %.2f ms (median), 99%% in %.2f ms\n",
		right, p.UrgentLatency.None, p.UrgentLatency50.None, p.UrgentLatency99.None,
		p.Policy, p.UrgentLatency.Evict, p.UrgentLatency50.Evict, p.UrgentLatency99.Evict,
		p.BatchKernelsPerSec.None, p.BatchKernelsPerSec.Evict, 100*p.BatchThroughputRatio,
		p.Evictions, p.Eviction.P50, p.Eviction.P99)
	return err
}

// forgetLatencies drops what a guest has measured until now.
func (m *member) forgetLatencies() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latencies = nil
}

// sortedLatencies are what it has measured since.
func (m *member) sortedLatencies() []float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.latencies))
}
