package ipc

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

const contextBytes = 4 * lineBytes

// contextLayout is a context's part of the page in memory.
type contextLayout struct {
	// Woken by any process; exec sleeps on it.
	futex  futexWord
	events atomic.Uint32 // by exec: the numbers of its event kernels; zero with older ones
	_      [lineBytes - 12]byte

	// Written by exec: identity and state.
	state           atomic.Uint32
	group           atomic.Uint32 // channel group id + 1; 0 is none
	pid             atomic.Int32
	backlog         atomic.Uint32
	filling         atomic.Uint32 // see SetFilling; zero with executors of older versions
	leavesUnstarted atomic.Uint32 // see SetLeavesUnstarted; zero with executors of older versions
	fetchAhead      atomic.Uint64 // see Ahead; zero with executors of older versions
	waiting         atomic.Int64  // see SetWaiting; likewise
	reasons         reasonWords   // of errors; likewise

	// Written by exec: counters.
	fetched  atomic.Uint64
	finished atomic.Uint64
	kernels  atomic.Uint64
	errors   atomic.Uint64
	gpuTime  atomic.Int64
	copied   atomic.Uint64
	lateTime atomic.Int64
	memory   atomic.Uint64 // taken on the GPU, bytes

	// Written by exec: counters of the command path.
	commands atomic.Uint64
	wakeups  atomic.Uint64

	// Written by exec: counters of preemption, zero in a page of version 1.
	evictions    atomic.Uint64
	relaunches   atomic.Uint64
	evictionTime atomic.Int64
	unresponsive atomic.Uint64
	ignored      atomic.Uint64 // priorities above the ceiling
	worked       atomic.Int64  // see SetWorking; zero with executors of older versions
}

// ContextState is the state of a context's executor.
type ContextState uint32

const (
	// ContextNone: the slot is free.
	ContextNone ContextState = iota
	// ContextStarting: the executor creates its GPU context.
	ContextStarting
	// ContextReady: the executor carries out commands.
	ContextReady
	// ContextFaulted: a kernel's fault, or the GPU's end, ended the GPU context.
	ContextFaulted
	// ContextEnding: the executor closes the GPU context, or has closed it.
	ContextEnding
)

var contextStateNames = [...]string{"none", "starting", "ready", "faulted", "ending"}

// String returns the state's name.
func (s ContextState) String() string {
	if int(s) < len(contextStateNames) {
		return contextStateNames[s]
	}
	return fmt.Sprintf("ContextState(%d)", uint32(s))
}

// ContextSlot is one context's part of the page. Its executor writes all of it but the futex.
type ContextSlot contextLayout

// Reset prepares the slot for a new executor.
func (c *ContextSlot) Reset(pid int) {
	if pid < 0 || pid > math.MaxInt32 {
		pid = 0
	}
	c.group.Store(0)
	c.pid.Store(int32(pid))
	c.backlog.Store(0)
	c.filling.Store(0)
	c.waiting.Store(0)
	c.fetchAhead.Store(0)
	c.memory.Store(0)
	c.worked.Store(0)
	c.leavesUnstarted.Store(0)
	c.state.Store(uint32(ContextStarting))
}

// Free frees the slot of an executor that is gone, and its memory. The counters stay, so that the
// guest's sums never decrease.
func (c *ContextSlot) Free() {
	c.group.Store(0)
	c.pid.Store(0)
	c.backlog.Store(0)
	c.filling.Store(0)
	c.waiting.Store(0)
	c.fetchAhead.Store(0)
	c.leavesUnstarted.Store(0)
	c.memory.Store(0)
	c.finished.Store(c.fetched.Load())
	c.state.Store(uint32(ContextNone))
}

// SetLeavesUnstarted records that the context's executor lets launches leave before they have
// started. The executor calls it before it claims a slot for a launch.
func (c *ContextSlot) SetLeavesUnstarted() { c.leavesUnstarted.Store(1) }

// SetReady records that the context carries out commands, and its channel group.
func (c *ContextSlot) SetReady(group uint16) {
	c.group.Store(uint32(group) + 1)
	c.state.Store(uint32(ContextReady))
}

// SetFaulted records that a kernel's fault ended the GPU context.
func (c *ContextSlot) SetFaulted() { c.state.Store(uint32(ContextFaulted)) }

