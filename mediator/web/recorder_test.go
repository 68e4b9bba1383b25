package web

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/clock"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
)

// source is a host whose state is set by tests.
type source struct {
	mu   sync.Mutex
	vms  []api.VM
	gpus []api.GPU
}

func (s *source) VMs() []api.VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]api.VM(nil), s.vms...)
}

func (s *source) GPUs() []api.GPU {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]api.GPU(nil), s.gpus...)
}

func (s *source) Health() api.Health { return api.Health{Version: "v1", Healthy: true} }

// record runs a recorder over a source for so many seconds after the first look; each is called
// before each of them.
func record(t *testing.T, s *source, seconds int, each func(second int)) *Recorder {
	t.Helper()
	c := new(clock.Sim)
	c.Advance(time.Second)
	r := NewRecorder(s, c, func() time.Time { return time.Unix(1e9, 0).Add(c.Now()) })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	for i := range seconds {
		c.AwaitWaiters(1)
		s.mu.Lock()
		each(i)
		s.mu.Unlock()
		c.Advance(time.Second)
	}
	c.AwaitWaiters(1)
	cancel()
	running.Wait()
	return r
}

func TestRecorder(t *testing.T) {
	s := &source{
		vms:  []api.VM{{Name: "a", GPU: "gpu0", Entitled: 0.75, Weight: 3, Contexts: 1}, {Name: "b", GPU: "gpu0", Entitled: 0.25, Weight: 1, Contexts: 1}},
		gpus: []api.GPU{{Name: "gpu0", Healthy: true}},
	}
	r := record(t, s, 10, func(int) {
		s.vms[0].GPUSeconds += 0.5
		s.vms[0].Kernels += 7
		s.vms[1].GPUSeconds += 0.25
		s.vms[1].SuspendedSeconds += 0.4
		s.gpus[0].BusySeconds += 0.75
		s.gpus[0].Switches += 100
	})
	got := r.state("host", access.Viewer, 0)
	type row struct {
		Name                  string
		State                 State
		Share, Held, Entitled float64
		Kernels               float64
	}
	var rows []row
	for _, g := range got.Guests {
		rows = append(rows, row{g.Name, g.State, g.Share, g.Held, g.Entitled, g.KernelsPerSecond})
	}
	want := []row{{"a", Working, 0.5, 0, 0.75, 7}, {"b", Held, 0.25, 0.4, 0.25, 0}}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("guests (-want +got):\n%s", diff)
	}
	if g := got.GPUs[0]; g.Busy != 0.75 || g.SwitchesPerSecond != 100 {
		t.Errorf("the GPU is busy %v with %v switches a second, want 0.75 and 100", g.Busy, g.SwitchesPerSecond)
	}
	if got.Role != "viewer" || got.Host != "host" {
		t.Errorf("role %q on %q", got.Role, got.Host)
	}
	// The first look has nothing to compare with.
	for _, track := range got.History.Tracks {
		if len(track.Share) != 11 || track.Share[0] != missing || track.Share[10] == missing {
			t.Errorf("%s %s: %v", track.Kind, track.Name, track.Share)
		}
	}
	if next := r.state("host", access.Viewer, got.History.Next); len(next.History.Times) != 0 {
		t.Errorf("after all points there are %v", next.History)
	}
}

// TestCountersGoBack: a guest that was deleted and created again has no negative share, and a silent
// one none at all.
func TestCountersGoBack(t *testing.T) {
	s := &source{vms: []api.VM{{Name: "a", GPU: "gpu0", GPUSeconds: 100, Kernels: 50}}}
	r := record(t, s, 3, func(i int) {
		switch i {
		case 1:
			s.vms[0] = api.VM{Name: "a", GPU: "gpu0", GPUSeconds: 0.5, Kernels: 1}
		case 2:
			s.vms[0].Silent = "does not answer"
		}
	})
	if got, want := r.state("", access.Viewer, 0).History.Tracks[0].Share, []int16{missing, 0, missing, missing}; !cmp.Equal(got, want) {
		t.Errorf("shares %v, want %v", got, want)
	}
}

