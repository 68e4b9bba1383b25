package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/clock"
	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
	"vgpud/mediator/nova"
	"vgpud/mediator/nova/placement"
	"vgpud/mediator/nova/placement/placementtest"
)

const (
	node     = "0c8bd1e8-7a4b-4a45-9d3b-4f4a1d2b3c4d"
	nextNode = "1c8bd1e8-7a4b-4a45-9d3b-4f4a1d2b3c4d"
	instance = "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"
)

// fakeDaemon is a daemon that says what a test wants.
type fakeDaemon struct {
	gpus []api.GPU
	vms  []api.VM
	err  error
}

func (d *fakeDaemon) GPUs(context.Context) ([]api.GPU, error) { return slices.Clone(d.gpus), d.err }

func (d *fakeDaemon) VMs(context.Context) ([]api.VM, error) { return slices.Clone(d.vms), d.err }

func gpus(names ...string) (all []api.GPU) {
	for _, name := range names {
		all = append(all, api.GPU{Name: name, Kind: "soft", Model: "Soft", MemoryBytes: 16 << 30, Healthy: true})
	}
	return all
}

// world is an agent between a daemon and a Placement, in simulated time.
type world struct {
	clock  clock.Sim
	daemon fakeDaemon
	server *placementtest.Server
	config placement.Config
	agent  *Agent
}

// newWorld returns a world whose Placement has the compute node.
func newWorld(dir string) *world {
	w := &world{server: placementtest.New()}
	w.server.AddProvider(nova.Provider{UUID: node, Name: "host1"})
	w.config = placement.Config{
		Endpoint: "http://placement", ComputeIDFile: filepath.Join(dir, "compute_id"), Host: "host1", StateDir: dir,
		Timeout: time.Second, Poll: time.Second, Heartbeat: time.Minute, DaemonGrace: 10 * time.Second,
	}
	w.daemon.gpus = gpus("gpu0", "gpu1")
	w.restart()
	return w
}

// restart has a new agent take over, as after a crash.
func (w *world) restart() {
	w.agent = New(Options{Config: w.config, Placement: placement.NewWith(w.config, w.server), Daemon: &w.daemon, Clock: &w.clock, Log: slog.New(slog.DiscardHandler), Machine: "m"})
}

// run passes time, in rounds of the agent.
func (w *world) run(d time.Duration) {
	for end := w.clock.Now() + d; w.clock.Now() < end; w.clock.Advance(w.config.Poll) {
		w.agent.Round(context.Background())
	}
}

// offered returns what Placement has of a GPU: what is left of shares and MiB.
func (w *world) offered(t interface{ Fatalf(string, ...any) }, parent, gpu string) [2]int {
	p, ok := w.server.Provider(nova.ProviderUUID(parent, gpu))
	if !ok {
		t.Fatalf("GPU %s has no provider; there are %+v", gpu, w.server.Providers())
	}
	share, memory := p.Inventories[nova.ClassShare], p.Inventories[nova.ClassMemory]
	return [2]int{share.Total - share.Reserved, memory.Total - memory.Reserved}
}

var all = [2]int{100, 16384}

func TestOneRequestAChange(t *testing.T) {
	w := newWorld(t.TempDir())
	w.run(2 * time.Second)
	if got := w.offered(t, node, "gpu1"); got != all || !w.agent.Status().InSync {
		t.Fatalf("offered %v, %+v", got, w.agent.Status())
	}
	w.server.TakeRequests()
	w.run(50 * time.Second)
	if got := w.server.TakeRequests(); len(got) != 0 {
		t.Errorf("without a change: %v", got)
	}
	w.daemon.vms = []api.VM{{Name: "a", GPU: "gpu0", Weight: 10, MemoryLimitBytes: 1 << 30}}
	w.run(time.Second)
	want := []string{"PUT /resource_providers/" + nova.ProviderUUID(node, "gpu0") + "/inventories"}
	if diff := cmp.Diff(want, w.server.TakeRequests()); diff != "" {
		t.Errorf("requests for a guest that somebody made (-want +got):\n%s", diff)
	}
	if got := w.offered(t, node, "gpu0"); got != [2]int{90, 15360} {
		t.Errorf("beside the guest %v are offered", got)
	}
	w.daemon.vms = append(w.daemon.vms, api.VM{Name: "n", GPU: "gpu0", Weight: 60, Engine: nova.EngineNova})
	w.run(5 * time.Second)
	if got := w.server.TakeRequests(); len(got) != 0 {
		t.Errorf("for an instance: %v", got)
	}
	w.run(10 * time.Minute)
	beats := w.server.TakeRequests()
	if len(beats) < 9 || len(beats) > 11 || slices.ContainsFunc(beats, func(r string) bool { return r != "GET /resource_providers" }) {
		t.Errorf("in ten minutes without a change: %v", beats)
	}
}

