package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"vgpud/clock"
	"vgpud/cmd/vgpud/child"
	"vgpud/e2e/mischief"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
)

// atIt is the line by which the hostile process reports that it has begun.
const atIt = "at it"

// misbehave is the main function of a hostile guest's process: it misbehaves in the given mode
// until it is killed.
func misbehave(ctx context.Context, out io.Writer, mode, socket string) error {
	announced := false
	return mischief.Do(ctx, mode, socket, func() {
		if !announced { // no reader waits for a second line
			fmt.Fprintln(out, atIt) //nolint:errcheck // the other side waits for the line, and reports its absence
			announced = true
		}
	})
}

// misbehaves lets the hostile guest misbehave in one mode after the other. Between two modes a
// well-behaved guest takes over the virtual GPU and must work.
func (s *soaked) misbehaves(ctx context.Context) error {
	const name = "hostile"
	spec := api.VMSpec{Name: name, BAR2Bytes: 64 << 20, MemoryLimitBytes: faultLimit}
	if s.kind == "soft" {
		spec.MemoryLimitBytes = 64 << 20
	}
	v, err := s.client.CreateVM(ctx, spec)
	if err != nil {
		return fmt.Errorf("the hostile guest: %w", err)
	}
	for i := 0; ctx.Err() == nil && !s.over(); i++ {
		at := i % len(s.plan.modes)
		mode := s.plan.modes[at]
		patient, cancel := context.WithTimeout(ctx, soakEventTimeout)
		ends := s.happens(name, mode)
		err := s.mischief(patient, &v, mode, s.plan.spells[at], i)
		ends()
		cancel()
		if ctx.Err() != nil {
			break
		}
		s.did(name, "hostile: "+mode, err)
		if now, err := s.client.VM(ctx, name); errors.Is(err, api.ErrNotFound) || now.Lost != "" {
			if v, err = s.client.CreateVM(ctx, spec); err != nil {
				return fmt.Errorf("the hostile guest anew: %w", err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	if err := s.client.ForceDeleteVM(ctx, name); err != nil && !errors.Is(err, api.ErrNotFound) {
		return err
	}
	return nil
}

// mischief runs one mode for the given time and checks that the next guest works.
func (s *soaked) mischief(ctx context.Context, v *api.VM, mode string, spell time.Duration, n int) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was only read
	cmd := exec.Command(s.options.self, "mischief", mode, v.Socket)
	cmd.Stdout = w
	p, err := child.Start(s.dir, "hostile", cmd)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	begun := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(r).ReadString('\n')
		if line == atIt+"\n" {
			err = nil
		}
		begun <- err
	}()
	select {
	case err = <-begun:
		if err == nil {
			err = rest(ctx, spell)
		} else {
			err = fmt.Errorf("it did not come to it: %w", p.EndError())
		}
	case <-ctx.Done():
		err = fmt.Errorf("it did not come to it: %w%s", ctx.Err(), child.Tail(p.Log))
	}
	if err = errors.Join(err, p.Kill()); err != nil {
		return err
	}
	return s.next(ctx, v, fmt.Sprintf("hostile-%d", n))
}

// next lets a well-behaved guest take over the virtual GPU.
func (s *soaked) next(ctx context.Context, v *api.VM, name string) error {
	for {
		now, err := s.client.VM(ctx, v.Name)
		if now.Lost != "" {
			err = errors.Join(api.ErrNotFound, errors.New(now.Lost))
		}
		if err == nil && !now.Attached && now.Contexts == 0 {
			break
		}
		if errors.Is(err, api.ErrNotFound) {
			return fmt.Errorf("its virtual GPU is gone: %w", err)
		}
		if cerr := clock.Sleep(ctx, clock.Real{}, time.Millisecond); cerr != nil {
			return fmt.Errorf("what it had stays: %w", errors.Join(cerr, err))
		}
	}
	// The hostile guest's connections may block this one until the daemon has noticed that all of
	// them are closed.
	for {
		err := s.takesOver(ctx, v, name)
		if err == nil {
			return nil
		}
		if errors.Is(err, errNotWorking) || rest(ctx, accountingLag) != nil {
			return fmt.Errorf("the next guest: %w", err)
		}
	}
}

// errNotWorking reports that a guest connected but does not work.
var errNotWorking = errors.New("it came, and does not work")

// takesOver connects a guest to a virtual GPU, checks that it works, and ends it.
func (s *soaked) takesOver(ctx context.Context, v *api.VM, name string) error {
	s.testbedMu.Lock()
	m, err := s.tenant(tenant.Setup{Name: name, Socket: v.Socket})
	s.testbedMu.Unlock()
	if m == nil {
		return err
	}
	if err == nil {
		_, err = m.answer(ctx)
	}
	if err == nil {
		if err = works(ctx, m); err != nil {
			err = fmt.Errorf("%w: %w", errNotWorking, err)
		}
	}
	s.testbedMu.Lock()
	defer s.testbedMu.Unlock()
	return errors.Join(err, s.leave(ctx, m))
}
