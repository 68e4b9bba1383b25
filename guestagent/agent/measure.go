package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// Times are statistics of repeated measurements.
type Times struct {
	P50 Nanos `json:"p50_ns"`
	P99 Nanos `json:"p99_ns"`
	Min Nanos `json:"min_ns"`
}

// Nanos is a duration, encoded as a number of nanoseconds.
type Nanos = time.Duration

// Part is one step of a launch.
type Part struct {
	Name string `json:"name"`
	// Description says what is timed.
	Description string `json:"what"`
	Times
}

// Launch holds times from launch to completion under some condition.
type Launch struct {
	// Wait is how the completion is waited for: by "looking" at the ring (polling), or asleep until
	// the "interrupt", or asleep until a "timer" if there are no interrupts.
	Wait string `json:"wait"`
	// Pause is the time between launches: after one longer than the host polls a ring, the launch
	// rings the doorbell.
	Pause     time.Duration `json:"pause_ns"`
	Doorbells int           `json:"doorbells"`
	Times
}

// meter times launches of an empty kernel.
type meter struct {
	ctx    context.Context
	bus    driver.Bus
	gpu    *driver.Context
	launch driver.Launch
	count  int
}

// alwaysPoll is so long that a wait never sleeps.
const alwaysPoll = 50 * time.Millisecond

func (m *meter) measure(r *CheckResult, parts bool) error {
	plain, _, err := m.launches(0, 0)
	if err != nil {
		return err
	}
	r.Launch = &plain.Times
	if !parts {
		return nil
	}
	if err := m.parts(r); err != nil {
		return err
	}
	asleep := "interrupt"
	if m.bus.Vectors() == 0 {
		asleep = "timer"
	}
	pause := max(5*time.Millisecond, 4*m.gpu.Device().Info().PollWindow)
	for _, c := range []struct {
		wait     string
		patience time.Duration
		pause    time.Duration
	}{{"looking", alwaysPoll, 0}, {asleep, -1, 0}, {"looking", alwaysPoll, pause}, {asleep, -1, pause}} {
		l, gpuTimes, err := m.launches(c.patience, c.pause)
		if err != nil {
			return err
		}
		l.Wait = c.wait
		r.Launches = append(r.Launches, l)
		if c.wait == "looking" && c.pause == 0 {
			r.Parts = append(r.Parts, Part{"execute", "the empty kernel, on the GPU's clock", gpuTimes})
		}
	}
	return nil
}

// launches times launches whose waits poll for up to spin.
func (m *meter) launches(spin, pause time.Duration) (l Launch, gpuTimes Times, err error) {
	ch, err := m.gpu.NewChannel(m.ctx, driver.ChannelOptions{Spin: spin})
	if err != nil {
		return l, gpuTimes, err
	}
	l.Pause = pause
	took, ran := make([]time.Duration, m.count), make([]time.Duration, m.count)
	var p driver.Pending
	const warmUp = 3
	for i := -warmUp; i < m.count && err == nil; i++ {
		if pause > 0 {
			time.Sleep(pause)
		}
		begin := time.Now()
		if err = ch.Enqueue(m.ctx, &p, &m.launch); err == nil {
			err = p.Wait(m.ctx)
		}
		if i >= 0 {
			took[i] = time.Since(begin)
			start, end := p.Times()
			ran[i] = end - start
		}
	}
	if err == nil {
		l.Doorbells = ch.Doorbells()
	}
	if e := ch.Close(); err == nil {
		err = e
	}
	if err != nil {
		return l, gpuTimes, fmt.Errorf("time launches: %w", err)
	}
	l.Times = sum(took)
	return l, sum(ran), nil
}

// parts times what a launch's steps cost the guest.
func (m *meter) parts(r *CheckResult) error {
	spare := uint32(abi.RegError) // the value written there does not matter
	var p driver.Pending
	own := m.gpu.Own()
	for _, s := range []struct {
		name, what string
		step       func() error
		after      func() error
	}{
		{"clock", "reading the clock twice: in all other times", func() error { return nil }, nil},
		{"register read", "a trapped read of BAR0", func() error { _, err := m.bus.Read(abi.RegMagic); return err }, nil},
		{"doorbell", "a trapped write to BAR0", func() error { return m.bus.Doorbell(spare) }, nil},
		{
			"submit", "a launch into the ring, with a doorbell only if the host sleeps",
			func() error { return own.Enqueue(m.ctx, &p, &m.launch) },
			func() error { return p.Wait(m.ctx) },
		},
	} {
		took := make([]time.Duration, m.count)
		for i := range took {
			begin := time.Now()
			err := s.step()
			took[i] = time.Since(begin)
			if err == nil && s.after != nil {
				err = s.after()
			}
			if err != nil {
				return fmt.Errorf("time a %s: %w", s.name, err)
			}
		}
		r.Parts = append(r.Parts, Part{s.name, s.what, sum(took)})
	}
	return nil
}

// sum returns statistics of times, which it sorts.
func sum(d []time.Duration) Times {
	slices.Sort(d)
	at := func(percent int) time.Duration { return d[(len(d)-1)*percent/100] }
	return Times{P50: at(50), P99: at(99), Min: d[0]}
}
