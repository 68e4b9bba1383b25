package nvidia

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/eventtable"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/internal/memfd"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

var (
	_ gpu.EventKernels = (*Context)(nil)
	_ gpu.EventPolling = (*Context)(nil)
)

// eventKernels are a context's event kernels. Each has a stream of its own. Kernels that allow it
// have a dispatcher, which launches their events on the GPU while it is there; those of others are
// launched by a goroutine, serveEvents, which also launches dispatchers when there are rings and none
// is there.
type eventKernels struct {
	area []byte // BAR4; nil: there is none. Written once.
	at   gpu.Ptr
	kick chan struct{} // serveEvents is to look
	// rows are the registered kernels by number. They change under mu, and are read without it by
	// those that must not wait, as the holder of mu may wait for a kernel.
	rows [abi.MaxEventKernels]atomic.Pointer[eventRow]
	all  atomic.Pointer[[]*berth] // ever made

	mu     sync.Mutex
	stray  [abi.MaxEventKernels]uint64 // rings on numbers of kernels that had ended
	berths []*berth                    // of kernels that are gone
	dead   []*Module                   // of dispatchers that are gone, to be unloaded
	table  eventtable.Table
	past   []span // of kernels that are gone
	held   bool
	polled bool // the doorbells, by whoever holds the events: rings need not kick
	parks  int  // callers that keep everything off the GPU
}

// eventRow is a registered event kernel.
type eventRow struct {
	c       *Context
	k       gpu.EventKernel
	n       int // in the table
	f       *Function
	queue   *eventqueue.Poller // while the dispatcher is not there
	was     eventqueue.State   // of queue, when the dispatcher was launched
	params  []byte
	d       *dispatcher     // nil: the host launches its events
	why     abi.EventReason // d is nil
	berth   *berth
	flying  []flight // launched by the host, oldest first
	ending  bool
	pending bool // rings from before it was unregistered are not taken yet
	gone    bool

	times      eventTimes
	cameBefore time.Duration // when the dispatcher came the time before
	latency    eventtable.Latencies
	counted    uint32        // events whose latencies were taken from the control block
	turn       turn          // of watch
	begun      atomic.Uint64 // events that the host has launched
	ended      atomic.Uint64 // of those
}

// tier says what launches the kernel's events.
func (r *eventRow) tier() abi.EventTier {
	switch {
	case r.d == nil:
		return abi.EventHost
	case r.k.Grid.Count() == 1 && r.k.Block.Count() <= 32:
		return abi.EventWarp
	}
	return abi.EventBlocks
}

// flight is an event that the host has launched.
type flight struct {
	entry int
	word  uint64        // the berth's when it has ended
	rung  time.Duration // on the host's clock
	put   time.Duration // on the GPU's, roughly; 0: unknown
}

// berth is a stream with host memory that the GPU reaches: a dispatcher's control block, and a word
// that counts what has ended in the stream. Its memory stays until the process ends, so berths are
// used again.
type berth struct {
	stream cuda.Stream
	tail   cuda.Event // behind the newest launch
	mem    []byte
	word   *atomic.Uint64
	last   atomic.Uint64 // the word after the newest launch
	// signalled is last when the signals of its end were queued.
	signalled atomic.Uint64
	args      *cuda.Args
	// fetched is the word's value when the output of kernels was last fetched.
	fetched uint64
}

func (b *berth) busy() bool { return b.word.Load() != b.last.Load() }

// MapEvents implements [gpu.EventKernels].
func (c *Context) MapEvents(f *os.File) (gpu.Ptr, error) {
	if err := c.usable(); err != nil {
		return 0, err
	}
	if c.events.area != nil {
		return 0, fmt.Errorf("event area: the context has one: %w", gpu.ErrInvalidLaunch)
	}
	if err := memfd.Check(f, abi.EventAreaBytes); err != nil {
		return 0, fmt.Errorf("event area: %w", err)
	}
	area, err := unix.Mmap(int(f.Fd()), 0, abi.EventAreaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("map the event area: %w", err)
	}
	at, err := c.MapHost(f, 0, area, 0)
	if err != nil {
		if uerr := unix.Munmap(area); uerr != nil {
			return 0, fmt.Errorf("%w (and unmap it: %w)", err, uerr)
		}
		return 0, err
	}
	c.events.area, c.events.at = area, at
	c.watching.Go(c.serveEvents)
	return at, nil
}

// KickEvents implements [gpu.EventKernels].
func (c *Context) KickEvents() {
	select {
	case c.events.kick <- struct{}{}:
	default: // it has yet to look after the kick before
	}
}

// HoldEvents implements [gpu.EventKernels].
func (c *Context) HoldEvents(on bool) error {
	if err := c.usable(); err != nil {
		return err
	}
	e := &c.events
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = on
	c.pollEvents(false)
	c.stopDispatchers(on || e.parks > 0)
	if on || c.lookAtEvents() { // an urgent event does not wait for a goroutine to wake
		c.KickEvents()
	}
	return nil
}

// PollEvents implements [gpu.EventPolling].
func (c *Context) PollEvents(on bool) (rung bool) {
	c.events.mu.Lock()
	defer c.events.mu.Unlock()
	return c.pollEvents(on)
}

