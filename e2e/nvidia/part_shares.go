package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
)

// shareWeights and shareKernels are assigned to the guests in turn. Their numbers differ, so that
// light guests have long kernels as well as short ones.
var (
	shareWeights = []float64{1, 2, 4}
	shareKernels = []time.Duration{time.Millisecond, 100 * time.Microsecond, 5 * time.Millisecond, 400 * time.Microsecond}
)

// shareDepth is the length of the work that a saturating guest has queued, and shareLaunches the
// greatest number of its launches.
const (
	shareDepth    = 10 * time.Millisecond
	shareLaunches = 64
)

// shares measures each guest's share and the total throughput when guests of different weights
// saturate the GPU, under weighted sharing and under the driver's default time slicing.
func shares(ctx context.Context, b *bench) error {
	scaled, err := b.scale(ctx, shareKernels...)
	if err != nil {
		return err
	}
	s := &sharing{bench: b, iterations: scaled.iterations, solo: scaled.alone}
	counts := pick(b, []int{2}, []int{3, 8}, []int{2, 3, 8})
	guests, err := s.guests(ctx, slices.Max(counts))
	if err != nil {
		return err
	}
	of := make(map[int][]shareFound)
	err = b.repeat(1, func(run int) error {
		for _, n := range counts { // the other guests exist, but are idle
			f, err := s.once(ctx, guests[:n], run == 0)
			if err != nil {
				return fmt.Errorf("%d guests: %w", n, err)
			}
			of[n] = append(of[n], f)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.report(counts, of)
	return nil
}

// report makes the rows. The value of a run is that of the worst number of guests in the run.
func (s *sharing) report(counts []int, of map[int][]shareFound) {
	var worst, byDefault, bySlices, kept []float64
	for run := range of[counts[0]] {
		most := shareFound{kept: math.Inf(1)}
		for _, n := range counts {
			f := of[n][run]
			most.weighted, most.byDefault = max(most.weighted, f.weighted), max(most.byDefault, f.byDefault)
			most.kept = min(most.kept, f.kept)
		}
		worst, byDefault, kept = append(worst, most.weighted), append(byDefault, most.byDefault), append(kept, most.kept)
	}
	table := detail("error, weighted", "error, default slicing", "error of equal shares from equal weights", "throughput kept")
	least, equal := math.Inf(1), 0.0
	for _, n := range counts {
		median := func(v func(shareFound) float64) float64 {
			var all []float64
			for _, f := range of[n] {
				all = append(all, v(f))
			}
			return figure.Median(all)
		}
		first := of[n][0]
		table.Add(fmt.Sprintf("%d guests", n), median(func(f shareFound) float64 { return f.weighted }),
			median(func(f shareFound) float64 { return f.byDefault }), first.equal, median(func(f shareFound) float64 { return f.kept }))
		least, equal = min(least, median(func(f shareFound) float64 { return f.freely })), max(equal, first.equal)
		bySlices = append(bySlices, first.bySlices)
	}
	how := fmt.Sprintf("%v guests of weights 1:2:4 in turn, saturating with kernels of %v in turn; shares by kernels × length alone, in windows of %v", counts, shareKernels, s.window())
	r := s.row("share_error", worst, how+"; worst guest of all. Equal time slices: what the policy does where all weights are equal")
	r.Baseline["default_slicing_against_weights"], r.Baseline["equal_slices_against_weights"] = figure.Median(byDefault), slices.Max(bySlices)
	r.Baseline["equal_weights_against_equal_shares"] = equal
	r.Detail = table
	k := s.row("throughput_kept", kept, how+"; worst number of guests. Kernels × length alone per second, under dfq over that under no policy")
	k.Baseline["default_slicing_kernel_seconds_per_second"] = least
	s.add(r, k)
}

// sharing holds the guests' kernels.
type sharing struct {
	*bench
	iterations []int
	solo       []time.Duration
}

func (s *sharing) window() time.Duration {
	return pick(s.bench, 200*time.Millisecond, 5*time.Second, 5*time.Second)
}

func (s *sharing) guests(ctx context.Context, n int) ([]*member, error) {
	var seats []seat
	for i := range n {
		seats = append(seats, seat{setup: tenant.Setup{Name: fmt.Sprintf("guest%d", i)}})
	}
	guests, err := s.open(ctx, seats...)
	if err != nil {
		return nil, err
	}
	for i, m := range guests {
		spin := s.full(s.iterations[i%len(shareKernels)])
		if _, err := m.load(ctx, tenant.Job{Spin: &spin}); err != nil {
			return nil, err
		}
	}
	return guests, nil
}

// shareFound is the result of one run.
type shareFound struct {
	// These are errors: of the requested shares and of the default, compared to the weights'
	// shares; of equal weights, compared to equal shares and to the weights' shares.
	weighted, byDefault, equal, bySlices float64
	freely, kept                         float64 // the throughput under the default, and the part of it that remains
}

// once measures the guests under no policy, under weighted sharing and, if equally is set, with
// equal weights.
func (s *sharing) once(ctx context.Context, guests []*member, equally bool) (f shareFound, err error) {
	n := len(guests)
	weights, ones := make([]float64, n), make([]float64, n)
	for i := range weights {
		weights[i], ones[i] = shareWeights[i%len(shareWeights)], 1
	}
	short := pick(s.bench, s.window(), 1500*time.Millisecond, 1200*time.Millisecond)
	free, err := s.measure(ctx, guests, "none", weights, short)
	if err != nil {
		return f, err
	}
	weighted, err := s.measure(ctx, guests, "dfq", weights, s.window())
	if err != nil {
		return f, err
	}
	f.weighted, f.byDefault = figure.ShareError(weighted, weights), figure.ShareError(free, weights)
	f.equal, f.bySlices = math.NaN(), math.NaN()
	if equally {
		equal, err := s.measure(ctx, guests, "dfq", ones, short)
		if err != nil {
			return f, err
		}
		f.equal, f.bySlices = figure.ShareError(equal, ones), figure.ShareError(equal, weights)
	}
	rate := func(used []time.Duration, window time.Duration) (sum float64) {
		for _, u := range used {
			sum += float64(u) / float64(window)
		}
		return sum
	}
	f.freely = rate(free, short)
	f.kept = rate(weighted, s.window()) / f.freely
	return f, nil
}

// shareWarm is how long guests work before a window, while the policy reaches the shares.
const shareWarm = 2 * time.Second

// measure returns the GPU time of each guest's kernels in a window.
func (s *sharing) measure(ctx context.Context, guests []*member, policy string, weights []float64, window time.Duration) ([]time.Duration, error) {
	for i, m := range guests {
		if _, err := s.client.UpdateVM(ctx, m.name, api.VMUpdate{Weight: &weights[i]}); err != nil {
			return nil, err
		}
	}
	if err := s.setPolicy(ctx, policy); err != nil {
		return nil, err
	}
	warm := pick(s.bench, 50*time.Millisecond, shareWarm, shareWarm)
	if policy == "none" {
		warm = min(warm, 300*time.Millisecond)
	}
	var tasks []task
	for i, m := range guests {
		kernel := shareKernels[i%len(shareKernels)]
		depth := int(min(max(shareDepth/kernel, 4), shareLaunches))
		// There is no pause between rounds: a guest that waits for its last launch has work again
		// before the other guests can take advantage.
		tasks = append(tasks, task{m, tenant.Run{Warm: warm, For: window, Depth: depth, Rounds: 32 * depth}})
	}
	rans, err := together(ctx, tasks...)
	if err != nil {
		return nil, err
	}
	used := make([]time.Duration, len(rans))
	for i, ran := range rans {
		used[i] = time.Duration(ran.Launches) * s.solo[i%len(shareKernels)]
	}
	return used, nil
}
