package launchqueue

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// launchOf returns a launch of a guest with what its slot says.
func launchOf(guest fairshare.GuestID, s ipc.Launch) *Launch {
	return &Launch{Launch: fairshare.Launch{Guest: guest}, slot: s}
}

func TestPredictions(t *testing.T) {
	var p Predictor
	predict := func(guest fairshare.GuestID, s ipc.Launch) time.Duration {
		l := launchOf(guest, s)
		p.Predict(l)
		return l.Predicted
	}
	ended := func(guest fairshare.GuestID, s ipc.Launch, predicted time.Duration) {
		l := launchOf(guest, s)
		l.Predicted = predicted
		p.Ended(l)
	}
	s := ipc.Launch{Kernel: 7, Tasks: 100, Threads: 64, InputBytes: 1 << 20}
	if d := predict(1, s); d != 0 {
		t.Errorf("predicted %v without any measurement", d)
	}
	// The executor's mean will do until there is a model.
	s.Predicted = 3 * ms
	if d := predict(1, s); d != 3*ms {
		t.Errorf("predicted %v, the executor 3ms", d)
	}
	s.Used = 4 * ms
	ended(1, s, 3*ms)
	ended(1, s, 0) // without a prediction
	if d := predict(1, s); d != 4*ms {
		t.Errorf("predicted %v for a launch that took 4ms before", d)
	}
	if d := predict(2, s); d != 3*ms {
		t.Errorf("predicted %v for a guest by what another guest's kernel took", d)
	}
	failed := s
	failed.Failed, failed.Used = true, time.Hour
	ended(1, failed, 4*ms)
	s.Used = 5 * ms
	ended(2, s, 4*ms)
	near := cmpopts.EquateApprox(0, 1e-9)
	for id, want := range map[fairshare.GuestID]Accuracy{
		1: {Launches: 1, Predicted: 3 * ms, Measured: 4 * ms, Error: 0.25},
		2: {Launches: 1, Predicted: 4 * ms, Measured: 5 * ms, Error: 0.2},
		3: {},
	} {
		if diff := cmp.Diff(want, p.AccuracyOf(id), near); diff != "" {
			t.Errorf("guest %d (-want +got):\n%s", id, diff)
		}
	}
	want := Accuracy{Launches: 2, Predicted: 7 * ms, Measured: 9 * ms, Error: 0.225}
	if diff := cmp.Diff(want, p.Accuracy(), near); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	p.Forget(2)
	if d := predict(2, s); d != 3*ms {
		t.Errorf("predicted %v by the model of a guest that was forgotten", d)
	}
}

func TestEvictionCost(t *testing.T) {
	var p Predictor
	a, b := ipc.Launch{Kernel: 7}, ipc.Launch{Kernel: 8}
	if d := p.EvictionCost(launchOf(1, a)); d != 0 {
		t.Errorf("costs %v without any measurement", d)
	}
	p.Evicted(launchOf(1, a), ms)
	p.Evicted(launchOf(1, b), 3*ms)
	p.Evicted(launchOf(2, b), ms)
	if x, y := p.EvictionCost(launchOf(1, a)), p.EvictionCost(launchOf(1, ipc.Launch{Kernel: 9})); x != ms || y != 2*ms {
		t.Errorf("costs %v and %v, want the mean of the kernel and of the guest", x, y)
	}
	// A guest without any has the mean of all guests, in which no guest can say that it takes ages.
	if d, want := p.EvictionCost(launchOf(3, a)), (2*ms+maxLearned)/3; d != want {
		t.Errorf("costs %v, want %v", d, want)
	}
	for range 100 {
		p.Evicted(launchOf(1, a), time.Hour)
	}
	if d := p.EvictionCost(launchOf(3, a)); d != maxLearned {
		t.Errorf("costs %v for one guest, since another's take an hour", d)
	}
}
