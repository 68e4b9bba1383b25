package drivertest

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/preempt/tune"
	"vgpud/mediator/vgpu/abi"
)

// Options configure a [Host].
type Options struct {
	SharedBytes int // default: the least
	Features    abi.Features
	Kernels     map[string]Kernel
	PollWindow  time.Duration
	Vectors     int    // default 4
	Polled      bool   // no vectors at all
	NeverReady  bool   // contexts never become ready
	RefuseForms bool   // modules with forms of kernels are refused
	ModuleLog   string // what is said of modules that are loaded
	MemoryBytes uint64 // GPU memory of the guest; 0: not told
	Version1_0  bool   // the device is of version 1.0
	Version1_1  bool   // the device is of version 1.1, with the features of that
	// Occupancy is called before the host says how many of a kernel's blocks an SM holds.
	Occupancy func()
	// WindowAddress is called for each address of a window that is asked for, and fails. Without it
	// they are not supported.
	WindowAddress func() error
}

const (
	hostContexts = 4
	hostChannels = 8

	maxRingEntries = 4096
)

// Host is a device in this process; it is a driver's Bus.
type Host struct {
	opts   Options
	file   *os.File // BAR2
	shared []byte

	mu       sync.Mutex
	regs     map[uint32]uint32
	gpus     [hostContexts]*GPU
	stops    [hostChannels]chan struct{}
	stopped  [hostChannels]chan struct{}
	wakes    [hostChannels]chan struct{}
	events   []chan struct{}
	gone     chan struct{}
	serving  sync.WaitGroup
	doorbell int
}

// Features1_1 are the features of version 1.1.
const Features1_1 = abi.FeatureWindowAddresses - 1

// NewHost creates a device. Close frees it.
func NewHost(opts Options) (*Host, error) {
	if opts.SharedBytes == 0 {
		opts.SharedBytes = abi.MinSharedBytes
	}
	if opts.Vectors == 0 {
		opts.Vectors = 4
	}
	if opts.Polled {
		opts.Vectors = 0
	}
	f, m, err := memory("BAR2", opts.SharedBytes)
	if err != nil {
		return nil, err
	}
	if opts.Version1_1 {
		opts.Features &= Features1_1
	}
	h := &Host{opts: opts, file: f, shared: m, regs: map[uint32]uint32{}, gone: make(chan struct{})}
	for range opts.Vectors {
		h.events = append(h.events, make(chan struct{}, 1))
	}
	return h, nil
}

// GPU returns the memory and modules of the context in a slot, or nil if there is none.
func (h *Host) GPU(slot int) *GPU {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gpus[slot]
}

// Doorbells returns how many doorbells were rung.
func (h *Host) Doorbells() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.doorbell
}

// Die ends the host's process: nothing is executed any more.
func (h *Host) Die() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.stops {
		h.halt(i)
	}
	close(h.gone)
}

// Fault makes a context fault with its channels. It does not wait for a kernel that runs; the
// function that it returns does, after which nothing completes any more.
func (h *Host) Fault(slot int, code abi.ErrorCode) (wait func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ending []chan struct{}
	for i := range h.stops {
		if h.stops[i] != nil && h.regs[uint32(abi.ChannelSlot(i, abi.ChannelContext))] == uint32(slot) {
			h.halt(i)
			ending = append(ending, h.stopped[i])
			h.channel(i, abi.ChannelFailed, code)
		}
	}
	h.context(slot, abi.ContextFaulted, code)
	return func() {
		for _, c := range ending {
			<-c
		}
	}
}

