package accounting_test

import (
	"testing"
	"time"

	"vgpud/accounting/accountingtest"
)

// TestRecordMeterLearnsResumeDelays tests that a context whose launches take longer or less long to
// be resumed than others' is charged what it used, if its launches are about as long.
func TestRecordMeterLearnsResumeDelays(t *testing.T) {
	for _, delay := range []time.Duration{0, 47 * us, 100 * us} {
		g := h100()
		g.ResumeDelay = delay
		var contexts []*accountingtest.RecordedContext
		for i := range 2 {
			c := &accountingtest.RecordedContext{PID: 100 + i, Kernel: fixed(700*us+time.Duration(i)*50*us, 0), Depth: 4}
			g.Add(c)
			contexts = append(contexts, c)
		}
		contexts[1].Group = 1
		l := newMetered(g, contexts...)
		for range 25 { // until it has learned
			l.cut(t, 20*ms)
		}
		before := [2]time.Duration{l.off(0), l.off(1)}
		for range 100 {
			l.cut(t, 20*ms)
		}
		for i := range contexts {
			if off := l.off(i) - before[i]; off > 8*ms || off < -8*ms {
				t.Errorf("launches that are resumed take %v longer: context %d is charged %v too much in 2s", delay, i, off)
			}
		}
	}
}
