package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"vgpud/fairshare"
	"vgpud/mediator/access"
	"vgpud/mediator/events"
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

func (h *host) CreateVM(_ access.Caller, s VMSpec) (VM, error) {
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

func (h *host) UpdateVM(_ access.Caller, name string, u VMUpdate) (VM, error) {
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

func (h *host) DeleteVM(_ access.Caller, name string, force bool) error {
	v, err := h.VM(name)
	if v.Attached && !force {
		return fmt.Errorf("guest %q: %w", name, ErrInUse)
	}
	delete(h.vms, name)
	return err
}

func (h *host) GPUs() []GPU { return []GPU{{Name: "gpu0"}} }

func (h *host) Tasks() Tasks {
	return Tasks{Tasks: []Task{{VM: "a", State: TaskWaits}, {VM: "b", State: TaskPlaced, GPU: "gpu0"}}}
}

func (h *host) GPU(string) (GPU, error) { return GPU{Name: "gpu0"}, nil }

func (h *host) UpdateGPU(_ access.Caller, name string, u GPUUpdate) (GPU, error) {
	if name == "forgetful" {
		return GPU{}, fmt.Errorf("GPU %q: %w", name, ErrNotSaved)
	}
	return GPU{Name: "gpu0", Policy: *u.Policy}, nil
}

func (h *host) Usage(_ context.Context, q UsageQuery) (Usage, error) {
	if q.By == "week" {
		return Usage{}, fmt.Errorf("by %q: want day: %w", q.By, ErrInvalid)
	}
	return Usage{By: q.By, Rows: []UsageRow{{Owner: q.Owner, UsageSums: UsageSums{GPUSeconds: q.GPUHourPrice}}}}, nil
}

func (h *host) UsageCosts(_ context.Context, q UsageQuery) (any, error) {
	return []map[string]any{{"currency": q.Currency, "price": q.GPUHourPrice, "resolution": q.Resolution}}, nil
}

func (h *host) Health() Health { return Health{Version: "test", Healthy: true} }

// testOptions has all callers have one role.
func testOptions(r access.Role) HandlerOptions {
	return HandlerOptions{Caller: access.As(r), Log: slog.New(slog.DiscardHandler)}
}

// serve starts the API on a socket and returns a client of it.
func serve(t *testing.T, h Host) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: Handler(h, testOptions(access.Operator))}
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
	c := serve(t, &host{vms: map[string]VM{"a": {Name: "a"}, "busy": {Name: "busy", Attached: true}}})
	zero := 0.0
	for name, try := range map[string]struct {
		do   func() error
		want error
	}{
		"unknown guest":     {func() error { _, err := c.VM(ctx, "nobody"); return err }, ErrNotFound},
		"delete unknown":    {func() error { return c.DeleteVM(ctx, "nobody") }, ErrNotFound},
		"delete one in use": {func() error { return c.DeleteVM(ctx, "busy") }, ErrInUse},
		"odd force": {func() error {
			_, err := ask[struct{}](ctx, c, "DELETE", "/v1/vms/busy?force=yes", nil)
			return err
		}, ErrInvalid},
		"what can't be kept": {func() error {
			_, err := c.UpdateGPU(ctx, "forgetful", GPUUpdate{Policy: new(string)})
			return err
		}, ErrNotSaved},
		"taken name":    {func() error { _, err := c.CreateVM(ctx, VMSpec{Name: "a"}); return err }, ErrExists},
		"path as name":  {func() error { _, err := c.CreateVM(ctx, VMSpec{Name: "../a"}); return err }, ErrInvalid},
		"no weight":     {func() error { _, err := c.UpdateVM(ctx, "a", VMUpdate{Weight: &zero}); return err }, ErrInvalid},
		"slash in path": {func() error { _, err := c.VM(ctx, "a/b"); return err }, ErrNotFound},
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
			err := try.do()
			for _, e := range []error{ErrNotFound, ErrExists, ErrInvalid, ErrNoRoom, ErrInUse, ErrNotSaved, ErrForbidden} {
				if errors.Is(err, e) != (e == try.want) {
					t.Errorf("got %v, want %v", err, try.want)
				}
			}
		})
	}
	if err := c.ForceDeleteVM(ctx, "busy"); err != nil {
		t.Errorf("with force: %v", err)
	}
}

