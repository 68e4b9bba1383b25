package ipc

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/vgpu/abi"
)

// TestEventKernelsOnThePage: what an executor tells is what the daemon reads, sums only grow, and the
// kernels of an executor that is gone are forgotten.
func TestEventKernelsOnThePage(t *testing.T) {
	p, err := NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	n, _ := p.TakeEventNumber(2)
	k := EventKernel{Number: n, Context: 2, Name: "ping", Tier: abi.EventHost, Why: abi.EventReasonGrid, Resident: true, Ended: 7, Dropped: 2, Stray: 1, P50: time.Microsecond, P99: time.Millisecond}
	check := func(want []EventKernel, sums EventSums) {
		t.Helper()
		all, got := p.EventKernels()
		if diff := cmp.Diff(want, all); diff != "" || got != sums {
			t.Errorf("sums %+v, want %+v; kernels (-want +got):\n%s", got, sums, diff)
		}
	}
	p.SetEventKernel(k)
	check([]EventKernel{k}, EventSums{7, 2, 1})
	k.Ended, k.Resident = 9, false
	p.SetEventKernel(k)
	check([]EventKernel{k}, EventSums{9, 2, 1})
	p.FreeEventNumbers(2)
	check(nil, EventSums{9, 2, 1})
	n, _ = p.TakeEventNumber(3)
	k = EventKernel{Number: n, Context: 3, Name: "evil\x1b[2J\xff" + strings.Repeat("x", 200), Ended: 5}
	p.SetEventKernel(k)
	k.Name = "evil[2J" + strings.Repeat("x", eventNameBytes-9)
	check([]EventKernel{k}, EventSums{14, 2, 1})
	p.GiveEventNumber(3, n)
	check(nil, EventSums{14, 2, 1})
	p.SetEventKernel(EventKernel{Number: abi.MaxEventKernels})
	p.events.kernels[4].context.Store(^uint32(0))
	p.events.ended.Store(^uint64(0))
	check(nil, EventSums{maxCount, 2, 1})
}
