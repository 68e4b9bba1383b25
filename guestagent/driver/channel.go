package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// ChannelOptions configure a channel. The zero value is usable.
type ChannelOptions struct {
	// Depth is how many commands can be under way at once, rounded up to a power of two, and less
	// where BAR2's area for rings has not as much room for each of the program's channels. 0 means
	// [abi.UsualRingEntries].
	Depth int
	// Priority follows CUDA's streams: lower is more urgent.
	Priority int32
	// Spin is how long a waiter polls the ring before it sleeps until the device interrupts.
	// Negative means not at all. 0 means as long as recent waits showed to pay off: up to 0.1 ms,
	// or 0.4 ms after a doorbell, or 2 ms if the priority of the channel, or else of the context,
	// is urgent and the machine has more than a few processors.
	Spin time.Duration
}

// Channel is an ordered queue of commands, as CUDA's stream. Close must be called to free it.
type Channel struct {
	ctx      *Context
	dev      *Device
	index    int
	priority int32 // ChannelOptions.Priority
	vector   int
	page     []byte
	rings    abi.Window // both rings, in BAR2

	// For submission; guarded by submit.
	submit    sync.Mutex
	writer    *abi.SubmissionWriter
	tail      uint64        // commands submitted
	failed    atomic.Bool   // dead is closed
	dead      chan struct{} // closed when the channel will complete nothing any more
	err       error         // why; set before dead is closed
	failOnce  sync.Once
	doorbells atomic.Uint64

	// For completion; guarded by leader.
	leader        chan struct{} // a lock that a select can wait for
	reader        *abi.CompletionReader
	buf           []abi.Completion
	polledSpin    spinner // for waits while the host polls
	doorbellSpin  spinner // for waits that begin with a doorbell
	seenDoorbells uint64  // doorbells when the last wait began
	timer         backoff
	lastEnd       uint64 // when the GPU completed the last command, on its clock

	head     atomic.Uint64 // commands completed
	pending  []atomic.Pointer[Pending]
	mask     uint64
	waiters  atomic.Int32 // goroutines that wait for the leader to make progress
	progress notifier     // notified when the leader did
	irq      chan struct{}

	finished bool // no command is or will be under way; guarded by leader
	released bool // the host has released the channel, and shared memory is not touched any more; guarded by leader

	windowsMu        sync.Mutex
	abandonedWindows []abi.Window  // of commands that the host may still carry out
	abandonedHost    []*HostMemory // likewise
	windowsReturned  bool          // abandonedWindows have been released
}

