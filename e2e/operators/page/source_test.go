package page

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/web"
)

// model is a host whose guests use their GPUs as told, second by second.
type model struct {
	mu     sync.Mutex
	second int
	gpus   []api.GPU
	guests []*modelGuest
}

// modelGuest is a guest of a model.
type modelGuest struct {
	api.VM
	// use returns the parts of a second that the guest used and for which it was suspended.
	use func(second int) (used, suspended float64)
}

func (m *model) VMs() []api.VM {
	m.mu.Lock()
	defer m.mu.Unlock()
	vms := make([]api.VM, len(m.guests))
	for i, g := range m.guests {
		vms[i] = g.VM
	}
	return vms
}

func (m *model) GPUs() []api.GPU {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]api.GPU(nil), m.gpus...)
}

func (m *model) Health() api.Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := api.Health{Version: "v1.4.0", Healthy: true, UptimeSeconds: 86400*3 + float64(m.second)}
	for _, g := range m.gpus {
		if !g.Healthy {
			h.Healthy, h.Problems = false, append(h.Problems, "GPU "+g.Name+": "+g.Problem)
		}
	}
	return h
}

// step has a second pass.
func (m *model) step() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.second++
	busy := make(map[string]float64)
	for _, g := range m.guests {
		if g.use == nil {
			continue
		}
		used, suspended := g.use(m.second)
		g.GPUSeconds += used
		g.SuspendedSeconds += suspended
		g.Kernels += uint64(used * 1900)
		g.Active = used > 0
		busy[g.GPU] += used
	}
	for i := range m.gpus {
		m.gpus[i].BusySeconds += min(1, busy[m.gpus[i].Name])
		m.gpus[i].Switches += 240
	}
}

// steady uses a part of each second, which wanders a little.
func steady(part, wander float64, suspended float64) func(int) (float64, float64) {
	return func(s int) (float64, float64) {
		w := wander * (math.Sin(float64(s)/17) + 0.4*math.Sin(float64(s)/5.3+part*40))
		return max(0, part+w), suspended
	}
}

// day is a host with two GPUs and the guests of the documentation's pictures.
func day() *model {
	m := &model{gpus: []api.GPU{
		{Name: "gpu0", Kind: "nvidia", Model: "NVIDIA H100 80GB HBM3", SMs: 132, MemoryBytes: 80 << 30, Policy: "dfq", VMs: 4, Healthy: true, AccountingSource: "events",
			Evictions: api.Evictions{Count: 1834, Seconds: 0.9, P50: 0.00031, P99: 0.0019},
			Hardware:  &api.Hardware{TemperatureCelsius: ptr(61.0), PowerWatts: ptr(512.0), PowerLimitWatts: ptr(700.0), MemoryUsedBytes: ptr(uint64(51 << 30))}},
		{Name: "gpu1", Kind: "nvidia", Model: "NVIDIA H100 80GB HBM3", SMs: 132, MemoryBytes: 80 << 30, Policy: "hpf", VMs: 3, Healthy: true, AccountingSource: "events",
			Hardware: &api.Hardware{TemperatureCelsius: ptr(48.0), PowerWatts: ptr(298.0), PowerLimitWatts: ptr(700.0), MemoryUsedBytes: ptr(uint64(17 << 30))}},
	}}
	add := func(v api.VM, use func(int) (float64, float64)) {
		v.Attached = v.Attached || v.Contexts > 0
		m.guests = append(m.guests, &modelGuest{v, use})
	}
	add(api.VM{Name: "training", Domain: "ml-training-3", GPU: "gpu0", Weight: 4, Contexts: 2, Entitled: 0.5, MemoryUsedBytes: 33 << 30, MemoryLimitBytes: 40 << 30,
		Preemption: api.Preemption{Launches: api.Launches{Running: 2}, Evictions: 1630, EvictionSeconds: 0.8}}, steady(0.49, 0.02, 0.01))
	add(api.VM{Name: "inference", Domain: "llm-serving", GPU: "gpu0", Weight: 2, Guarantee: 0.25, PriorityCeiling: 4, Contexts: 4, Entitled: 0.25, MemoryUsedBytes: 14 << 30, MemoryLimitBytes: 24 << 30,
		Preemption: api.Preemption{Launches: api.Launches{Running: 1}}}, func(s int) (float64, float64) {
		used, _ := steady(0.22, 0.05, 0)(s)
		if s%180 < 60 {
			used *= 0.5
		}
		return used, 0
	})
	add(api.VM{Name: "rendering", Domain: "studio", GPU: "gpu0", Weight: 1, Cap: 0.15, Contexts: 1, Entitled: 0.15,
		Preemption: api.Preemption{Launches: api.Launches{Waiting: 3, Running: 1}, Evictions: 204}}, steady(0.149, 0.004, 0.62))
	add(api.VM{Name: "notebook-anna", Domain: "notebook-anna", GPU: "gpu0", Weight: 1, Contexts: 1, Entitled: 0.1, Errors: 3}, func(s int) (float64, float64) {
		if s%150 < 90 {
			return 0, 0
		}
		return 0.11, 0.04
	})
	add(api.VM{Name: "batch-climate", GPU: "gpu1", Weight: 1, Contexts: 1, Entitled: 1, Preemption: api.Preemption{Launches: api.Launches{Running: 1}}}, steady(0.6, 0.1, 0))
	add(api.VM{Name: "desktop", GPU: "gpu1", Weight: 1, Attached: true}, nil)
	add(api.VM{Name: "spare", GPU: "gpu1", Weight: 1}, nil)
	return m
}

