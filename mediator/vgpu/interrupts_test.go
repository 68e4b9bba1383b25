package vgpu_test

import (
	"sync"
	"testing"

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
