package scheduler

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
	"vgpud/gpu"
)

// turningGPU is a GPU whose record breaks off while its registers are being opened.
type turningGPU struct {
	recordedGPU
	gone    atomic.Bool
	seen    chan struct{} // that it is gone
	opening func()
}

func (g *turningGPU) Events() (accounting.EventSource, error) { return brittleRecord{g.Record, g}, nil }

func (g *turningGPU) Source() (accounting.Source, error) {
	g.opening()
	return idleSource{}, nil
}

type brittleRecord struct {
	*accountingtest.Record
	of *turningGPU
}

func (r brittleRecord) Now() (time.Duration, error) {
	if r.of.gone.Load() {
		select {
		case r.of.seen <- struct{}{}:
		default:
		}
		return 0, gpu.ErrLost
	}
	return r.Record.Now()
}

// TestRecordBreaksOffWhileSourceChanges: a watcher that fails while the next one's source is being
// opened does not leave the GPU without sharing.
func TestRecordBreaksOffWhileSourceChanges(t *testing.T) {
	device := &turningGPU{seen: make(chan struct{}, 1), opening: func() {}}
	h := newRecording(t, func(r *accountingtest.Record) gpu.Monitor {
		device.recordedGPU = recordedGPU{r}
		return device
	}, "dfq", Watching{Source: SourceEvents, Registers: registers})
	h.join("a", 1, newPage(t), &accountingtest.RecordedContext{PID: 100, Group: 3, Kernel: func() (time.Duration, time.Duration) { return ms, ms }})
	h.pass(50 * ms)
	device.opening = func() {
		device.opening = func() {}
		device.gone.Store(true)
		h.clock.Advance(100 * ms)
		<-device.seen
		for range 1000 { // time enough for the scheduler to be told, which waits until this is over
			runtime.Gosched()
		}
	}
	if err := h.loop.SetWatching(Watching{Source: SourceRegisters, Registers: registers}); err != nil {
		t.Fatal(err)
	}
	device.gone.Store(false)
	until(t, "the GPU is shared again, by its registers", func() bool {
		h.clock.Advance(reopenEvery)
		return h.loop.Status().Problem == "" && h.loop.WatcherStatus().Source == SourceRegisters
	})
}