func ptr[T any](v T) *T { return &v }

// many is a host with n busy guests on one GPU.
func many(n int) *model {
	m := &model{gpus: []api.GPU{{Name: "gpu0", Kind: "soft", Model: "software GPU", SMs: 4, Policy: "dfq", VMs: n, Healthy: true, AccountingSource: "registers"}}}
	for i := range n {
		m.guests = append(m.guests, &modelGuest{api.VM{
			Name: fmt.Sprintf("guest-%02d", i), GPU: "gpu0", Weight: 1, Attached: true, Contexts: 1, Entitled: 1 / float64(n),
			Preemption: api.Preemption{Launches: api.Launches{Running: 1}},
		}, steady(1/float64(n), 0.3/float64(n), 0.1*float64(i%3))})
	}
	return m
}

// site is the page served for a model.
type site struct {
	url   string
	model *model
	clock *clock.Sim
	down  atomic.Bool // whether requests fail
}

// serve serves the page for a model, after so many seconds of it. In front of it is the same guard
// as in the daemon. Requests other than the page's go to other.
func serve(t testing.TB, m *model, seconds int, role access.Role, other http.Handler) *site {
	t.Helper()
	s := &site{model: m, clock: new(clock.Sim)}
	s.clock.Advance(time.Second) // the recorder takes 0 for no look
	// The pictures show the same times of day whenever they are taken.
	begin := time.Date(2026, 11, 24, 14, 10, 0, 0, time.UTC).Add(-time.Duration(seconds) * time.Second)
	r := web.NewRecorder(m, s.clock, func() time.Time { return begin.Add(s.clock.Now()) })
	var running sync.WaitGroup
	running.Go(func() { r.Run(t.Context()) })
	for range seconds {
		s.pass()
	}
	s.clock.AwaitWaiters(1)
	mux := http.NewServeMux()
	page := web.Handler(web.Options{Recorder: r, Caller: access.As(role), Host: "gpuhost-07", Log: slog.New(slog.DiscardHandler)})
	mux.Handle("/", page)
	if other == nil {
		other = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if _, err := w.Write([]byte("[]")); err != nil {
				t.Error(err)
			}
		})
	}
	mux.Handle("/v1/", other)
	guard := web.Guard(mux, web.Loopback)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down.Load() {
			http.Error(w, "the daemon is gone", http.StatusServiceUnavailable)
			return
		}
		guard.ServeHTTP(w, r)
	}))
	s.url = server.URL
	t.Cleanup(server.Close)
	t.Cleanup(running.Wait)
	return s
}

// pass has a second pass, and waits until the recorder has looked.
func (s *site) pass() {
	s.clock.AwaitWaiters(1)
	s.model.step()
	s.clock.Advance(time.Second)
	s.clock.AwaitWaiters(1)
}
