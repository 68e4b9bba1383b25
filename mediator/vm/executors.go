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
	"vgpud/internal/tokenbucket"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// executors is the virtual GPU's backend: it starts, feeds and ends the executor processes of a
// guest's contexts.
type executors struct {
	spec   ipc.Spec
	header int              // of BAR2
	rings  int              // bytes after the header for rings
	page   *ipc.ControlPage // of spec.GPU
	// pages are the guest's control pages: one for each of spec.Floats, or page alone.
	pages   []*ipc.ControlPage
	homeGPU int // of page in pages
	command func() *exec.Cmd
	clock   clock.Clock
	log     *slog.Logger
	dev     *vgpu.Device                // set once, before the first call
	vector  func(int) (*os.File, error) // its
	daemons *control                    // learn of handles and changes; may be nil
	until   *os.File                    // see [ipc.Page.SetUntil]; nil: there is none
	// active returns how long a process's threads have used a processor or waited for one.
	active func(pid int) time.Duration

	mu        sync.Mutex
	processes [ipc.MaxContexts]*process
	// contextOf is the context slot of each channel slot, for doorbells.
	contextOf [abi.MaxChannels]atomic.Int32
	// gpuOf is the GPU of each context slot, an index of pages.
	gpuOf [ipc.MaxContexts]atomic.Int32
	// whereabouts are those of the contexts that float; kicked, whether a doorbell was rung since one
	// was asked to leave.
	whereabouts [ipc.MaxContexts]atomic.Uint32
	kicked      [ipc.MaxContexts]atomic.Bool
	faults      [ipc.MaxContexts]string
	starts      [ipc.MaxContexts]tokenbucket.Bucket // of each slot's executors
	allStarts   tokenbucket.Bucket
	growths     tokenbucket.Bucket // of the guest's requests for more memory
	drained     map[string]bool    // GPUs on which no executor starts, by name: see drain
	spare       *spare             // nil: the guest has none
	lastSpare   uint64
	closed      bool // no spare executor starts any more
	ended       sync.WaitGroup
}

// A guest can create, reset and destroy contexts in a loop, and each is a process of the host's.
const (
	// startEvery is the least time between two starts in one slot.
	startEvery = 100 * time.Millisecond
	// allStartsEvery is the mean time between a guest's starts, of which it may have one for each
	// slot at once.
	allStartsEvery = 125 * time.Millisecond
	// growthEvery is the mean time between a guest's requests for more memory, for each of which the
	// daemon decides anew, and growthBurst how many may come at once.
	growthEvery = 2 * time.Millisecond
	growthBurst = 256
)

// newExecutors returns the backend of a guest, still without its device.
func newExecutors(spec ipc.Spec, page *ipc.ControlPage, command func() *exec.Cmd, c clock.Clock, log *slog.Logger) *executors {
	b := &executors{spec: spec, page: page, pages: []*ipc.ControlPage{page}, command: command, clock: c, log: log}
	b.active = func(pid int) time.Duration { return activeTime("/proc", pid) }
	b.allStarts = tokenbucket.Bucket{Every: allStartsEvery, Burst: ipc.MaxContexts}
	b.growths = tokenbucket.Bucket{Every: growthEvery, Burst: growthBurst}
	for i := range b.starts {
		b.starts[i] = tokenbucket.Bucket{Every: startEvery, Burst: 1}
	}
	return b
}

// use sets the device. It is called once, before the device's first call.
func (b *executors) use(dev *vgpu.Device) {
	cfg := dev.Config()
	b.vector = dev.Vector
	b.dev, b.header, b.rings = dev, abi.HeaderBytes(cfg.Channels), cfg.RingsBytes()
}

// CreateContext implements [vgpu.Backend]. The slot's last fault is dropped, since the new context
// may be another tenant's.
func (b *executors) CreateContext(c vgpu.Context) {
	b.fault(c.Slot, "")
	b.begin(c)
}

// ResetContext implements [vgpu.Backend]. The new executor learns what ended the last.
func (b *executors) ResetContext(c vgpu.Context) { b.begin(c) }

