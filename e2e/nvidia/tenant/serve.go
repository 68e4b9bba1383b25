package tenant

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// tenant is the process's state.
type tenant struct {
	machine  machine
	fixed    module
	jobs     []*job
	burning  *burning
	gate     *Gate
	watchPer time.Duration // the duration of an iteration of the kernel that watches the clock
	scratch  uint64        // memory for copies
	copied   int           // the size of scratch
}

// Serve handles the requests on in until it ends. open opens the GPU for a tenant that is not a
// guest.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open Open) (err error) {
	asks, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	var s Setup
	if err := asks.Decode(&s); err != nil {
		return fmt.Errorf("read the setup: %w", err)
	}
	var t tenant
	ready := Answer{Ready: true}
	switch {
	case s.Socket != "":
		var g *guest
		if g, err = openGuest(ctx, &s); err == nil {
			t.machine = g
		}
	case s.Burns: // it has no machine
	case s.GPU.Kind == "nvidia" && !s.Controlled:
		var n *native
		if n, err = openNative(s.GPU.Device); err == nil {
			t.machine = n
		}
	default:
		var b *bare
		if b, err = openBare(ctx, &s, open); err == nil {
			t.machine = b
		}
	}
	if err == nil && s.Gate != "" {
		var g *Gates
		if g, err = openGates(s.Gate); err == nil {
			t.gate = g.At(s.Slot)
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", s.Name, err)
		return errors.Join(err, answers.Encode(Answer{Error: err.Error()}))
	}
	if t.machine != nil {
		defer func() { err = errors.Join(err, t.machine.close()) }()
		if err := t.prepare(ctx); err != nil {
			ready.Error = err.Error()
		}
	}
	if err := answers.Encode(ready); err != nil {
		return err
	}
	for {
		var r Request
		if err := asks.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		a, err := t.do(ctx, &r)
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// prepare loads the kernels of fixed work.
func (t *tenant) prepare(ctx context.Context) (err error) {
	t.fixed, err = t.machine.load(ctx, fixedPTX)
	return err
}

// do handles one request.
func (t *tenant) do(ctx context.Context, r *Request) (a Answer, err error) {
	switch {
	case r.Burn != nil:
		a.Burnt, err = t.burn(r.Burn)
	case t.machine == nil:
		err = errors.New("a program that uses no GPU")
	case r.Load != nil:
		j, err := loadJob(ctx, t.machine, t.fixed, r.Load)
		if err != nil {
			return a, err
		}
		t.jobs = append(t.jobs, j)
		a.Job = len(t.jobs) - 1
		return a, nil
	case r.Run != nil:
		a.Ran, err = t.run(ctx, r.Run)
	case r.Copy != nil:
		a.Seconds, err = t.copy(ctx, r.Copy)
	case r.Suspend != nil:
		a.Standstills, err = t.suspend(ctx, r.Suspend)
	case r.Evict != nil:
		b, ok := t.machine.(*bare)
		if !ok {
			return a, errors.New("only a program of the host that uses the GPU as executors do evicts by itself")
		}
		a.Evicted, err = b.evict(ctx, r.Evict)
	case r.Forms != nil:
		j, err := t.job(*r.Forms)
		if err != nil {
			return a, err
		}
		a.Form = j.form()
		return a, nil
	case r.Sum != nil:
		j, err := t.job(*r.Sum)
		if err != nil {
			return a, err
		}
		a.Sum, err = j.sum(ctx, t.machine)
		return a, err
	case r.Events != nil:
		a.Took, err = t.events(ctx, r.Events)
	case r.Stream != nil:
		a.Ran, err = t.stream(ctx, r.Stream)
	case r.Free:
		h, ok := t.machine.(interface{ free() (uint64, error) })
		if !ok {
			return a, errors.New("a guest does not know what others have")
		}
		a.Free, err = h.free()
	case r.Clear != nil:
		j, err := t.job(*r.Clear)
		if err != nil {
			return a, err
		}
		return a, j.clear(ctx, t.machine)
	case r.Reset:
		t.jobs, t.copied = nil, 0
		if err = t.machine.reset(ctx); err == nil {
			err = t.prepare(ctx)
		}
	default:
		err = errors.New("a request for nothing")
	}
	return a, err
}

func (t *tenant) job(i int) (*job, error) {
	if i < 0 || i >= len(t.jobs) {
		return nil, fmt.Errorf("no job %d", i)
	}
	return t.jobs[i], nil
}

// copy copies to or from the GPU, and returns the shortest time in seconds.
func (t *tenant) copy(ctx context.Context, c *Copy) (float64, error) {
	if t.copied < c.Bytes {
		at, err := t.machine.alloc(ctx, uint64(c.Bytes))
		if err != nil {
			return 0, err
		}
		t.scratch, t.copied = at, c.Bytes
	}
	mem, err := unix.Mmap(-1, 0, c.Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		return 0, fmt.Errorf("memory to copy from: %w", err)
	}
	defer unix.Munmap(mem) //nolint:errcheck // the process's own
	up, down := t.machine.copyIn, t.machine.copyOut
	if c.Pinned {
		if h, ok := t.machine.(hostCopier); ok {
			h, release, err := h.hostMemory(ctx)
			if err != nil {
				return 0, err
			}
			defer release()
			up, down = h.copyIn, h.copyOut
		} else {
			release, err := t.pin(mem)
			if err != nil {
				return 0, err
			}
			defer release() //nolint:errcheck // it ends with the process at the latest
		}
	}
	best := 0.0
	for range max(c.Times, 1) + 1 { // the first is a warm-up
		begin := time.Now()
		if c.Up {
			err = up(ctx, t.scratch, mem)
		} else {
			err = down(ctx, mem, t.scratch)
		}
		if err != nil {
			return 0, err
		}
		if took := time.Since(begin).Seconds(); best == 0 || took < best {
			best = took
		}
	}
	return best, nil
}

// pin registers memory with the GPU.
func (t *tenant) pin(mem []byte) (release func() error, err error) {
	p, ok := t.machine.(interface {
		pin(mem []byte) (release func() error, err error)
	})
	if !ok {
		return nil, errors.New("it registers no memory")
	}
	return p.pin(mem)
}
