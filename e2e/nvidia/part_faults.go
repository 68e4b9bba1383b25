package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"vgpud/clock"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
)

// trial is a fault to be tried on a guest that has another guest beside it. It returns a
// description of what was observed, and an error if something did not recover.
type trial struct {
	what string
	// capped limits the guests to so little of the GPU that they are suspended most of the time.
	capped bool
	// unlimited lifts the limit of the guests' GPU memory.
	unlimited bool
	try       func(ctx context.Context, s *scene) (saw string, err error)
}

var trials = []trial{
	{what: "a guest's kernel stores at a bad address", try: badAddress},
	{what: "a guest's kernel stores at a bad address while the guest is suspended", capped: true, try: strays},
	{what: "a guest's kernel never ends", try: neverEnds},
	{what: "a guest's kernel never ends while the guest is suspended", capped: true, try: neverEnds},
	{what: "a guest exhausts memory while it is suspended", capped: true, try: exhausts},
	{what: "kill -9 of a guest's process while its context is off the GPU", capped: true, try: killGuest},
	{what: "kill -9 of a guest's executor while its context is off the GPU, which the daemon's next calls are of", capped: true, try: killExecutor},
	{what: "kill -9 of the daemon while a guest's context is off the GPU, for longer than it stays so", capped: true, try: killDaemon},
	{what: "kill -9 of the daemon while a guest's context is off the GPU, and another at once", capped: true, try: replaceDaemon},
	{what: "kill -9 of the daemon while guests have time slices of its making, for longer than they keep them", try: abandonSlices},
	{what: "kill -9 of the daemon while guests have time slices of its making, and another at once that leaves them to the driver", try: inheritSlices},
	{what: "what is refused before the driver is asked: more threads than a block can have, and more memory than the GPU has", try: refused},
	{what: "driver calls that fail: to load half a cubin, and PTX that its compiler refuses", try: badImages},
	{what: "driver calls that fail: to allocate more than is free, by a guest without a limit", unlimited: true, try: exhaustGPU},
}

const (
	faultCap   = 0.2
	faultLimit = 2 << 30 // the limit of the victim's memory
	// faultKernel is long enough for its guest to be suspended while the kernel runs.
	faultKernel = 20 * time.Millisecond
	// trialTimeout limits the duration of a trial.
	trialTimeout = 40 * time.Second
	// leaveLimit limits the time in which the daemon releases its guests.
	leaveLimit = 10 * time.Second
)

// faults runs each trial with guests of its own.
func faults(ctx context.Context, b *bench) error {
	scaled, err := b.scale(ctx, faultKernel)
	if err != nil {
		return err
	}
	var errs []error
	for i, t := range trials {
		f := report.Fault{What: t.what}
		saw, err := b.try(ctx, i, t, scaled.iterations[0])
		if ctx.Err() != nil {
			return ctx.Err() // a trial that did not complete has no result
		}
		f.Saw, f.Recovered = saw, err == nil
		if err != nil {
			f.Saw = strings.TrimSpace(saw + "; " + first(err))
			errs = append(errs, fmt.Errorf("%s: %w", t.what, err))
		}
		b.say("%s: %s; recovered %v", f.What, f.Saw, f.Recovered)
		b.found.Faults = append(b.found.Faults, f)
	}
	return errors.Join(errs...)
}

