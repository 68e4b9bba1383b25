package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"vgpud/clock"
	"vgpud/mediator/api"
	"vgpud/mediator/kubernetes"
)

// fakeDaemon is a daemon in memory.
type fakeDaemon struct {
	mu   sync.Mutex
	gpus []api.GPU
	vms  []api.VM
	err  error
}

func newDaemon() *fakeDaemon {
	d := &fakeDaemon{}
	for _, name := range []string{"gpu0", "gpu1"} {
		d.gpus = append(d.gpus, api.GPU{Name: name, Kind: "soft", Model: "Soft", MemoryBytes: 16 << 30, Healthy: true})
	}
	return d
}

func (d *fakeDaemon) GPUs(context.Context) ([]api.GPU, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.gpus), d.err
}

func (d *fakeDaemon) VMs(context.Context) ([]api.VM, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.vms), d.err
}

func (d *fakeDaemon) CreateVM(_ context.Context, s api.VMSpec) (api.VM, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := api.VM{
		Name: s.Name, GPU: s.GPU, Engine: s.Engine, Project: s.Project, Weight: s.Weight, Guarantee: s.Guarantee,
		MemoryLimitBytes: s.MemoryLimitBytes, Socket: "/run/vgpud/vms/" + s.Name + "/vgpu.sock",
	}
	d.vms = append(d.vms, v)
	return v, d.err
}

func (d *fakeDaemon) DeleteVM(_ context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vms = slices.DeleteFunc(d.vms, func(v api.VM) bool { return v.Name == name })
	return d.err
}

// world is a publisher between a daemon and an API server, in simulated time.
type world struct {
	daemon    *fakeDaemon
	clock     clock.Sim
	publisher publisher
	published []string // the names of the devices, of each publication
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{daemon: newDaemon()}
	c := config{Node: "node1"}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	w.publisher = publisher{config: c, daemon: w.daemon, clock: &w.clock, log: slog.New(slog.DiscardHandler), counts: newCounts(prometheus.NewRegistry()), publish: func(r resourceslice.DriverResources) error {
		names := ""
		for _, d := range r.Pools["node1"].Slices[0].Devices {
			share := d.Capacity[kubernetes.CapacityShare]
			names += d.Name + ":" + share.Value.String() + " "
		}
		w.published = append(w.published, names)
		return nil
	}}
	return w
}

// run passes time, and returns what was published meanwhile.
func (w *world) run(t *testing.T, d time.Duration) []string {
	t.Helper()
	w.published = nil
	for end := w.clock.Now() + d; w.clock.Now() < end; w.clock.Advance(time.Second) {
		if err := w.publisher.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return w.published
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestPublish(t *testing.T) {
	w := newWorld(t)
	want(t, "at first", w.run(t, time.Minute), "gpu0:100 gpu1:100 ")
	w.daemon.vms = []api.VM{{Name: "a", GPU: "gpu0", Weight: 10, MemoryLimitBytes: 1 << 30}, {Name: "b", GPU: "gpu1", Weight: 60, Engine: kubernetes.Engine}}
	want(t, "a guest that somebody made, and one of a claim", w.run(t, time.Minute), "gpu0:90 gpu1:100 ")
}

// TestGPUIsOut in the next round, which is within a second.
func TestGPUIsOut(t *testing.T) {
	for name, change := range map[string]func(*api.GPU){
		"sick":     func(g *api.GPU) { g.Healthy, g.Problem = false, "fell off" },
		"drained":  func(g *api.GPU) { g.Cordoned, g.Draining = true, true },
		"cordoned": func(g *api.GPU) { g.Cordoned = true },
	} {
		w := newWorld(t)
		w.run(t, time.Second)
		before := w.daemon.gpus[0]
		change(&w.daemon.gpus[0])
		want(t, name, w.run(t, time.Second), "gpu1:100 ")
		w.daemon.gpus[0] = before
		want(t, name+" no longer", w.run(t, time.Second), "gpu0:100 gpu1:100 ")
	}
}

func TestDaemonGone(t *testing.T) {
	w := newWorld(t)
	w.run(t, time.Second)
	w.daemon.err = errors.New("no daemon listens")
	want(t, "while the daemon restarts", w.run(t, 9*time.Second))
	want(t, "without a daemon", w.run(t, time.Minute), "")
	w.daemon.err = nil
	want(t, "with a daemon again", w.run(t, 2*time.Second), "gpu0:100 gpu1:100 ")
}

// TestLeastCapacity: the API server takes a step only if there is room for one above the least amount.
func TestLeastCapacity(t *testing.T) {
	for _, total := range []int64{1, 2, 100} {
		valid := capacityOf(total, 1, resource.DecimalSI).RequestPolicy.ValidRange
		if valid.Min.Value() != 1 || valid.Max.Value() != total || (valid.Step != nil) != (total > 1) {
			t.Errorf("of %d: %+v", total, valid)
		}
	}
}