// Read implements driver.Bus.
func (h *Host) Read(off uint32) (uint32, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch off {
	case abi.RegMagic:
		return abi.Magic, nil
	case abi.RegVersion:
		if h.opts.Version1_0 {
			return uint32(abi.Version1_0), nil
		}
		if h.opts.Version1_1 {
			return uint32(abi.Version1_1), nil
		}
		return uint32(abi.Newest), nil
	case abi.RegOldestVersion:
		return uint32(abi.Oldest), nil
	case abi.RegMemoryBytesLo:
		return uint32(h.opts.MemoryBytes), nil
	case abi.RegMemoryBytesHi:
		return uint32(h.opts.MemoryBytes >> 32), nil
	case abi.RegFeaturesLo:
		return uint32(h.opts.Features), nil
	case abi.RegContexts:
		return hostContexts, nil
	case abi.RegChannels:
		return hostChannels, nil
	case abi.RegMaxRingEntries:
		return maxRingEntries, nil
	case abi.RegSharedBytesLo:
		return uint32(len(h.shared)), nil
	case abi.RegHeaderBytes:
		return uint32(abi.HeaderBytes(hostChannels)), nil
	case abi.RegRingsBytes:
		if h.opts.Version1_0 {
			return 0, nil
		}
		return uint32(h.windows() - abi.HeaderBytes(hostChannels)), nil
	case abi.RegLatencyNanos:
		if v, ok := h.regs[off]; ok {
			return v, nil
		}
		return uint32(tune.DefaultLatency), nil // another guest's kernels may have this one's leave
	case abi.RegPollWindowNanos:
		return uint32(h.opts.PollWindow), nil
	}
	return h.regs[off], nil
}

// Write implements driver.Bus.
func (h *Host) Write(off, v uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.regs[off] = v
	for i := range hostContexts {
		if off == uint32(abi.ContextSlot(i, abi.ContextControl)) {
			h.controlContext(i, abi.Control(v))
		}
	}
	for i := range hostChannels {
		if off == uint32(abi.ChannelSlot(i, abi.ChannelControl)) {
			h.controlChannel(i, abi.Control(v))
		}
	}
	return nil
}

func (h *Host) controlContext(slot int, c abi.Control) {
	for i := range h.stops {
		if c != abi.ControlCreate && h.regs[uint32(abi.ChannelSlot(i, abi.ChannelContext))] == uint32(slot) {
			h.stop(i)
			h.channel(i, abi.ChannelFree, abi.ErrorReset)
		}
	}
	if c == abi.ControlDestroy {
		h.gpus[slot] = nil
		h.context(slot, abi.ContextFree, abi.ErrorNone)
		return
	}
	if flags := h.regs[uint32(abi.ContextSlot(slot, abi.ContextFlags))]; flags&uint32(abi.ContextFloats) != 0 && c == abi.ControlCreate {
		var w abi.TaskRequestWords
		for i := range w {
			w[i] = h.regs[uint32(abi.TaskRow(slot, 4*i))]
		}
		q, code := abi.DecodeTaskRequest(&w)
		if code != abi.ErrorNone {
			h.context(slot, abi.ContextFaulted, code)
			return
		}
		// The host's only GPU has room for anything.
		h.regs[uint32(abi.TaskRow(slot, abi.TaskStatus))] = uint32(abi.TaskPlaced)
		h.regs[uint32(abi.TaskRow(slot, abi.TaskGPU))] = 1
		h.regs[uint32(abi.TaskRow(slot, abi.TaskGrantedLo))] = uint32(q.Memory)
		h.regs[uint32(abi.TaskRow(slot, abi.TaskGrantedHi))] = uint32(q.Memory >> 32)
	}
	h.gpus[slot] = NewGPU(h.opts.Kernels)
	h.gpus[slot].refuseForms, h.gpus[slot].moduleLog = h.opts.RefuseForms, h.opts.ModuleLog
	h.gpus[slot].windows, h.gpus[slot].occupancy, h.gpus[slot].windowAddress = h.windows(), h.opts.Occupancy, h.opts.WindowAddress
	h.gpus[slot].version1_1 = h.opts.Version1_1 || h.opts.Version1_0
	if h.opts.NeverReady {
		h.context(slot, abi.ContextCreating, abi.ErrorNone)
		return
	}
	h.context(slot, abi.ContextReady, abi.ErrorNone)
}