// pollEvents is PollEvents for a caller that holds the events' mu.
func (c *Context) pollEvents(on bool) (rung bool) {
	c.events.polled = on && c.events.held
	for i := range c.events.rows {
		if r := c.events.rows[i].Load(); r != nil && (r.d == nil || !r.d.launched.Load()) {
			rung = !r.arm() || rung
		}
	}
	return rung
}

// stopDispatchers tells all dispatchers to leave, or no longer does.
func (c *Context) stopDispatchers(on bool) {
	for i := range c.events.rows {
		if r := c.events.rows[i].Load(); r != nil && r.d != nil {
			r.d.control.Stop(on)
		}
	}
}

// parked calls f while nothing of the event kernels is on the GPU: f waits for the context's kernels
// to end, or for what they use. While events run that don't end, it waits for the time limit.
func (c *Context) parked(f func() error) error {
	e := &c.events
	if !c.hasEvents() {
		return f()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.parks++
	defer func() {
		e.parks--
		c.stopDispatchers(e.held || e.parks > 0)
		c.KickEvents()
	}()
	c.stopDispatchers(true)
	for i := range e.rows {
		if r := e.rows[i].Load(); r != nil {
			if err := r.signal(); err != nil {
				return err
			}
		}
	}
	for since := time.Now(); c.eventsBusy(); {
		if err := c.usable(); err != nil {
			return err
		}
		if waited := time.Since(since); waited < 50*time.Microsecond {
			runtime.Gosched()
		} else {
			time.Sleep(pollInterval(waited))
			for _, b := range c.eventBerths() {
				if b.busy() && c.checkFault(b.tail) != nil {
					break // the context has ended
				}
			}
		}
	}
	return f()
}

// hasEvents reports whether there are event kernels.
func (c *Context) hasEvents() bool {
	for i := range c.events.rows {
		if c.events.rows[i].Load() != nil {
			return true
		}
	}
	return false
}

// eventsBusy reports whether anything of the event kernels is on the GPU.
func (c *Context) eventsBusy() bool {
	return slices.ContainsFunc(c.eventBerths(), (*berth).busy)
}

// eventBerths returns all berths that were ever made.
func (c *Context) eventBerths() []*berth {
	if all := c.events.all.Load(); all != nil {
		return *all
	}
	return nil
}

// eventsOverdue returns the fault of an event past a time limit, or nil.
func (c *Context) eventsOverdue(now, limit time.Duration) *gpu.Fault {
	for i := range c.events.rows {
		r := c.events.rows[i].Load()
		if r == nil {
			continue
		}
		// An event is under way, or a dispatcher is that was told to leave.
		n, under := r.underWay()
		switch {
		case !under:
			r.turn = turn{}
		case r.turn.fence != n+1 || r.turn.since == 0:
			r.turn = turn{fence: n + 1, since: now}
		case now-r.turn.since >= limit:
			return &gpu.Fault{Kind: gpu.FaultTimeLimit, Kernel: r.f.attrs.Name}
		}
	}
	return nil
}

// underWay reports whether something of the kernel is on the GPU that has to end, and a number that
// is another for the next such thing.
func (r *eventRow) underWay() (n uint64, under bool) {
	if r.d != nil && r.d.launched.Load() {
		c := r.d.control.Counts()
		return uint64(c.Ended), r.berth.busy() && (c.Started != c.Ended || r.d.control.Stopped() && r.d.control.Resident())
	}
	ended := r.ended.Load()
	return ended, r.begun.Load() != ended
}

// eventSuspect returns the name of the event kernel of which an event is under way, and how many such
// kernels there are.
func (c *Context) eventSuspect() (name string, n int) {
	for i := range c.events.rows {
		if r := c.events.rows[i].Load(); r != nil && r.berth.busy() {
			if _, under := r.underWay(); under {
				name = r.f.attrs.Name
				n++
			}
		}
	}
	return name, n
}

// EventKernelCounts implements [gpu.EventKernels].
func (c *Context) EventKernelCounts() (list []gpu.EventKernelCounts, err error) {
	if c.over.Load() {
		return nil, fmt.Errorf("context is closed: %w", gpu.ErrLost)
	}
	e := &c.events
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.rows {
		r := e.rows[i].Load()
		if r == nil {
			continue
		}
		s := r.queue.State()
		n := gpu.EventKernelCounts{Number: i, Kernel: r.f.attrs.Name, Tier: r.tier(), Why: r.why, Stray: e.stray[i], Pending: r.queue.Pending()}
		if r.d != nil && r.d.launched.Load() {
			s = r.d.control.State(r.was)
			n.Pending = abi.LoadWord(e.area, abi.EventPage(i)+abi.EventDoorbellWord) != s.Seen
			n.Resident = r.d.control.Resident()
		}
		r.takeLatencies(uint32(s.Ended))
		n.Started, n.Ended, n.Dropped = s.Started, s.Ended, s.Dropped
		n.P50, n.P99 = r.latency.Quantile(0.5), r.latency.Quantile(0.99)
		list = append(list, n)
	}
	return list, nil
}
