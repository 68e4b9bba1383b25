package ipc

import (
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Memory of the page that no process has touched is zero, and does not exist: to read it would
// allocate it. Of most guests' contexts and launches only the first few are ever used, and the rest
// would take 24 KB of a guest's 32. So whoever looks through all of them asks here first.

// touched remembers which parts of the page were found to be touched. They stay so.
type touched struct {
	contexts, slots atomic.Uint64 // one bit each
	events          atomic.Bool
}

// leastPage is the size of a memory page where it is smallest.
const leastPage = 4096

// touchedFrom returns the first offset from which there is memory that a process has touched, from
// or after an offset. If that can't be found out it is the offset itself.
func (p *ControlPage) touchedFrom(offset int64) int64 {
	// Nobody goes by the descriptor's position.
	at, err := unix.Seek(int(p.fd.Fd()), offset, unix.SEEK_DATA)
	switch err {
	case nil:
		return at
	case unix.ENXIO:
		return math.MaxInt64
	}
	return offset
}

// touchedOf returns a bit for each of n words that may not be zero. The first is at an offset, and
// each of the others size bytes after the one before. known has those of an earlier call.
func (p *ControlPage) touchedOf(known *atomic.Uint64, offset, size int64, n int) uint64 {
	mask := known.Load()
	var next, until int64 // there is nothing before next, and no hole between next and until
	for i := range n {
		at := offset + int64(i)*size
		if mask&(1<<i) != 0 || at < next {
			continue
		}
		if at >= until {
			if next = p.touchedFrom(at); next > at {
				until = next
				continue
			}
			until = at&^(leastPage-1) + leastPage
		}
		mask |= 1 << i
	}
	known.Or(mask)
	return mask
}

// UsedContexts returns a bit for each context that has an executor, or in which one has counted
// anything.
func (p *ControlPage) UsedContexts() (used uint32) {
	// The first line of a context has nothing that says so.
	mask := p.touchedOf(&p.touched.contexts, contextsOffset+lineBytes, contextBytes, MaxContexts)
	for i := range MaxContexts {
		c := &p.l.contexts[i]
		if mask&(1<<i) != 0 && (c.state.Load() != uint32(ContextNone) || c.fetched.Load()|c.errors.Load()|c.commands.Load()|c.wakeups.Load() != 0) {
			used |= 1 << i
		}
	}
	return used
}

// TouchedSlots returns a bit for each launch slot that may have a launch.
func (p *ControlPage) TouchedSlots() uint64 {
	return p.touchedOf(&p.touched.slots, contextsBytes+3*lineBytes, slotBytes, MaxLaunchSlots)
}

// hasEvents reports whether the guest may ever have had event kernels.
func (p *ControlPage) hasEvents() bool {
	if p.events == nil {
		return false
	}
	if !p.touched.events.Load() && p.touchedFrom(ControlPageBytes-eventAreaBytes) < ControlPageBytes {
		p.touched.events.Store(true)
	}
	return p.touched.events.Load()
}