// first returns the first line of an error.
func first(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// scene is a victim and a bystander.
type scene struct {
	*bench
	victim, bystander *member
	capped            bool
	spin              tenant.Spin
	spinJob           int
}

func (b *bench) try(ctx context.Context, n int, t trial, iterations int) (saw string, err error) {
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	if err := b.setPolicy(ctx, "dfq"); err != nil {
		return "", err
	}
	spec := api.VMSpec{MemoryLimitBytes: faultLimit}
	if b.kind == "soft" {
		spec.MemoryLimitBytes = 64 << 20
	}
	if t.unlimited {
		spec.MemoryLimitBytes = 0
	}
	if t.capped {
		spec.Cap = faultCap
	}
	all, err := b.open(ctx, seat{spec, tenant.Setup{Name: fmt.Sprintf("victim%d", n)}}, seat{setup: tenant.Setup{Name: fmt.Sprintf("bystander%d", n)}})
	if err != nil {
		return "", err
	}
	s := &scene{bench: b, victim: all[0], bystander: all[1], capped: t.capped, spin: b.full(iterations)}
	defer func() { // also after an error, so that the next trial does not inherit it
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
		defer cancel()
		err = errors.Join(err, b.leave(ctx, s.victim, s.bystander))
	}()
	if s.spinJob, err = s.victim.load(ctx, tenant.Job{Spin: &s.spin}); err != nil {
		return "", err
	}
	j, err := s.bystander.load(ctx, tenant.Job{Case: "vecadd/small"})
	if err != nil {
		return "", err
	}
	before, err := b.xids(ctx)
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	stop, cancelWork := context.WithCancel(ctx)
	defer cancelWork()
	go func() {
		for stop.Err() == nil {
			var ran *tenant.Ran
			_, err := s.bystander.ask(ctx, tenant.Request{Clear: &j})
			if err == nil {
				ran, err = s.bystander.run(ctx, tenant.Run{Job: j, For: 200 * time.Millisecond, Check: true})
			}
			if err == nil && ran.All == 0 {
				err = errors.New("the guest beside it got nothing done")
			}
			if err != nil {
				ended <- fmt.Errorf("the guest beside it: %w", err)
				return
			}
		}
		ended <- nil
	}()
	saw, err = t.try(ctx, s)
	if v, verr := b.client.VM(ctx, s.victim.name); verr == nil && v.Control.Errors > 0 {
		saw += fmt.Sprintf("; %d of the daemon's calls failed", v.Control.Errors)
	}
	cancelWork()
	if err = errors.Join(err, <-ended); err != nil {
		return saw, err
	}
	after, err := b.xids(ctx)
	for _, x := range after {
		// A daemon that was restarted counts from zero.
		if x.Count > before[x.Xid].Count {
			saw += fmt.Sprintf("; the driver reported Xid %d", x.Xid)
		}
	}
	return saw, err
}

// xids returns the errors that the driver has reported of the GPU since the daemon's start, by
// number.
func (b *bench) xids(ctx context.Context) (map[uint64]api.XidCount, error) {
	gpus, err := b.client.GPUs(ctx)
	if err != nil || len(gpus) == 0 || gpus[0].Hardware == nil {
		return nil, err
	}
	counts := make(map[uint64]api.XidCount)
	for _, x := range gpus[0].Hardware.Xids {
		counts[x.Xid] = x
	}
	return counts, nil
}

// works checks that a guest computes correct results.
func works(ctx context.Context, m *member) error {
	j, err := m.load(ctx, tenant.Job{Case: "vecadd/small"})
	if err == nil {
		_, err = m.run(ctx, tenant.Run{Job: j, Count: 3, Check: true})
	}
	if err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	return nil
}

// anew resets the victim's context and checks that it works. The victim's cap is lifted first, so
// that it need not wait until it has paid back what it overdrew.
func (s *scene) anew(ctx context.Context) error {
	if err := s.uncap(ctx); err != nil {
		return err
	}
	if _, err := s.victim.ask(ctx, tenant.Request{Reset: true}); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return works(ctx, s.victim)
}

// uncap lets the victim use all of the GPU.
func (s *scene) uncap(ctx context.Context) error {
	if !s.capped {
		return nil
	}
	var none float64
	_, err := s.client.UpdateVM(ctx, s.victim.name, api.VMUpdate{Cap: &none})
	return err
}

// suspended waits until the daemon reports the victim as suspended.
func (s *scene) suspended(ctx context.Context) (api.VM, error) {
	return s.until(ctx, "suspended", func(v *api.VM) bool { return v.Suspended })
}

// until waits until the daemon's status of the victim satisfies so.
func (s *scene) until(ctx context.Context, what string, so func(v *api.VM) bool) (api.VM, error) {
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		v, err := s.client.VM(ctx, s.victim.name)
		if err == nil && so(&v) {
			return v, nil
		}
		if cerr := clock.Sleep(ctx, clock.Real{}, time.Millisecond); cerr != nil {
			return v, fmt.Errorf("%s was never %s: %w", s.victim.name, what, errors.Join(cerr, err))
		}
	}
}

// busy starts the run on the victim, which goes on until a fault ends it.
func (s *scene) busy(ctx context.Context, run tenant.Run) <-chan error {
	run.Job, run.Depth, run.Rounds = s.spinJob, 2, 100
	ended := make(chan error, 1)
	go func() {
		_, err := s.victim.run(ctx, run)
		ended <- err
	}()
	return ended
}

// launchFixed lets the victim launch one of the fixed kernels, and returns the error that the
// victim gets.
func (s *scene) launchFixed(ctx context.Context, name string) error {
	j, err := s.victim.load(ctx, tenant.Job{Fixed: name})
	if err != nil {
		return err
	}
	_, err = s.victim.run(ctx, tenant.Run{Job: j, Count: 1})
	return err
}

func badAddress(ctx context.Context, s *scene) (string, error) {
	err := s.launchFixed(ctx, "wild")
	if err == nil {
		return "", errors.New("nobody noticed")
	}
	return first(err), s.anew(ctx)
}

