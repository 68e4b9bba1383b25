package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"vgpud/cmd/vgpud/workload"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
)

// socketOf returns the host's path of the socket that a container gets, as the container runtime finds it
// out.
func (n *node) socketOf(tb testing.TB, id string) string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(n.dir, "cdi", "*.json"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		var spec cdi.Spec
		if err := json.Unmarshal(b, &spec); err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		for _, d := range spec.Devices {
			if spec.Kind+"="+d.Name == id {
				return d.ContainerEdits.Mounts[0].HostPath
			}
		}
	}
	tb.Fatalf("container runtimes find no device %s", id)
	return ""
}

// compute has a guest at a socket run kernels, whose results must be right, and returns the memory that
// it sees of its GPU. In the end the guest's VMM is gone.
func compute(ctx context.Context, tb testing.TB, socket string) (memory uint64) {
	tb.Helper()
	var bus driver.Bus
	until(tb, "a connection to "+socket, func() (err error) { // the VMM before may have gone just now
		bus, err = driver.DialVFIOUser(ctx, socket)
		return err
	})
	dev, err := driver.Open(ctx, bus)
	if err != nil {
		tb.Fatal(err)
	}
	memory, err = run(ctx, dev)
	if err := errors.Join(err, dev.Close()); err != nil {
		tb.Fatalf("a guest computes: %v", err)
	}
	return memory
}

// run runs kernels in a context, and returns the memory that it sees.
func run(ctx context.Context, dev *driver.Device) (memory uint64, err error) {
	gpu, err := dev.NewContext(ctx, driver.ContextOptions{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, gpu.Close()) }()
	k, ok := corpus.ByName("scan")
	if !ok {
		return 0, errors.New("the corpus has no scan")
	}
	load, err := workload.NewLoad(ctx, gpu, k.PTX(corpus.SM80), k.Case(corpus.Trivial, 1))
	if err != nil {
		return 0, err
	}
	if err := load.Run(ctx, gpu.Own()); err != nil {
		return 0, err
	}
	_, memory, err = gpu.MemInfo(ctx)
	return memory, err
}

// testPrepare has pods come to a node and go.
func testPrepare(t *testing.T, p *plane) {
	n := startNode(t, p, "node1", 1)
	n.register(t.Context(), t)
	for _, want := range []struct {
		name   string
		share  int64
		memory string
	}{{"small", 25, "1Gi"}, {"large", 75, "2Gi"}} {
		w := p.place(t, want.name, want.share, want.memory)
		ids, err := n.prepare(t.Context(), t, w)
		if err != nil || len(ids) != 1 {
			t.Fatalf("%s: prepared %v, %v", want.name, ids, err)
		}
		v := n.host.VM("claim-" + string(w.claim.UID) + "-0")
		if v.GPU != w.device || v.Weight != float64(want.share) || v.Guarantee != float64(want.share)/100 || v.Engine != "kubernetes" ||
			v.Project != namespace || int64(v.MemoryLimitBytes) != quantity(want.memory).Value() {
			t.Errorf("%s: the virtual GPU is %+v", want.name, v)
		}
		if memory := compute(t.Context(), t, n.socketOf(t, ids[0])); memory != v.MemoryLimitBytes {
			t.Errorf("%s: the guest sees %d bytes, want %d", want.name, memory, v.MemoryLimitBytes)
		}
		// Kubernetes itself accounts for the parts that claims have: the offer stays as it is.
		n.awaitOffer(t, n.all(1))
		defer func() {
			n.giveBack(t, w)
			p.remove(t, w)
			if left := n.guests(t); strings.Contains(left, string(w.claim.UID)) {
				t.Errorf("the guests are still %s", left)
			}
		}()
	}
	// A claim that nobody allocated, and one whose UID is another's.
	idle := p.refuse(t, "idle", 50, "1Gi")
	if _, err := n.prepare(t.Context(), t, idle); err == nil || !strings.Contains(err.Error(), "not allocated") {
		t.Errorf("a claim that is not allocated: %v", err)
	}
	idle.claim.UID = "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"
	if _, err := n.prepare(t.Context(), t, idle); err == nil {
		t.Error("a claim of another UID is prepared")
	}
	if guests := strings.Fields(n.guests(t)); len(guests) != 2 {
		t.Errorf("the guests are %v, want two", guests)
	}
}

