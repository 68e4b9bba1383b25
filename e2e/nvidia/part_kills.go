package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/e2e/proc"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/suspend"
)

// orphaned is longer than the daemon's changes to contexts last without it: the executors undo the
// changes after that time.
const orphaned = ipc.SuspensionLimit + time.Second

// frozen stops the daemon, calls do, and continues the daemon if it still exists. None of the
// daemon's threads runs during do.
func (s *scene) frozen(do func() error) error {
	p := s.daemon.Cmd.Process
	if err := p.Signal(unix.SIGSTOP); err != nil {
		return fmt.Errorf("stop the daemon: %w", err)
	}
	err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WSTOPPED, nil)
	if err == nil {
		err = do()
	}
	if cerr := p.Signal(unix.SIGCONT); cerr != nil && !errors.Is(cerr, os.ErrProcessDone) {
		err = errors.Join(err, fmt.Errorf("have the daemon go on: %w", cerr))
	}
	return err
}

// noted returns the guest's contexts that the daemon has recorded as possibly off the GPU.
func (s *scene) noted(guest string) ([]int, error) {
	intents, err := suspend.NewIntents(filepath.Join(s.dir, "holds"))
	if err != nil {
		return nil, err
	}
	all, err := intents.List()
	return all[guest], err
}

// off calls do while the victim's context is off the GPU in mid-kernel. If the GPU's driver cannot
// take a context off, the victim is merely suspended. saw describes how many contexts are off.
func (s *scene) off(ctx context.Context, do func(v *api.VM) error) (saw string, err error) {
	for {
		v, err := s.until(ctx, "off the GPU", func(v *api.VM) bool {
			return v.Suspended && (v.Control.Contexts == 0 || v.Control.Disabled > 0)
		})
		if err != nil {
			return "", err
		}
		again := false
		err = s.frozen(func() error {
			noted, err := s.noted(v.Name)
			if err != nil {
				return err
			}
			// The context may have been put back since.
			if again = v.Control.Contexts > 0 && len(noted) == 0; again {
				return nil
			}
			saw = fmt.Sprintf("%d of %d contexts off the GPU", len(noted), v.Control.Contexts)
			return do(&v)
		})
		if err != nil || !again {
			return saw, err
		}
	}
}

// settled checks that no context of the victim stays off the GPU.
func (s *scene) settled(ctx context.Context) (api.VM, error) {
	v, err := s.until(ctx, "back on the GPU", func(v *api.VM) bool { return v.Control.Disabled == 0 })
	if err == nil {
		err = s.forgotten(ctx, v.Name)
	}
	return v, err
}

// forgotten waits until the daemon has no record of the guest's contexts.
func (s *scene) forgotten(ctx context.Context, guest string) error {
	for {
		noted, err := s.noted(guest)
		if err == nil && len(noted) == 0 {
			return nil
		}
		if cerr := clock.Sleep(ctx, clock.Real{}, time.Millisecond); cerr != nil {
			return fmt.Errorf("%s: contexts %v are noted as off the GPU: %w", guest, noted, errors.Join(cerr, err))
		}
	}
}

func killGuest(ctx context.Context, s *scene) (string, error) {
	ended := s.busy(ctx, tenant.Run{For: 20 * time.Second})
	saw, err := s.off(ctx, func(v *api.VM) error { return unix.Kill(v.PID, unix.SIGKILL) })
	if err != nil {
		return saw, err
	}
	reported := <-ended
	if reported == nil {
		return saw, errors.New("nobody noticed")
	}
	gone := s.victim.name
	err = s.replace(ctx)
	return saw + "; " + first(reported), errors.Join(err, s.forgotten(ctx, gone))
}

// replace waits until the daemon knows that the victim is gone, and creates another guest, which
// must work.
func (s *scene) replace(ctx context.Context) error {
	for {
		v, err := s.client.VM(ctx, s.victim.name)
		if errors.Is(err, api.ErrNotFound) || v.Lost != "" {
			break
		}
		if cerr := clock.Sleep(ctx, clock.Real{}, time.Millisecond); cerr != nil {
			return fmt.Errorf("the daemon keeps the guest: %w", errors.Join(cerr, err))
		}
	}
	if err := s.leave(ctx, s.victim); err != nil {
		return err
	}
	m, err := s.guest(ctx, tenant.Setup{Name: s.victim.name + "-again"})
	if err != nil {
		return fmt.Errorf("a new guest: %w", err)
	}
	s.victim = m
	return works(ctx, m)
}

