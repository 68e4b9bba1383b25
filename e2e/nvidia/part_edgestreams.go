package main

import (
	"context"
	"fmt"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
)

// edgeStreamsPart is the part about figures 4b and 5: streams of kernels of several sizes.
const edgeStreamsPart = "edge-streams"

// productBlocks are figure 4b's kernels, by their blocks.
var productBlocks = [...]int{2, 120}

// batchPackets are figure 5's, by their packets.
var batchPackets = [...]int{32, 64, 128, 256, 512, 1024}

const (
	// lineRate is figure 5's, in bits a second, and frameBits the length of the corpus's packets.
	lineRate, frameBits = 8e9, 8 * 62
	// forwarded is how many batches are forwarded at a time: packets live no longer.
	forwarded = 240
)

// streamed is one kernel, launched by a native program, and in a guest as events and by commands.
type streamed struct {
	name string
	jobs [2]int // of native and guest
	// Periods are microseconds a kernel, by run: kernels behind one another, and each waited for.
	native, event, commands, nativeOne, eventOne []float64
	tier                                         string
}

// streams are the kernels of both figures.
type streams struct {
	*bench
	native, guest *member
	products      [len(productBlocks)]streamed
	batches       [len(batchPackets)]streamed
}

// eventStreams measures figures 4b and 5.
func eventStreams(ctx context.Context, b *bench) (err error) {
	s := &streams{bench: b}
	if s.native, err = b.testbed.native(ctx, "native"); err != nil {
		return err
	}
	if s.guest, err = b.guest(ctx, tenant.Setup{Name: "guest"}); err != nil {
		return err
	}
	for i, blocks := range productBlocks {
		if err := s.load(ctx, &s.products[i], tenant.Work{Kernel: "matmul", Size: blocks}); err != nil {
			return err
		}
	}
	for i, packets := range batchPackets {
		if err := s.load(ctx, &s.batches[i], tenant.Work{Kernel: "ipv4", Size: packets}); err != nil {
			return err
		}
	}
	err = b.repeat(1, func(int) error {
		for i := range s.products {
			if err := s.product(ctx, &s.products[i]); err != nil {
				return fmt.Errorf("%s: %w", s.products[i].name, err)
			}
		}
		for i := range s.batches {
			if err := s.batch(ctx, &s.batches[i]); err != nil {
				return fmt.Errorf("%s: %w", s.batches[i].name, err)
			}
		}
		return nil
	})
	if err == nil {
		s.report()
	}
	return err
}

