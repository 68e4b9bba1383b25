package driver

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// ChannelOptions are what a channel may be made with; the zero value will do.
type ChannelOptions struct {
	// Depth is how many commands can be under way at once, rounded up to a power of
	// two; 0: 1024, or less where so much shared memory is not there for every channel
	// that the program may have.
	Depth int
	// Priority is as of CUDA's streams: lower is more urgent.
	Priority int32
	// Patience is for how long who waits looks at the ring before sleeping until the
	// device interrupts; negative: not at all; 0: for as long as lately paid off, up to 0.1
	// or 0.4 ms, or, on more than a few processors, up to 2 ms where the priority, the channel's or else the context's, is
	// an urgent one.
	Patience time.Duration
}

// Channel is an ordered queue of commands, as CUDA's stream. Close must be called
// to free it.
type Channel struct {
	ctx    *Context
	dev    *Device
	slot   int
	urgent int32 // as of ChannelOptions.Priority
	vector int
	page   []byte
	rings  abi.Window // both rings, in BAR2

	// Submitting: one goroutine at a time.
	submit    sync.Mutex
	writer    *abi.SubmissionWriter
	tail      uint64        // commands submitted
	failed    atomic.Bool   // dead is closed
	dead      chan struct{} // closed when the channel will complete nothing any more
	err       error         // why; set before dead is closed
	dying     sync.Once
	doorbells atomic.Uint64

	// Completing: whoever holds lead.
	lead   chan struct{} // a lock that can be waited for beside other things
	reader *abi.CompletionReader
	buf    []abi.Completion
	awake  spinner // of waits for a host that polls
	woken  spinner // of waits that begin with a doorbell
	rung   uint64  // doorbells when a wait last began
	timer  pause
	gpuEnd uint64 // when the GPU had done with the last command, by its clock

	head    atomic.Uint64 // commands completed
	slots   []atomic.Pointer[Pending]
	mask    uint64
	waiters atomic.Int32 // goroutines that wait for a leader to do something
	moved   gate         // opens when the leader did
	irq     chan struct{}

	finished bool // nothing is under way any more, nor ever will be. Holders of lead see it
	released bool // the host has let go; shared memory is not touched any more. Holders of lead see it

	keep     sync.Mutex    // windows that outlive who took them
	orphans  []abi.Window  // of commands that the host may still carry out
	lenders  []*HostMemory // of such
	returned bool          // orphans have been given back
}

// NewChannel opens a channel. Commands may be enqueued at once, also before the
// host has begun to fetch.
func (c *Context) NewChannel(ctx context.Context, opts ChannelOptions) (*Channel, error) {
	depth := opts.Depth
	if depth == 0 {
		depth = c.dev.usualDepth()
	}
	depth = 1 << bits.Len(uint(max(depth, abi.MinRingEntries)-1))
	depth = min(depth, c.dev.info.MaxRingEntries)
	ch := &Channel{
		ctx:    c,
		dev:    c.dev,
		urgent: opts.Priority,
		dead:   make(chan struct{}),
		lead:   make(chan struct{}, 1),
		irq:    make(chan struct{}, 1),
		buf:    make([]abi.Completion, min(depth, 256)),
		slots:  make([]atomic.Pointer[Pending], depth),
		mask:   uint64(depth - 1),
	}
	urgent := c.urgent(opts) && !c.dev.few
	for s, usual := range map[*spinner]time.Duration{&ch.awake: awakePatience, &ch.woken: wokenPatience} {
		*s = newSpinner(usual, urgent)
		s.fixed, s.alone = opts.Patience, c.dev.alone
	}
	var err error
	size := uint64(abi.RingBytes(depth))
	if ch.rings, err = c.dev.rings.take(2*size, abi.PageSize); err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	if err := c.openChannel(ch, depth, opts); err != nil {
		c.dev.rings.give(ch.rings)
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	return ch, nil
}

// urgent reports whether a channel's launches are more urgent than most, unless they have
// a priority of their own.
func (c *Context) urgent(opts ChannelOptions) bool {
	if opts.Priority != 0 {
		return opts.Priority < 0
	}
	return c.opts.Priority < 0
}

// usualDepth is the depth of channels that are not told theirs. Where rings have a part
// of BAR2, all channels fit there with it, if the part is not smaller than their least.
func (d *Device) usualDepth() int {
	depth := abi.UsualRingEntries
	if d.rings == d.staging {
		return depth
	}
	for depth > abi.MinRingEntries && uint64(2*abi.RingBytes(depth)*d.info.Channels) > d.rings.size {
		depth /= 2
	}
	return depth
}

// openChannel creates the channel in a free slot and makes its rings' ends.
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
	ch.slot = slot
	vector := uint32(abi.NoVector)
	if n := d.bus.Vectors(); n > 1 {
		ch.vector = 1 + slot%(n-1)
		vector = uint32(d.mine.Vectors[ch.vector])
	} else if n == 1 {
		vector = uint32(d.mine.Vectors[0])
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
	d.chans.Lock()
	d.slots[slot] = ch
	d.chans.Unlock()
	d.pump(ch.vector)
	return nil
}

// freeChannelSlot finds a slot that nobody uses; d.regs is held.
func (d *Device) freeChannelSlot() (int, error) {
	d.chans.RLock()
	defer d.chans.RUnlock()
	for _, slot := range d.mine.Channels {
		state, _ := abi.UnpackState[abi.ChannelState](d.word(abi.ChannelPage(slot) + abi.ChannelStateWord))
		if state == abi.ChannelFree && d.slots[slot] == nil {
			return slot, nil
		}
	}
	return 0, abi.ErrorLimit
}

// Close drops what was not begun, closes the channel and waits, within reason, until
// the host has let go of it. Commands under way fail with [ErrClosed]; Sync first to wait for
// them.
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
	err := d.set(uint32(abi.ChannelSlot(ch.slot, abi.ChannelControl)), uint32(abi.ControlDestroy))
	d.regs.Unlock()
	if errors.Is(err, abi.ErrorBadState) { // its context's reset or end was quicker
		err = nil
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		err = d.await(ctx, func() bool {
			state, _ := abi.UnpackState[abi.ChannelState](abi.LoadWord(ch.page, abi.ChannelStateWord))
			return state == abi.ChannelFree
		})
	}
	if err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrClosed) {
		// The host may still write to the rings, so they are not used again.
		return fmt.Errorf("close channel %d: %w", ch.slot, err)
	}
	ch.release()
	return nil
}

