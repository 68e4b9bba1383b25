package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
	"vgpud/mediator/libvirt"
)

var update = flag.Bool("update", false, "write what the scripts in testdata expect anew")

// selfVariable names the environment variable that makes this binary vgpuctl.
const selfVariable = "VGPUCTL_TEST_SELF"

func TestMain(m *testing.M) {
	if os.Getenv(selfVariable) != "" {
		main()
	}
	testscript.Main(m, map[string]func(){"vgpuctl": main, libvirt.ProgramName: fakeLibvirt})
}

// TestScripts runs the scripts in testdata, each with a daemon of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			// Paths of sockets are short.
			dir, err := os.MkdirTemp("", "vgpuctl-")
			if err != nil {
				return err
			}
			socket := filepath.Join(dir, "vgpud.sock")
			l, err := net.Listen("unix", socket)
			if err != nil {
				return err
			}
			log := slog.New(slog.DiscardHandler)
			host := newFixedHost()
			s := &http.Server{Handler: api.Handler(host, api.HandlerOptions{Caller: access.As(access.Operator), Events: fixedEvents(), Log: log})}
			done := make(chan error, 1)
			go func() { done <- s.Serve(l) }()
			e.Setenv("VGPUD_SOCKET", socket)
			e.Defer(func() {
				if err := errors.Join(s.Close(), os.RemoveAll(dir)); err != nil {
					t.Error(err)
				}
				if err := <-done; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
			servePrometheus(e)
			return serveTLS(t, e, host)
		},
	})
}

// fixedHost is a host with two guests that never do anything.
type fixedHost struct {
	mu  sync.Mutex
	vms []api.VM
	gpu api.GPU
}

func newFixedHost() *fixedHost {
	own := 12.25
	return &fixedHost{
		vms: []api.VM{
			{
				Name: "web1", Domain: "web-one", DomainUUID: "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11", GPU: "gpu0",
				Weight: 2, Cap: 0.75, Guarantee: 0.125, PriorityCeiling: 3, Latency: 50 * time.Microsecond, Socket: "/run/vgpud/vms/web1/vfio-user.sock", Attached: true, PID: 101, Contexts: 2,
				Groups: []uint16{3, 4}, Active: true, GPUSeconds: 12.5, GPUSecondsOwn: &own, Share: 0.625, BusyRatio: 0.5, Entitled: 0.6667, MemoryUsedBytes: 300 << 20, SuspendedSeconds: 1.5,
				Suspensions: 7, HeldBack: &api.HeldBack{Reason: "guarantee", For: "web2", Text: "guest web2 is behind its guarantee"}, Kernels: 1000, Errors: 1, CopiedBytes: 1 << 40, Commands: 5000, Doorbells: 12, MemoryLimitBytes: 1 << 30,
				Preemption: api.Preemption{
					Launches: api.Launches{Waiting: 4, Running: 2, Leaving: 1}, Evictions: 30, EvictionSeconds: 0.25, Caused: 20, ChargedSeconds: 0.125,
					Unresponsive: 2, IgnoredPriorities: 5, Prediction: api.Prediction{Launches: 900, PredictedSeconds: 10, MeasuredSeconds: 12, ErrorRatio: 0.1875},
				},
			},
			{Name: "web2", GPU: "gpu0", Weight: 1, Socket: "/run/vgpud/vms/web2/vfio-user.sock", PID: 102, GPUSeconds: 7.5, Share: 0.375, BusyRatio: 0.25},
		},
		gpu: api.GPU{
			Name: "gpu0", Kind: "soft", Model: "vgpud soft GPU", SMs: 4, MemoryBytes: 1 << 30, Policy: "dfq", VMs: 2, Healthy: true,
			BusyRatio: 0.75, BusySeconds: 20, IdleSeconds: 5, SwitchingSeconds: 0.25, Switches: 321, Rounds: 1234,
			AccountingCPUSeconds: 3.5, AccountingSource: api.SourceRegisters, WatchedSeconds: 4, Polls: 1e9, Gaps: 2, GapSeconds: 1e-4, RealTime: true, Overruns: 3, OverrunSeconds: 0.125,
			Launches: api.Launches{Waiting: 4, Running: 2, Leaving: 1}, Prediction: api.Prediction{Launches: 900, ErrorRatio: 0.1875},
			Evictions: api.Evictions{Count: 30, Seconds: 0.25, P50: 0.0005, P99: 0.0125, Buckets: []api.Bucket{{UpTo: 0.001, Count: 29}}},
		},
	}
}

