package tenant

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Gates is a page that the measuring process shares with tenants, and by which it holds tenants
// back. NEON does so by unmapping their submission registers (LoGA §2.3). The effect is the same:
// submissions wait, and work that was submitted goes on.
type Gates struct {
	memory []byte
	places []Gate
}

// Gate is one tenant's entry. Its times are by CLOCK_MONOTONIC.
type Gate struct {
	held                             atomic.Uint32
	_                                uint32
	submitted, completed, lastSubmit atomic.Uint64
	_                                [4]uint64 // fills a cache line
}

// gateBytes is the size of an entry.
const gateBytes = 64

// NewGates creates a file of n entries, none of them held. Close unmaps the file but does not
// remove it.
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

// At returns a tenant's entry.
func (g *Gates) At(slot int) *Gate { return &g.places[slot] }

// Close unmaps the page. No Gate of it may be used afterwards.
func (g *Gates) Close() error {
	g.places = nil
	return unix.Munmap(g.memory)
}

// Hold holds the tenant back, or lets it continue.
func (g *Gate) Hold(held bool) {
	v := uint32(0)
	if held {
		v = 1
	}
	g.held.Store(v)
}

// Progress returns the numbers of commands submitted and completed, and the time of the last
// submission.
func (g *Gate) Progress() (submitted, completed uint64, last time.Duration) {
	completed = g.completed.Load() // read first, so that it never exceeds submitted
	return g.submitted.Load(), completed, time.Duration(g.lastSubmit.Load())
}

// heldPollInterval is the interval in which a held tenant polls its entry. It is short because NEON
// at once wakes a thread that waits in a fault.
const heldPollInterval = 5 * time.Microsecond

// submit waits until the tenant is not held, and counts a command. On a nil Gate it does nothing.
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
		g.submitted.Add(^uint64(0)) // the tenant is held, so the command is not submitted yet
		if err := ctx.Err(); err != nil {
			return err
		}
		nap(heldPollInterval)
	}
}

func (g *Gate) complete() {
	if g != nil {
		g.completed.Add(1)
	}
}

// Monotonic returns the time of CLOCK_MONOTONIC, which all processes share.
func Monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every machine has this clock
	}
	return time.Duration(t.Nano())
}