// TestSickGPUIsOutWithinFiveSeconds also when an instance was placed there a moment ago, so that the
// generation is another.
func TestSickGPUIsOutWithinFiveSeconds(t *testing.T) {
	for name, change := range map[string]func(*api.GPU){
		"sick":     func(g *api.GPU) { g.Healthy, g.Problem = false, "fell off" },
		"drained":  func(g *api.GPU) { g.Cordoned, g.Draining = true, true },
		"cordoned": func(g *api.GPU) { g.Cordoned = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t.TempDir())
			w.run(2 * time.Second)
			id := nova.ProviderUUID(node, "gpu0")
			w.server.Allocate(instance, id, map[string]int{nova.ClassShare: 60, nova.ClassMemory: 2048})
			change(&w.daemon.gpus[0])
			w.run(time.Second) // the very next round
			if w.server.Fits(id, map[string]int{nova.ClassShare: 1}) || w.offered(t, node, "gpu0") != [2]int{} {
				t.Errorf("still offered: %v", w.offered(t, node, "gpu0"))
			}
			if got := w.offered(t, node, "gpu1"); got != all {
				t.Errorf("the other GPU: %v", got)
			}
			w.daemon.gpus = gpus("gpu0", "gpu1")
			w.run(2 * time.Second)
			if got := w.offered(t, node, "gpu0"); got != all {
				t.Errorf("well again: %v", got)
			}
		})
	}
}

func TestDaemonGone(t *testing.T) {
	w := newWorld(t.TempDir())
	w.run(2 * time.Second)
	w.daemon.err = errors.New("no daemon listens")
	w.run(8 * time.Second)
	if got := w.offered(t, node, "gpu0"); got != all {
		t.Errorf("while the daemon restarts: %v", got)
	}
	w.run(5 * time.Minute)
	if got := w.offered(t, node, "gpu0"); got != [2]int{} || w.agent.Status().DaemonUp {
		t.Errorf("without a daemon: %v", got)
	}
	w.restart() // with no word of the daemon yet
	w.run(time.Minute)
	if got := w.offered(t, node, "gpu1"); got != [2]int{} {
		t.Errorf("a new agent without a daemon: %v", got)
	}
	w.daemon.err = nil
	w.run(2 * time.Second)
	if got := w.offered(t, node, "gpu0"); got != all {
		t.Errorf("with a daemon again: %v", got)
	}
}

func TestGPUIsTakenOut(t *testing.T) {
	w := newWorld(t.TempDir())
	w.run(2 * time.Second)
	id := nova.ProviderUUID(node, "gpu1")
	w.server.Allocate(instance, id, map[string]int{nova.ClassShare: 60})
	w.daemon.gpus = gpus("gpu0")
	w.run(2 * time.Second)
	if got := w.offered(t, node, "gpu1"); got != [2]int{} {
		t.Errorf("a GPU that is gone is offered: %v", got)
	}
	w.run(3 * time.Minute)
	if _, there := w.server.Provider(id); !there {
		t.Error("a provider with an allocation was deleted")
	}
	w.server.Allocate(instance, id, nil)
	w.run(2 * time.Minute)
	if _, there := w.server.Provider(id); there {
		t.Error("the provider stays")
	}
}

