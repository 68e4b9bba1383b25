package accounting_test

import (
	"testing"

	"vgpud/accounting"
)

// TestContextChangesGroup: what a process does is its new group's as soon as its context is reported
// as that one's, and stays charged to the old one for the time before.
func TestContextChangesGroup(t *testing.T) {
	const pid = 5
	m := accounting.NewRecordMeter(accounting.RecordMeterConfig{}, ms)
	m.Record(accounting.Switch{Clock: ms, PID: pid, On: true})
	var p accounting.Phase
	m.Report(&accounting.Work{Group: 1, PID: pid, Intervals: []accounting.Interval{{Start: ms, End: 5 * ms}}})
	m.Cut(6*ms, &p)
	if got := p.Of(1).Busy; got != 4*ms {
		t.Errorf("the first group is charged %v", got)
	}
	m.Report(&accounting.Work{Group: 2, PID: pid, Since: 6 * ms})
	m.Cut(9*ms, &p)
	if one, two := p.Of(1).Busy, p.Of(2).Busy; one != 0 || two != 3*ms || p.Last != 2 {
		t.Errorf("the first group is charged %v then and the second %v, and %d runs", one, two, p.Last)
	}
}
