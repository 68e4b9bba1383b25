package vm

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// executors is the virtual GPU's backend: it starts, feeds and ends the executor
// processes of a guest's contexts.
type executors struct {
	spec    ipc.Spec
	header  int // of BAR2
	rings   int // bytes behind it where rings lie
	page    *ipc.Page
	command func() *exec.Cmd
	clock   clock.Clock
	log     *slog.Logger
	dev     *vgpu.Device // set once, before the first call
	daemons *control     // who are told of handles and changes; nil: nobody
	until   *os.File     // see [ipc.Page.SetUntil]; nil: there is none

	mu    sync.Mutex
	lives [ipc.MaxContexts]*life
	// contextOf is the context slot of each channel slot, for kicks.
	contextOf [abi.MaxChannels]atomic.Int32
	faults    [ipc.MaxContexts]string
	starts    [ipc.MaxContexts]pace // of each slot's executors
	allStarts pace
	ended     sync.WaitGroup
}

// A guest can create, reset and destroy contexts in a loop, and each is a
// process of the host's.
const (
	// startEvery is the least time between two starts in one slot.
	startEvery = 100 * time.Millisecond
	// allStartsEvery is the mean time between a guest's starts, of which it may
	// have one for each slot at once.
	allStartsEvery = 125 * time.Millisecond
)

// newExecutors makes the backend of a guest, without its device.
func newExecutors(spec ipc.Spec, page *ipc.Page, command func() *exec.Cmd, c clock.Clock, log *slog.Logger) *executors {
	b := &executors{spec: spec, page: page, command: command, clock: c, log: log}
	b.allStarts = pace{every: allStartsEvery, burst: ipc.MaxContexts}
	for i := range b.starts {
		b.starts[i] = pace{every: startEvery, burst: 1}
	}
	return b
}

// use has the backend serve a device, once, before its first call.
func (b *executors) use(dev *vgpu.Device) {
	cfg := dev.Config()
	b.dev, b.header, b.rings = dev, abi.HeaderBytes(cfg.Channels), cfg.RingsBytes()
}

// CreateContext implements [vgpu.Backend]. What ended the slot's last context is
// nothing to the new one, which may be another tenant's.
func (b *executors) CreateContext(c vgpu.Context) {
	b.fault(c.Slot, "")
	b.begin(c)
}

// ResetContext implements [vgpu.Backend]. The new executor is told what ended
// the last.
func (b *executors) ResetContext(c vgpu.Context) { b.begin(c) }

// begin starts a context's executor once the slot's earlier one has ended.
func (b *executors) begin(c vgpu.Context) {
	l := newLife(b, c.ContextRef)
	if c.Version >= abi.Version1_1 {
		l.rings = b.rings
	} else {
		b.log.Warn("copies of this context are slow", "context", c.Slot,
			"err", "the guest's driver is older, and has rings lie anywhere in shared memory", "version", c.Version)
	}
	b.mu.Lock()
	old := b.lives[c.Slot]
	b.lives[c.Slot] = l
	b.mu.Unlock()
	b.ended.Go(func() {
		defer close(l.done)
		if old != nil {
			old.stop()
			<-old.done
		}
		l.run()
	})
}

// DestroyContext implements [vgpu.Backend].
func (b *executors) DestroyContext(c vgpu.ContextRef) {
	// It stays in its slot, so that whatever comes next there waits for its end.
	old := b.life(c.Slot)
	b.ended.Go(func() {
		if old != nil {
			old.stop()
			<-old.done
		}
		b.dev.ContextGone(c)
	})
}

// OpenChannel implements [vgpu.Backend].
func (b *executors) OpenChannel(ch vgpu.Channel) {
	b.contextOf[ch.Slot].Store(int32(ch.Context.Slot))
	l := b.life(ch.Context.Slot)
	err := l.ask(ipc.KindOpen, ipc.Channel{
		Index: ch.Slot, Generation: ch.Generation, Words: uint64(ch.Page), Vector: ch.Vector,
		SubmissionOffset: ch.Submission.Offset, SubmissionCount: uint32(ch.Submission.Entries),
		CompletionOffset: ch.Completion.Offset, CompletionCount: uint32(ch.Completion.Entries),
	}, func(err error) {
		if err != nil {
			b.log.Warn("channel not opened", "channel", ch.Slot, "err", err)
			b.dev.ChannelFailed(ch.ChannelRef, abi.ErrorInternal)
			return
		}
		b.dev.ChannelReady(ch.ChannelRef)
		b.daemons.changed()
	})
	if err != nil {
		b.dev.ChannelFailed(ch.ChannelRef, abi.ErrorExecutorLost)
	}
}

// CloseChannel implements [vgpu.Backend].
func (b *executors) CloseChannel(ch vgpu.ChannelRef) {
	l := b.life(int(b.contextOf[ch.Slot].Load()))
	// An error means that the executor has no such channel, or is gone itself:
	// either way it does not touch the rings.
	closed := func(error) {
		b.dev.ChannelClosed(ch)
		b.daemons.changed()
	}
	if err := l.ask(ipc.KindShut, ipc.Channel{Index: ch.Slot, Generation: ch.Generation}, closed); err != nil {
		closed(err)
	}
}

// Kick implements [vgpu.Backend].
func (b *executors) Kick(ch vgpu.ChannelRef) {
	b.page.AddDoorbell()
	b.page.Context(int(b.contextOf[ch.Slot].Load())).Ring()
}

// VectorsChanged implements [vgpu.Backend].
func (b *executors) VectorsChanged(start, count int) {
	b.mu.Lock()
	lives := b.lives
	b.mu.Unlock()
	for _, l := range lives {
		if l != nil {
			l.sendVectors(start, count)
		}
	}
}

// Reset implements [vgpu.Backend].
func (b *executors) Reset() {
	b.mu.Lock()
	lives := b.lives
	b.mu.Unlock()
	for _, l := range lives {
		if l != nil {
			l.stop()
		}
	}
	for _, l := range lives {
		if l != nil {
			<-l.done
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.lives[:])
	clear(b.faults[:])
}

// life finds the executor of a context, nil for none.
func (b *executors) life(slot int) *life {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lives[slot]
}

// fault keeps the text of what ended a context, for the one that follows.
func (b *executors) fault(slot int, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[slot] = text
}

func (b *executors) lastFault(slot int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faults[slot]
}

// awaitStart waits until the slot may have another executor started, and counts
// it.
func (b *executors) awaitStart(ctx context.Context, slot int) error {
	for {
		now := b.clock.Now()
		b.mu.Lock()
		at := b.starts[slot].next(b.allStarts.next(now))
		if at == now {
			b.starts[slot].take(now)
			b.allStarts.take(now)
		}
		b.mu.Unlock()
		if at == now {
			return nil
		}
		if err := b.clock.WaitUntil(ctx, at); err != nil {
			return err
		}
	}
}

// wait waits for everything that was started.
func (b *executors) wait() { b.ended.Wait() }
