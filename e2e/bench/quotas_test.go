package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// Quotas have to hold in every window of quotaWindow. One begins every quotaStep, and a run counts for
// quotaTime after quotaWarmUp.
const (
	quotaWindow = 5 * time.Second
	quotaStep   = 250 * time.Millisecond
	quotaTime   = 8 * time.Second
	quotaWarmUp = time.Second
)

// quotaPolicies are those of docs/results/quota.md.
var quotaPolicies = []string{"none", "dfq", "ffs", "hpf"}

// quotaLengths are the guests' kernels.
var quotaLengths = []time.Duration{200 * time.Microsecond, 2 * time.Millisecond, 500 * time.Microsecond, time.Millisecond}

// quotaCounts are the numbers of guests.
var quotaCounts = []int{2, 3, 4}

// BenchmarkCaps measures how far capped guests are from their caps, which leave a tenth of the GPU
// together, in points of the time over any five seconds. Each guest keeps eight kernels waiting.
func BenchmarkCaps(b *testing.B) {
	benchmarkQuotas(b, func(b *testing.B, r *quotaRun) {
		caps := make([]float64, len(r.names))
		for i, name := range r.names {
			caps[i] = 0.9 * float64(i+1) / float64(len(r.names)*(len(r.names)+1)/2)
			r.update(b, name, api.VMUpdate{Cap: &caps[i]})
		}
		above, below := math.Inf(-1), math.Inf(-1)
		r.windows(b, func(guest int, used, _ float64) {
			b.Logf("guest %d used %.3f cap %.3f", guest, used, caps[guest])
			above, below = max(above, used-caps[guest]), max(below, caps[guest]-used)
		})
		b.ReportMetric(100*above, "points-above")
		b.ReportMetric(100*below, "points-below")
	})
}

// BenchmarkGuarantees measures what the first of the guests, which has kernels of 200 µs and an eighth
// of the others' weight, lacks of its guarantee at most, in points of the time over any five
// seconds. Each guest keeps eight kernels waiting, or means to: it is owed its guarantee only of the
// time in which it had work, of which points-below-while-it-has-work is.
func BenchmarkGuarantees(b *testing.B) {
	const guarantee = 0.5
	benchmarkQuotas(b, func(b *testing.B, r *quotaRun) {
		weight, promised := 8.0, guarantee
		for _, name := range r.names[1:] {
			r.update(b, name, api.VMUpdate{Weight: &weight})
		}
		r.update(b, r.names[0], api.VMUpdate{Guarantee: &promised})
		below, ofWork := math.Inf(-1), math.Inf(-1)
		r.windows(b, func(guest int, used, workless float64) {
			if guest == 0 {
				below, ofWork = max(below, promised-used), max(ofWork, promised*(1-workless)-used)
			}
		})
		b.ReportMetric(100*below, "points-below")
		b.ReportMetric(100*ofWork, "points-below-while-it-has-work")
	})
}

// quotaRun is a host whose guests always have work.
type quotaRun struct {
	host     *host.Host
	names    []string
	backlogs []*backlog
}

// benchmarkQuotas runs measure under each policy for each number of guests.
func benchmarkQuotas(b *testing.B, measure func(b *testing.B, r *quotaRun)) {
	for _, policy := range quotaPolicies {
		for _, n := range quotaCounts {
			b.Run(fmt.Sprintf("%s/%d", policy, n), func(b *testing.B) {
				r := &quotaRun{host: host.Start(b, policy)}
				for i := range n {
					name := fmt.Sprint("guest", i)
					gpu := newContext(b, r.host, name)
					r.backlogs = append(r.backlogs, keepBacklog(b, gpu, newThrottle(b, gpu, quotaLengths[i])))
					r.names = append(r.names, name)
				}
				for b.Loop() {
					measure(b, r)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// update changes a guest's terms.
func (r *quotaRun) update(b *testing.B, name string, u api.VMUpdate) {
	b.Helper()
	if _, err := r.host.Client.UpdateVM(b.Context(), name, u); err != nil {
		b.Fatal(err)
	}
}

// windows calls f with the part of each window that each guest used, by the GPU's own count, and in
// which it had no work.
func (r *quotaRun) windows(b *testing.B, f func(guest int, used, workless float64)) {
	b.Helper()
	type mark struct {
		at             time.Time
		used, workless []float64 // seconds
	}
	var marks []mark
	tick := time.NewTicker(quotaStep)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < quotaWarmUp+quotaTime; <-tick.C {
		if time.Since(begun) < quotaWarmUp {
			continue
		}
		vms, err := r.host.Client.VMs(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		m := mark{at: time.Now(), used: make([]float64, len(r.names)), workless: make([]float64, len(r.names))}
		for i, name := range r.names {
			m.workless[i] = time.Duration(r.backlogs[i].workless.Load()).Seconds()
			for _, v := range vms {
				if v.Name == name && v.GPUSecondsOwn != nil {
					m.used[i] = *v.GPUSecondsOwn
				}
			}
		}
		marks = append(marks, m)
		first := marks[0]
		if m.at.Sub(first.at) < quotaWindow {
			continue
		}
		for i := range r.names {
			length := m.at.Sub(first.at).Seconds()
			f(i, (m.used[i]-first.used[i])/length, (m.workless[i]-first.workless[i])/length)
		}
		marks = marks[1:]
	}
}

// backlog is a guest's launches that wait. workless is how long there was none, in nanoseconds: the
// guest had not submitted another by the end of the last.
type backlog struct{ workless atomic.Int64 }

// keepBacklog keeps eight launches waiting until the benchmark ends.
func keepBacklog(b *testing.B, gpu *driver.Context, l *driver.Launch) *backlog {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	k := new(backlog)
	var wg sync.WaitGroup
	wg.Go(func() {
		var pending [8]driver.Pending
		var submitted [8]time.Duration
		var ended time.Duration // of the launch before pending[i%8]
		for i := 0; ctx.Err() == nil; i++ {
			p := &pending[i%len(pending)]
			err := p.Wait(ctx)
			if err == nil {
				if at := submitted[i%len(pending)]; at > 0 {
					if ended > 0 {
						k.workless.Add(int64(max(at-ended, 0)))
					}
					_, ended = p.Times()
				}
				submitted[i%len(pending)] = clock.Real{}.Now()
				err = gpu.Own().Enqueue(ctx, p, l)
			}
			if err != nil && ctx.Err() == nil {
				b.Error(err)
				return
			}
		}
	})
	b.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return k
}
