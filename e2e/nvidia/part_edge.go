package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/vgpu/abi"
)

// edgePart is the part about event kernels, whose rows are EDGE's.
const edgePart = "edge"

// The shapes of the kernels that are launched: of a warp, of a block, and of a grid.
const (
	edgeWarp   = 32
	edgeBlock  = 128
	edgeGrid   = 8
	edgeJitter = 10 * time.Microsecond
	// edgeShared is how long events beside 20 ms kernels are launched.
	edgeShared = 2 * time.Second
)

// edge measures launches of event kernels by stores, beside launches by commands, of a guest and of
// a program of the host, in the same run.
type edge struct {
	*bench
	native, guest, other *member
	empty                [2]int // jobs of native and guest
	found                map[string][]float64
}

// eventKernels measures event kernels.
func eventKernels(ctx context.Context, b *bench) (err error) {
	e := &edge{bench: b, found: make(map[string][]float64)}
	if e.native, err = b.native(ctx, "native"); err != nil {
		return err
	}
	guests, err := b.open(ctx, seat{setup: tenant.Setup{Name: "guest"}}, seat{setup: tenant.Setup{Name: "other"}})
	if err != nil {
		return err
	}
	e.guest, e.other = guests[0], guests[1]
	for i, m := range []*member{e.native, e.guest} {
		if e.empty[i], err = m.load(ctx, tenant.Job{Fixed: "empty"}); err != nil {
			return err
		}
	}
	scaled, err := b.scale(ctx, batchTask)
	if err != nil {
		return err
	}
	batch := b.manyBlocks(scaled.iterations[0])
	long, err := e.other.load(ctx, tenant.Job{Spin: &batch})
	if err != nil {
		return err
	}
	own, err := e.guest.load(ctx, tenant.Job{Spin: &batch})
	if err != nil {
		return err
	}
	err = b.repeat(0.9, func(int) error {
		return errors.Join(e.launches(ctx), e.several(ctx), e.idle(ctx, long, own), e.shared(ctx, long))
	})
	if err == nil {
		e.report()
	}
	return err
}

func (e *edge) keep(what string, v float64) { e.found[what] = append(e.found[what], v) }

// events launches events of a shape, and keeps the median and the 99th percentile.
func (e *edge) events(ctx context.Context, m *member, what string, r tenant.Events) (p50 float64, err error) {
	a, err := m.ask(ctx, tenant.Request{Events: &r})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if len(a.Took) == 0 {
		return 0, fmt.Errorf("%s: no event has ended", what)
	}
	us := figure.Micros(a.Took[len(a.Took)/10:])
	p50 = figure.Median(us)
	e.keep(what, p50)
	e.keep(what+" p99", figure.Quantile(us, 0.99))
	return p50, nil
}

// launches compares launches one at a time.
func (e *edge) launches(ctx context.Context) error {
	n := pick(e.bench, 40, 2000, 4000)
	var p50 [2]float64
	for i, m := range []*member{e.native, e.guest} {
		ran, err := m.run(ctx, tenant.Run{Job: e.empty[i], Count: n})
		if err != nil {
			return err
		}
		us := figure.Micros(ran.Turnarounds[n/10:])
		p50[i] = figure.Median(us)
		e.keep([]string{"native", "by commands"}[i], p50[i])
	}
	for _, s := range []struct {
		what            string
		blocks, threads uint32
	}{{"warp", 1, edgeWarp}, {"block", 1, edgeBlock}, {"grid", edgeGrid, edgeBlock}} {
		took, err := e.events(ctx, e.guest, s.what, tenant.Events{Kernels: 1, Blocks: s.blocks, Threads: s.threads, Rounds: n, Jitter: edgeJitter})
		if err != nil {
			return err
		}
		switch s.what {
		case "warp":
			e.keep("over native", p50[0]/took)
			e.keep("over commands", p50[1]/took)
		case "grid":
			e.keep("grid over native", took-p50[0])
		}
	}
	return nil
}

// several has all numbers of one guest ring, and then those of two guests at a time.
func (e *edge) several(ctx context.Context) error {
	n := pick(e.bench, 4, 500, 1000)
	all := tenant.Events{Kernels: abi.MaxEventKernels, Blocks: 1, Threads: edgeWarp, Rounds: n}
	if _, err := e.events(ctx, e.guest, "one guest's", all); err != nil {
		return err
	}
	all.Rounds, all.For = 1<<20, pick(e.bench, 50*time.Millisecond, time.Second, time.Second)
	other := make(chan error, 1)
	go func() {
		_, err := e.other.ask(ctx, tenant.Request{Events: &all})
		other <- err
	}()
	_, err := e.events(ctx, e.guest, "two guests'", all)
	return errors.Join(err, <-other)
}