// release gives back what the channel holds in shared memory, which the host has let
// go of; the channel has failed already.
func (ch *Channel) release() {
	d := ch.dev
	d.chans.Lock()
	if d.slots[ch.slot] == ch {
		d.slots[ch.slot] = nil
	}
	d.chans.Unlock()
	ch.lead <- struct{}{}
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
		ch.keep.Lock()
		for _, w := range ch.orphans {
			d.staging.give(w)
		}
		d.rings.give(ch.rings)
		for _, m := range ch.lenders {
			m.drop()
		}
		ch.orphans, ch.lenders, ch.rings, ch.returned = nil, nil, abi.Window{}, true
		ch.keep.Unlock()
	}
	<-ch.lead
	ch.moved.open()
}

// fail ends the channel: whoever waits or will wait gets err, unless its command
// has completed.
func (ch *Channel) fail(err error) {
	ch.dying.Do(func() {
		if !errors.Is(err, ErrClosed) {
			err = ch.dev.why(err)
		}
		ch.err = err
		ch.failed.Store(true)
		close(ch.dead)
	})
}

// poke wakes the leader that sleeps, or keeps the next one from it.
func (ch *Channel) poke() {
	select {
	case ch.irq <- struct{}{}:
	default:
	}
}

// ring rings the channel's doorbell.
func (ch *Channel) ring() error {
	ch.doorbells.Add(1)
	if err := ch.dev.bus.Doorbell(uint32(abi.Doorbell(ch.slot))); err != nil {
		err = fmt.Errorf("ring the doorbell of channel %d: %w", ch.slot, err)
		ch.fail(err)
		return err
	}
	return nil
}

// enqueue submits a command of 1+len(more) entries, its payload already in e but for
// the cookie. The pending is the channel's until it is done. It waits for room when
// Depth commands are under way.
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
		if err := ch.await(ctx, goal{past: head}); err != nil {
			return err
		}
	}
}

// offer is enqueue for a command of one entry that does not wait for room; it reports
// whether the command was sent.
func (ch *Channel) offer(p *Pending, e *abi.Entry, h abi.Header) bool {
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

// put writes a command to the ring, if there is room, and tells whether the host
// wants a doorbell. ch.submit is held.
func (ch *Channel) put(p *Pending, e *abi.Entry, h abi.Header, more []byte) (sent, kick bool) {
	if ch.failed.Load() || !ch.room(1+int(h.More)) {
		return false, false
	}
	p.begin(ch, h.Op, 1, ch.tail)
	p.behind = ch.tail > ch.head.Load()
	ch.slots[ch.tail&ch.mask].Store(p)
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

// room reports whether a command of n entries can be submitted; ch.submit is held.
// No more commands are under way than completions fit, so the host never waits for
// room.
func (ch *Channel) room(n int) bool {
	return ch.tail-ch.head.Load() <= ch.mask && ch.writer.Reserve(n)
}

// Doorbells returns how many doorbells the channel has rung: launches that found the
// host asleep.
func (ch *Channel) Doorbells() int { return int(ch.doorbells.Load()) }
