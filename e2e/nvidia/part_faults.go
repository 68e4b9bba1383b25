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

// trial is a fault to be tried on a guest that has another beside it. It says what was
// seen; an error is that something did not recover.
type trial struct {
	what string
	// capped guests may only use so little of the GPU that they are suspended most of
	// the time.
	capped bool
	// unlimited guests may have all of the GPU's memory.
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
	faultLimit = 2 << 30 // of the victim's memory
	// faultKernel is long enough to be on the GPU when its guest is suspended.
	faultKernel = 20 * time.Millisecond
	// faultPatience is how long a trial may take.
	faultPatience = 40 * time.Second
	// leaveLimit is how long the daemon may take to let its guests go.
	leaveLimit = 10 * time.Second
)

// faults tries each of them, with guests of its own.
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
			return ctx.Err() // what was not tried to its end is nothing that was found
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

// first is an error's first line.
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
	ctx, cancel := context.WithTimeout(ctx, faultPatience)
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
	defer func() { // also after an error, which is not to be the next trial's
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
		// A daemon that was started again knows of none before.
		if x.Count > before[x.Xid].Count {
			saw += fmt.Sprintf("; the driver reported Xid %d", x.Xid)
		}
	}
	return saw, err
}

// xids are the errors that the driver has reported of the GPU since the daemon's start,
// by number.
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

// works holds that a guest computes what is right.
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

// anew resets the victim's context and holds that it works. What a capped one has
// overdrawn it need not wait for any more.
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

// suspended waits until the daemon has the victim suspended.
func (s *scene) suspended(ctx context.Context) (api.VM, error) {
	return s.until(ctx, "suspended", func(v *api.VM) bool { return v.Suspended })
}

// until waits until the daemon says of the victim that it is so.
func (s *scene) until(ctx context.Context, what string, so func(v *api.VM) bool) (api.VM, error) {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
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

// busy has the victim work until something is done to it.
func (s *scene) busy(ctx context.Context, run tenant.Run) <-chan error {
	run.Job, run.Depth, run.Rounds = s.spinJob, 2, 100
	ended := make(chan error, 1)
	go func() {
		_, err := s.victim.run(ctx, run)
		ended <- err
	}()
	return ended
}

// launchFixed has the victim launch one of the fixed kernels, and returns what it is
// told.
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

// strays has the victim suspended in a kernel whose bad store is due meanwhile. Where its
// channels are off the GPU, the store comes as soon as they are back.
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
	told := <-ended
	if told == nil {
		return "", errors.New("nobody noticed")
	}
	v, err := s.client.VM(ctx, s.victim.name)
	if err != nil {
		return "", err
	}
	saw := fmt.Sprintf("suspended in it; told after %.1f s, suspended then: %v: %s", time.Since(begin).Seconds(), v.Suspended, first(told))
	return saw, s.anew(ctx)
}

func neverEnds(ctx context.Context, s *scene) (string, error) {
	if s.capped { // a debt, for which it is suspended in the endless kernel
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

// refused has the victim ask for what this program's own checks refuse.
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
	// Without a reset: a call that fails leaves the context as it was.
	return first(launch) + "; " + ran.Refused, works(ctx, s.victim)
}

// badImages has the victim load what the driver, or the soft GPU in its own process, has to
// look at to refuse it.
func badImages(ctx context.Context, s *scene) (saw string, err error) {
	for _, image := range []struct {
		what  string
		bytes []byte
	}{{"half a cubin", tenant.HalfCubin()}, {"PTX with an instruction that does not end", tenant.BadPTX()}} {
		_, told := s.victim.load(ctx, tenant.Job{Image: image.bytes})
		if told == nil {
			return saw, fmt.Errorf("%s was loaded", image.what)
		}
		saw += first(told) + "; "
		// The loader is the driver's, and is not told where the image ends.
		if err := works(ctx, s.victim); err != nil {
			saw += "which ended the executor; "
			if err := s.anew(ctx); err != nil {
				return saw, err
			}
		}
	}
	return strings.TrimSuffix(saw, "; "), nil
}

// exhaustGPU has the victim take all memory that nobody has.
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
	// What it has loaded goes on beside that, and the rest once it has given it back.
	if _, err := s.victim.run(ctx, tenant.Run{Job: s.spinJob, Count: 3}); err != nil {
		return saw, fmt.Errorf("with all memory taken: %w", err)
	}
	return saw, s.anew(ctx)
}
