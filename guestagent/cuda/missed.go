package cuda

import (
	"time"

	"vgpud/guestagent/driver"
)

// reporter is a bus whose other end counts calls of functions that are not built.
type reporter interface {
	ReportMissed(calls func() map[string]uint64)
	FlushMissed()
}

// reportMissed has the agent told of calls of functions that are not built, if there is an agent.
func (d *Driver) reportMissed(bus driver.Bus) {
	if r, ok := bus.(reporter); ok {
		r.ReportMissed(d.missed)
		d.reports = r
	}
}

// missed returns the calls so far of each function that is not built and was called.
func (d *Driver) missed() map[string]uint64 {
	calls := map[string]uint64{}
	for i, n := range d.o.Hooks.Missed() {
		if n > 0 && i < len(Functions) {
			calls[Functions[i]] = uint64(n)
		}
	}
	return calls
}

// lastReport bounds how long a program that ends waits for the agent.
const lastReport = 200 * time.Millisecond

// reportAtExit tells the agent what it was not told yet.
func (d *Driver) reportAtExit() {
	d.mu.Lock()
	r := d.reports
	d.mu.Unlock()
	if r == nil || len(d.missed()) == 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.FlushMissed()
	}()
	select {
	case <-done:
	case <-time.After(lastReport):
	}
}
