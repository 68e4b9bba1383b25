package daemon

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vgpud/fairshare"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
)

func TestForesight(t *testing.T) {
	var f foresight
	s := ipc.Launch{Kernel: 7, Tasks: 100, Threads: 64, InputBytes: 1 << 20}
	if d := f.predict(1, &s); d != 0 {
		t.Errorf("of nothing it foresees %v", d)
	}
	// What the executor has seen will do, until there is a model.
	s.Predicted = 3 * ms
	if d := f.predict(1, &s); d != 3*ms {
		t.Errorf("foresees %v, its executor 3ms", d)
	}
	s.Used = 4 * ms
	f.ended(1, &s, 3*ms)
	f.ended(1, &s, 0) // of which nothing was foreseen
	if d := f.predict(1, &s); d != 4*ms {
		t.Errorf("foresees %v of a launch that took 4ms", d)
	}
	if d := f.predict(2, &s); d != 3*ms {
		t.Errorf("foresees %v for a guest by what another's kernel took", d)
	}
	failed := s
	failed.Failed, failed.Used = true, time.Hour
	f.ended(1, &failed, 4*ms)
	s.Used = 5 * ms
	f.ended(2, &s, 4*ms)
	near := cmpopts.EquateApprox(0, 1e-9)
	for id, want := range map[int]api.Prediction{
		1: {Launches: 1, PredictedSeconds: 0.003, MeasuredSeconds: 0.004, ErrorRatio: 0.25},
		2: {Launches: 1, PredictedSeconds: 0.004, MeasuredSeconds: 0.005, ErrorRatio: 0.2},
		3: {},
	} {
		if diff := cmp.Diff(want, f.of(fairshare.GuestID(id)).show(), near); diff != "" {
			t.Errorf("guest %d (-want +got):\n%s", id, diff)
		}
	}
	want := api.Prediction{Launches: 2, PredictedSeconds: 0.007, MeasuredSeconds: 0.009, ErrorRatio: 0.225}
	if diff := cmp.Diff(want, f.all.show(), near); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	f.forget(2)
	if d := f.predict(2, &s); d != 3*ms {
		t.Errorf("foresees %v for a guest that is gone", d)
	}
}

func TestEvictionCost(t *testing.T) {
	var f foresight
	a, b := ipc.Launch{Kernel: 7}, ipc.Launch{Kernel: 8}
	if d := f.evictionCost(1, &a); d != 0 {
		t.Errorf("of nothing, %v", d)
	}
	f.evicted(1, &a, ms)
	f.evicted(1, &b, 3*ms)
	f.evicted(2, &b, ms)
	if x, y := f.evictionCost(1, &a), f.evictionCost(1, &ipc.Launch{Kernel: 9}); x != ms || y != 2*ms {
		t.Errorf("costs %v and %v, want what the kernel's were and what its guest's were", x, y)
	}
	// Of a guest that had none, as anybody's were; but no guest says that they take ages.
	if d, want := f.evictionCost(3, &a), (2*ms+mostTold)/3; d != want {
		t.Errorf("costs %v, want %v", d, want)
	}
	for range 100 {
		f.evicted(1, &a, time.Hour)
	}
	if d := f.evictionCost(3, &a); d != mostTold {
		t.Errorf("costs %v for one guest, since another's takes an hour", d)
	}
}
