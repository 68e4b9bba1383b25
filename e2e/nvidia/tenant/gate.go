package tenant

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Gates is a page that tenants and who measures share, by which tenants are held
// back: what NEON does by unmapping their submission registers (LoGA §2.3), with the
// same effect, that what is held is not submitted and what was goes on.
type Gates struct {
	memory []byte
	places []Gate
}

// Gate is one tenant's place. Its times are of CLOCK_MONOTONIC.
type Gate struct {
	held                             atomic.Uint32
	_                                uint32
	submitted, completed, lastSubmit atomic.Uint64
	_                                [4]uint64 // a cache line each
}

// gateBytes is the size of a place.
const gateBytes = 64

// NewGates makes a file with so many places, all open. Close unmaps it; the file
// stays.
func NewGates(path string, n int) (*Gates, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		err = f.Truncate(int64(n * gateBytes))
	}
	if err != nil {
		return nil, fmt.Errorf("make the gates: %w", err)
	}
	return mapGates(f)
}

func openGates(path string) (*Gates, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the gates: %w", err)
	}
	return mapGates(f)
}

// mapGates maps a file, and closes it.
func mapGates(f *os.File) (*Gates, error) {
	defer f.Close() //nolint:errcheck // nothing was written through it
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open the gates: %w", err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the gates: %w", err)
	}
	return &Gates{m, places(m)}, nil
}

// At is a tenant's place.
func (g *Gates) At(slot int) *Gate { return &g.places[slot] }

// Close unmaps the page; no Gate of it is used after.
func (g *Gates) Close() error {
	g.places = nil
	return unix.Munmap(g.memory)
}

// Hold holds the tenant back, or lets it go on.
func (g *Gate) Hold(held bool) {
	v := uint32(0)
	if held {
		v = 1
	}
	g.held.Store(v)
}

// Progress is how many commands were submitted and completed, and when the newest
// was submitted.
func (g *Gate) Progress() (submitted, completed uint64, last time.Duration) {
	completed = g.completed.Load() // first: it is never ahead
	return g.submitted.Load(), completed, time.Duration(g.lastSubmit.Load())
}

// heldLook is the time between two looks of a tenant that is held: NEON wakes who
// waits in a fault at once.
const heldLook = 5 * time.Microsecond

// submit waits until the tenant is let through, and counts a command. On a nil Gate
// it does nothing.
func (g *Gate) submit(ctx context.Context) error {
	if g == nil {
		return nil
	}
	for {
		g.submitted.Add(1)
		g.lastSubmit.Store(uint64(Monotonic()))
		if g.held.Load() == 0 {
			return nil
		}
		g.submitted.Add(^uint64(0)) // not yet, after all
		if err := ctx.Err(); err != nil {
			return err
		}
		nap(heldLook)
	}
}

func (g *Gate) complete() {
	if g != nil {
		g.completed.Add(1)
	}
}

// Monotonic is CLOCK_MONOTONIC, which all processes share.
func Monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is no machine without it
	}
	return time.Duration(t.Nano())
}