func killExecutor(ctx context.Context, s *scene) (string, error) {
	ended := s.busy(ctx, tenant.Run{For: 20 * time.Second})
	saw, err := s.off(ctx, func(v *api.VM) error {
		pids, err := proc.Children(v.PID)
		if err != nil || len(pids) == 0 {
			return fmt.Errorf("the guest's executor: %d found: %w", len(pids), err)
		}
		for _, pid := range pids {
			err = errors.Join(err, unix.Kill(pid, unix.SIGKILL))
		}
		return err
	})
	if err != nil {
		return saw, err
	}
	reported := <-ended
	if reported == nil {
		return saw, errors.New("nobody noticed")
	}
	err = s.anew(ctx)
	if err == nil {
		_, err = s.settled(ctx)
	}
	return saw + "; " + first(reported), err
}

// killDaemon checks that contexts return to the GPU without the daemon.
func killDaemon(ctx context.Context, s *scene) (string, error) {
	ended := s.busy(ctx, tenant.Run{For: 5 * time.Second})
	saw, err := s.off(ctx, func(*api.VM) error { return s.daemon.Kill() })
	if err != nil {
		return saw, err
	}
	if err := rest(ctx, orphaned); err != nil {
		return saw, err
	}
	if err := s.startDaemon(ctx); err != nil {
		return saw, fmt.Errorf("start the daemon again: %w", err)
	}
	if err := <-ended; err != nil {
		return saw, err
	}
	v, err := s.client.VM(ctx, s.victim.name)
	if err == nil {
		err = s.uncap(ctx)
	}
	if err == nil {
		_, err = s.settled(ctx)
	}
	saw += fmt.Sprintf("; the guests went on; a daemon %.1f s later found them again, %d kernels", orphaned.Seconds(), v.Kernels)
	return saw, errors.Join(err, works(ctx, s.victim))
}

// replaceDaemon checks that the next daemon puts back contexts that it did not take off. The next
// daemon takes none off itself, so putting back is all that it does to the victim's contexts.
func replaceDaemon(ctx context.Context, s *scene) (saw string, err error) {
	ended := s.busy(ctx, tenant.Run{For: 3 * time.Second})
	if saw, err = s.off(ctx, func(*api.VM) error { return s.daemon.Kill() }); err != nil {
		return saw, err
	}
	killed := time.Now()
	s.shallow = true
	defer func() { err = errors.Join(err, s.setShallow(ctx, false)) }()
	if err := s.startDaemon(ctx); err != nil {
		return saw, fmt.Errorf("start the daemon again: %w", err)
	}
	answered := time.Since(killed)
	v, err := s.settled(ctx)
	back := time.Since(killed)
	if err == nil {
		err = <-ended
	}
	saw += fmt.Sprintf("; the next daemon answered after %.2f s, and nothing was off any more after %.2f; it disabled %d and took %.2f ms to enable",
		answered.Seconds(), back.Seconds(), v.Control.Disables, 1e3*v.Control.EnableSeconds)
	switch can := v.Control.Contexts > 0; {
	case err != nil:
		return saw, err
	case back >= ipc.SuspensionLimit:
		return saw, errors.New("so late that the context may have come back by itself")
	case can && (v.Control.EnableSeconds == 0 || v.Control.Disables > 0):
		return saw, errors.New("it was not the daemon that put it back")
	}
	return saw, errors.Join(s.uncap(ctx), works(ctx, s.victim))
}

// rivalWeight is the weight of a guest beside the victim, whose own weight is 1.
const rivalWeight = 4

// rivals are the victim and another guest of a greater weight.
type rivals struct {
	*scene
	rival    *member
	rivalJob int
}

// withRival opens the rival while do runs.
func (s *scene) withRival(ctx context.Context, do func(r *rivals) error) error {
	all, err := s.open(ctx, seat{api.VMSpec{Weight: rivalWeight}, tenant.Setup{Name: s.victim.name + "-rival"}})
	if err != nil {
		return err
	}
	r := &rivals{scene: s, rival: all[0]}
	if r.rivalJob, err = r.rival.load(ctx, tenant.Job{Spin: &s.spin}); err == nil {
		err = do(r)
	}
	return errors.Join(err, s.leave(ctx, r.rival))
}

