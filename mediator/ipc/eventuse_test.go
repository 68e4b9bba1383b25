package ipc

import "testing"

// TestEventUse: serve sees what event kernels that have a slot do with it, and is woken when they are
// idle; a word that is none counts as idle, and a launch that follows in the slot has none.
func TestEventUse(t *testing.T) {
	serve, exec := newPages(t)
	c, ok := exec.Claim(2, &Launch{Events: EventsBusy})
	if !ok {
		t.Fatal("no slot")
	}
	slot, v := find(t, serve, c.Launch())
	if v.Events != EventsBusy {
		t.Errorf("claimed as %d", v.Events)
	}
	for _, use := range []EventUse{EventsIdle, EventsBusy, EventsIdle} {
		bell := serve.DaemonFutex()
		c.SetEvents(use)
		if v, ok := slot.Read(); !ok || v.Events != use {
			t.Errorf("set to %d, serve reads %d, %v", use, v.Events, ok)
		}
		if woken := serve.DaemonFutex() != bell; woken != (use == EventsIdle) {
			t.Errorf("set to %d: serve was woken: %v", use, woken)
		}
	}
	slot.l.events.Store(77)
	if v, ok := slot.Read(); !ok || v.Events != EventsIdle {
		t.Errorf("a word that is none is read as %d, %v", v.Events, ok)
	}
	c.Abandon(0)
	c.SetEvents(EventsBusy)
	for range MaxLaunchSlots {
		next, ok := exec.Claim(2, &Launch{})
		if !ok {
			t.Fatal("no slot")
		}
		if _, v := find(t, serve, next.Launch()); v.Events != NoEvents {
			t.Errorf("a launch has event kernels: %d", v.Events)
		}
		next.Abandon(0)
	}
}