// load loads a kernel into both programs.
func (s *streams) load(ctx context.Context, k *streamed, w tenant.Work) error {
	j := tenant.Job{Work: &w}
	k.name = j.Name()
	for i, m := range []*member{s.native, s.guest} {
		var err error
		if k.jobs[i], err = m.load(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// productRuns is how many products are computed at a time.
func (s *streams) productRuns() int { return pick(s.bench, 3, 10_000, 15_000) }

// period is the microseconds that a launch of a run takes.
func period(r *tenant.Ran) float64 {
	return r.Window.Seconds() * 1e6 / float64(r.Launches)
}

// product measures a product behind itself, and one at a time.
func (s *streams) product(ctx context.Context, k *streamed) error {
	if err := s.same(ctx, k, 3); err != nil {
		return err
	}
	for _, x := range []struct {
		to    *[]float64
		depth int
		event bool
		m     *member
		job   int
	}{
		{&k.native, streamDepth, false, s.native, k.jobs[0]},
		{&k.event, streamDepth, true, s.guest, k.jobs[1]},
		{&k.nativeOne, 1, false, s.native, k.jobs[0]},
		{&k.eventOne, 1, true, s.guest, k.jobs[1]},
		{&k.commands, streamDepth, false, s.guest, k.jobs[1]},
	} {
		ran, err := launched(ctx, x.m, x.event, x.job, x.depth, s.productRuns())
		if err != nil {
			return err
		}
		*x.to = append(*x.to, period(ran))
	}
	k.tier = s.tier(ctx, s.guest)
	return nil
}

// batch measures how long a batch takes from its launch until its end is seen.
func (s *streams) batch(ctx context.Context, k *streamed) error {
	n := pick(s.bench, 8, forwarded, forwarded)
	if err := s.same(ctx, k, n); err != nil {
		return err
	}
	for i, m := range []*member{s.native, s.guest} {
		if _, err := m.ask(ctx, tenant.Request{Clear: &k.jobs[i]}); err != nil {
			return err
		}
		ran, err := launched(ctx, m, i == 1, k.jobs[i], 1, n)
		if err != nil {
			return err
		}
		to := []*[]float64{&k.nativeOne, &k.eventOne}[i]
		*to = append(*to, figure.Median(figure.Micros(ran.Turnarounds[n/8:])))
	}
	k.tier = s.tier(ctx, s.guest)
	return nil
}

// launched launches a kernel so often, by stores or otherwise.
func launched(ctx context.Context, m *member, event bool, job, depth, count int) (*tenant.Ran, error) {
	if event {
		a, err := m.ask(ctx, tenant.Request{Stream: &tenant.Stream{Job: job, Count: count, Depth: depth}})
		return a.Ran, err
	}
	if depth == 1 { // each is a turnaround
		return m.run(ctx, tenant.Run{Job: job, Count: count})
	}
	return m.run(ctx, tenant.Run{Job: job, Count: 1, Rounds: count, Depth: depth})
}

// same holds that events compute what native launches do.
func (s *streams) same(ctx context.Context, k *streamed, n int) error {
	var sums [2]uint64
	for i, m := range []*member{s.native, s.guest} {
		if _, err := m.ask(ctx, tenant.Request{Clear: &k.jobs[i]}); err != nil {
			return err
		}
		if _, err := launched(ctx, m, i == 1, k.jobs[i], 1, n); err != nil {
			return err
		}
		a, err := m.ask(ctx, tenant.Request{Sum: &k.jobs[i]})
		if err != nil {
			return err
		}
		sums[i] = a.Sum
	}
	if sums[0] != sums[1] {
		return fmt.Errorf("events compute another thing than native launches")
	}
	return nil
}

// report makes the rows.
func (s *streams) report() {
	for i, r := range []struct{ id, of string }{{"small_faster", "a native launch's time over an event's"}, {"large_slower", "an event's time over a native launch's"}} {
		k := &s.products[i]
		over, under := k.native, k.event
		if i == 1 {
			over, under = k.event, k.native
		}
		row := s.row(r.id, ratios(over, under), fmt.Sprintf("figure 4b: a continuous stream of products of %d blocks, which is one side's %d events under way (%s) or the other's native launches, each end of which is seen; %s. One at a time is each waited for before the next. The results are compared",
			productBlocks[i], streamDepth, k.tier, r.of))
		for name, us := range map[string][]float64{
			"native_us": k.native, "event_us": k.event, "guest_by_commands_us": k.commands, "native_us_one_at_a_time": k.nativeOne, "event_us_one_at_a_time": k.eventOne,
		} {
			row.Baseline[name] = figure.Median(us)
		}
		one := ratios(k.nativeOne, k.eventOne)
		if i == 1 {
			one = ratios(k.eventOne, k.nativeOne)
		}
		row.Baseline["one_at_a_time"] = figure.Median(one)
		if i == 0 {
			row.How += ". The page's table is figure 5's: batches of packets to be forwarded, from the launch until its end is seen, medians in µs, beside how long such a batch takes to come at 8 Gbit/s"
			row.Detail = s.figure5()
		}
		s.add(row)
	}
}

// figure5 is the batches of packets.
func (s *streams) figure5() (t *report.Table) {
	t = detail("coming in, µs", "native launch, µs", "event, µs", "native over event")
	for i := range s.batches {
		k := &s.batches[i]
		t.Add(fmt.Sprintf("%d packets, %s", batchPackets[i], k.tier), float64(batchPackets[i])*frameBits/lineRate*1e6,
			figure.Median(k.nativeOne), figure.Median(k.eventOne), figure.Median(ratios(k.nativeOne, k.eventOne)))
	}
	return t
}

// ratios divides the first values by the second ones, by run.
func ratios(over, under []float64) (all []float64) {
	for i := range min(len(over), len(under)) {
		all = append(all, over[i]/under[i])
	}
	return all
}
