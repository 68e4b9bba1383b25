package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
)

// edgeSharesPart is the part about two guests with events without end.
const edgeSharesPart = "edge-shares"

const (
	// streamDepth is how many events or launches a stream has under way: as many as a queue has entries.
	streamDepth = 8
	// eventLength is about how long an event is if all of the GPU is at work. Where its block is alone
	// it is shorter.
	eventLength = 100 * time.Microsecond
	// eventsCalibrate is how long each guest streams alone.
	eventsCalibrate = 600 * time.Millisecond
	// eventsPatience is the window after which it has no longer one.
	eventsPatience = 20 * time.Second
)

// eventWeights are the guests'.
var eventWeights = []float64{1, 2}

// streamers are two guests with an event kernel each, always rung for.
type streamers struct {
	*bench
	guests  []*member
	job     []int
	lengths [][]float64 // of the guests' events, by run, in µs
}

// eventShares measures what two guests with events without end have of the GPU, and are charged.
func eventShares(ctx context.Context, b *bench) error {
	scaled, err := b.scale(ctx, eventLength)
	if err != nil {
		return err
	}
	r := &streamers{bench: b, lengths: make([][]float64, len(eventWeights))}
	r.guests, err = b.open(ctx, seat{setup: tenant.Setup{Name: "light"}}, seat{setup: tenant.Setup{Name: "heavy"}})
	if err != nil {
		return err
	}
	for i, m := range r.guests {
		j, err := m.load(ctx, tenant.Job{Spin: &tenant.Spin{Blocks: 1, Threads: edgeBlock, Iterations: scaled.iterations[0]}})
		if err != nil {
			return err
		}
		r.job = append(r.job, j)
		if _, err := b.client.UpdateVM(ctx, m.name, api.VMUpdate{Weight: &eventWeights[i]}); err != nil {
			return err
		}
	}
	var shares, byEvents, charges, alone []float64
	err = b.repeat(1, func(int) error {
		f, err := r.once(ctx)
		if err != nil {
			return err
		}
		shares, byEvents = append(shares, f.shares), append(byEvents, f.byEvents)
		charges, alone = append(charges, f.charge), append(alone, f.alone)
		return nil
	})
	if err != nil {
		return err
	}
	const how = "two guests of weights 1 and 2 under dfq, each with an event kernel of one block that is always rung for, eight events at a time"
	window := r.window()
	s := b.row("event_share_error", shares, fmt.Sprintf("%s; their shares of the GPU's time by accounting, in windows of %v, against their weights, in points", how, window))
	s.Baseline["by_events_times_length"] = figure.Median(byEvents)
	s.Baseline["equal_shares_would_be"] = points(figure.ShareError([]time.Duration{1, 1}, eventWeights))
	c := b.row("event_charge_error", charges, how+"; accounted time less events times their length alone, back to back, which each guest's stream has right before in the same run; of the guest with the larger error, in points of the time that it took")
	c.Baseline["of_a_guest_alone"] = figure.Median(alone)
	for i, m := range r.guests {
		s.Baseline["event_us_"+m.name], c.Baseline["event_us_"+m.name] = figure.Median(r.lengths[i]), figure.Median(r.lengths[i])
	}
	b.add(s, c)
	return nil
}

func points(fraction float64) float64 { return 100 * fraction }

func (r *streamers) window() time.Duration {
	return pick(r.bench, 300*time.Millisecond, 2*time.Second, 2500*time.Millisecond)
}

// streamsFound is the result of a run, in points.
type streamsFound struct{ shares, byEvents, charge, alone float64 }

// alone lets one guest stream, for longer if it has no event in the usual time, as on a busy machine. It
// returns what the guest did, what it was charged, and the time of both.
func (r *streamers) alone(ctx context.Context, i int) (ran *tenant.Ran, used, took time.Duration, err error) {
	for d := pick(r.bench, 100*time.Millisecond, eventsCalibrate, eventsCalibrate); ; d *= 2 {
		rans, used, took, err := r.streams(ctx, d/4, d, r.guests[i:i+1], r.job[i:i+1], nil)
		switch {
		case err != nil:
			return nil, 0, 0, err
		case rans[0].Launches > 0:
			return rans[0], used[0], took, nil
		case d > eventsPatience:
			return nil, 0, 0, fmt.Errorf("%s: no event in %v", r.guests[i].name, d)
		}
	}
}

