package vgpu_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// TestVectorsChangeWhileInterruptsFly sets, replaces and removes a guest's vectors without end
// while its context is created and destroyed, each time with an interrupt. No descriptor is used
// after its close, none is left, and interrupts go to the last eventfd set.
func TestVectorsChangeWhileInterruptsFly(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	h := newHostile(t, t.TempDir()+"/vgpu.sock")
	defer h.close(t)
	h.attach(t)
	defer h.detach(t)
	h.set(t, abi.RegSelectVersion, uint32(abi.Newest))
	h.set(t, abi.RegStateVector, 3)
	h.set(t, abi.ContextSlot(0, abi.ContextControl), uint32(abi.ControlCreate))
	context := vgpu.ContextRef{Slot: 0, Generation: 1}
	h.back.answer(0, true, abi.ErrorNone)

	over := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					h.dev.ContextFaulted(context, abi.ErrorExecutorLost)
				}
			}
		})
	}
	for i := range 200 {
		var err error
		switch i % 5 {
		case 0:
			err = h.client.EnableIRQs(vfiouser.IRQMSI, 0, h.events...)
		case 1:
			err = h.client.EnableIRQs(vfiouser.IRQMSI, 3, h.events[i%len(h.events)])
		case 2:
			err = h.client.MaskIRQs(vfiouser.IRQMSI, 0, 8)
		case 3:
			err = h.client.UnmaskIRQs(vfiouser.IRQMSI, 0, 8)
		case 4:
			err = h.client.DisableIRQ(vfiouser.IRQMSI)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	close(over)
	wg.Wait()
	if err := h.client.EnableIRQs(vfiouser.IRQMSI, 3, h.events[3]); err != nil {
		t.Fatal(err)
	}
	drain(t, h.events[3])
	h.dev.ContextFaulted(context, abi.ErrorExecutorLost)
	if n, err := h.events[3].Wait(t.Context()); n != 1 || err != nil {
		t.Errorf("%d interrupts (%v) of one change", n, err)
	}
	if err := h.back.check(); err != nil {
		t.Error(err)
	}
}

// TestStateChangesWhileNobodyListens lets a context become ready while the guest's vectors are off,
// as they are while a VMM sets them up anew. The guest is interrupted when they are on again, once,
// and not by what changed before a reset.
func TestStateChangesWhileNobodyListens(t *testing.T) {
	h := newHostile(t, t.TempDir()+"/vgpu.sock")
	defer h.close(t)
	h.attach(t)
	defer h.detach(t)
	begin := func() {
		t.Helper()
		h.set(t, abi.RegSelectVersion, uint32(abi.Newest))
		h.set(t, abi.RegStateVector, 3)
		if err := h.client.EnableIRQs(vfiouser.IRQMSI, 0, h.events...); err != nil {
			t.Fatal(err)
		}
		drain(t, h.events[3])
	}
	off := func() {
		t.Helper()
		if err := h.client.DisableIRQ(vfiouser.IRQMSI); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	h.set(t, abi.ContextSlot(0, abi.ContextControl), uint32(abi.ControlCreate))
	off()
	h.back.answer(0, true, abi.ErrorNone)
	for range 2 {
		if err := h.client.EnableIRQs(vfiouser.IRQMSI, 0, h.events...); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n, err := h.events[3].Wait(ctx); n != 1 || err != nil {
		t.Fatalf("%d interrupts (%v) of a change that nobody listened to", n, err)
	}

	before := h.dev.Stats().Signals
	h.set(t, abi.ContextSlot(0, abi.ContextControl), uint32(abi.ControlReset))
	off()
	h.back.answer(0, true, abi.ErrorNone)
	if err := h.client.Reset(); err != nil {
		t.Fatal(err)
	}
	begin()
	if n := h.dev.Stats().Signals - before; n != 0 {
		t.Errorf("%d interrupts of what changed before a reset", n)
	}
}

// TestResetsWhileRequestsAreInFlight boots a guest again and again, in one of several ways, at a
// moment when its requests may be at the backend, answered, or neither: as QEMU does, with the
// vectors off before the reset and on with new eventfds after it. Each time the guest then creates a
// context and a channel, and learns of both by interrupts alone.
func TestResetsWhileRequestsAreInFlight(t *testing.T) {
	h := newHostile(t, t.TempDir()+"/vgpu.sock")
	defer h.close(t)
	h.attach(t)
	defer h.detach(t)
	over := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(over)
	wg.Go(func() { // the backend, which answers late
		for {
			select {
			case <-over:
				return
			default:
			}
			if h.back.unanswered() > 0 {
				h.back.answer(0, true, abi.ErrorNone)
			}
			runtime.Gosched()
		}
	})
	random := rand.New(rand.NewPCG(1, 2))
	on := func() {
		t.Helper()
		if err := h.client.EnableIRQs(vfiouser.IRQMSI, 0, h.events...); err != nil {
			t.Fatal(err)
		}
	}
	// until waits until a register of a slot has a value, and reads it after an interrupt alone.
	until := func(what string, reg int, want uint32) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			got, err := h.client.ReadUint32(vfiouser.RegionBAR0, uint64(reg))
			if err != nil {
				t.Fatal(err)
			}
			if got == want {
				return
			}
			if _, err := h.events[0].Wait(ctx); err != nil {
				t.Fatalf("%s: register %#x is %d, and no interrupt comes: %v; %+v", what, reg, got, err, h.dev.Stats())
			}
		}
	}
	create := func() {
		h.set(t, abi.RegSelectVersion, uint32(abi.Newest))
		h.set(t, abi.RegStateVector, 0)
		h.set(t, abi.ContextSlot(0, abi.ContextControl), uint32(abi.ControlCreate))
	}
	open := func() {
		rings := uint32(abi.HeaderBytes(h.dev.Config().Channels))
		for reg, v := range map[int]uint32{
			abi.ChannelContext: 0, abi.ChannelSubmissionLo: rings, abi.ChannelSubmissionEntries: 128,
			abi.ChannelCompletionLo: rings + uint32(abi.RingBytes(128)), abi.ChannelCompletionEntries: 128, abi.ChannelVector: 1,
		} {
			h.set(t, abi.ChannelSlot(0, reg), v)
		}
		h.set(t, abi.ChannelSlot(0, abi.ChannelControl), uint32(abi.ControlCreate))
	}
	const boots = 100
	for boot := range boots {
		create()
		for range random.IntN(200) {
			runtime.Gosched()
		}
		on() // after the first request, which may be answered
		until("a context", abi.ContextSlot(0, abi.ContextStatus), uint32(abi.ContextReady))
		open()
		if random.IntN(2) == 0 { // and are set up anew
			if err := h.client.DisableIRQ(vfiouser.IRQMSI); err != nil {
				t.Fatal(err)
			}
			on()
		}
		until("a channel", abi.ChannelSlot(0, abi.ChannelStatus), uint32(abi.ChannelReady))
		if random.IntN(3) > 0 { // something is under way when the guest boots
			h.set(t, abi.ContextSlot(0, abi.ContextControl), uint32(1+random.IntN(3)))
		}
		if random.IntN(4) > 0 {
			if err := h.client.DisableIRQ(vfiouser.IRQMSI); err != nil {
				t.Fatal(err)
			}
		}
		if boot%2 == 0 {
			if err := h.client.Reset(); err != nil {
				t.Fatal(err)
			}
		} else {
			h.set(t, abi.RegReset, abi.ResetMagic)
		}
	}
	if err := h.back.check(); err != nil {
		t.Error(err)
	}
}

// drain reads the interrupts that an eventfd still holds.
func drain(t *testing.T, e *vfiouser.Eventfd) {
	t.Helper()
	err := e.Signal() // so that there is something to take
	if err == nil {
		_, err = e.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}
