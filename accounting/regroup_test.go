package accounting_test

import (
	"testing"
	"time"

	"vgpud/accounting"
)

// TestContextChangesGroup: what a process does is its new group's as soon as its context is reported
// as that one's, and stays charged to the old one for the time before.
func TestContextChangesGroup(t *testing.T) {
	const pid = 5
	m := accounting.NewRecordMeter(accounting.RecordMeterConfig{}, ms)
	m.Record(accounting.Switch{Clock: ms, PID: pid, On: true})
	charged := make(map[accounting.GroupID]time.Duration)
	phase := func(from time.Duration, group accounting.GroupID) {
		m.Report(&accounting.Work{Group: group, PID: pid, Intervals: []accounting.Interval{{Start: from, End: from + 4*ms}}})
		var p accounting.Phase
		m.Cut(from+5*ms, &p)
		for _, g := range p.Groups {
			charged[g.Group] += g.Busy
		}
	}
	phase(ms, 1)
	phase(6*ms, 2)
	phase(11*ms, 2)
	if charged[1] != 4*ms || charged[2] != 8*ms {
		t.Errorf("charged %v", charged)
	}
}
