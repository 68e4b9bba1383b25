package vgpu_test

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/pci"
	"vgpud/vfio/vfiouser"
)

// TestHostileGuestProperty lets a guest, with its VMM, access any region in any width, reset in
// between, leave and return, while its backend answers late and in any order. The backend's
// promises hold, and each new guest finds a device as after power-on.
func TestHostileGuestProperty(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vgpu.sock")
	rapid.Check(t, func(rt *rapid.T) {
		h := newHostile(rt, path)
		defer h.close(rt)
		h.attach(rt)
		defer h.detach(rt)
		any := map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				at := rapid.OneOf(
					rapid.Uint64Range(0, abi.BAR0Size-16),
					rapid.SampledFrom([]uint64{abi.RegSelectVersion, abi.RegAcceptFeaturesLo, abi.RegStateVector, abi.RegError, abi.RegReset}),
					rapid.Map(rapid.IntRange(0, 9), func(i int) uint64 { return uint64(abi.Doorbell(i)) }),
					rapid.Map(rapid.IntRange(0, 5), func(i int) uint64 { return uint64(abi.ContextSlot(i, abi.ContextControl)) }),
					rapid.Map(rapid.IntRange(0, 9*abi.ChannelSlotSize-1), func(i int) uint64 { return abi.ChannelTable + uint64(i) }),
				).Draw(t, "offset")
				h.write(t, vfiouser.RegionBAR0, at, garbage.Draw(t, "data"))
			},
			"read register": func(t *rapid.T) {
				h.read(t, vfiouser.RegionBAR0, rapid.Uint64Range(0, abi.BAR0Size-16).Draw(t, "offset"), rapid.IntRange(0, 16).Draw(t, "bytes"))
			},
			"configuration": func(t *rapid.T) {
				at := rapid.OneOf(
					rapid.Uint64Range(0, pci.ExtendedSpaceBytes-16),
					rapid.SampledFrom([]uint64{pci.Command, pci.Status, pci.BaseAddress0, pci.BaseAddress0 + 8, pci.BaseAddress0 + 12, pci.ROMAddress, pci.InterruptLine}),
					rapid.Uint64Range(0x40, 0xb0), // the capabilities
				).Draw(t, "offset")
				h.write(t, vfiouser.RegionConfig, at, garbage.Draw(t, "data"))
				h.read(t, vfiouser.RegionConfig, at, rapid.IntRange(0, 16).Draw(t, "bytes"))
			},
			"shared memory": func(t *rapid.T) {
				at := rapid.OneOf(
					rapid.Uint64Range(0, uint64(abi.HeaderBytes(8))), // the device's own pages
					rapid.Uint64Range(0, abi.MinSharedBytes-16),
				).Draw(t, "offset")
				h.write(t, vfiouser.RegionBAR2, at, garbage.Draw(t, "data"))
			},
			"context": func(t *rapid.T) {
				h.set(t, abi.RegSelectVersion, rapid.SampledFrom(versions).Draw(t, "version"))
				h.set(t, abi.RegAcceptFeaturesLo, uint32(abi.FeatureContexts))
				h.set(t, abi.ContextSlot(rapid.IntRange(0, 4).Draw(t, "slot"), abi.ContextControl), rapid.Uint32Range(0, 4).Draw(t, "control"))
			},
			"working context": func(t *rapid.T) {
				slot := rapid.IntRange(0, 3).Draw(t, "slot")
				h.set(t, abi.RegSelectVersion, rapid.SampledFrom(versions).Draw(t, "version"))
				h.set(t, abi.RegAcceptFeaturesLo, uint32(abi.FeatureContexts))
				h.set(t, abi.ContextSlot(slot, abi.ContextFlags), 0)
				h.set(t, abi.ContextSlot(slot, abi.ContextControl), uint32(abi.ControlCreate))
				for h.back.unanswered() > 0 {
					h.back.answer(h.back.unanswered()-1, true, abi.ErrorNone)
				}
			},
			"bad channel":   h.badChannel,
			"channel":       h.channel,
			"channel 2":     h.channel, // as likely as all else that ends them
			"close channel": func(t *rapid.T) { h.set(t, abi.ChannelSlot(h.slot(t), abi.ChannelControl), uint32(abi.ControlDestroy)) },
			"kick all": func(t *rapid.T) {
				for i := range 9 {
					h.set(t, abi.Doorbell(i), 0)
				}
			},
			"interrupts": h.setInterrupts,
			"reset": func(t *rapid.T) {
				seldom(t)
				if err := h.client.Reset(); err != nil {
					t.Fatal(err)
				}
			},
			"answer": func(t *rapid.T) {
				n := h.back.unanswered()
				if n == 0 {
					t.Skip("nothing is pending")
				}
				h.back.answer(rapid.IntRange(0, n-1).Draw(t, "which"), rapid.IntRange(0, 3).Draw(t, "good") > 0, errorCode.Draw(t, "code"))
			},
			"answer all": func(*rapid.T) {
				for h.back.unanswered() > 0 {
					h.back.answer(0, true, abi.ErrorNone)
				}
			},
			"answer again": func(t *rapid.T) {
				h.back.answerAgain(rapid.IntRange(0, 15).Draw(t, "good") != 5, errorCode.Draw(t, "code"))
			},
			"fault": func(t *rapid.T) { h.back.fault(errorCode.Draw(t, "code")) },
			"other guest": func(t *rapid.T) {
				seldom(t)
				h.detach(t)
				h.attach(t)
			},
			"": func(t *rapid.T) {
				if err := h.back.check(); err != nil {
					t.Fatal(err)
				}
			},
		}
		for range 8 { // a round alone is about 30 deeds
			rt.Repeat(any)
		}
	})
}

