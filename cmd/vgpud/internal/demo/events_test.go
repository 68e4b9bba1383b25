package demo

import (
	"strings"
	"testing"

	"vgpud/cmd/vgpud/workload/card"
)

// TestEventsPrint: a row for each way, and an error for one without answers.
func TestEventsPrint(t *testing.T) {
	r := Result{Events: &EventsResult{Ways: []EventsWay{
		{Way: "drained", Report: card.Report{Events: 2, Packets: 64, P50: 30000, P99: 90000}, BatchKernels: 21.5, Resident: 0.01},
		{Way: "resident", Report: card.Report{Events: 100, Packets: 3200, P50: 900.4, P99: 80000}, BatchKernels: 20, Resident: 0.125},
	}}}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	want := `
a card's packets beside a batch guest, 32 an event; every answer was checked
        WAY   EVENTS   PACKETS   P50-US   P99-US     GPU   BATCH-KERNELS/S
    drained        2        64    30000    90000    1.0%              21.5
   resident      100      3200      900    80000   12.5%              20.0
`
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
	r.Events.Ways[1].Report = card.Report{}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "resident") {
		t.Errorf("a way without answers is no error: %v", err)
	}
}
