package scheduler

import (
	"testing"
	"time"

	"vgpud/accounting/accountingtest"
	"vgpud/gpu"
)

// TestShortContextsAreCharged: programs that each have a context, use the GPU for less than a round
// and end are charged for it, by the hardware's record and by their own records alike. Another
// guest's context runs beside them.
func TestShortContextsAreCharged(t *testing.T) {
	for source, open := range map[string]func(*accountingtest.Record) gpu.Monitor{
		SourceEvents:   func(r *accountingtest.Record) gpu.Monitor { return recordedGPU{r} },
		SourceLaunches: func(r *accountingtest.Record) gpu.Monitor { return clockGPU{r} },
	} {
		for _, gap := range []int{6, 150} { // ms from one to the next
			h := newRecording(t, open, "dfq", Watching{})
			page := newPage(t)
			g := h.join("a", 1, page, &accountingtest.RecordedContext{PID: 99, Group: 3})
			if source == SourceEvents {
				h.gpu.Add(&accountingtest.RecordedContext{PID: 98, Group: 4, Kernel: func() (time.Duration, time.Duration) { return ms / 4, ms }})
			}
			slot := page.Context(0)
			slot.Free()
			var used time.Duration
			for pid := 200; pid < 220; pid++ {
				slot.Reset(pid)
				h.idle(100) // as long as CUDA takes for a context
				used += h.lives(pid, 15)
				slot.Free()
				h.idle(gap)
			}
			if got := page.Bill().Used; got < used*9/10 || got > used*11/10 {
				t.Errorf("by %s, %d ms apart: charged %v for %v", source, gap, got, used)
			}
			if !g.o.Page.HasWorkLog() {
				t.Error("its executors keep no account")
			}
		}
	}
}

// idle lets so many milliseconds pass in which no executor does anything.
func (h *recording) idle(d int) {
	for range d {
		h.clock.AwaitWaiters(1)
		h.gpu.AdvanceTo(h.clock.Now() + ms)
		h.clock.Advance(ms)
	}
}

// lives makes the first guest's context ready for as long as so many kernels of a millisecond take,
// and returns how long they had the GPU.
func (h *recording) lives(pid, kernels int) time.Duration {
	page := h.guests[0].o.Page
	slot, work := page.Context(0), page.WorkLog(0)
	slot.SetReady(3)
	n := kernels
	c := &accountingtest.RecordedContext{PID: pid, Group: 3}
	c.Kernel = func() (time.Duration, time.Duration) {
		if n--; n < 0 {
			return ms, time.Hour
		}
		return ms, 0
	}
	h.gpu.Add(c)
	for n >= 0 || c.Outstanding() > 0 {
		h.clock.AwaitWaiters(1)
		h.gpu.AdvanceTo(h.clock.Now() + ms/2)
		w := c.Work()
		for _, s := range w.Intervals {
			slot.AddFetched()
			work.Add(s.Start, s.End)
			slot.AddFinished(ms, 0, false)
		}
		work.SetSince(w.Since)
		h.clock.Advance(ms / 2)
	}
	return c.Busy()
}
