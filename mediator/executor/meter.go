package executor

import (
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
)

// leastShare is the least part of the time, as a divisor, that a kernel is taken to
// have used of the GPU whatever the bill says. It bounds how long an endless kernel
// can run where nobody counts.
const minShareDivisor = 32

// meter is the clock of a kernel's time limit on a GPU that can't tell a kernel's
// time from its neighbours': what the daemon charges the guest, in which the
// kernel's own time is contained. While there is no daemon, who would hold the
// guest back, it is the host's time. It is safe for concurrent use.
type meter struct {
	page  *ipc.ControlPage
	clock clock.Clock

	mu   sync.Mutex
	at   time.Duration // of the last reading
	used time.Duration // the bill then
	sum  time.Duration
}

func newMeter(p *ipc.ControlPage, c clock.Clock) *meter {
	return &meter{page: p, clock: c, at: c.Now(), used: p.Bill().Used}
}

// elapsed reads the meter.
func (m *meter) elapsed() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, used := m.clock.Now(), m.page.Bill().Used
	d, charged := now-m.at, used-m.used
	m.at, m.used = now, used
	least := d / minShareDivisor
	if m.page.Silent(now) {
		least = d
	}
	// A daemon that was started anew may bill less than the one before.
	m.sum += max(charged, least, 0)
	return m.sum
}
