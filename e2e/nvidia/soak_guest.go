package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/e2e/proc"
	"vgpud/mediator/api"
)

const (
	// boutFor is how long a guest works before its results are checked.
	boutFor = 400 * time.Millisecond
	// leastBouts is the least number of bouts between two events.
	leastBouts = 2
	// soakEventTimeout limits the time from an event until the guest works again.
	soakEventTimeout = 45 * time.Second
	// soakCap is the cap that suspends a guest.
	soakCap = 0.1
	// soakTries is how many attempts in a row to create a guest may fail.
	soakTries = 5
)

// occupant is the guest of a seat.
type occupant struct {
	*soaked
	*seatAt
	events []event
	number int // counts the seat's guests so far
	weight float64
	m      *member
	job    int
	// These are counted since the last call of enter: the kernels that the guest should be charged
	// for, and the bouts.
	base    time.Duration // the GPU time accounted at the last call of enter
	kernels int
	bouts   int
}

// occupy runs guests in a seat, one after the other, until the soak ends.
func (s *soaked) occupy(ctx context.Context, seat int) error {
	o := &occupant{soaked: s, seatAt: &s.seats[seat], events: s.plan.guests[seat], weight: 1}
	failed := 0
	for ctx.Err() == nil && !s.over() {
		err := o.live(ctx)
		if err == nil || ctx.Err() != nil {
			failed = 0
			continue
		}
		s.lost(o.name, err)
		if gone := o.depart(ctx); gone != nil {
			s.did(o.name, "going after a failure", gone)
		}
		if failed++; failed == soakTries {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return o.depart(ctx)
}

// lost records that something was lost or wrong.
func (s *soaked) lost(who string, err error) {
	s.note(func() {
		s.saw.lost = append(s.saw.lost, fmt.Sprintf("%.0f s: %s: %s", time.Since(s.begin).Seconds(), who, first(err)))
		s.say("%s: %v", who, err)
	})
}

// live runs the seat's guest, or creates one, until its next event, and carries the event out. It
// returns an error only for a failure that was not injected.
func (o *occupant) live(ctx context.Context) error {
	if o.m == nil {
		if err := o.arrive(ctx); err != nil {
			return fmt.Errorf("a new guest: %w", err)
		}
	}
	until := o.end
	var next *event
	if len(o.events) > 0 {
		next = &o.events[0]
		until = o.begin.Add(next.at)
	}
	least := leastBouts
	for ctx.Err() == nil && (time.Now().Before(until) || least > 0) && !o.over() {
		if o.inUrgentPeriod() && !o.blocks && !o.urgent {
			// hpf orders the guests by these two values.
			if err := rest(ctx, accountingLag); err != nil {
				return err
			}
			continue
		}
		if err := o.bout(ctx, boutFor, true); err != nil {
			return err
		}
		least--
	}
	if err := o.enter(ctx); err != nil || next == nil || o.over() || ctx.Err() != nil {
		return err
	}
	o.events = o.events[1:]
	ctx, cancel := context.WithTimeout(ctx, soakEventTimeout)
	defer cancel()
	ends := o.happens(o.name, next.do.String())
	err := o.suffer(ctx, next)
	if err != nil && o.m != nil { // another attempt follows
		err = errors.Join(err, o.depart(context.WithoutCancel(ctx)))
	}
	ends()
	o.did(o.name, next.do.String(), err)
	return nil
}

// arrive creates a guest and loads its kernel.
func (o *occupant) arrive(ctx context.Context) error {
	defer o.happens(o.name, "arrives")()
	o.testbedMu.Lock()
	o.number++
	spec := api.VMSpec{Weight: o.weight}
	setup := tenant.Setup{Name: fmt.Sprintf("%s-%d", o.name, o.number), Preempt: o.blocks}
	if o.urgent {
		spec.PriorityCeiling, setup.Priority = api.MaxPriority, -10
	}
	all, err := o.open(ctx, seat{spec, setup})
	if err == nil {
		o.m = all[0]
	} else if n := len(o.members); n > 0 && o.members[n-1].name == setup.Name {
		o.m = o.members[n-1] // the caller ends it
	}
	o.testbedMu.Unlock()
	if err != nil {
		return err
	}
	return o.prepare(ctx)
}

// prepare loads the kernel and starts the counts.
func (o *occupant) prepare(ctx context.Context) (err error) {
	if o.job, err = o.m.load(ctx, o.seatAt.job); err != nil {
		return err
	}
	v, err := o.now(ctx)
	o.base, o.kernels, o.bouts = used(&v), 0, 0
	return err
}

// used returns the GPU time that is accounted to a guest.
func used(v *api.VM) time.Duration { return time.Duration(v.GPUSeconds * float64(time.Second)) }

// now returns the daemon's status of the guest once accounting has caught up.
func (o *occupant) now(ctx context.Context) (api.VM, error) {
	if err := rest(ctx, accountingLag); err != nil {
		return api.VM{}, err
	}
	return o.client.VM(ctx, o.m.name)
}

// depart ends the guest.
func (o *occupant) depart(ctx context.Context) error {
	if o.m == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	v, err := o.client.VM(ctx, o.m.name)
	if err == nil {
		o.note(func() {
			o.saw.suspensions += v.Suspensions
			o.saw.evictions += v.Preemption.Evictions
			o.saw.evicting += v.Preemption.EvictionSeconds
		})
	}
	o.testbedMu.Lock()
	defer o.testbedMu.Unlock()
	err = o.leave(ctx, o.m)
	o.m = nil
	return err
}

// work returns the run of one bout.
func (o *occupant) work(d time.Duration) tenant.Run {
	r := tenant.Run{Job: o.job, For: d, Depth: o.depth, Rounds: endless, Check: true, As: o.as}
	if o.urgent {
		r.Rounds, r.Pause, r.Jitter = 1, o.pause, o.pause
	}
	return r
}

// bout runs the guest for d and checks its results. If watched is set, nothing should keep the
// guest from the GPU meanwhile.
func (o *occupant) bout(ctx context.Context, d time.Duration, watched bool) error {
	began, duringHPF := time.Since(o.soaked.begin), o.inUrgentPeriod()
	ctx, cancel := context.WithTimeout(ctx, soakEventTimeout)
	defer cancel()
	ran, err := o.m.run(ctx, o.work(d))
	if err != nil {
		return err
	}
	if ran.All == 0 {
		return errors.New("no kernel ended")
	}
	o.kernels += ran.All
	o.bouts++
	if duringHPF = duringHPF || o.inUrgentPeriod(); watched && duringHPF && o.urgent {
		o.note(func() { o.saw.urgent = max(o.saw.urgent, ran.Standstill) })
	}
	if watched && !duringHPF {
		o.stoodStill(standstill{who: o.m.name, from: began + ran.StandstillAt, took: ran.Standstill})
	}
	return nil
}

// enter records what the guest did since the last call, and the GPU time that was accounted to it.
func (o *occupant) enter(ctx context.Context) error {
	v, err := o.now(ctx)
	if err != nil {
		return err
	}
	o.note(func() {
		o.sum.kernels, o.sum.bouts = o.sum.kernels+o.kernels, o.sum.bouts+o.bouts
		o.sum.accounted += used(&v) - o.base
	})
	o.base, o.kernels, o.bouts = used(&v), 0, 0
	return nil
}

// suffer carries an event out on the guest. Afterwards the guest works again or has ended.
func (o *occupant) suffer(ctx context.Context, e *event) error {
	switch e.do {
	case reweighed:
		return o.reweigh(ctx, e)
	case suspended:
		return o.suspend(ctx, e)
	case left:
		o.weight = e.weight
		return o.depart(ctx)
	case guestKilled, deviceKilled:
		err := o.killed(ctx, e)
		o.weight = e.weight
		return errors.Join(err, o.depart(ctx))
	case executorKilled:
		if err := o.killed(ctx, e); err != nil {
			return err
		}
	case strayed:
		if err := o.faulted(ctx, "wild"); err != nil {
			return err
		}
	case stuck:
		if err := o.faulted(ctx, "endless"); err != nil {
			return err
		}
	}
	return o.anew(ctx)
}

// during runs the guest and calls do meanwhile.
func (o *occupant) during(ctx context.Context, d time.Duration, do func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- o.bout(ctx, d, false) }()
	err := do()
	return errors.Join(err, <-ended)
}

func (o *occupant) reweigh(ctx context.Context, e *event) error {
	o.weight = e.weight
	return o.during(ctx, 2*e.lasts, func() error {
		if err := rest(ctx, e.lasts); err != nil {
			return err
		}
		v, err := o.client.UpdateVM(ctx, o.m.name, api.VMUpdate{Weight: &e.weight})
		if err == nil && v.Weight != e.weight {
			err = fmt.Errorf("its weight is %v, not %v", v.Weight, e.weight)
		}
		return err
	})
}

// suspend suspends the guest by a cap.
func (o *occupant) suspend(ctx context.Context, e *event) error {
	return o.during(ctx, 2*time.Second+e.lasts, func() error {
		before, err := o.client.VM(ctx, o.m.name)
		if err != nil {
			return err
		}
		cap, none := soakCap, 0.0
		if _, err := o.client.UpdateVM(ctx, o.m.name, api.VMUpdate{Cap: &cap}); err != nil {
			return err
		}
		var now api.VM
		begin := time.Now()
		for {
			if now, err = o.client.VM(ctx, o.m.name); err == nil {
				err = rest(ctx, accountingLag/4)
			}
			since := time.Since(begin)
			if err != nil || now.Suspensions > before.Suspensions && since > e.lasts || since > e.lasts+2*time.Second {
				break
			}
		}
		_, uncapped := o.client.UpdateVM(ctx, o.m.name, api.VMUpdate{Cap: &none})
		if err = errors.Join(err, uncapped); err == nil && now.Suspensions == before.Suspensions {
			err = errors.New("it was never suspended")
		}
		return err
	})
}

// killed kills the event's process while the guest works.
func (o *occupant) killed(ctx context.Context, e *event) error {
	ended := make(chan error, 1)
	name, run := o.m.name, o.work(soakEventTimeout)
	run.Check = false
	go func() {
		_, err := o.m.run(ctx, run)
		ended <- err
	}()
	v, err := o.client.VM(ctx, name)
	if err == nil {
		err = rest(ctx, e.lasts)
	}
	if err == nil {
		switch e.do {
		case guestKilled:
			err = o.m.process.Kill()
		case deviceKilled:
			err = unix.Kill(v.PID, unix.SIGKILL)
		case executorKilled:
			err = killChildren(v.PID)
		}
	}
	if err != nil {
		return errors.Join(err, o.m.process.Kill())
	}
	if reported := <-ended; reported == nil {
		return errors.New("it noticed nothing")
	}
	if e.do == deviceKilled {
		return o.forgets(ctx, name)
	}
	return o.apart(ctx)
}

func killChildren(pid int) error {
	pids, err := proc.Children(pid)
	if err == nil && len(pids) == 0 {
		err = errors.New("it has no executor")
	}
	for _, p := range pids {
		err = errors.Join(err, unix.Kill(p, unix.SIGKILL))
	}
	return err
}

// forgets waits until the daemon has noticed that the guest is lost.
func (o *occupant) forgets(ctx context.Context, guest string) error {
	for {
		v, err := o.client.VM(ctx, guest)
		if errors.Is(err, api.ErrNotFound) || v.Lost != "" {
			return nil
		}
		if cerr := clock.Sleep(ctx, clock.Real{}, time.Millisecond); cerr != nil {
			return fmt.Errorf("the daemon keeps the guest: %w", errors.Join(cerr, err))
		}
	}
}

// apart records separately the GPU time that was accounted to the guest during a fault or a kill.
func (o *occupant) apart(ctx context.Context) error {
	v, err := o.now(ctx)
	if err == nil {
		o.note(func() { o.sum.apart += used(&v) - o.base })
		o.base = used(&v)
	}
	return err
}

// faulted lets the guest launch a kernel that faults.
func (o *occupant) faulted(ctx context.Context, kernel string) error {
	j, err := o.m.load(ctx, tenant.Job{Fixed: kernel})
	if err != nil {
		return err
	}
	if _, err := o.m.run(ctx, tenant.Run{Job: j, Count: 1}); err == nil {
		return errors.New("nobody noticed")
	}
	return o.apart(ctx)
}

// anew resets the guest's context and checks that it works.
func (o *occupant) anew(ctx context.Context) error {
	if _, err := o.m.ask(ctx, tenant.Request{Reset: true}); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	if err := works(ctx, o.m); err != nil {
		return err
	}
	if err := o.apart(ctx); err != nil {
		return err
	}
	return o.prepare(ctx)
}