func (h *fixedHost) VMs() []api.VM {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.vms)
}

// find returns a guest's index. Preconditions: mu is held.
func (h *fixedHost) find(name string) (int, error) {
	i := slices.IndexFunc(h.vms, func(v api.VM) bool { return v.Name == name })
	if i < 0 {
		return i, fmt.Errorf("guest %q: %w", name, api.ErrNotFound)
	}
	return i, nil
}

func (h *fixedHost) VM(name string) (api.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, err := h.find(name)
	if err != nil {
		return api.VM{}, err
	}
	return h.vms[i], nil
}

func (h *fixedHost) CreateVM(_ access.Caller, s api.VMSpec) (api.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := errors.Join(api.CheckName(s.Name), s.Terms().Check()); err != nil {
		return api.VM{}, err
	}
	if _, err := h.find(s.Name); err == nil {
		return api.VM{}, fmt.Errorf("guest %q: %w", s.Name, api.ErrExists)
	}
	v := api.VM{Name: s.Name, Domain: s.Domain, DomainUUID: s.DomainUUID, GPU: "gpu0", Float: s.Float, Peer: s.Peer, Weight: s.Weight, Cap: s.Cap,
		Guarantee: s.Guarantee, PriorityCeiling: s.PriorityCeiling, Socket: "/run/vgpud/vms/" + s.Name + "/vfio-user.sock", MemoryLimitBytes: s.MemoryLimitBytes, KernelTimeLimit: s.KernelTimeLimit}
	if s.Socket != "" {
		v.Socket = s.Socket
	}
	if s.UID != nil && s.GID != nil {
		v.Socket += fmt.Sprintf("?owner=%d:%d", *s.UID, *s.GID)
	}
	h.vms = append(h.vms, v)
	return v, nil
}

func (h *fixedHost) UpdateVM(_ access.Caller, name string, u api.VMUpdate) (api.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, err := h.find(name)
	if err != nil {
		return api.VM{}, err
	}
	v := &h.vms[i]
	t := u.Apply(api.Terms{Weight: v.Weight, Cap: v.Cap, Guarantee: v.Guarantee, PriorityCeiling: v.PriorityCeiling, Latency: v.Latency})
	if err := t.Check(); err != nil {
		return api.VM{}, fmt.Errorf("guest %q: %w", name, err)
	}
	v.Weight, v.Cap, v.Guarantee, v.PriorityCeiling, v.Latency = t.Weight, t.Cap, t.Guarantee, t.PriorityCeiling, t.Latency
	if u.KernelTimeLimit != nil {
		v.KernelTimeLimit = max(*u.KernelTimeLimit, 0)
	}
	if u.MemoryLimitBytes != nil {
		v.MemoryLimitBytes = *u.MemoryLimitBytes
	}
	if u.Budget != nil {
		v.Budget = &budget.Status{Budget: *u.Budget}
	}
	return *v, nil
}

func (h *fixedHost) DeleteVM(_ access.Caller, name string, force bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, err := h.find(name)
	switch {
	case err == nil && h.vms[i].Attached && !force:
		return fmt.Errorf("guest %q: its VMM is connected: %w", name, api.ErrInUse)
	case err == nil:
		h.vms = slices.Delete(h.vms, i, i+1)
	}
	return err
}