// race lets both guests work for d, and returns the ratio of the rival's work to the victim's.
func (r *rivals) race(ctx context.Context, d time.Duration) (ratio float64, err error) {
	const warm = 200 * time.Millisecond
	work := tenant.Run{Warm: warm, For: d, Depth: 2, Rounds: endless}
	work.Job = r.spinJob
	other := work
	other.Job = r.rivalJob
	rans, err := together(ctx, task{r.victim, work}, task{r.rival, other})
	if err != nil {
		return 0, err
	}
	return float64(rans[1].Launches) / float64(max(rans[0].Launches, 1)), nil
}

// raceFor is long compared to both guests' time slices.
const raceFor = 1500 * time.Millisecond

// killSliced kills the daemon after it has set time slices by weight, while both guests work. saw
// describes the time slices and both guests' work meanwhile.
func (r *rivals) killSliced(ctx context.Context) (saw string, err error) {
	type result struct {
		ratio float64
		err   error
	}
	ended, seen := make(chan result, 1), make(chan struct{})
	go func() {
		for {
			ratio, err := r.race(ctx, raceFor)
			select {
			case <-seen:
				ended <- result{ratio, err}
				return
			default:
			}
			if err != nil {
				ended <- result{ratio, err}
				return
			}
		}
	}()
	var theirs api.VM
	v, err := r.until(ctx, "given a time slice", func(v *api.VM) bool {
		if theirs, err = r.client.VM(ctx, r.rival.name); err != nil {
			return false
		}
		return v.Control.Contexts == 0 || v.Control.TimeSlices > 0 && theirs.Control.TimeSlices > 0 && theirs.Control.TimeSliceSeconds > 2*v.Control.TimeSliceSeconds
	})
	if err == nil {
		err = r.daemon.Kill()
	}
	close(seen)
	during := <-ended
	saw = fmt.Sprintf("slices of %.2f and %.2f ms; weights of 1 and %d did 1 : %.1f", 1e3*v.Control.TimeSliceSeconds, 1e3*theirs.Control.TimeSliceSeconds, rivalWeight, during.ratio)
	return saw, errors.Join(err, during.err)
}

// evenTries is the number of attempts to find both guests even. One guest may be without a
// processor for a while, but time slices by weight would persist.
const evenTries = 3

// even checks that both guests have the driver's default time slices, which are equal.
func (r *rivals) even(ctx context.Context) (saw string, err error) {
	for range evenTries {
		ratio, err := r.race(ctx, raceFor)
		saw += fmt.Sprintf("; then 1 : %.1f", ratio)
		if err != nil || ratio <= rivalWeight/2 && ratio >= 1./2 {
			return saw, err
		}
	}
	return saw, errors.New("their time slices are not the driver's own")
}

// abandonSlices checks that executors restore their contexts' time slices without the daemon.
func abandonSlices(ctx context.Context, s *scene) (saw string, err error) {
	err = s.withRival(ctx, func(r *rivals) error {
		if saw, err = r.killSliced(ctx); err != nil {
			return err
		}
		if err := rest(ctx, orphaned); err != nil {
			return err
		}
		then, even := r.even(ctx)
		saw += then + ", without a daemon"
		if err := s.startDaemon(ctx); err != nil {
			return errors.Join(even, fmt.Errorf("start the daemon again: %w", err))
		}
		return even
	})
	return saw, errors.Join(err, works(ctx, s.victim))
}

// inheritSlices checks that the next daemon restores time slices that it did not set.
func inheritSlices(ctx context.Context, s *scene) (saw string, err error) {
	err = s.withRival(ctx, func(r *rivals) error {
		if saw, err = r.killSliced(ctx); err != nil {
			return err
		}
		s.policy = "none"
		if err := s.startDaemon(ctx); err != nil {
			return fmt.Errorf("start the daemon again: %w", err)
		}
		v, err := s.until(ctx, "given the driver's time slice", func(v *api.VM) bool {
			return v.Control.TimeSliceSeconds == 0 && (v.Control.Contexts == 0 || v.Control.TimeSlices > 0)
		})
		if err != nil {
			return err
		}
		then, err := r.even(ctx)
		saw += fmt.Sprintf("%s, under none with a daemon that set the victim's slice %d time(s)", then, v.Control.TimeSlices)
		return err
	})
	return saw, errors.Join(err, works(ctx, s.victim))
}