func (h *Host) controlChannel(slot int, c abi.Control) {
	if c == abi.ControlDestroy {
		h.stop(slot)
		h.channel(slot, abi.ChannelFree, abi.ErrorNone)
		return
	}
	reg := func(r int) uint32 { return h.regs[uint32(abi.ChannelSlot(slot, r))] }
	for _, at := range []int{abi.ChannelSubmissionLo, abi.ChannelCompletionLo} {
		from, size := int(reg(at)), abi.RingBytes(int(reg(abi.ChannelSubmissionEntries)))
		if from < abi.HeaderBytes(hostChannels) || !h.opts.Version1_0 && from+size > h.windows() {
			h.regs[abi.RegError] = uint32(abi.ErrorRingOutside)
			return
		}
	}
	ring := func(lo, n int) []byte {
		return h.shared[reg(lo):][:reg(n)*abi.EntrySize]
	}
	page := h.shared[abi.ChannelPage(slot):][:abi.PageSize]
	abi.ResetChannelPage(page)
	stop, wake := make(chan struct{}), make(chan struct{}, 1)
	h.stops[slot], h.wakes[slot] = stop, wake
	vector := reg(abi.ChannelVector)
	r := Rings{
		Shared: h.shared, Page: page,
		Submission: ring(abi.ChannelSubmissionLo, abi.ChannelSubmissionEntries),
		Completion: ring(abi.ChannelCompletionLo, abi.ChannelCompletionEntries),
		Wake:       wake, Stop: stop, PollWindow: h.opts.PollWindow,
		Interrupt: func() { h.raise(vector) },
	}
	gpu := h.gpus[reg(abi.ChannelContext)]
	stopped := make(chan struct{})
	h.stopped[slot] = stopped
	h.serving.Go(func() {
		code := gpu.Serve(r)
		close(stopped)
		if code != abi.ErrorNone {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.channel(slot, abi.ChannelFailed, code)
		}
	})
	h.channel(slot, abi.ChannelReady, abi.ErrorNone)
}

// windows returns the offset in BAR2 where windows begin.
func (h *Host) windows() int {
	header := abi.HeaderBytes(hostChannels)
	if h.opts.Version1_0 {
		return header
	}
	return header + abi.RingsBytes(int64(len(h.shared)), hostChannels, maxRingEntries)
}

// halt tells a channel's executor to stop; stop waits until it has.
func (h *Host) halt(slot int) {
	if h.stops[slot] != nil {
		close(h.stops[slot])
		h.stops[slot] = nil
	}
}

func (h *Host) stop(slot int) {
	h.halt(slot)
	if h.stopped[slot] != nil {
		<-h.stopped[slot]
		h.stopped[slot] = nil
	}
}

func (h *Host) channel(slot int, s abi.ChannelState, code abi.ErrorCode) {
	h.regs[uint32(abi.ChannelSlot(slot, abi.ChannelStatus))] = uint32(s)
	abi.StoreWord(h.shared, abi.ChannelPage(slot)+abi.ChannelStateWord, abi.PackState(s, code))
	h.raise(0)
}

func (h *Host) context(slot int, s abi.ContextState, code abi.ErrorCode) {
	abi.StoreWord(h.shared, abi.ContextWord(slot), abi.PackState(s, code))
	h.raise(0)
}

func (h *Host) raise(vector uint32) {
	if int64(vector) >= int64(len(h.events)) {
		return
	}
	select {
	case h.events[vector] <- struct{}{}:
	default:
	}
}

// Doorbell implements driver.Bus.
func (h *Host) Doorbell(off uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doorbell++
	select {
	case h.wakes[(off-abi.DoorbellTable)/abi.DoorbellSize] <- struct{}{}:
	default:
	}
	return nil
}

// Shared implements driver.Bus.
func (h *Host) Shared() []byte { return h.shared }

// Vectors implements driver.Bus.
func (h *Host) Vectors() int { return len(h.events) }

// Wait implements driver.Bus.
func (h *Host) Wait(ctx context.Context, vector int) error {
	select {
	case <-h.events[vector]:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done implements driver.Bus.
func (h *Host) Done() <-chan struct{} { return h.gone }

// Close implements driver.Bus.
func (h *Host) Close() error {
	h.mu.Lock()
	for i := range h.stops {
		h.stop(i)
	}
	h.mu.Unlock()
	h.serving.Wait()
	return errors.Join(unix.Munmap(h.shared), h.file.Close())
}

// memory makes memory that other programs can map too.
func memory(name string, bytes int) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(int64(bytes)); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	m, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, m, nil
}