// TestNothingBehindTheBody checks that a request with data after its body is refused.
func TestNothingBehindTheBody(t *testing.T) {
	h := &host{vms: map[string]VM{"a": {Name: "a", Weight: 1}}}
	handler := Handler(h, testOptions(access.Operator))
	for body, want := range map[string]int{
		`{"weight": 2}{"weight": 3}`: http.StatusBadRequest, `{"weight": 2}, "cap": 0.5}`: http.StatusBadRequest, `{"weight": 2}}`: http.StatusBadRequest,
		"{\"weight\": 4}\r\n \n": http.StatusOK,
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("PATCH", "/v1/vms/a", strings.NewReader(body)))
		if w.Code != want {
			t.Errorf("%s: %d %s, want %d", body, w.Code, w.Body, want)
		}
		if v := h.vms["a"].Weight; want != http.StatusOK && v != 1 && v != 4 {
			t.Errorf("%s: weight %v", body, v)
		}
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

// TestOpenAPI compares the page with the routes.
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

// TestOpenAPISchemas compares the page's schemas with the types, and its references with its
// schemas.
func TestOpenAPISchemas(t *testing.T) {
	var page struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := yaml.Unmarshal(openAPI, &page); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{"VMSpec": VMSpec{}, "Task": Task{}, "Tasks": Tasks{}, "VMUpdate": VMUpdate{}, "GPUUpdate": GPUUpdate{}, "Peer": Peer{}, "Hardware": Hardware{}, "XidCount": XidCount{},
		"Usage": Usage{}, "UsageRow": UsageRow{}, "UsageSums": UsageSums{}, "Event": events.Event{}} {
		var fields []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if f.Anonymous {
				continue
			}
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, tag)
		}
		slices.Sort(fields)
		if diff := cmp.Diff(fields, slices.Sorted(maps.Keys(page.Components.Schemas[name].Properties))); diff != "" {
			t.Errorf("%s (-type +documented):\n%s", name, diff)
		}
	}
	for _, ref := range regexp.MustCompile(`#/components/schemas/(\w+)`).FindAllSubmatch(openAPI, -1) {
		if _, ok := page.Components.Schemas[string(ref[1])]; !ok {
			t.Errorf("there is no schema %s", ref[1])
		}
	}
}

// TestOpenAPIPolicies compares the page with the existing policies.
func TestOpenAPIPolicies(t *testing.T) {
	var page struct {
		Components struct {
			Schemas struct {
				GPUUpdate struct {
					Properties struct{ Policy struct{ Enum []string } }
				} `yaml:"GPUUpdate"`
			}
		}
	}
	if err := yaml.Unmarshal(openAPI, &page); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fairshare.Names(), slices.Sorted(slices.Values(page.Components.Schemas.GPUUpdate.Properties.Policy.Enum))); diff != "" {
		t.Errorf("policies (-made +documented):\n%s", diff)
	}
}

func TestTerms(t *testing.T) {
	for _, c := range []struct {
		terms Terms
		want  string
	}{
		{Terms{Weight: 1}, ""},
		{Terms{Weight: 1, Cap: 1, Guarantee: 1, PriorityCeiling: MaxPriority}, ""},
		{Terms{Weight: 1, Guarantee: 0.5}, ""},
		{Terms{}, "weight 0"},
		{Terms{Weight: 1, Cap: -0.1}, "cap -0.1"},
		{Terms{Weight: 1, Cap: 1.01}, "cap 1.01"},
		{Terms{Weight: 1, Cap: math.NaN()}, "cap NaN"},
		{Terms{Weight: 1, Guarantee: math.Inf(1)}, "guarantee +Inf"},
		{Terms{Weight: 1, Guarantee: math.NaN()}, "guarantee NaN"},
		{Terms{Weight: 1, Cap: 0.5, Guarantee: 0.6}, "more than the cap"},
		{Terms{Weight: 1, PriorityCeiling: -1}, "priority ceiling -1"},
		{Terms{Weight: 1, PriorityCeiling: MaxPriority + 1}, "priority ceiling 16"},
		{Terms{Weight: 1, Latency: MinLatency}, ""},
		{Terms{Weight: 1, Latency: MinLatency - 1}, "latency 9.999µs"},
		{Terms{Weight: 1, Latency: -1}, "latency -1ns"},
		{Terms{Weight: 1, Latency: MaxLatency + 1}, "latency 1.000000001s"},
	} {
		err := c.terms.Check()
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrInvalid)) {
			t.Errorf("%+v: %v, want %q", c.terms, err, c.want)
		}
	}
}

func TestCheckPeerAndDomain(t *testing.T) {
	for _, p := range []Peer{{PID: 7}, {PIDFile: "/run/libvirt/qemu/web one.pid"}} {
		if err := p.Check(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, p := range []Peer{{}, {PID: -1}, {PID: math.MaxInt32 + 1}, {PID: 7, PIDFile: "/x"}, {PIDFile: "vm.pid"}, {PIDFile: "/run/../etc/x"}, {PIDFile: "/run//x"}, {PIDFile: "/" + strings.Repeat("x", maxPath)}} {
		if err := p.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for name, ok := range map[string]bool{
		"": true, "web one": true, "grün": true, strings.Repeat("x", 255): true,
		"a\nb": false, "a\x00": false, "\xff": false, strings.Repeat("x", 256): false,
	} {
		if err := CheckDomain(name); (err == nil) != ok {
			t.Errorf("domain %q: %v", name, err)
		}
	}
	const uuid = "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"
	for text, ok := range map[string]bool{
		uuid: true, strings.ToUpper(uuid): false, "": false, uuid + "0": false, uuid[1:]: false, "../../../../../../../../etc/passwd----": false,
		strings.ReplaceAll(uuid, "-", "0"): false, strings.Replace(uuid, "5", "/", 1): false,
	} {
		if err := CheckUUID(text); (err == nil) != ok {
			t.Errorf("UUID %q: %v", text, err)
		}
	}
}

func TestInDomain(t *testing.T) {
	v := VM{Name: "a", Domain: "web", DomainUUID: "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"}
	for d, want := range map[string]bool{
		"web": true, v.DomainUUID: true, strings.ToUpper(v.DomainUUID): true, "": false, "WEB": false, "a": false,
	} {
		if v.InDomain(d) != want {
			t.Errorf("InDomain(%q) = %v", d, !want)
		}
	}
	if (&VM{Name: "b"}).InDomain("") {
		t.Error("a guest of no domain is in one")
	}
}
