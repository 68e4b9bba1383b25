package systemd

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/cmd/vgpud/workload"
	"vgpud/vfio/qemu"
)

// guest is a guest's program beside the socket of its virtual GPU, which computes and checks what
// it computed until it is ended. mu guards report and err.
type guest struct {
	p    *qemu.Process
	news chan struct{} // has a value after each report
	done chan struct{} // closed at the program's end

	mu     sync.Mutex
	report workload.Report
	err    error
}

// compute starts a guest on the virtual GPU of this name, which exists.
func (m *machine) compute(t *testing.T, name string) *guest {
	t.Helper()
	plan, err := json.Marshal(workload.Plan{
		Name: name, Socket: "/run/vgpud/vms/" + name + "/vfio-user.sock", Workers: 2, Channels: 2, Seed: 1,
		Work: []workload.Work{{Kernel: "vecadd", Size: "trivial", Repeat: 8}, {Kernel: "nnlayer", Size: "trivial", Repeat: 4}},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{news: make(chan struct{}, 1), done: make(chan struct{})}
	if g.p, err = m.vm.Run(context.Background(), qemu.Command{Args: []string{guestProgram}, Stdin: plan}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(g.done)
		for line := range g.p.Lines() {
			g.add(line)
		}
		err := g.p.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.err = err
	}()
	return g
}

func (g *guest) add(line string) {
	var r workload.Report
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		r.Error = line
	}
	g.mu.Lock()
	g.report = r
	g.mu.Unlock()
	select {
	case g.news <- struct{}{}:
	default:
	}
}

// goesOn waits for results that were computed and checked after the call.
func (g *guest) goesOn(t *testing.T) {
	t.Helper()
	over := time.After(limit)
	for first, goal := true, uint64(0); ; {
		g.mu.Lock()
		r := g.report
		g.mu.Unlock()
		if r.Wrong > 0 || r.Error != "" {
			t.Fatalf("%d of %d results are wrong: %s", r.Wrong, r.Cases, r.Error)
		}
		if first {
			// As many were perhaps under way before.
			first, goal = false, r.Cases+4
		}
		if r.Cases >= goal {
			return
		}
		select {
		case <-g.news:
		case <-g.done:
			t.Fatalf("the guest has ended after %d results: %v", r.Cases, g.err)
		case <-over:
			t.Fatalf("%d results after %v, want %d", r.Cases, limit, goal)
		}
	}
}

// end ends the guest, which must succeed.
func (g *guest) end(t *testing.T) {
	t.Helper()
	if err := g.p.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-g.done
	if g.err != nil {
		t.Fatal(g.err)
	}
}
