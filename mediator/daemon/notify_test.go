package daemon

import (
	"context"
	"log/slog"
	"testing"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// recordedGPU is a GPU that records context switches, in simulated time.
type recordedGPU struct{ *accountingtest.Record }

func (recordedGPU) Properties() gpu.Properties                { return gpu.Properties{Name: "recorded", SMs: 4} }
func (recordedGPU) Close() error                              { return nil }
func (g recordedGPU) Events() (accounting.EventSource, error) { return g.Record, nil }

// TestChangesOfChannelsEndARound: when a guest's process says that a channel came or went, the
// present round ends at a quarter of its length.
func TestChangesOfChannelsEndARound(t *testing.T) {
	var now clock.Sim
	record := &accountingtest.Record{GPU: &accountingtest.Recorded{}, Clock: &now}
	s := &Service{clock: &now, log: slog.New(slog.DiscardHandler)}
	s.o.Open = func(context.Context, ipc.GPU) (gpu.Monitor, error) { return recordedGPU{record}, nil }
	d, err := s.openDevice(t.Context(), GPUConfig{Name: "gpu0", Kind: kindNVIDIA, Policy: "none"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.loop.Run(ctx)
	}()
	const round = 60 * ms // where no guest works
	rounds := func() uint64 { return d.loop.Status().Rounds }
	now.AwaitWaiters(1)
	now.Advance(20 * ms) // of the first, which is brisk
	until(t, "the first round ends", func() bool { return rounds() == 1 })
	now.AwaitWaiters(1)
	now.Advance(round - now.Now()%round)
	until(t, "a round ends by itself", func() bool { return rounds() == 2 })
	now.AwaitWaiters(1)
	(&guest{presence: presence{device: d}}).handleMessage(&ipc.Message{Kind: ipc.KindChanged})
	now.Advance(round / 4)
	until(t, "a channel that changed ends a round", func() bool { return rounds() == 3 })
	cancel()
	<-ended
	if err := d.loop.Close(); err != nil {
		t.Error(err)
	}
}