// idle compares the throughput of a guest's kernels beside event kernels without events with that
// without event kernels: another guest's, and its own.
func (e *edge) idle(ctx context.Context, long, own int) error {
	none, one := tenant.Events{}, tenant.Events{Kernels: 1, Blocks: 1, Threads: edgeWarp, Rounds: 1}
	for _, c := range []struct {
		what  string
		works *member
		job   int
	}{{"idle other", e.other, long}, {"idle same", e.guest, own}} {
		var took [2]float64
		for i, r := range []tenant.Events{none, one} {
			for _, m := range []*member{e.guest, e.other} {
				ask := none
				if m == e.guest {
					ask = r
				}
				if _, err := m.ask(ctx, tenant.Request{Events: &ask}); err != nil {
					return fmt.Errorf("%s: %w", c.what, err)
				}
			}
			n := pick(e.bench, 2, 30, 60)
			begin := time.Now()
			if _, err := c.works.run(ctx, tenant.Run{Job: c.job, Count: 1, Rounds: n, Depth: batchDepth}); err != nil {
				return fmt.Errorf("%s: %w", c.what, err)
			}
			took[i] = time.Since(begin).Seconds()
		}
		e.keep(c.what, 100*(took[1]/took[0]-1))
	}
	return nil
}

// shared launches events beside another guest's kernels of 20 ms.
func (e *edge) shared(ctx context.Context, long int) error {
	window := pick(e.bench, 100*time.Millisecond, edgeShared, edgeShared)
	batch := make(chan error, 1)
	go func() {
		_, err := e.other.run(ctx, tenant.Run{Job: long, Warm: urgentWarm, For: window, After: urgentWarm, Depth: batchDepth, Rounds: endless})
		batch <- err
	}()
	_, err := e.events(ctx, e.guest, "shared", tenant.Events{
		Kernels: 1, Blocks: 1, Threads: edgeWarp, Rounds: 1 << 20, For: window, Jitter: mostPause,
	})
	if err := errors.Join(err, <-batch); err != nil {
		return err
	}
	warp := e.found["warp"]
	last := e.found["shared"]
	e.keep("shared over alone", last[len(last)-1]-warp[len(warp)-1])
	return nil
}

// report makes the rows.
func (e *edge) report() {
	median := func(what string) float64 {
		if len(e.found[what]) == 0 {
			return math.NaN()
		}
		return figure.Median(e.found[what])
	}
	const how = "an event kernel that does nothing, by a guest's process, from its store to the doorbell until it sees the flag, after random pauses of up to 10 µs; parameters prepared once"
	for _, r := range []struct{ id, what, how string }{
		{"launch_p50_us", "warp", "one warp: " + how},
		{"launch_p99_us", "warp p99", "one warp: " + how},
		{"launch32_p50_us", "two guests'", "two guests with 16 kernels each, of one warp; each guest rings for all of them and then waits for all. Their contexts take turns"},
		{"launch32_p99_us", "two guests' p99", "the same"},
		{"speedup_native", "over native", "a native launch of an empty kernel that is waited for, over an event of one warp: medians"},
		{"speedup_guest", "over commands", "a guest's launch of an empty kernel by a command that is waited for, over an event of one warp: medians"},
		{"block_us", "block", fmt.Sprintf("one block of %d threads: %s", edgeBlock, how)},
		{"grid_us", "grid over native", fmt.Sprintf("%d blocks of %d threads, less a native launch of an empty kernel: %s", edgeGrid, edgeBlock, how)},
		{"idle_other", "idle other", "what kernels of 20 ms take longer beside another guest with an event kernel without events, which has parked"},
		{"idle_same", "idle same", "the same, of a guest with such an event kernel of its own"},
		{"shared_p50_us", "shared over alone", "events beside another guest's kernels of 20 ms, with pauses of up to 5 ms, less events alone: medians. No policy, default time slices"},
	} {
		row := e.row(r.id, e.found[r.what], r.how)
		row.Baseline["native_us"], row.Baseline["guest_by_commands_us"] = median("native"), median("by commands")
		if r.what == "two guests'" {
			row.Baseline["one_guest_of_16_us"], row.Baseline["one_guest_of_16_us_p99"] = median("one guest's"), median("one guest's p99")
		}
		e.add(row)
	}
}
