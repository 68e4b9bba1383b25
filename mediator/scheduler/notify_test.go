package scheduler

import (
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
	"vgpud/gpu"
)

// TestChangesEndARound: a guest that comes, goes or has other terms, and one whose channels come or
// go, have the present round end at a quarter of its length, and no sooner.
func TestChangesEndARound(t *testing.T) {
	h := newRecording(t, func(r *accountingtest.Record) gpu.Monitor { return recordedGPU{r} }, "none", Watching{})
	g := h.join("a", 1, newPage(t), &accountingtest.RecordedContext{PID: 100, Group: 3, Kernel: func() (time.Duration, time.Duration) { return ms, ms }})
	usual := accounting.Easy.Phase(h.loop.gpu.Watch.Round)
	rounds := func() uint64 { return h.loop.Status().Rounds }
	for _, change := range []struct {
		what string
		make func()
	}{
		{"a guest", func() { h.loop.Changed(g.id) }},
		{"a guest's channel", h.loop.Notify},
	} {
		// From the beginning of a round of the usual length.
		h.pass(2 * usual)
		before := rounds()
		h.clock.AwaitWaiters(1)
		h.clock.Advance(usual - h.clock.Now()%usual)
		until(t, "a round ends by itself", func() bool { return rounds() == before+1 })
		h.clock.AwaitWaiters(1)
		change.make()
		h.clock.Advance(usual/4 - 1)
		if got := rounds(); got != before+1 {
			t.Errorf("%s: %d rounds ended before a quarter of one had passed", change.what, got-before-1)
		}
		h.clock.Advance(1)
		until(t, change.what+" that changed ends a round", func() bool { return rounds() == before+2 })
	}
}
