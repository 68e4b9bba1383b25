package accounting_test

import (
	"testing"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
)

// TestRecordMeterWithoutRecordsAfterAFault tests hardware that records nothing for a while after a
// fault, as an H100 does while its driver recovers. The last record says that the context with the
// fault was switched in. Other contexts that work meanwhile are charged, and idle time is charged
// to none.
func TestRecordMeterWithoutRecordsAfterAFault(t *testing.T) {
	g := h100()
	faulty := &accountingtest.RecordedContext{PID: 100, Group: 0, Kernel: fixed(300*us, ms)}
	one := &accountingtest.RecordedContext{PID: 101, Group: 1, Kernel: fixed(500*us, 0), Depth: 8}
	other := &accountingtest.RecordedContext{PID: 102, Group: 2, Kernel: fixed(500*us, 20*ms)}
	for _, c := range []*accountingtest.RecordedContext{faulty, one, other} {
		g.Add(c)
	}
	g.AdvanceTo(33 * ms)
	l := newMetered(g, faulty, one, other)
	recovering, last := false, accounting.Switch{}
	l.lost = func(sw accounting.Switch) bool { return recovering }
	l.see = func(sw accounting.Switch) { last = sw }
	for last.PID != faulty.PID || !last.On {
		l.cut(t, 20*us)
	}
	recovering = true
	g.Remove(faulty)
	for range 16 {
		l.cut(t, 20*ms)
	}
	recovering = false
	for range 10 {
		l.cut(t, 20*ms)
	}
	for i, c := range l.contexts {
		// The time that switches took meanwhile is unknown.
		if off := l.off(i); off > 12*ms || off < -5*ms {
			t.Errorf("context %d used %v and is charged %v", i, l.truth(i), l.charged[c.Group])
		}
	}
}