var (
	versions = []uint32{uint32(abi.Version1_1), uint32(abi.Version1_0)}
	garbage  = rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 0, 16),
		rapid.Map(rapid.Uint32Range(0, 8), func(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }),
		rapid.Map(rapid.SampledFrom([]uint32{0xffffffff, uint32(abi.Version1_1), uint32(abi.Version1_0), 1 << 15, 0x8000_0000, abi.ResetMagic}),
			func(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }),
	)
	errorCode = rapid.Map(rapid.Uint32Range(1, 40), func(v uint32) abi.ErrorCode { return abi.ErrorCode(v) })
)

// seldom skips most of what would undo all else.
func seldom(t *rapid.T) {
	if rapid.IntRange(0, 15).Draw(t, "seldom") != 5 {
		t.Skip("not now")
	}
}

// hostile is a served device with a strict backend and a test's client.
type hostile struct {
	dev    *vgpu.Device
	back   *strict
	path   string
	client *vfiouser.Client
	events []*vfiouser.Eventfd
	stop   context.CancelFunc
	done   chan error
}

// fails is the common part of rapid's tests and package testing's.
type fails interface {
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

func newHostile(t fails, path string) *hostile {
	cfg := vgpu.Config{SharedBytes: abi.MinSharedBytes, Contexts: 4, Channels: 8, Vectors: 8, MaxRingEntries: 4096, Features: abi.FeatureContexts}
	h := &hostile{back: newStrict(cfg), path: path, done: make(chan error, 1)}
	var err error
	if h.dev, err = vgpu.New(cfg, h.back, nil); err != nil {
		t.Fatal(err)
	}
	h.back.dev = h.dev
	l, err := vfiouser.Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	server := &vfiouser.Server{Device: h.dev, Log: slog.New(slog.DiscardHandler)}
	go func() { h.done <- server.Serve(ctx, l) }()
	for range cfg.Vectors {
		e, err := vfiouser.NewEventfd()
		if err != nil {
			t.Fatal(err)
		}
		h.events = append(h.events, e)
	}
	return h
}

// close ends the server and the device.
func (h *hostile) close(t fails) {
	h.stop()
	err := errors.Join(<-h.done, h.dev.Close())
	for _, e := range h.events {
		err = errors.Join(err, e.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// attach connects as a new guest and checks that the device is as after power-on.
func (h *hostile) attach(t fails) {
	for {
		c, err := vfiouser.Dial(context.Background(), h.path)
		if errors.Is(err, syscall.EBUSY) {
			continue // the last one's end has not been seen
		}
		if err != nil {
			t.Fatal(err)
		}
		h.client = c
		break
	}
	if st := h.dev.Stats(); len(st.Contexts) != 0 || st.Channels != 0 {
		t.Fatalf("a new guest finds %+v", st)
	}
	for reg, want := range map[int]uint32{abi.RegMagic: abi.Magic, abi.RegStatus: uint32(abi.DeviceReady), abi.RegSelectVersion: 0, abi.RegError: 0} {
		if got, err := h.client.ReadUint32(vfiouser.RegionBAR0, uint64(reg)); got != want || err != nil {
			t.Fatalf("a new guest finds %#x (%v) in register %#x", got, err, reg)
		}
	}
	var page [abi.PageSize]byte
	if err := h.client.RegionRead(vfiouser.RegionBAR2, abi.MinSharedBytes-abi.PageSize, page[:]); err != nil || page != [abi.PageSize]byte{} {
		t.Fatalf("a new guest finds bytes of the last one (%v)", err)
	}
	if v, err := h.client.ReadUint32(vfiouser.RegionConfig, pci.Command); err != nil || v&0xffff != 0 {
		t.Fatalf("a new guest finds command register %#x (%v)", v, err)
	}
}

func (h *hostile) detach(fails) { h.client.Close() }

// write writes any value anywhere within a region, which is never an error to the VMM.
func (h *hostile) write(t fails, region uint32, at uint64, p []byte) {
	if err := h.client.RegionWrite(region, at, p); err != nil {
		t.Fatalf("write of % x to %#x of region %d: %v", p, at, region, err)
	}
}

func (h *hostile) read(t fails, region uint32, at uint64, n int) {
	if err := h.client.RegionRead(region, at, make([]byte, n)); err != nil {
		t.Fatalf("read of %d bytes at %#x of region %d: %v", n, at, region, err)
	}
}

func (h *hostile) set(t fails, reg int, v uint32) {
	h.write(t, vfiouser.RegionBAR0, uint64(reg), binary.LittleEndian.AppendUint32(nil, v))
}

func (h *hostile) slot(t *rapid.T) int { return rapid.IntRange(0, 8).Draw(t, "slot") }

// badChannel requests a channel whose rings may overlap the header or each other, lie outside, or
// have any size.
func (h *hostile) badChannel(t *rapid.T) {
	rings := uint64(abi.HeaderBytes(8) + h.dev.Config().RingsBytes()) // their end
	offset := rapid.OneOf(
		rapid.Map(rapid.Uint64Range(0, 40), func(page uint64) uint64 { return page * abi.PageSize }),
		rapid.Uint64Range(abi.MinSharedBytes-4*abi.PageSize, abi.MinSharedBytes+abi.PageSize),
		rapid.Map(rapid.Uint64Range(0, 8), func(n uint64) uint64 { return rings + (n-4)*abi.PageSize }),
		rapid.Map(rapid.Uint64Range(0, 4), func(n uint64) uint64 { return -n * abi.PageSize }),
	)
	entries := rapid.SampledFrom([]uint32{128, 256, 4096, 0, 64, 129, 8192, 1 << 31})
	h.createChannel(t, offset.Draw(t, "submission"), entries.Draw(t, "submissions"),
		offset.Draw(t, "completion"), entries.Draw(t, "completions"))
}

// channel asks for a channel that is well but for what its rings may lie over.
func (h *hostile) channel(t *rapid.T) {
	offset := rapid.Map(rapid.Uint64Range(7, 30), func(page uint64) uint64 { return page * abi.PageSize })
	entries := rapid.SampledFrom([]uint32{128, 256})
	h.createChannel(t, offset.Draw(t, "submission"), entries.Draw(t, "submissions"),
		offset.Draw(t, "completion"), entries.Draw(t, "completions"))
}

func (h *hostile) createChannel(t *rapid.T, sub uint64, subN uint32, comp uint64, compN uint32) {
	slot := h.slot(t)
	contexts := []uint32{0, 4, 1 << 31}
	for _, c := range h.dev.Stats().Contexts {
		contexts = append(contexts, slices.Repeat([]uint32{uint32(c.Slot)}, 3)...)
	}
	for reg, v := range map[int]uint32{
		abi.ChannelContext:      rapid.SampledFrom(contexts).Draw(t, "context"),
		abi.ChannelSubmissionLo: uint32(sub), abi.ChannelSubmissionHi: uint32(sub >> 32), abi.ChannelSubmissionEntries: subN,
		abi.ChannelCompletionLo: uint32(comp), abi.ChannelCompletionHi: uint32(comp >> 32), abi.ChannelCompletionEntries: compN,
		abi.ChannelVector: rapid.SampledFrom([]uint32{0, 7, 8, abi.NoVector}).Draw(t, "vector"), abi.ChannelFlags: 0,
	} {
		h.set(t, abi.ChannelSlot(slot, reg), v)
	}
	h.set(t, abi.ChannelSlot(slot, abi.ChannelControl), uint32(abi.ControlCreate))
}

// setInterrupts sets and removes vectors of every interrupt, and of some that don't exist.
func (h *hostile) setInterrupts(t *rapid.T) {
	index := rapid.SampledFrom([]uint32{vfiouser.IRQMSI, vfiouser.IRQMSI, vfiouser.IRQMSI, vfiouser.IRQINTx, vfiouser.IRQMSIX, vfiouser.IRQErr, vfiouser.IRQReq, 7}).Draw(t, "interrupt")
	start := rapid.Uint32Range(0, 9).Draw(t, "start")
	n := rapid.IntRange(0, 8).Draw(t, "vectors")
	var err error
	switch rapid.SampledFrom([]string{"enable", "disable", "mask", "unmask", "trigger"}).Draw(t, "do") {
	case "enable":
		err = h.client.EnableIRQs(index, start, h.events[:n]...)
	case "disable":
		err = h.client.DisableIRQ(index)
	case "mask":
		err = h.client.MaskIRQs(index, start, uint32(n))
	case "unmask":
		err = h.client.UnmaskIRQs(index, start, uint32(n))
	case "trigger":
		err = h.client.TriggerIRQs(index, start, uint32(n))
	}
	var refused *vfiouser.Error
	if err != nil && !errors.As(err, &refused) {
		t.Fatalf("vectors %d+%d of interrupt %d: %v", start, n, index, err)
	}
}