// NewChannel opens a channel. Commands may be enqueued at once, even before the host has begun to
// fetch.
func (c *Context) NewChannel(ctx context.Context, opts ChannelOptions) (*Channel, error) {
	depth := c.dev.fitting(cmp.Or(opts.Depth, abi.UsualRingEntries))
	depth = 1 << bits.Len(uint(max(depth, abi.MinRingEntries)-1))
	depth = min(depth, c.dev.info.MaxRingEntries)
	ch := &Channel{
		ctx:      c,
		dev:      c.dev,
		priority: opts.Priority,
		dead:     make(chan struct{}),
		leader:   make(chan struct{}, 1),
		irq:      make(chan struct{}, 1),
		buf:      make([]abi.Completion, min(depth, 256)),
		pending:  make([]atomic.Pointer[Pending], depth),
		mask:     uint64(depth - 1),
	}
	urgent := c.urgent(opts) && !c.dev.fewCPUs
	for s, usual := range map[*spinner]time.Duration{&ch.polledSpin: polledSpinLimit, &ch.doorbellSpin: doorbellSpinLimit} {
		*s = newSpinner(usual, urgent)
		s.fixed, s.singleCPU = opts.Spin, c.dev.singleCPU
	}
	var err error
	size := uint64(abi.RingBytes(depth))
	if ch.rings, err = c.dev.rings.alloc(2*size, abi.PageSize); err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	if err := c.openChannel(ch, depth, opts); err != nil {
		c.dev.rings.release(ch.rings)
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	return ch, nil
}

// urgent reports whether the channel's launches are urgent by default.
func (c *Context) urgent(opts ChannelOptions) bool {
	if opts.Priority != 0 {
		return opts.Priority < 0
	}
	return c.opts.Priority < 0
}

// fitting returns depth, or less if BAR2 has an area for rings where not all channels of the program
// fit with that depth, unless it is too small for the least depth.
func (d *Device) fitting(depth int) int {
	if d.rings == d.staging {
		return min(depth, abi.UsualRingEntries)
	}
	for depth > abi.MinRingEntries && uint64(2*abi.RingBytes(depth)*d.info.Channels) > d.rings.size {
		depth /= 2
	}
	return depth
}

// openChannel creates the channel in a free slot and opens its rings.
func (c *Context) openChannel(ch *Channel, depth int, opts ChannelOptions) error {
	d := c.dev
	sub := ch.rings.Offset
	comp := sub + uint64(abi.RingBytes(depth))
	d.regs.Lock()
	defer d.regs.Unlock()
	if err := d.ended(); err != nil {
		return err
	}
	var slot int
	var err error
	if e := d.touch(func() { slot, err = d.freeChannelSlot() }); e != nil || err != nil {
		return errors.Join(e, err)
	}
	ch.index = slot
	vector := uint32(abi.NoVector)
	if n := d.bus.Vectors(); n > 1 {
		ch.vector = 1 + slot%(n-1)
		vector = uint32(d.allotment.Vectors[ch.vector])
	} else if n == 1 {
		vector = uint32(d.allotment.Vectors[0])
	}
	for _, w := range []struct {
		reg int
		v   uint32
	}{
		{abi.ChannelContext, uint32(c.slot)},
		{abi.ChannelSubmissionLo, uint32(sub)}, {abi.ChannelSubmissionHi, uint32(sub >> 32)},
		{abi.ChannelSubmissionEntries, uint32(depth)},
		{abi.ChannelCompletionLo, uint32(comp)}, {abi.ChannelCompletionHi, uint32(comp >> 32)},
		{abi.ChannelCompletionEntries, uint32(depth)},
		{abi.ChannelVector, vector}, {abi.ChannelPriority, uint32(opts.Priority)}, {abi.ChannelFlags, 0},
	} {
		if err := d.bus.Write(uint32(abi.ChannelSlot(slot, w.reg)), w.v); err != nil {
			return err
		}
	}
	if err := d.set(uint32(abi.ChannelSlot(slot, abi.ChannelControl)), uint32(abi.ControlCreate)); err != nil {
		return err
	}
	at := abi.ChannelPage(slot)
	ch.page = d.shared[at : at+abi.PageSize]
	bytes := uint64(depth * abi.EntrySize)
	var errs [2]error
	ch.writer, errs[0] = abi.NewSubmissionWriter(ch.page, d.shared[sub:sub+bytes])
	ch.reader, errs[1] = abi.NewCompletionReader(ch.page, d.shared[comp:comp+bytes])
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	c.mu.Lock()
	c.channels[ch] = struct{}{}
	c.mu.Unlock()
	d.slotsMu.Lock()
	d.slots[slot] = ch
	d.slotsMu.Unlock()
	d.startDispatch(ch.vector)
	return nil
}

// freeChannelSlot finds a free slot; d.regs is held.
func (d *Device) freeChannelSlot() (int, error) {
	d.slotsMu.RLock()
	defer d.slotsMu.RUnlock()
	for _, slot := range d.allotment.Channels {
		state, _ := abi.UnpackState[abi.ChannelState](d.word(abi.ChannelPage(slot) + abi.ChannelStateWord))
		if state == abi.ChannelFree && d.slots[slot] == nil {
			return slot, nil
		}
	}
	return 0, abi.ErrorLimit
}

// Close discards commands that have not begun, closes the channel and waits up to closeTimeout
// until the host has released it. Commands under way fail with [ErrClosed]; call Sync first to wait
// for them.
func (ch *Channel) Close() error {
	ch.ctx.mu.Lock()
	_, open := ch.ctx.channels[ch]
	delete(ch.ctx.channels, ch)
	ch.ctx.mu.Unlock()
	if !open {
		return nil
	}
	d := ch.dev
	ch.fail(ErrClosed)
	d.regs.Lock()
	err := d.set(uint32(abi.ChannelSlot(ch.index, abi.ChannelControl)), uint32(abi.ControlDestroy))
	d.regs.Unlock()
	if errors.Is(err, abi.ErrorBadState) { // the end or reset of its context came first
		err = nil
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = d.awaitWords(ctx, func() bool {
			state, _ := abi.UnpackState[abi.ChannelState](abi.LoadWord(ch.page, abi.ChannelStateWord))
			return state == abi.ChannelFree
		})
	}
	if err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrClosed) {
		// The host may still write to the rings, so they are not reused.
		return fmt.Errorf("close channel %d: %w", ch.index, err)
	}
	ch.release()
	return nil
}

// release frees the channel's shared memory, which the host has released. The channel has failed
// already.
func (ch *Channel) release() {
	d := ch.dev
	d.slotsMu.Lock()
	if d.slots[ch.index] == ch {
		d.slots[ch.index] = nil
	}
	d.slotsMu.Unlock()
	ch.leader <- struct{}{}
	if !ch.released {
		_ = d.touch(func() {
			for {
				if n, err := ch.reap(); n == 0 || err != nil {
					break
				}
			}
		})
		_ = ch.abandon()
		ch.released = true
		ch.windowsMu.Lock()
		for _, w := range ch.abandonedWindows {
			d.staging.release(w)
		}
		d.rings.release(ch.rings)
		for _, m := range ch.abandonedHost {
			m.release()
		}
		ch.abandonedWindows, ch.abandonedHost, ch.rings, ch.windowsReturned = nil, nil, abi.Window{}, true
		ch.windowsMu.Unlock()
	}
	<-ch.leader
	ch.progress.notify()
}

