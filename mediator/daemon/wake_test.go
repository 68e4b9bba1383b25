package daemon

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// TestChangesEndARound: a guest that comes, goes or has other terms, and one whose
// channels come or go, as its process says, have the present round end at a quarter of its
// length, and no sooner.
func TestChangesEndARound(t *testing.T) {
	h := newHouse(t, func(r *accountingtest.Record) gpu.Monitor { return recordedGPU{r} }, GPUConfig{Name: "gpu0", Kind: kindNVIDIA, Policy: "none"})
	g := h.join("a", 1, newPage(t), &accountingtest.RecordedContext{PID: 100, Group: 3, Kernel: func() (time.Duration, time.Duration) { return ms, ms }})
	ours, end, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	process, err := ipc.FromFile(end)
	if err != nil {
		t.Fatal(err)
	}
	g.conn = ours
	ended := make(chan bool, 1)
	go func() { ended <- g.attend(slog.New(slog.DiscardHandler), func(m *ipc.Message) { h.share.told(g, m) }) }()

	usual := accounting.Easy.Phase(h.share.open().watch.Round)
	rounds := func() uint64 { return h.share.gpu(1).Rounds }
	for _, change := range []struct {
		what string
		make func()
	}{
		{"a guest", func() { h.share.changed(g.id) }},
		{"a guest's channel", func() {
			if err := process.Send(ipc.Message{Kind: ipc.KindChanged}); err != nil {
				t.Fatal(err)
			}
		}},
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
	if err := errors.Join(process.Close(), ours.Close()); err != nil {
		t.Error(err)
	}
	<-ended
}
