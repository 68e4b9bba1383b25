package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/api"
	"vgpud/mediator/nova/reservation"
	"vgpud/mediator/statefile"
)

// fakeAgent is a vgpu-placement that says what a test wants.
type fakeAgent struct {
	mu    sync.Mutex
	asked []string
	sold  map[string]bool // GPUs
	err   error
}

func (a *fakeAgent) reserve(_ context.Context, r reservation.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, fmt.Sprintf("%s %s weight=%v guarantee=%v memory=%d", r.Guest, r.GPU, r.Weight, r.Guarantee, r.MemoryLimitBytes))
	if a.sold[r.GPU] {
		return reservation.ErrSold
	}
	return a.err
}

func (a *fakeAgent) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (a *fakeAgent) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.asked
	a.asked = nil
	return all
}

// serveAgent serves an agent at path.
func serveAgent(t *testing.T, path string) *fakeAgent {
	t.Helper()
	a := &fakeAgent{sold: make(map[string]bool)}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: reservation.Handler(a.reserve)}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return a
}

// TestGuestsBesideNova: a guest that Nova did not place gets only what Placement has not promised. One
// that Nova placed is not asked about.
func TestGuestsBesideNova(t *testing.T) {
	dir := runDir(t)
	socket := filepath.Join(dir, "agent.sock")
	d := startDaemonThat(t, dir, idleGPU{}, statefile.Files{}, func(c *Config) { c.PlacementAgent = socket }, "gpu0", "gpu1")
	create := func(s api.VMSpec) (api.VM, error) {
		s.BAR2Bytes = 16 << 20
		v, err := d.client.CreateVM(t.Context(), s)
		if err == nil {
			d.endWithTest(v)
		}
		return v, err
	}
	if _, err := create(api.VMSpec{Name: "a"}); err == nil || !strings.Contains(err.Error(), "vgpu-placement") {
		t.Errorf("without an agent: %v", err)
	}
	if v, err := create(api.VMSpec{Name: "nova", Engine: "nova", GPU: "gpu1"}); err != nil {
		t.Errorf("an instance without an agent: %+v, %v", v, err)
	}
	a := serveAgent(t, socket)
	if _, err := create(api.VMSpec{Name: "a", GPU: "gpu0", Weight: 3, MemoryLimitBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	weight, domain := 5.0, "other"
	if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Weight: &weight}); err != nil {
		t.Error(err)
	}
	if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Domain: &domain}); err != nil {
		t.Error(err)
	}
	if _, err := d.client.UpdateVM(t.Context(), "nova", api.VMUpdate{Weight: &weight}); err != nil {
		t.Error(err)
	}
	want := []string{"a gpu0 weight=3 guarantee=0 memory=1048576", "a gpu0 weight=5 guarantee=0 memory=1048576"}
	if diff := cmp.Diff(want, a.take()); diff != "" {
		t.Errorf("the agent was asked (-want +got):\n%s", diff)
	}

	a.set(func() { a.sold["gpu0"] = true })
	if _, err := create(api.VMSpec{Name: "b", GPU: "gpu0"}); !errors.Is(err, api.ErrNoRoom) || !strings.Contains(err.Error(), "promised") {
		t.Errorf("on a GPU that is sold: %v", err)
	}
	heavier := 6.0
	if v, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Weight: &heavier}); !errors.Is(err, api.ErrNoRoom) || d.vm("a").Weight != 5 {
		t.Errorf("more of a GPU that is sold: %+v, %v", v, err)
	}
	// gpu0 has less weight, but is sold.
	if v, err := create(api.VMSpec{Name: "b"}); err != nil || v.GPU != "gpu1" {
		t.Errorf("on any GPU: %+v, %v", v, err)
	}
	a.set(func() { a.sold["gpu1"] = true })
	if _, err := create(api.VMSpec{Name: "c"}); !errors.Is(err, api.ErrNoRoom) || !strings.Contains(err.Error(), "gpu0: it is promised") || !strings.Contains(err.Error(), "gpu1: it is promised") {
		t.Errorf("where all is sold: %v", err)
	}
	a.set(func() { a.sold, a.err = nil, errors.New("Placement answers 503") })
	if _, err := create(api.VMSpec{Name: "c"}); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("without Placement: %v", err)
	}
	// Nothing remains of those that were refused.
	a.set(func() { a.err = nil })
	if _, err := create(api.VMSpec{Name: "c"}); err != nil {
		t.Error(err)
	}
}