func (h *fixedHost) Tasks() api.Tasks {
	return api.Tasks{Tasks: []api.Task{
		{VM: "db", Domain: "db", Context: 0, Tag: 812, State: api.TaskPlaced, GPU: "gpu1", MemoryBytes: 3 << 30, Blocks: 640, Threads: 256, Warps: 1024, WaitedSeconds: 0.002},
		{VM: "db", Domain: "db", Context: 1, Tag: 813, State: api.TaskWaits, Why: "no GPU has as much memory left", MemoryBytes: 12 << 30, WaitedSeconds: 41.5, Passed: 2},
	}}
}

func (h *fixedHost) GPUs() []api.GPU {
	h.mu.Lock()
	defer h.mu.Unlock()
	return []api.GPU{h.gpu}
}

func (h *fixedHost) GPU(name string) (api.GPU, error) {
	if name != h.gpu.Name {
		return api.GPU{}, fmt.Errorf("GPU %q: %w", name, api.ErrNotFound)
	}
	return h.GPUs()[0], nil
}

func (h *fixedHost) UpdateGPU(_ access.Caller, name string, u api.GPUUpdate) (api.GPU, error) {
	if _, err := h.GPU(name); err != nil {
		return api.GPU{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if u.Policy != nil {
		if policies := []string{"dfq", "none"}; !slices.Contains(policies, *u.Policy) {
			return api.GPU{}, fmt.Errorf("policy %q: want one of %s: %w", *u.Policy, strings.Join(policies, ", "), api.ErrInvalid)
		}
		h.gpu.Policy = *u.Policy
	}
	if u.Cordoned != nil {
		h.gpu.Cordoned = *u.Cordoned
		h.gpu.Draining = h.gpu.Draining && h.gpu.Cordoned
	}
	if u.Draining != nil && *u.Draining {
		h.gpu.Cordoned, h.gpu.Draining = true, true
	}
	if u.EndContexts {
		for i := range h.vms {
			h.vms[i].Contexts = 0
		}
	}
	h.gpu.Drained = h.gpu.Draining && !slices.ContainsFunc(h.vms, func(v api.VM) bool { return v.Contexts > 0 })
	return h.gpu, nil
}

// Usage returns one row of what is asked for, whose texts a hostile tenant has chosen.
func (h *fixedHost) Usage(_ context.Context, q api.UsageQuery) (api.Usage, error) {
	if q.From == "soon" {
		return api.Usage{}, fmt.Errorf("from %q: want a date: %w", q.From, api.ErrInvalid)
	}
	if q.VM == "web9" {
		return api.Usage{By: q.By}, nil
	}
	joules := 7.2e6
	sums := api.UsageSums{GPUSeconds: 3600.123456, Kernels: 1000, Evictions: 3, SuspendedSeconds: 1.5, MemoryByteSeconds: 3600 * 1.5 * (1 << 30), EnergyJoules: &joules}
	row := api.UsageRow{
		VM: "web1", Domain: "web-one", DomainUUID: "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11", Owner: `=HYPERLINK("http://evil","x")`, Project: "blue, green", Day: "2026-11-24", GPU: "gpu0",
		UsageSums: sums,
	}
	rows := []api.UsageRow{row, {VM: "web2", Day: "2026-11-25", UsageSums: api.UsageSums{GPUSeconds: 1}}}
	total := sums
	total.GPUSeconds++
	return api.Usage{
		From: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), By: q.By, Rows: rows, Total: total,
	}, nil
}

func (h *fixedHost) UsageCosts(_ context.Context, q api.UsageQuery) (any, error) {
	return []map[string]any{{"currency": q.Currency, "list_unit_price": q.GPUHourPrice, "resolution": q.Resolution}}, nil
}

func (h *fixedHost) Health() api.Health { return api.Health{Version: "test", Healthy: true} }
