package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
	"vgpud/mediator/nova"
	"vgpud/mediator/nova/reservation"
)

// guest returns a request for a guest on gpu0 that takes so many shares and a GiB.
func guest(name string, shares float64) reservation.Request {
	return reservation.Request{Guest: name, GPU: "gpu0", Weight: shares, MemoryLimitBytes: 1 << 30}
}

func TestReserve(t *testing.T) {
	w := newWorld(t.TempDir())
	id := nova.ProviderUUID(node, "gpu0")
	if err := w.agent.Reserve(t.Context(), guest("early", 1)); err == nil || errors.Is(err, reservation.ErrSold) {
		t.Errorf("before Placement was reached: %v", err)
	}
	w.run(2 * time.Second)
	w.server.Allocate(instance, id, map[string]int{nova.ClassShare: 60, nova.ClassMemory: 2048})
	if err := w.agent.Reserve(t.Context(), guest("large", 41)); !errors.Is(err, reservation.ErrSold) || !strings.Contains(err.Error(), "60 of 100 shares") {
		t.Errorf("more than what is left: %v", err)
	}
	all := reservation.Request{Guest: "all", GPU: "gpu0", Weight: 1}
	if err := w.agent.Reserve(t.Context(), all); !errors.Is(err, reservation.ErrSold) || !strings.Contains(err.Error(), "MiB") {
		t.Errorf("a guest without a memory limit beside an instance: %v", err)
	}
	if err := w.agent.Reserve(t.Context(), reservation.Request{Guest: "x", GPU: "gpu9", Weight: 1}); err == nil {
		t.Error("a GPU that there is not")
	}
	if got := w.offered(t, node, "gpu0"); got != [2]int{100, 16384} {
		t.Errorf("after refusals %v are offered", got)
	}
	// A grant is reserved before the answer.
	if err := w.agent.Reserve(t.Context(), guest("fits", 40)); err != nil {
		t.Fatal(err)
	}
	if w.server.Fits(id, map[string]int{nova.ClassShare: 1}) {
		t.Error("an instance still gets what was given to a guest")
	}
	// It stays so when the daemon shows the guest, without another request,
	w.server.TakeRequests()
	w.run(5 * time.Second)
	w.daemon.vms = []api.VM{{Name: "fits", GPU: "gpu0", Weight: 40, MemoryLimitBytes: 1 << 30}}
	w.run(40 * time.Second)
	if got := w.server.TakeRequests(); len(got) != 0 {
		t.Errorf("requests after that: %v", got)
	}
	// and a guest that takes more than it has is asked for likewise.
	if err := w.agent.Reserve(t.Context(), guest("fits", 41)); !errors.Is(err, reservation.ErrSold) {
		t.Errorf("a guest that is to weigh more: %v", err)
	}
	w.server.Allocate(instance, id, nil)
	if err := w.agent.Reserve(t.Context(), guest("fits", 90)); err != nil {
		t.Error(err)
	}
	if got := w.offered(t, node, "gpu0"); got != [2]int{10, 15360} {
		t.Errorf("before the daemon shows the change %v are offered", got)
	}
	w.run(2 * time.Minute) // it never does
	if got := w.offered(t, node, "gpu0"); got != [2]int{60, 15360} {
		t.Errorf("of a change that was never made %v are offered", got)
	}
}

// TestReserveRaces: an instance that is placed between the question what is sold and the reservation
// has the part, and the guest does not.
func TestReserveRaces(t *testing.T) {
	w := newWorld(t.TempDir())
	w.run(2 * time.Second)
	id := nova.ProviderUUID(node, "gpu0")
	w.server.SetBefore(func(r *http.Request) {
		if r.Method == "PUT" && w.server.Fits(id, map[string]int{nova.ClassShare: 60}) {
			w.server.Allocate(instance, id, map[string]int{nova.ClassShare: 60})
		}
	})
	if err := w.agent.Reserve(t.Context(), guest("late", 50)); !errors.Is(err, reservation.ErrSold) {
		t.Errorf("%v, want that it is sold", err)
	}
	if err := w.agent.Reserve(t.Context(), guest("fits", 40)); err != nil {
		t.Error(err)
	}
}

// TestNothingIsSoldTwice: however instances and guests come and go, what Placement promised and what
// guests were given is not more than the GPU.
func TestNothingIsSoldTwice(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		d := filepath.Join(dir, fmt.Sprint(n))
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		w := newWorld(d)
		w.run(2 * time.Second)
		id := nova.ProviderUUID(node, "gpu0")
		instances := make(map[string]int)
		given := make(map[string]api.VM) // also those that the daemon is still making
		arrive := func(t *rapid.T, label string) {
			want := rapid.IntRange(1, 60).Draw(t, label)
			if name := fmt.Sprintf("%08d%s", len(instances), instance[8:]); w.server.Fits(id, map[string]int{nova.ClassShare: want}) {
				w.server.Allocate(name, id, map[string]int{nova.ClassShare: want})
				instances[name] = want
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"instance": func(t *rapid.T) { arrive(t, "share") },
			"instance goes": func(t *rapid.T) {
				for name := range instances {
					w.server.Allocate(name, id, nil)
					delete(instances, name)
					return
				}
			},
			"guest": func(t *rapid.T) {
				r := guest(fmt.Sprint("g", rapid.IntRange(0, 3).Draw(t, "name")), float64(rapid.IntRange(1, 60).Draw(t, "weight")))
				race := rapid.Bool().Draw(t, "race")
				w.server.SetBefore(func(q *http.Request) {
					if race && q.Method == "PUT" {
						race = false
						arrive(t, "raced share")
					}
				})
				err := w.agent.Reserve(t.Context(), r)
				w.server.SetBefore(nil)
				if err == nil {
					given[r.Guest] = api.VM{Name: r.Guest, GPU: r.GPU, Weight: r.Weight, MemoryLimitBytes: r.MemoryLimitBytes}
				}
			},
			"guests are there": func(t *rapid.T) {
				w.daemon.vms = nil
				for _, v := range given {
					w.daemon.vms = append(w.daemon.vms, v)
				}
				w.run(time.Duration(rapid.IntRange(1, 3).Draw(t, "seconds")) * time.Second)
			},
			"guest goes": func(t *rapid.T) {
				name := fmt.Sprint("g", rapid.IntRange(0, 3).Draw(t, "name"))
				i := slices.IndexFunc(w.daemon.vms, func(v api.VM) bool { return v.Name == name })
				if i >= 0 && w.daemon.vms[i].Weight == given[name].Weight {
					delete(given, name)
					w.daemon.vms = slices.Delete(w.daemon.vms, i, i+1)
					w.run(time.Second)
				}
			},
			"": func(t *rapid.T) {
				sold, local := 0, 0
				for _, share := range instances {
					sold += share
				}
				for _, v := range given {
					local += int(v.Weight)
				}
				// Guests alone may weigh more than a hundred: that is the daemon's affair.
				if sold+min(local, capacity.Shares) > capacity.Shares {
					t.Fatalf("instances have %v, guests %v", instances, given)
				}
			},
		})
	})
}
