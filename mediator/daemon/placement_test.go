package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vgpud/mediator/api"
)

func TestPlace(t *testing.T) {
	const gib = 1 << 30
	whole := func(name string) capacity { return capacity{name: name, healthy: true, memory: 8 * gib} }
	for name, c := range map[string]struct {
		gpus      []capacity
		memory    uint64
		guarantee float64
		want      string
		why       []string
	}{
		"first by name": {gpus: []capacity{whole("b"), whole("a"), whole("c")}, want: "a"},
		"least weight":  {gpus: []capacity{{name: "a", healthy: true, weights: 3}, {name: "b", healthy: true, weights: 2.5}}, want: "b"},
		"enough memory": {
			gpus:   []capacity{{name: "a", healthy: true, memory: 8 * gib, limits: 6 * gib}, {name: "b", healthy: true, memory: 4 * gib, weights: 9}},
			memory: 4 * gib, want: "b",
		},
		"just enough":            {gpus: []capacity{{name: "a", healthy: true, memory: 8 * gib, limits: 4 * gib}}, memory: 4 * gib, want: "a"},
		"more than it could be":  {gpus: []capacity{whole("a")}, memory: 1<<64 - 1, why: []string{"a has 8589934592 of 8589934592 bytes"}},
		"promised more than all": {gpus: []capacity{{name: "a", healthy: true, memory: gib, limits: 2 * gib}}, memory: 1, why: []string{"a has 0 of 1073741824 bytes"}},
		"no limit is asked for":  {gpus: []capacity{{name: "a", healthy: true, memory: gib, limits: gib}}, want: "a"},
		"memory is not known":    {gpus: []capacity{{name: "a", healthy: true, limits: gib}}, memory: gib, want: "a"},
		"room for the guarantee": {
			gpus:      []capacity{{name: "a", healthy: true, guarantees: 0.8}, {name: "b", healthy: true, guarantees: 0.7, weights: 9}},
			guarantee: 0.3, want: "b",
		},
		"decimals add up": {gpus: []capacity{{name: "a", healthy: true, guarantees: 0.1 + 0.2}}, guarantee: 0.7, want: "a"},
		"only what is well": {
			gpus: []capacity{{name: "a"}, {name: "b", healthy: true, weights: 9}}, want: "b",
		},
		"nowhere": {
			gpus:   []capacity{{name: "a"}, {name: "b", healthy: true, memory: gib}, {name: "c", healthy: true, guarantees: 0.75}},
			memory: 2 * gib, guarantee: 0.5, why: []string{"a is not healthy", "b has 1073741824 of 1073741824 bytes", "c has 0.25 of its time left"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := place(c.gpus, c.memory, c.guarantee)
			if got != c.want || (err == nil) != (c.why == nil) || err != nil && !errors.Is(err, api.ErrNoRoom) {
				t.Fatalf("got %q, %v; want %q", got, err, c.want)
			}
			for _, w := range c.why {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v: does not say %q", err, w)
				}
			}
		})
	}
}

// TestPlaceProperties: guests that are placed one after the other never have more of a GPU than it
// has, and a guest is refused only if no GPU has room for it.
func TestPlaceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := make([]capacity, rapid.IntRange(1, 4).Draw(t, "GPUs"))
		for i := range gpus {
			gpus[i] = capacity{name: string(rune('a' + i)), healthy: true, memory: uint64(rapid.IntRange(1, 100).Draw(t, "memory"))}
		}
		for range rapid.IntRange(1, 30).Draw(t, "guests") {
			memory := uint64(rapid.IntRange(0, 50).Draw(t, "limit"))
			guarantee := float64(rapid.IntRange(0, 60).Draw(t, "guarantee")) / 100
			name, err := place(gpus, memory, guarantee)
			for i := range gpus {
				r := &gpus[i]
				fits := r.limits+memory <= r.memory && r.guarantees+guarantee <= 1+tolerance
				switch {
				case err != nil && fits:
					t.Fatalf("refused (%v), though %s has room", err, r.name)
				case err == nil && r.name == name:
					if !fits {
						t.Fatalf("placed on %s, which has no room: %+v", name, *r)
					}
					r.limits += memory
					r.guarantees += guarantee
					r.weights++
				}
			}
		}
	})
}

// TestCreationsAtOnce: guests that are created at the same time never have more of a GPU than it
// has, nor one name or socket.
func TestCreationsAtOnce(t *testing.T) {
	d := startDaemon(t, runDir(t))
	const tries = 12
	type outcome struct {
		name string
		err  error
	}
	outcomes := make(chan outcome, tries)
	for i := range tries {
		// Each name comes twice; the first six specifications share sockets in pairs.
		spec := api.VMSpec{Name: fmt.Sprintf("g%d", i%8), BAR2Bytes: 16 << 20, Guarantee: 0.3}
		if i < 6 {
			spec.Socket = d.domainSocket(someUUID, fmt.Sprintf("gpu%d.sock", i/2))
		}
		go func() {
			_, err := d.client.CreateVM(t.Context(), spec)
			outcomes <- outcome{spec.Name, err}
		}()
	}
	made := 0
	for range tries {
		o := <-outcomes
		switch {
		case o.err == nil:
			made++
		case !errors.Is(o.err, api.ErrExists) && !errors.Is(o.err, api.ErrNoRoom):
			t.Errorf("%s: %v", o.name, o.err)
		}
	}
	vms, err := d.client.VMs(t.Context())
	if err != nil || len(vms) != made || made != 3 {
		t.Errorf("%d made, want 3; there are %d, %v", made, len(vms), err)
	}
	sockets := make(map[string]bool)
	for _, v := range vms {
		if sockets[v.Socket] {
			t.Errorf("two guests at %s", v.Socket)
		}
		sockets[v.Socket] = true
		newJob(t, attach(t, v.Socket)).works()
		if err := d.client.ForceDeleteVM(t.Context(), v.Name); err != nil {
			t.Error(err)
		}
	}
	absent(t, filepath.Join(d.config.RunDir, "domains", someUUID))
	if n := len(d.service.pending); n > 0 {
		t.Errorf("%d are pending for good", n)
	}
}
