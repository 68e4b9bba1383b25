package device

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// backend runs drivertest's executor behind a real device.
type backend struct {
	dev     *vgpu.Device
	kernels map[string]drivertest.Kernel
	window  time.Duration

	mu       sync.Mutex
	gpus     map[int]*drivertest.GPU
	channels map[int]*executor
	kicks    int
	resets   int

	irqs    sync.Mutex // separate from mu, which is held while executors end
	vectors [32]*os.File
}

type executor struct {
	channel vgpu.Channel
	shared  []byte
	wake    chan struct{}
	stop    chan struct{}
	stopped chan struct{}
}

func (b *backend) CreateContext(c vgpu.Context) {
	b.mu.Lock()
	b.gpus[c.Slot] = drivertest.NewGPU(b.kernels)
	b.mu.Unlock()
	b.dev.ContextReady(c.ContextRef)
}

func (b *backend) endChannels(of func(vgpu.Channel) bool) {
	for slot, e := range b.channels {
		if of(e.channel) {
			close(e.stop)
			<-e.stopped
			delete(b.channels, slot)
		}
	}
}

func (b *backend) ResetContext(c vgpu.Context) {
	b.mu.Lock()
	b.endChannels(func(ch vgpu.Channel) bool { return ch.Context.Slot == c.Slot })
	b.gpus[c.Slot] = drivertest.NewGPU(b.kernels)
	b.mu.Unlock()
	b.dev.ContextReady(c.ContextRef)
}

func (b *backend) DestroyContext(c vgpu.ContextRef) {
	b.mu.Lock()
	b.endChannels(func(ch vgpu.Channel) bool { return ch.Context.Slot == c.Slot })
	delete(b.gpus, c.Slot)
	b.mu.Unlock()
	b.dev.ContextGone(c)
}

func (b *backend) OpenChannel(ch vgpu.Channel) {
	shared, err := unix.Mmap(int(b.dev.Shared().Fd()), 0, int(b.dev.Config().SharedBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		b.dev.ChannelFailed(ch.ChannelRef, abi.ErrorInternal)
		return
	}
	e := &executor{channel: ch, shared: shared, wake: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	b.mu.Lock()
	b.channels[ch.Slot] = e
	gpu := b.gpus[ch.Context.Slot]
	b.mu.Unlock()
	ring := func(r vgpu.Ring) []byte { return shared[r.Offset:][:r.Entries*abi.EntrySize] }
	go func() {
		code := gpu.Serve(drivertest.Rings{
			Shared: shared, Page: shared[ch.Page:][:abi.PageSize],
			Submission: ring(ch.Submission), Completion: ring(ch.Completion),
			Wake: e.wake, Stop: e.stop, PollWindow: b.window,
			Interrupt: func() { b.interrupt(ch.Vector) },
		})
		if code != abi.ErrorNone {
			b.dev.ChannelFailed(ch.ChannelRef, code)
		}
		_ = unix.Munmap(shared)
		close(e.stopped)
	}()
	b.dev.ChannelReady(ch.ChannelRef)
}

// interrupt raises a vector as an executor does: through the guest's own eventfd.
func (b *backend) interrupt(vector int) {
	b.irqs.Lock()
	defer b.irqs.Unlock()
	if vector >= 0 && b.vectors[vector] != nil {
		_, _ = b.vectors[vector].Write([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (b *backend) CloseChannel(ch vgpu.ChannelRef) {
	b.mu.Lock()
	b.endChannels(func(c vgpu.Channel) bool { return c.ChannelRef == ch })
	b.mu.Unlock()
	b.dev.ChannelClosed(ch)
}

func (b *backend) EventKernel(int) bool { return false }

func (b *backend) Kick(ch vgpu.ChannelRef) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kicks++
	if e := b.channels[ch.Slot]; e != nil {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

func (b *backend) VectorsChanged(start, count int) {
	for i := start; i < min(start+count, len(b.vectors)); i++ {
		f, err := b.dev.Vector(i)
		if err != nil {
			panic(err)
		}
		b.irqs.Lock()
		if b.vectors[i] != nil {
			b.vectors[i].Close()
		}
		b.vectors[i] = f
		b.irqs.Unlock()
	}
}

func (b *backend) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resets++
	b.endChannels(func(vgpu.Channel) bool { return true })
	clear(b.gpus)
}