// strays suspends the victim in a kernel that is to store to an invalid address meanwhile. If the
// victim's channels are off the GPU, the store happens as soon as they are back.
func strays(ctx context.Context, s *scene) (string, error) {
	if err := <-s.busy(ctx, tenant.Run{For: 500 * time.Millisecond}); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	begin := time.Now()
	go func() { ended <- s.launchFixed(ctx, "strays") }()
	if _, err := s.suspended(ctx); err != nil {
		return "", err
	}
	reported := <-ended
	if reported == nil {
		return "", errors.New("nobody noticed")
	}
	v, err := s.client.VM(ctx, s.victim.name)
	if err != nil {
		return "", err
	}
	saw := fmt.Sprintf("suspended in it; told after %.1f s, suspended then: %v: %s", time.Since(begin).Seconds(), v.Suspended, first(reported))
	return saw, s.anew(ctx)
}

func neverEnds(ctx context.Context, s *scene) (string, error) {
	if s.capped { // the guest runs up a debt, for which it is suspended in the endless kernel
		if err := <-s.busy(ctx, tenant.Run{For: 500 * time.Millisecond}); err != nil {
			return "", err
		}
	}
	ended := make(chan error, 1)
	begin := time.Now()
	go func() { ended <- s.launchFixed(ctx, "endless") }()
	saw := ""
	if s.capped {
		if _, err := s.suspended(ctx); err != nil {
			return "", err
		}
		saw = "suspended in it; "
	}
	err := <-ended
	if err == nil {
		return saw, errors.New("it ended")
	}
	saw += fmt.Sprintf("ended after %.1f s: %s", time.Since(begin).Seconds(), first(err))
	return saw, s.anew(ctx)
}

func exhausts(ctx context.Context, s *scene) (string, error) {
	type result struct {
		ran *tenant.Ran
		err error
	}
	ended := make(chan result, 1)
	go func() {
		ran, err := s.victim.run(ctx, tenant.Run{Job: s.spinJob, For: 2 * time.Second, Depth: 2, Rounds: 100, Allocate: 16 << 20})
		ended <- result{ran, err}
	}()
	if _, err := s.suspended(ctx); err != nil {
		return "", err
	}
	r := <-ended
	if r.err != nil {
		return "", r.err
	}
	if r.ran.Refused == "" {
		return "", errors.New("nothing was refused")
	}
	return fmt.Sprintf("%d MiB, then: %s", r.ran.Allocated>>20, r.ran.Refused), s.anew(ctx)
}

// refused lets the victim make requests that this program's own checks refuse.
func refused(ctx context.Context, s *scene) (string, error) {
	tooMany := s.spin
	tooMany.Threads = 4096
	j, err := s.victim.load(ctx, tenant.Job{Spin: &tooMany})
	if err != nil {
		return "", err
	}
	_, launch := s.victim.run(ctx, tenant.Run{Job: j, Count: 1})
	if launch == nil {
		return "", errors.New("a block of 4096 threads was launched")
	}
	ran, err := s.victim.run(ctx, tenant.Run{Job: s.spinJob, Count: 1, Allocate: 1 << 50})
	if err != nil {
		return first(launch), err
	}
	// No reset is needed: a call that fails leaves the context as it was.
	return first(launch) + "; " + ran.Refused, works(ctx, s.victim)
}

// badImages lets the victim load images that only the driver, or the soft GPU in its own process,
// can find to be invalid.
func badImages(ctx context.Context, s *scene) (saw string, err error) {
	for _, image := range []struct {
		what  string
		bytes []byte
	}{{"half a cubin", tenant.HalfCubin()}, {"PTX with an instruction that does not end", tenant.BadPTX()}} {
		_, reported := s.victim.load(ctx, tenant.Job{Image: image.bytes})
		if reported == nil {
			return saw, fmt.Errorf("%s was loaded", image.what)
		}
		saw += first(reported) + "; "
		// The driver's loader is not told where the image ends.
		if err := works(ctx, s.victim); err != nil {
			saw += "which ended the executor; "
			if err := s.anew(ctx); err != nil {
				return saw, err
			}
		}
	}
	return strings.TrimSuffix(saw, "; "), nil
}

// exhaustGPU lets the victim allocate all free memory.
func exhaustGPU(ctx context.Context, s *scene) (string, error) {
	piece := uint64(1 << 30)
	if s.kind == "soft" {
		piece = 64 << 20
	}
	ran, err := s.victim.run(ctx, tenant.Run{Job: s.spinJob, Count: 1, Allocate: piece})
	if err != nil {
		return "", err
	}
	saw := fmt.Sprintf("%d MiB, then: %s", ran.Allocated>>20, ran.Refused)
	// A job that was loaded before works while the memory is exhausted; anything else works again
	// once the victim has freed it.
	if _, err := s.victim.run(ctx, tenant.Run{Job: s.spinJob, Count: 3}); err != nil {
		return saw, fmt.Errorf("with all memory taken: %w", err)
	}
	return saw, s.anew(ctx)
}
