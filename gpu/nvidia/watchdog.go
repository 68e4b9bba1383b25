package nvidia

import (
	"sync"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// turn is the next command to be done in a channel, with the context's used time when it was first
// seen there.
type turn struct {
	fence uint64
	since time.Duration
}

// pauses sums the time that the context's channels were off the GPU. It is safe for concurrent use.
// The zero value is a context on the GPU.
type pauses struct {
	mu    sync.Mutex
	off   bool
	since time.Duration
	sum   time.Duration
}

func (p *pauses) turn(off bool, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if off == p.off {
		return
	}
	if !off {
		p.sum += now - p.since
	}
	p.off, p.since = off, now
}

// before returns the sum up to now.
func (p *pauses) before(now time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return p.sum + now - p.since
	}
	return p.sum
}

// Pause records that the context's channels are off the GPU, or back on it. Their kernels' time
// stands still meanwhile. It implements [gpu.Pausing].
func (c *Context) Pause(off bool) { c.pauses.turn(off, c.elapsed()) }

// watchEvery is the longest interval at which watch runs.
const watchEvery = 250 * time.Millisecond

// watch ends the context when a kernel has used more GPU time than its limit. It runs often enough
// to be at most a sixteenth of the limit late. It also detects faults and releases freed memory for
// callers that only poll progress.
func (c *Context) watch() {
	limit := time.Duration(c.timeLimit.Load())
	t := time.NewTicker(watchInterval(limit))
	defer t.Stop()
	turns := map[*Channel]turn{}
	for {
		select {
		case <-c.stop:
			return
		case <-c.limitChanged:
			limit = time.Duration(c.timeLimit.Load())
			t.Reset(watchInterval(limit))
			continue
		case <-t.C:
		}
		if c.fault.Load() != nil {
			return
		}
		if limit > 0 {
			now := c.used()
			f := c.overdue(turns, now, limit)
			if f == nil {
				f = c.eventsOverdue(now, limit)
			}
			if f != nil {
				c.poison(f)
				return
			}
		}
		c.ask()
	}
}

// watchInterval returns how often watch runs with a time limit.
func watchInterval(limit time.Duration) time.Duration {
	if limit <= 0 {
		return watchEvery
	}
	return min(max(limit/16, 2*time.Millisecond), watchEvery)
}

// SetKernelTimeLimit implements [gpu.TimeLimited].
func (c *Context) SetKernelTimeLimit(d time.Duration) error {
	c.timeLimit.Store(int64(max(d, 0)))
	select {
	case c.limitChanged <- struct{}{}:
	default: // watch has yet to notice the change before this one
	}
	return c.Fault()
}

// ask queries the driver for faults, which it reports only to its callers. The queries run in a
// goroutine, because the caller has to end kernels that keep the driver from answering.
func (c *Context) ask() {
	c.mu.Lock()
	var tails []cuda.Event
	for _, l := range append(c.lanes(), c.zero.lane) {
		if l.word.Load() != l.last.Load() {
			tails = append(tails, cuda.Event(l.tail.Load()))
		}
	}
	c.mu.Unlock()
	for _, b := range c.eventBerths() {
		if b.busy() {
			tails = append(tails, b.tail)
		}
	}
	if len(tails) == 0 && c.pendingFrees.bytes.Load() == 0 && !c.pool.full() || !c.checking.CompareAndSwap(false, true) {
		return
	}
	c.asleep.Add(1)
	go func() {
		defer c.asleep.Add(-1)
		defer c.checking.Store(false)
		for _, e := range tails {
			if c.checkFault(e) != nil {
				return // the context has ended
			}
		}
		c.noticeCopies()
		c.settleFrees()
		c.unmapFreed()
		c.empty()
	}()
}

// elapsed returns the clock of the time limit.
func (c *Context) elapsed() time.Duration {
	if c.o.Elapsed != nil {
		return c.o.Elapsed()
	}
	return c.d.o.Clock.Now()
}

// used returns elapsed minus the time off the GPU.
func (c *Context) used() time.Duration {
	now := c.elapsed()
	return now - c.pauses.before(now)
}

// overdue returns the fault of a kernel past a time limit, or nil.
func (c *Context) overdue(turns map[*Channel]turn, now, limit time.Duration) *gpu.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range turns {
		if ch.dead.Load() {
			delete(turns, ch)
		}
	}
	for _, ch := range c.channels {
		f, kernel := ch.executing()
		if kernel == "" {
			delete(turns, ch)
			continue
		}
		if was, ok := turns[ch]; !ok || was.fence != f {
			turns[ch] = turn{fence: f, since: now}
		} else if now-was.since >= limit {
			return &gpu.Fault{Kind: gpu.FaultTimeLimit, Kernel: kernel}
		}
	}
	return nil
}