// testKills kills the driver and vgpud, at rest and in the middle of a claim's preparation. Nothing is
// lost or left.
func testKills(t *testing.T, p *plane) {
	n := startNode(t, p, "node1", 1)
	w := p.place(t, "lasting", 30, "1Gi")
	ids, err := n.prepare(t.Context(), t, w, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	before := n.host.VM("claim-" + string(w.claim.UID) + "-0")
	// same checks that the claim has what it had, and that its guest computes.
	same := func(after string) {
		t.Helper()
		again, err := n.prepare(t.Context(), t, w, grpc.WaitForReady(true))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(ids) {
			t.Fatalf("after %s: prepared %v, %v, want %v", after, again, err, ids)
		}
		v := n.host.VM(before.Name)
		if v.PID != before.PID || v.Socket != before.Socket || v.GPU != before.GPU || v.Weight != before.Weight || v.Guarantee != before.Guarantee {
			t.Errorf("after %s: the virtual GPU is %+v, was %+v", after, v, before)
		}
		compute(t.Context(), t, n.socketOf(t, ids[0]))
		n.awaitOffer(t, n.all(1))
	}

	n.driver.kill(t)
	// Without the driver what was published stays, and the scheduler goes on.
	if offer, err := n.offer(t.Context()); err != nil || fmt.Sprint(offer) != fmt.Sprint(n.all(1)) {
		t.Errorf("without the driver the offer is %v, %v", offer, err)
	}
	meanwhile := p.place(t, "meanwhile", 30, "1Gi")
	n.startDriver(t)
	same("the driver's death")
	if _, err := n.prepare(t.Context(), t, meanwhile); err != nil {
		t.Errorf("a pod that came without the driver: %v", err)
	}

	if err := n.host.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	late := p.place(t, "late", 30, "1Gi")
	if _, err := n.prepare(t.Context(), t, late); err == nil {
		t.Error("a claim is prepared without vgpud")
	}
	n.host.StartDaemon()
	same("vgpud's death")
	if _, err := n.prepare(t.Context(), t, late); err != nil {
		t.Errorf("with vgpud again: %v", err)
	}

	// In the middle: whether the request or the kill comes first is left to chance.
	for i := range 6 {
		name, kill := "the driver", func() { n.driver.kill(t); n.startDriver(t) }
		if i%2 == 1 {
			name, kill = "vgpud", func() {
				if err := n.host.Daemon.Kill(); err != nil {
					t.Fatal(err)
				}
				n.host.StartDaemon()
			}
		}
		brief := p.place(t, fmt.Sprintf("brief-%d", i), 10, "1Gi")
		asked := make(chan error, 1)
		go func() {
			_, err := n.prepare(t.Context(), t, brief)
			asked <- err
		}()
		kill()
		t.Logf("killing %s in the middle: prepare ended with %v", name, <-asked)
		if _, err := n.prepare(t.Context(), t, brief, grpc.WaitForReady(true)); err != nil {
			t.Fatalf("after the kill of %s: %v", name, err)
		}
		asked = make(chan error, 1)
		go func() { asked <- n.unprepare(t.Context(), t, brief) }()
		kill()
		t.Logf("killing %s in the middle: unprepare ended with %v", name, <-asked)
		n.giveBack(t, brief)
		p.remove(t, brief)
	}
	same("all kills")
	for _, w := range []tenant{w, meanwhile, late} {
		n.giveBack(t, w)
	}
	left, err := filepath.Glob(filepath.Join(n.dir, "cdi", "*"))
	if guests := n.guests(t); err != nil || guests != "" || len(left) != 0 {
		t.Errorf("left behind: guests %q, files %v, %v", guests, left, err)
	}
}
