package scheduler

import (
	"testing"
	"time"

	"vgpud/accounting/accountingtest"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// TestSpareIsNotCharged: a guest is not charged for a context ahead that stays on the engine without
// work, is charged for what it does once it is used, and for all of the time if the process that it
// names is another one.
func TestSpareIsNotCharged(t *testing.T) {
	const spare, native = 100, 99
	for name, named := range map[string]int{"named": spare, "none": 0, "of another guest": 200, "of the host": native, "unknown": 4711} {
		charged := named != spare
		t.Run(name, func(t *testing.T) {
			h := newRecording(t, func(r *accountingtest.Record) gpu.Monitor { return recordedGPU{r} }, "none", Watching{})
			h.loop.processes.proc = procOf(t, map[int]int{spare: 50, 200: 51, native: 1})
			page := newPage(t)
			g := NewGuest(GuestOptions{Name: "a", PID: 50, Terms: ipc.Terms{Weight: 1}, Page: page})
			h.loop.Add(g)
			g.SetSpare(named)
			const idle = 4 * time.Second
			pauses := []time.Duration{0, idle, ms} // a kernel makes the context, and others come later
			c := &accountingtest.RecordedContext{PID: spare, Group: 3, Kernel: func() (time.Duration, time.Duration) {
				pause := pauses[0]
				pauses = pauses[min(1, len(pauses)-1):]
				return ms, pause
			}}
			h.gpu.Add(&accountingtest.RecordedContext{PID: native, Group: 7, Kernel: func() (time.Duration, time.Duration) { return ms, time.Hour }})
			h.gpu.Add(c)
			h.pass(idle / 2)
			if used := page.Bill().Used; (used > idle/8) != charged || !charged && used != 0 {
				t.Fatalf("billed %v before it is used", used)
			}
			page.Context(0).Reset(spare)
			h.pass(100 * ms)
			page.Context(0).SetReady(3)
			c.Work() // what made it
			h.guests, h.record.Contexts, h.done, h.put = append(h.guests, g), append(h.record.Contexts, c), append(h.done, 0), append(h.put, 0)
			used, busy := page.Bill().Used, c.Busy()
			h.pass(2 * idle)
			used, busy = page.Bill().Used-used, c.Busy()-busy
			if off := used - busy; busy < idle/4 || off > busy/50 || off < -busy/50 {
				t.Errorf("billed %v of %v once it is used", used, busy)
			}
			if g.spare.Load() != 0 {
				t.Error("the context that uses it is a spare one still")
			}
		})
	}
}