// TestAnotherGuestOfTheName: at once after it was created anew, a guest has no rates.
func TestAnotherGuestOfTheName(t *testing.T) {
	s := &source{vms: []api.VM{{Name: "a", GPU: "gpu0", GPUSeconds: 100, Kernels: 50}}}
	r := record(t, s, 1, func(int) { s.vms[0] = api.VM{Name: "a", GPU: "gpu0", GPUSeconds: 0.5, Kernels: 1} })
	if g := r.state("", access.Viewer, 0).Guests[0]; g.KernelsPerSecond != 0 || g.Share >= 0 {
		t.Errorf("%v kernels a second and share %v, want 0 and none", g.KernelsPerSecond, g.Share)
	}
}

// TestDay: the coarse history has the minutes' means.
func TestDay(t *testing.T) {
	s := &source{vms: []api.VM{{Name: "a", GPU: "gpu0"}}}
	r := record(t, s, 179, func(i int) {
		if i%2 == 0 {
			s.vms[0].GPUSeconds++
		}
	})
	got := r.day().Tracks[0].Share
	if len(got) != 3 {
		t.Fatalf("%d points of three minutes", len(got))
	}
	for _, p := range got {
		if p < full/2-100 || p > full/2+100 {
			t.Errorf("points %v, want about %d each", got, full/2)
		}
	}
}

func TestStates(t *testing.T) {
	busy := api.VM{Attached: true, Contexts: 1, Active: true, Entitled: 0.25}
	capped := busy
	capped.Cap = 0.25
	capped.Entitled, capped.HeldBack = 0.25, &api.HeldBack{Reason: "cap", Text: "at its cap"}
	ahead, urgent, drained := busy, busy, api.VM{Attached: true}
	ahead.HeldBack = &api.HeldBack{Reason: "share", Text: "ahead of its share"}
	urgent.HeldBack = &api.HeldBack{Reason: "urgent", For: "b", Text: "guest b is more urgent"}
	drained.HeldBack = &api.HeldBack{Reason: "drained", Text: "an operator drains its GPU"}
	for _, test := range []struct {
		name        string
		vm          api.VM
		share, held float64
		state       State
		reason      string
	}{
		{"silent", api.VM{Silent: "its process does not answer", Suspended: true}, -1, -1, Silent, "its process does not answer"},
		{"lost", api.VM{Lost: "its process was killed", Contexts: 1}, -1, -1, Lost, "its process was killed"},
		{"capped", capped, 0.24, 0.7, Held, "suspended 70 % of the time, at its cap of 25 %"},
		{"ahead", ahead, 0.4, 0.3, Held, "suspended 30 % of the time, ahead of its share"},
		{"without a reason", busy, 0.25, 0.3, Held, "suspended 30 % of the time"},
		{"single rounds", busy, 0.25, 0.04, Working, "at its share"},
		{"more than its share", busy, 0.9, 0, Working, "uses what others leave"},
		{"less than its share", busy, 0.1, 0, Working, "wants less than its share"},
		{"starved", busy, 0, 0, Waiting, "it has work, and others have the GPU"},
		{"behind an urgent one", urgent, 0, 0, Waiting, "it has work, and guest b is more urgent"},
		{"drained", drained, 0, 0, Ready, "an operator drains its GPU"},
		{"idle", api.VM{Attached: true, Contexts: 2}, 0, 0, Idle, "no work"},
		{"ready", api.VM{Attached: true}, 0, 0, Ready, "no program has a context"},
		{"detached", api.VM{}, 0, 0, Detached, "no VM is connected"},
	} {
		state, reason := stateOf(&test.vm, test.share, test.held)
		if state != test.state || reason != test.reason {
			t.Errorf("%s: %s (%s), want %s (%s)", test.name, state, reason, test.state, test.reason)
		}
	}
}

// BenchmarkLook is one look at a thousand guests.
func BenchmarkLook(b *testing.B) {
	s := new(source)
	for i := range 1000 {
		s.vms = append(s.vms, api.VM{Name: string(rune('a'+i%26)) + string(rune('0'+i/26)), GPU: "gpu0"})
	}
	c := new(clock.Sim)
	c.Advance(time.Second)
	r := NewRecorder(s, c, time.Now)
	for b.Loop() {
		c.Advance(time.Second)
		r.look()
	}
}