// once lets each guest stream alone and then both at a time. The guests have no events at the
// beginning and at the end, so that accounting has all of them, once it was waited for.
func (r *streamers) once(ctx context.Context) (f streamsFound, err error) {
	if err := r.setPolicy(ctx, "none"); err != nil {
		return f, err
	}
	lengths := make([]time.Duration, len(r.guests))
	for i, m := range r.guests {
		// All at once would have one wait for the other's registration.
		if _, err := m.ask(ctx, tenant.Request{Stream: &tenant.Stream{Job: r.job[i]}}); err != nil {
			return f, err
		}
		ran, used, took, err := r.alone(ctx, i)
		if err != nil {
			return f, err
		}
		lengths[i] = ran.Window / time.Duration(ran.Launches)
		r.lengths[i] = append(r.lengths[i], float64(lengths[i])/1e3)
		f.alone = max(f.alone, points(figure.AccountingError(used, time.Duration(ran.All)*lengths[i], took)))
	}
	if err := r.setPolicy(ctx, "dfq"); err != nil {
		return f, err
	}
	var between []time.Duration
	warm := pick(r.bench, 100*time.Millisecond, shareWarm, shareWarm)
	rans, used, took, err := r.streams(ctx, warm, r.window(), r.guests, r.job, &between)
	if err != nil {
		return f, err
	}
	f.shares = points(figure.ShareError(between, eventWeights))
	byEvents := make([]time.Duration, len(rans))
	for i, ran := range rans {
		byEvents[i] = time.Duration(ran.Launches) * lengths[i]
		f.charge = max(f.charge, points(figure.AccountingError(used[i], time.Duration(ran.All)*lengths[i], took)))
	}
	f.byEvents = points(figure.ShareError(byEvents, eventWeights))
	return f, nil
}

// streams lets guests stream, and returns what accounting has of each of them then, and how long they
// took. between, if it is not nil, is set to what it has of the window alone, as of a moment later on
// both sides.
func (r *streamers) streams(ctx context.Context, warm, window time.Duration, guests []*member, jobs []int, between *[]time.Duration) (rans []*tenant.Ran, used []time.Duration, took time.Duration, err error) {
	before, err := r.used(ctx, guests)
	if err != nil {
		return nil, nil, 0, err
	}
	begin := time.Now().Add(lead)
	rans, errs := make([]*tenant.Ran, len(guests)), make(chan error, len(guests))
	for i, m := range guests {
		go func() {
			a, err := m.ask(ctx, tenant.Request{Stream: &tenant.Stream{Job: jobs[i], Depth: streamDepth, At: begin.UnixNano(), Warm: warm, For: window, After: warm / 4}})
			rans[i] = a.Ran
			errs <- err
		}()
	}
	var from []time.Duration
	if between != nil {
		from, err = r.usedAt(ctx, begin.Add(warm), guests)
		if err == nil {
			*between, err = r.usedAt(ctx, begin.Add(warm+window), guests)
		}
	}
	for range guests {
		err = errors.Join(err, <-errs)
	}
	took = time.Since(begin)
	if err == nil {
		err = rest(ctx, accountingLag)
	}
	if err != nil {
		return nil, nil, 0, err
	}
	for i := range from {
		(*between)[i] -= from[i]
	}
	if used, err = r.used(ctx, guests); err != nil {
		return nil, nil, 0, err
	}
	for i := range used {
		used[i] -= before[i]
	}
	return rans, used, took, nil
}

// usedAt is [testbed.used] at an instant.
func (h *testbed) usedAt(ctx context.Context, at time.Time, guests []*member) ([]time.Duration, error) {
	if err := rest(ctx, time.Until(at)); err != nil {
		return nil, err
	}
	return h.used(ctx, guests)
}
