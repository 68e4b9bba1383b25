package executor

import (
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
)

// minShareDivisor is the least fraction of the time, as a divisor, that a kernel counts as having
// used the GPU, whatever the bill says. It bounds how long an endless kernel runs if nothing is
// charged.
const minShareDivisor = 32

// meter is the clock of a kernel's time limit on a GPU whose timestamps include other contexts'
// time. It advances by what the daemon charges the guest, which includes the kernel's own time.
// While there is no daemon, and so no suspension, it advances by the host's time. A daemon that is
// only late charges what the guest uses meanwhile afterwards. It is safe for concurrent use.
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

// elapsed returns the meter's time.
func (m *meter) elapsed() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, used := m.clock.Now(), m.page.Bill().Used
	d, charged := now-m.at, used-m.used
	m.at, m.used = now, used
	least := d / minShareDivisor
	if m.page.SuspensionExpired(now) {
		least = d
	}
	// A restarted daemon may bill less than the one before.
	m.sum += max(charged, least, 0)
	return m.sum
}