// begin starts a context's executor once the slot's earlier one has ended.
func (b *executors) begin(c vgpu.Context) {
	p := newProcess(b, c.ContextRef)
	if c.Floats {
		p.task = &ipc.Task{
			Slot: c.Slot, Generation: c.Generation, Tag: c.Tag, Memory: c.Task.Memory, Blocks: c.Task.Blocks, Threads: c.Task.Threads,
			Whole: c.Whole,
		}
	}
	if c.Version >= abi.Version1_1 {
		p.rings = b.rings
	} else {
		b.log.Warn("copies of this context are slow", "context", c.Slot,
			"err", "the guest's driver is older and may place rings anywhere in shared memory", "version", c.Version)
	}
	b.mu.Lock()
	old := b.processes[c.Slot]
	b.processes[c.Slot] = p
	b.mu.Unlock()
	b.ended.Go(func() {
		defer close(p.done)
		if old != nil {
			old.stop()
			<-old.done
		}
		p.run()
	})
}

// DestroyContext implements [vgpu.Backend].
func (b *executors) DestroyContext(c vgpu.ContextRef) {
	// The process stays in its slot, so that its successor waits for its end.
	old := b.process(c.Slot)
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
	p := b.process(ch.Context.Slot)
	err := p.request(ipc.KindOpen, ipc.Channel{
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
		b.daemons.notifyChange()
	})
	if err != nil {
		b.dev.ChannelFailed(ch.ChannelRef, abi.ErrorExecutorLost)
	}
}

// CloseChannel implements [vgpu.Backend].
func (b *executors) CloseChannel(ch vgpu.ChannelRef) {
	p := b.process(int(b.contextOf[ch.Slot].Load()))
	// An error means that the executor has no such channel, or is gone itself: either way it does
	// not touch the rings.
	closed := func(error) {
		b.dev.ChannelClosed(ch)
		b.daemons.notifyChange()
	}
	if err := p.request(ipc.KindShut, ipc.Channel{Index: ch.Slot, Generation: ch.Generation}, closed); err != nil {
		closed(err)
	}
}

// Kick implements [vgpu.Backend].
func (b *executors) Kick(ch vgpu.ChannelRef) {
	b.page.AddDoorbell()
	slot := int(b.contextOf[ch.Slot].Load())
	if b.whereabouts[slot].Load() != onGPU {
		b.kick(slot)
	}
	b.pages[b.gpuOf[slot].Load()].Context(slot).Wake()
}

// EventKernel implements [vgpu.Backend]. Contexts that float have no event kernels.
func (b *executors) EventKernel(n int) bool {
	b.page.AddDoorbell()
	return b.page.EventNumber(n)
}

// VectorsChanged implements [vgpu.Backend].
func (b *executors) VectorsChanged(start, count int) {
	b.mu.Lock()
	processes := b.processes
	b.mu.Unlock()
	for _, p := range processes {
		if p != nil {
			p.sendVectors(start, count)
		}
	}
}

// Reset implements [vgpu.Backend].
func (b *executors) Reset() {
	b.mu.Lock()
	processes := b.processes
	b.mu.Unlock()
	for _, p := range processes {
		if p != nil {
			p.stop()
		}
	}
	for _, p := range processes {
		if p != nil {
			<-p.done
		}
	}
	b.endAhead()
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.processes[:])
	clear(b.faults[:])
}

// process returns the executor process of a context, or nil.
func (b *executors) process(slot int) *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.processes[slot]
}

// fault stores the text of what ended a context, for its successor.
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

// awaitStart waits until another executor may be started in the slot, and counts the start.
func (b *executors) awaitStart(ctx context.Context, slot int) error {
	for {
		now := b.clock.Now()
		b.mu.Lock()
		at := b.starts[slot].Next(b.allStarts.Next(now))
		if at == now {
			b.starts[slot].Take(now)
			b.allStarts.Take(now)
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

// awaitGrowth waits until the guest may ask for more memory again, and counts that.
func (b *executors) awaitGrowth(ctx context.Context) error {
	for {
		now := b.clock.Now()
		b.mu.Lock()
		at := b.growths.Next(now)
		if at == now {
			b.growths.Take(now)
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

// wait waits for the end of all executor processes.
func (b *executors) wait() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.endSpare()
	b.ended.Wait()
}