// TestHostRenamed: the providers get the new name, and keep what instances have there.
func TestHostRenamed(t *testing.T) {
	w := newWorld(t.TempDir())
	if err := os.WriteFile(w.config.ComputeIDFile, []byte(node+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run(2 * time.Second)
	w.server.Edit(node, func(p *nova.Provider) { p.Name = "host9" })
	w.run(2 * time.Minute)
	p, _ := w.server.Provider(nova.ProviderUUID(node, "gpu0"))
	if p.Name != "host9_vgpud_gpu0" || w.offered(t, node, "gpu0") != all {
		t.Errorf("after the host was renamed: %+v", p)
	}
}

// TestComputeNodeReplaced: the providers under the former compute node go when they are not in use,
// also if the agent restarted in between, but not if the agent's file came here with a copy of the
// disk.
func TestComputeNodeReplaced(t *testing.T) {
	for _, copied := range []bool{false, true} {
		dir := t.TempDir()
		w := newWorld(dir)
		w.config.ComputeNode = node
		w.restart()
		w.run(2 * time.Second)
		former := nova.ProviderUUID(node, "gpu0")
		w.server.Allocate(instance, former, map[string]int{nova.ClassShare: 60})
		w.server.AddProvider(nova.Provider{UUID: nextNode, Name: "host1-new"})
		w.config.ComputeNode = nextNode
		w.restart()
		if copied {
			w.agent.o.Machine = "another"
		}
		w.run(2 * time.Second)
		if got := w.offered(t, nextNode, "gpu0"); got != all {
			t.Errorf("under the new compute node: %v", got)
		}
		if copied {
			w.run(2 * time.Minute)
			if got := w.offered(t, node, "gpu0"); got != all {
				t.Errorf("a copy of the disk took another host's GPUs out: %v", got)
			}
			continue
		}
		if got := w.offered(t, node, "gpu0"); got != [2]int{} {
			t.Errorf("under the former one: %v", got)
		}
		if _, there := w.server.Provider(nova.ProviderUUID(node, "gpu1")); there {
			t.Error("what nobody uses stays under the former compute node")
		}
		w.server.Allocate(instance, former, nil)
		w.run(2 * time.Minute)
		if _, there := w.server.Provider(former); there {
			t.Error("what nobody uses any more stays under the former compute node")
		}
	}
}

// TestComputeNodeDeleted: Nova takes a compute service out with all beneath, and it comes back.
func TestComputeNodeDeleted(t *testing.T) {
	w := newWorld(t.TempDir())
	w.run(2 * time.Second)
	w.server.RemoveTree(node)
	w.run(2 * time.Minute)
	if st := w.agent.Status(); st.InSync || st.Err == nil || !strings.Contains(st.Err.Error(), "nova-compute") {
		t.Errorf("without a compute node: %+v", st)
	}
	w.server.AddProvider(nova.Provider{UUID: nextNode, Name: "host1"})
	w.run(time.Minute)
	if got := w.offered(t, nextNode, "gpu1"); got != all || !w.agent.Status().InSync {
		t.Errorf("after it came back: %v", got)
	}
}

// TestForeignProviders: whatever looks like ours and isn't stays as it is.
func TestForeignProviders(t *testing.T) {
	w := newWorld(t.TempDir())
	foreign := []nova.Provider{
		{UUID: "11111111-7a4b-4a45-9d3b-4f4a1d2b3c4d", Name: "host1_vgpud_gpu0", Parent: node, Generation: 3},
		{UUID: "21111111-7a4b-4a45-9d3b-4f4a1d2b3c4d", Name: "host1_vgpud_gpu7", Parent: node},
		{UUID: "31111111-7a4b-4a45-9d3b-4f4a1d2b3c4d", Name: "host1_pci_0000:00:02.0", Parent: node},
		{UUID: nextNode, Name: "host2"},
		{UUID: nova.ProviderUUID(nextNode, "gpu0"), Name: "host2_vgpud_gpu0", Parent: nextNode},
	}
	for i := range foreign {
		foreign[i].Inventories = map[string]nova.Inventory{nova.ClassShare: {Total: 100, MinUnit: 1, MaxUnit: 1, StepSize: 1, AllocationRatio: 1}}
		w.server.AddProvider(foreign[i])
	}
	w.run(3 * time.Minute)
	for _, want := range foreign {
		got, _ := w.server.Provider(want.UUID)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("provider %s (-before +after):\n%s", want.Name, diff)
		}
	}
	// The name is taken, so ours has a longer one.
	p, _ := w.server.Provider(nova.ProviderUUID(node, "gpu0"))
	if want := "host1_vgpud_gpu0_" + p.UUID[:8]; p.Name != want || w.offered(t, node, "gpu0") != all {
		t.Errorf("our provider is %+v, want %s", p, want)
	}
}

// TestUUIDTaken: a provider with our UUID elsewhere is an error that says so, and the other GPUs go on.
func TestUUIDTaken(t *testing.T) {
	w := newWorld(t.TempDir())
	w.server.AddProvider(nova.Provider{UUID: nova.ProviderUUID(node, "gpu0"), Name: "x"})
	w.run(time.Minute)
	if st := w.agent.Status(); st.InSync || st.Err == nil || !strings.Contains(st.Err.Error(), "remove it") {
		t.Errorf("%+v", st)
	}
	if got := w.offered(t, node, "gpu1"); got != all {
		t.Errorf("the other GPU: %v", got)
	}
	w.server.TakeRequests()
	w.run(10 * time.Minute)
	if n := len(w.server.TakeRequests()); n > 300 {
		t.Errorf("%d requests in ten minutes for what can't succeed", n)
	}
}

// TestEndlessConflict: somebody who changes a provider before each of our requests is not fought
// without end.
func TestEndlessConflict(t *testing.T) {
	w := newWorld(t.TempDir())
	w.run(2 * time.Second)
	id := nova.ProviderUUID(node, "gpu0")
	w.server.SetBefore(func(r *http.Request) {
		if r.Method == "PUT" {
			w.server.Edit(id, func(*nova.Provider) {})
		}
	})
	w.server.TakeRequests()
	w.daemon.gpus[0].Cordoned = true
	w.run(time.Second)
	if n := len(w.server.TakeRequests()); n > 4*maxTries {
		t.Errorf("%d requests", n)
	}
	if st := w.agent.Status(); st.InSync || st.Err == nil {
		t.Errorf("%+v", st)
	}
	w.server.SetBefore(nil)
	w.run(time.Minute)
	if got := w.offered(t, node, "gpu0"); got != [2]int{} {
		t.Errorf("after it ended: %v", got)
	}
}

func TestWithdraw(t *testing.T) {
	w := newWorld(t.TempDir())
	w.run(2 * time.Second)
	w.server.Allocate(instance, nova.ProviderUUID(node, "gpu1"), map[string]int{nova.ClassShare: 60})
	w.restart()
	left, err := w.agent.Withdraw(t.Context())
	if err != nil || len(left) != 1 || left[0].Name != "host1_vgpud_gpu1" || w.offered(t, node, "gpu1") != [2]int{} {
		t.Errorf("Withdraw: %+v, %v", left, err)
	}
}

// TestPlacementFollows is the agent's promise: whatever happens on the host and in Placement, and
// wherever requests are lost or the agent is killed, Placement has what the host offers soon after,
// and no provider but ours was written to.
func TestPlacementFollows(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		d := filepath.Join(dir, fmt.Sprint(n))
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		w := newWorld(d)
		foreign := nova.Provider{UUID: nova.ProviderUUID(nextNode, "gpu0"), Name: "host1_vgpud_gpu0", Parent: node, Inventories: map[string]nova.Inventory{}}
		w.server.AddProvider(foreign)
		name := rapid.SampledFrom([]string{"gpu0", "gpu1", "gpu2"})
		used := make(map[string]bool)
		t.Repeat(map[string]func(*rapid.T){
			"GPU changes": func(t *rapid.T) {
				if len(w.daemon.gpus) == 0 {
					return
				}
				g := &w.daemon.gpus[rapid.IntRange(0, len(w.daemon.gpus)-1).Draw(t, "which")]
				g.Healthy, g.Cordoned, g.EventKernels = rapid.Bool().Draw(t, "healthy"), rapid.Bool().Draw(t, "cordoned"), rapid.Bool().Draw(t, "event kernels")
			},
			"GPU comes or goes": func(t *rapid.T) {
				g := name.Draw(t, "gpu")
				if i := slices.IndexFunc(w.daemon.gpus, func(x api.GPU) bool { return x.Name == g }); i >= 0 {
					w.daemon.gpus = slices.Delete(w.daemon.gpus, i, i+1)
				} else {
					w.daemon.gpus = append(w.daemon.gpus, gpus(g)...)
				}
			},
			"guest comes": func(t *rapid.T) {
				w.daemon.vms = append(w.daemon.vms, api.VM{GPU: name.Draw(t, "gpu"), Weight: 7, MemoryLimitBytes: 1 << 30, Engine: rapid.SampledFrom([]string{"", "nova"}).Draw(t, "engine")})
			},
			"guests go": func(*rapid.T) { w.daemon.vms = nil },
			"allocation": func(t *rapid.T) {
				id := nova.ProviderUUID(node, name.Draw(t, "gpu"))
				if used[id] = !used[id]; used[id] {
					w.server.Allocate(instance, id, map[string]int{nova.ClassShare: 10})
				} else {
					w.server.Allocate(instance, id, nil)
				}
			},
			"somebody writes": func(t *rapid.T) {
				w.server.DeclareTrait("CUSTOM_GOLD")
				g := name.Draw(t, "gpu")
				w.server.Edit(nova.ProviderUUID(node, g), func(p *nova.Provider) {
					p.Traits, p.Name = []string{"CUSTOM_GOLD"}, rapid.SampledFrom([]string{p.Name, "x_vgpud_" + g}).Draw(t, "name")
				})
			},
			"requests are lost": func(t *rapid.T) {
				nth, after := rapid.IntRange(0, 6).Draw(t, "after"), rapid.Bool().Draw(t, "only the answer")
				status := rapid.SampledFrom([]int{500, 503, 401, 409, 404}).Draw(t, "status")
				w.server.SetFault(func(*http.Request) *placementtest.Fault {
					if nth--; nth < 0 {
						if status == 500 {
							return &placementtest.Fault{Err: errors.New("connection reset"), After: after}
						}
						return &placementtest.Fault{Status: status, After: after && status != 409 && status != 404}
					}
					return nil
				})
			},
			"requests arrive": func(*rapid.T) { w.server.SetFault(nil) },
			"restart":         func(*rapid.T) { w.restart() },
			"killed": func(t *rapid.T) {
				ctx, cancel := context.WithCancel(context.Background())
				nth := rapid.IntRange(0, 6).Draw(t, "after")
				w.server.SetBefore(func(*http.Request) {
					if nth--; nth < 0 {
						cancel()
					}
				})
				w.agent.Round(ctx)
				w.server.SetBefore(nil)
				cancel()
				w.restart()
			},
			"time": func(t *rapid.T) { w.run(time.Duration(rapid.IntRange(1, 70).Draw(t, "seconds")) * time.Second) },
			"": func(t *rapid.T) {
				got, _ := w.server.Provider(foreign.UUID)
				if diff := cmp.Diff(foreign, got); diff != "" {
					t.Fatalf("another's provider (-before +after):\n%s", diff)
				}
			},
		})
		w.server.SetFault(nil)
		w.run(3 * time.Minute) // two heartbeats, and the longest backoff
		offers := nova.Offers(w.daemon.gpus, w.daemon.vms, capacity.Keep{})
		if st := w.agent.Status(); !st.InSync || st.Err != nil {
			t.Fatalf("not in sync: %v", st.Err)
		}
		for _, o := range offers {
			p, ok := w.server.Provider(nova.ProviderUUID(node, o.GPU))
			s := nova.State{Own: map[string]nova.Provider{p.UUID: p}}
			if plan := nova.Plan(nova.Host{Node: node, Name: "host1"}, []nova.Offer{o}, &s, false); !ok || len(plan) != 0 {
				t.Fatalf("%v, but Placement has %+v", o, p)
			}
		}
		for _, p := range w.server.Providers() {
			gpu, own := nova.OwnGPU(p)
			if !own || slices.ContainsFunc(offers, func(o nova.Offer) bool { return o.GPU == gpu }) {
				continue
			}
			if i := p.Inventories[nova.ClassShare]; !used[p.UUID] || i.Reserved != i.Total {
				t.Fatalf("a GPU that is not there: %+v, in use %v", p, used[p.UUID])
			}
		}
	})
}