// fail ends the channel: present and future waiters get err, unless their command has completed.
func (ch *Channel) fail(err error) {
	ch.failOnce.Do(func() {
		if !errors.Is(err, ErrClosed) {
			err = ch.dev.rootCause(err)
		}
		ch.err = err
		ch.failed.Store(true)
		close(ch.dead)
	})
}

// wake wakes the leader if it sleeps, or else keeps the next one from sleeping.
func (ch *Channel) wake() {
	select {
	case ch.irq <- struct{}{}:
	default:
	}
}

// ring rings the channel's doorbell.
func (ch *Channel) ring() error {
	ch.doorbells.Add(1)
	if err := ch.dev.bus.Doorbell(uint32(abi.Doorbell(ch.index))); err != nil {
		err = fmt.Errorf("ring the doorbell of channel %d: %w", ch.index, err)
		ch.fail(err)
		return err
	}
	return nil
}

// enqueue submits a command of 1+len(more) entries. e holds its payload, without the cookie. p
// belongs to the channel until it is done. If Depth commands are under way, enqueue waits for room.
func (ch *Channel) enqueue(ctx context.Context, p *Pending, e *abi.Entry, h abi.Header, more []byte) error {
	h.More = uint8(abi.MoreFor(len(more)))
	for {
		ch.submit.Lock()
		head := ch.head.Load()
		var sent, kick bool
		err := ch.dev.touch(func() { sent, kick = ch.put(p, e, h, more) })
		ch.submit.Unlock()
		switch {
		case err != nil:
			ch.fail(err)
			return err
		case ch.failed.Load() && !sent:
			return ch.err
		case kick:
			return ch.ring()
		case sent:
			return nil
		}
		if err := ch.await(ctx, target{past: head}); err != nil {
			return err
		}
	}
}

// tryEnqueue is enqueue for a command of one entry, but does not wait for room. It reports whether
// the command was sent.
func (ch *Channel) tryEnqueue(p *Pending, e *abi.Entry, h abi.Header) bool {
	var sent, kick bool
	ch.submit.Lock()
	err := ch.dev.touch(func() { sent, kick = ch.put(p, e, h, nil) })
	ch.submit.Unlock()
	if err != nil {
		ch.fail(err)
		return false
	}
	return sent && (!kick || ch.ring() == nil)
}

// put writes a command to the ring if there is room, and reports whether the host wants a doorbell.
// ch.submit is held.
func (ch *Channel) put(p *Pending, e *abi.Entry, h abi.Header, more []byte) (sent, kick bool) {
	if ch.failed.Load() || !ch.room(1+int(h.More)) {
		return false, false
	}
	p.begin(ch, h.Op, 1, ch.tail)
	p.queued = ch.tail > ch.head.Load()
	ch.pending[ch.tail&ch.mask].Store(p)
	h.Cookie = ch.tail
	ch.tail++
	h.Encode(e)
	*ch.writer.Next() = *e
	for len(more) > 0 {
		slot := ch.writer.Next()
		k := copy(slot[:], more)
		clear(slot[k:])
		more = more[k:]
	}
	return true, ch.writer.Publish()
}

// room reports whether a command of n entries can be submitted; ch.submit is held. No more commands
// are under way than completions fit the ring, so the host never waits for room.
func (ch *Channel) room(n int) bool {
	return ch.tail-ch.head.Load() <= ch.mask && ch.writer.Reserve(n)
}

// args are the arguments of a command.
type args interface{ Encode(e *abi.Entry) }

// send enqueues a command of one entry.
func (ch *Channel) send(ctx context.Context, op abi.Opcode, a args) (*Pending, error) {
	p := new(Pending)
	var e abi.Entry
	a.Encode(&e)
	return p, ch.enqueue(ctx, p, &e, abi.Header{Op: op}, nil)
}

// run enqueues a command and waits for it.
func (ch *Channel) run(ctx context.Context, p *Pending, op abi.Opcode, a args, more []byte) error {
	var e abi.Entry
	a.Encode(&e)
	if err := ch.enqueue(ctx, p, &e, abi.Header{Op: op}, more); err != nil {
		return err
	}
	return p.Wait(ctx)
}

// call runs a command of one entry and returns its results.
func (ch *Channel) call(ctx context.Context, op abi.Opcode, a args) ([3]uint64, error) {
	var p Pending
	if err := ch.run(ctx, &p, op, a, nil); err != nil {
		return [3]uint64{}, err
	}
	return p.value(), nil
}

// Doorbells returns how many doorbells the channel has rung: one for each command that found the
// host asleep.
func (ch *Channel) Doorbells() int { return int(ch.doorbells.Load()) }
