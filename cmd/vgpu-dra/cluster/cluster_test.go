package cluster

import (
	"fmt"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vgpud/mediator/api"
)

// TestCluster has everything with one control plane. "-run TestCluster/Kills" chooses.
func TestCluster(t *testing.T) {
	p := startPlane(t)
	for _, name := range []string{"rbac.yaml", "deviceclass.yaml"} {
		p.apply(t, name)
	}
	for _, test := range []struct {
		name string
		do   func(*testing.T, *plane)
	}{
		{"Schedule", testSchedule}, {"Offer", testOffer}, {"Least", testLeast}, {"Out", testOut},
		{"Prepare", testPrepare}, {"Kills", testKills}, {"Rights", testRights}, {"Doctor", testDoctor},
	} {
		t.Run(test.name, func(t *testing.T) { test.do(t, p) })
	}
}

// testSchedule has pods with 25, 50 and 60 shares on two nodes of two GPUs.
func testSchedule(t *testing.T, p *plane) {
	for _, name := range []string{"node1", "node2"} {
		startNode(t, p, name, 2)
	}
	// The example as it is.
	p.apply(t, "claim.yaml")
	quarter := p.settle(t, p.orderWith(t, "quarter", "quarter"))
	if want := (amounts{25, 2048}); quarter.took != want {
		t.Fatalf("the claim of claim.yaml has %v on %q, want %v", quarter.took, quarter.node, want)
	}
	p.remove(t, quarter)

	var sixties []tenant
	on := make(map[string]string)
	for i := range 4 {
		w := p.place(t, fmt.Sprintf("sixty-%d", i), 60, "2Gi")
		if other, ok := on[w.node+" "+w.device]; ok {
			t.Errorf("%s and %s are both on %s of %s", other, w.pod.Name, w.device, w.node)
		}
		on[w.node+" "+w.device] = w.pod.Name
		sixties = append(sixties, w)
	}
	fifth := p.refuse(t, "sixty-4", 60, "2Gi")
	fifty := p.refuse(t, "fifty", 50, "2Gi")
	for i := range 4 {
		p.place(t, fmt.Sprintf("quarter-%d", i), 25, "2Gi")
	}
	p.remove(t, p.refuse(t, "quarter-4", 25, "2Gi"))
	// There are 15 shares and 4 GiB left on each GPU: more memory than any has, though little time. All
	// nodes together would have both.
	p.remove(t, p.refuse(t, "wide", 15, "5Gi"))
	p.place(t, "rest", 15, "4Gi")
	p.checkSums(t)

	// A claim that waits gets the room that another leaves, and no other.
	p.remove(t, fifty)
	p.remove(t, sixties[2])
	if fifth = p.awaitPlaced(t, fifth); fifth.node != sixties[2].node || fifth.device != sixties[2].device {
		t.Errorf("the fifth is on %s of %s, want %s of %s", fifth.device, fifth.node, sixties[2].device, sixties[2].node)
	}
	p.checkSums(t)
}

// checkSums checks that no GPU is sold beyond what it has.
func (p *plane) checkSums(t *testing.T) {
	t.Helper()
	l, err := p.client.ResourceV1().ResourceClaims(namespace).List(t.Context(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]amounts)
	for _, c := range l.Items {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			at := r.Pool + " " + r.Device
			share, memory := r.ConsumedCapacity["share"], r.ConsumedCapacity["memory"]
			sums[at] = amounts{sums[at].share + share.Value(), sums[at].memoryMiB + memory.Value()>>20}
		}
	}
	if len(sums) == 0 {
		t.Error("nothing is allocated")
	}
	for at, s := range sums {
		if s.share > 100 || s.memoryMiB > gpuMemory>>20 {
			t.Errorf("of %s, %v is given away", at, s)
		}
	}
}

// promised is how long the cluster may take to know that a GPU gives nothing.
const promised = 5 * time.Second