// SetEnding records that the executor is about to close the GPU context. From then on the GPU's
// driver may not know the context any more.
func (c *ContextSlot) SetEnding() { c.state.Store(uint32(ContextEnding)) }

// SetLost records that the GPU is gone, and the context's channel group with it. The group's number
// may be another's when the GPU is back.
func (c *ContextSlot) SetLost() {
	c.group.Store(0)
	c.SetFaulted()
}

// State returns the executor's state. A word that is no state counts as ContextFaulted, so that
// nothing waits for that executor.
func (c *ContextSlot) State() ContextState {
	s := ContextState(c.state.Load())
	if int(s) >= len(contextStateNames) {
		return ContextFaulted
	}
	return s
}

// Group returns the context's channel group while it has one.
func (c *ContextSlot) Group() (id uint16, ok bool) {
	g := c.group.Load()
	return uint16(g - 1), g != 0 && g <= math.MaxUint16+1
}

// PID returns the executor's process, or 0.
func (c *ContextSlot) PID() int { return int(max(c.pid.Load(), 0)) }

// SetBacklog records whether unfetched commands wait in the context's rings.
func (c *ContextSlot) SetBacklog(backlog bool) {
	if c.Backlog() != backlog {
		storeBool(&c.backlog, backlog)
	}
}

// Backlog reports whether unfetched commands wait.
func (c *ContextSlot) Backlog() bool { return c.backlog.Load() != 0 }

// SetFilling records whether the context has memory being filled, copied or zeroed on the GPU. That
// is the work of the driver's kernels, which a suspension does not take back either.
func (c *ContextSlot) SetFilling(filling bool) {
	if (c.filling.Load() != 0) != filling {
		storeBool(&c.filling, filling)
	}
}

// AddFilled counts a fill or copy that was on the GPU for t. The guest was suspended for late of
// that time.
func (c *ContextSlot) AddFilled(t, late time.Duration) {
	c.gpuTime.Add(int64(t))
	c.lateTime.Add(int64(late))
}

// AddFetched counts a launch that the executor put on the GPU.
func (c *ContextSlot) AddFetched() { c.fetched.Add(1) }

// AddErrorReason counts why a command failed. The executor calls it before it counts the error.
func (c *ContextSlot) AddErrorReason(r ErrorReason) { c.reasons.add(r) }

// AddFinished counts a launch that ended after a run of GPU time t, and whether it failed. The
// guest was suspended for late of that time.
func (c *ContextSlot) AddFinished(t, late time.Duration, failed bool) {
	c.AddEnded(failed)
	c.AddRun(t, late)
}

// AddRun counts a launch that left the GPU, done or not, after a run of GPU time t. The guest was
// suspended for late of that time. A launch that goes on is counted by AddFetched again.
func (c *ContextSlot) AddRun(t, late time.Duration) {
	c.AddFilled(t, late)
	c.finished.Add(1)
}

// AddEnded counts a launch that ended, and whether it failed. AddRun has counted its runs.
func (c *ContextSlot) AddEnded(failed bool) {
	if failed {
		c.errors.Add(1)
	} else {
		c.kernels.Add(1)
	}
}

// AddError counts a failed command other than a launch.
func (c *ContextSlot) AddError() { c.errors.Add(1) }

// AddCopied counts copied bytes.
func (c *ContextSlot) AddCopied(n uint64) { c.copied.Add(n) }

// AddCommands counts fetched commands of all kinds.
func (c *ContextSlot) AddCommands(n uint64) { c.commands.Add(n) }

// AddWakeup counts a time that the executor was woken.
func (c *ContextSlot) AddWakeup() { c.wakeups.Add(1) }

// Outstanding returns how many launches are on the GPU now.
func (c *ContextSlot) Outstanding() uint64 {
	finished := c.finished.Load() // first, so that the difference is never negative
	if n := c.fetched.Load() - finished; n <= maxOutstanding {
		return n
	}
	return maxOutstanding // the words are impossible
}

// OnGPU reports whether the context has launches or fills on the GPU's compute engine now.
func (c *ContextSlot) OnGPU() bool { return c.filling.Load() != 0 || c.Outstanding() > 0 }
