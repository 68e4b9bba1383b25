package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

// host is a Host of two guests.
type host struct{ vms map[string]VM }

func (h *host) VMs() []VM {
	var all []VM
	for _, v := range h.vms {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b VM) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (h *host) VM(name string) (VM, error) {
	v, ok := h.vms[name]
	if !ok {
		return v, fmt.Errorf("guest %q: %w", name, ErrNotFound)
	}
	return v, nil
}

func (h *host) CreateVM(s VMSpec) (VM, error) {
	if err := CheckName(s.Name); err != nil {
		return VM{}, err
	}
	if _, ok := h.vms[s.Name]; ok {
		return VM{}, fmt.Errorf("guest %q: %w", s.Name, ErrExists)
	}
	v := VM{Name: s.Name, Weight: s.Weight, GPU: s.GPU}
	h.vms[s.Name] = v
	return v, nil
}

func (h *host) UpdateVM(name string, u VMUpdate) (VM, error) {
	v, err := h.VM(name)
	if err != nil {
		return v, err
	}
	if err := CheckWeight(*u.Weight); err != nil {
		return v, err
	}
	v.Weight = *u.Weight
	h.vms[name] = v
	return v, nil
}

func (h *host) DeleteVM(name string) error {
	_, err := h.VM(name)
	delete(h.vms, name)
	return err
}

func (h *host) GPUs() []GPU { return []GPU{{Name: "gpu0"}} }

func (h *host) GPU(string) (GPU, error) { return GPU{Name: "gpu0"}, nil }

func (h *host) UpdateGPU(_ string, u GPUUpdate) (GPU, error) {
	return GPU{Name: "gpu0", Policy: *u.Policy}, nil
}

func (h *host) Health() Health { return Health{Version: "test", Healthy: true} }

// serve starts the API on a socket and returns a client of it.
func serve(t *testing.T, h Host) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: Handler(h, nil, slog.New(slog.DiscardHandler))}
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	c := NewClient(path)
	t.Cleanup(func() {
		c.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return c
}

func TestClientTour(t *testing.T) {
	ctx := t.Context()
	c := serve(t, &host{vms: map[string]VM{"a": {Name: "a", Weight: 1}}})

	if _, err := c.CreateVM(ctx, VMSpec{Name: "b", Weight: 2}); err != nil {
		t.Fatal(err)
	}
	w := 3.5
	if v, err := c.UpdateVM(ctx, "b", VMUpdate{Weight: &w}); err != nil || v.Weight != w {
		t.Fatalf("UpdateVM = %+v, %v", v, err)
	}
	vms, err := c.VMs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]VM{{Name: "a", Weight: 1}, {Name: "b", Weight: 3.5}}, vms); diff != "" {
		t.Errorf("VMs (-want +got):\n%s", diff)
	}
	if err := c.DeleteVM(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	p := "dfq"
	if g, err := c.UpdateGPU(ctx, "gpu0", GPUUpdate{Policy: &p}); err != nil || g.Policy != p {
		t.Errorf("UpdateGPU = %+v, %v", g, err)
	}
	if h, err := c.Health(ctx); err != nil || !h.Healthy {
		t.Errorf("Health = %+v, %v", h, err)
	}
	if g, err := c.GPUs(ctx); err != nil || len(g) != 1 {
		t.Errorf("GPUs = %+v, %v", g, err)
	}
}

func TestRefusals(t *testing.T) {
	ctx := t.Context()
	c := serve(t, &host{vms: map[string]VM{"a": {Name: "a"}}})
	zero := 0.0
	for name, try := range map[string]struct {
		do   func() error
		want error
	}{
		"unknown guest":  {func() error { _, err := c.VM(ctx, "nobody"); return err }, ErrNotFound},
		"delete unknown": {func() error { return c.DeleteVM(ctx, "nobody") }, ErrNotFound},
		"taken name":     {func() error { _, err := c.CreateVM(ctx, VMSpec{Name: "a"}); return err }, ErrExists},
		"path as name":   {func() error { _, err := c.CreateVM(ctx, VMSpec{Name: "../a"}); return err }, ErrInvalid},
		"no weight":      {func() error { _, err := c.UpdateVM(ctx, "a", VMUpdate{Weight: &zero}); return err }, ErrInvalid},
		"slash in path":  {func() error { _, err := c.VM(ctx, "a/b"); return err }, ErrNotFound},
		"unknown field": {func() error {
			_, err := ask[VM](ctx, c, "POST", "/v1/vms", map[string]any{"name": "x", "wieght": 3})
			return err
		}, ErrInvalid},
		"too long": {func() error {
			_, err := c.CreateVM(ctx, VMSpec{Name: strings.Repeat("x", maxBody)})
			return err
		}, ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			if err := try.do(); !errors.Is(err, try.want) {
				t.Errorf("got %v, want %v", err, try.want)
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	c := NewClient(filepath.Join(t.TempDir(), "none.sock"))
	_, err := c.VMs(t.Context())
	if err == nil || !strings.Contains(err.Error(), "vgpud serve") {
		t.Errorf("got %v, want an error that says how to start the daemon", err)
	}
}

func TestCheckWeight(t *testing.T) {
	for w, ok := range map[float64]bool{1: true, MinWeight: true, MaxWeight: true, 0: false, -1: false, MaxWeight + 1: false} {
		if err := CheckWeight(w); (err == nil) != ok {
			t.Errorf("CheckWeight(%v) = %v", w, err)
		}
	}
	zero := 0.0
	if CheckWeight(zero/zero) == nil {
		t.Error("not-a-number is no weight")
	}
}

// TestOpenAPI holds the page against the routes.
func TestOpenAPI(t *testing.T) {
	var page struct {
		Paths map[string]map[string]any
	}
	if err := yaml.Unmarshal(openAPI, &page); err != nil {
		t.Fatal(err)
	}
	var documented, served []string
	for path, methods := range page.Paths {
		for m := range methods {
			documented = append(documented, strings.ToUpper(m)+" "+path)
		}
	}
	for _, r := range routes {
		served = append(served, r.method+" "+r.path)
	}
	slices.Sort(documented)
	slices.Sort(served)
	if diff := cmp.Diff(served, documented); diff != "" {
		t.Errorf("routes (-served +documented):\n%s", diff)
	}
}