// testOffer checks that what a node offers is what vgpud has left.
func testOffer(t *testing.T, p *plane) {
	n := startNode(t, p, "node1", 2)
	slices, err := p.client.ResourceV1().ResourceSlices().List(t.Context(), meta.ListOptions{})
	if err != nil || len(slices.Items) != 1 {
		t.Fatalf("slices: %+v, %v", slices, err)
	}
	checkSlice(t, &slices.Items[0], n)

	// Guests that somebody made on the host.
	n.host.NewVM(api.VMSpec{Name: "local", GPU: "gpu0", Weight: 30, MemoryLimitBytes: 1 << 30})
	n.host.NewVM(api.VMSpec{Name: "sure", GPU: "gpu1", Weight: 1, Guarantee: 0.5, MemoryLimitBytes: 3 << 30})
	took := n.awaitOffer(t, map[string]amounts{"gpu0": {70, 7168}, "gpu1": {50, 5120}})
	t.Logf("what two local guests took is out of the offer after %v", took)
	waits := p.refuse(t, "eighty", 80, "2Gi")
	if w := p.place(t, "sixty", 60, "2Gi"); w.device != "gpu0" {
		t.Errorf("60 shares are given of %s, want gpu0", w.device)
	}
	if w := p.place(t, "memory", 10, "5Gi"); w.device != "gpu0" && w.device != "gpu1" || w.node != n.name {
		t.Errorf("10 shares and 5 GiB are given of %q", w.device)
	}
	// The offer keeps the parts that claims were given, and gets back those that are free again.
	for _, name := range []string{"local", "sure"} {
		if err := n.host.Client.DeleteVM(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	n.awaitOffer(t, n.all(2))
	if w := p.awaitPlaced(t, waits); w.device != "gpu1" {
		t.Errorf("80 shares are given of %s, want gpu1", w.device)
	}
	p.checkSums(t)
}

// testLeast has guests leave the least amounts that there are, and one more.
func testLeast(t *testing.T, p *plane) {
	n := startNode(t, p, "node1", 2)
	n.host.NewVM(api.VMSpec{Name: "time", GPU: "gpu0", Weight: 99, MemoryLimitBytes: 1 << 30})
	n.host.NewVM(api.VMSpec{Name: "memory", GPU: "gpu1", Weight: 98, MemoryLimitBytes: gpuMemory - 1<<20})
	n.awaitOffer(t, map[string]amounts{"gpu0": {1, 7168}, "gpu1": {2, 1}})
	p.refuse(t, "more", 2, "2Mi")
	for name, memory := range map[string]string{"gpu0": "7168Mi", "gpu1": "1Mi"} {
		if w := p.place(t, name, 1, memory); w.device != name {
			t.Errorf("1 share and %s are given of %s, want %s", memory, w.device, name)
		}
	}
	n.host.NewVM(api.VMSpec{Name: "rest", GPU: "gpu0", Weight: 1, MemoryLimitBytes: 1 << 20})
	n.awaitOffer(t, map[string]amounts{"gpu1": {2, 1}})
}

// checkSlice compares a slice with what the daemon tells of its GPUs.
func checkSlice(t *testing.T, s *resourceapi.ResourceSlice, n *node) {
	t.Helper()
	if s.Spec.NodeName == nil || *s.Spec.NodeName != n.name || s.Spec.Pool.Name != n.name || len(s.OwnerReferences) != 1 || s.OwnerReferences[0].Name != n.name {
		t.Errorf("the slice is %+v", s)
	}
	gpus, err := n.host.Client.GPUs(t.Context())
	if err != nil || len(gpus) != len(s.Spec.Devices) {
		t.Fatalf("%d GPUs, %d devices: %v", len(gpus), len(s.Spec.Devices), err)
	}
	for i, g := range gpus {
		d := s.Spec.Devices[i]
		share, memory := d.Capacity["share"].Value, d.Capacity["memory"].Value
		if d.Name != g.Name || share.Value() != 100 || memory.Value() != int64(g.MemoryBytes) || g.MemoryBytes != gpuMemory {
			t.Errorf("the device is %+v, the GPU %+v", d, g)
		}
		a := d.Attributes
		if d.AllowMultipleAllocations == nil || !*d.AllowMultipleAllocations || *a["kind"].StringValue != g.Kind || *a["model"].StringValue != g.Model ||
			*a["gpu"].StringValue != g.Name || *a["eventKernels"].BoolValue != g.EventKernels || *a["preemption"].BoolValue != g.ByKernel {
			t.Errorf("the device is %+v, the GPU %+v", d, g)
		}
	}
}

// testOut checks that a GPU that is drained, or sick, gets nothing new within five seconds, and that what
// it has stays.
func testOut(t *testing.T, p *plane) {
	n := startNode(t, p, "node1", 2)
	first := p.place(t, "first", 60, "2Gi")
	second := p.place(t, "second", 60, "2Gi")
	if first.device == second.device {
		t.Fatalf("both are on %s", first.device)
	}
	out := func(gpu string) map[string]amounts {
		offer := n.all(2)
		delete(offer, gpu)
		return offer
	}
	within := func(what string, took time.Duration) {
		t.Helper()
		t.Logf("%s: published after %v", what, took)
		if took > promised {
			t.Errorf("%s: published after %v, want %v", what, took, promised)
		}
	}
	yes, no := true, false
	set := func(gpu string, u api.GPUUpdate) {
		t.Helper()
		if _, err := n.host.Client.UpdateGPU(t.Context(), gpu, u); err != nil {
			t.Fatal(err)
		}
	}

	// Only the drained GPU has room for 80.
	p.remove(t, first)
	set(first.device, api.GPUUpdate{Draining: &yes})
	within("drained", n.awaitOffer(t, out(first.device)))
	waits := p.refuse(t, "eighty", 80, "2Gi")
	if w := p.place(t, "forty", 40, "2Gi"); w.device != second.device {
		t.Errorf("40 shares are given of %s, want %s", w.device, second.device)
	}
	set(first.device, api.GPUUpdate{Cordoned: &no})
	within("no longer drained", n.awaitOffer(t, n.all(2)))
	if waits = p.awaitPlaced(t, waits); waits.device != first.device {
		t.Errorf("80 shares are given of %s, want %s", waits.device, first.device)
	}

	// gpu0 loses its process, which is as if it fell off its bus. The others' claims stay as they are.
	on := map[string]tenant{first.device: waits, second.device: second}["gpu0"]
	p.remove(t, on)
	if err := n.host.GPU.Kill(); err != nil {
		t.Fatal(err)
	}
	n.host.Until("the daemon's word that gpu0 is sick", func() error {
		gpus, err := n.host.Client.GPUs(t.Context())
		if err == nil && gpus[0].Healthy {
			err = fmt.Errorf("it is %+v", gpus[0])
		}
		return err
	})
	within("sick", n.awaitOffer(t, out("gpu0")))
	ninety := p.refuse(t, "ninety", on.took.share, "2Gi")
	n.host.StartGPU("--memory-bytes", fmt.Sprint(gpuMemory))
	n.awaitOffer(t, n.all(2))
	if w := p.awaitPlaced(t, ninety); w.device != "gpu0" {
		t.Errorf("the shares are given of %s, want gpu0", w.device)
	}
	p.checkSums(t)
}
