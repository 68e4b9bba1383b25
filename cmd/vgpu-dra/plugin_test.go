package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"vgpud/mediator/kubernetes"
)

const claimUID = "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"

// claim returns a claim that the scheduler has given a part of a device.
func claim(driver, device, share, memory string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{}
	c.Name, c.Namespace, c.UID = "c", "team", claimUID
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
		Request: "gpu", Driver: driver, Pool: "node1", Device: device,
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
			kubernetes.CapacityShare: resource.MustParse(share), kubernetes.CapacityMemory: resource.MustParse(memory),
		},
	}}}}
	return c
}

func newPlugin(t *testing.T) (*plugin, *fakeDaemon) {
	t.Helper()
	d := newDaemon()
	return &plugin{
		config: config{Node: "node1", CDIDir: filepath.Join(t.TempDir(), "cdi")}, daemon: d, log: slog.New(slog.DiscardHandler), counts: newCounts(prometheus.NewRegistry()),
	}, d
}

func (p *plugin) prepareOne(t *testing.T, c *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	t.Helper()
	results, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{c})
	if err != nil {
		t.Fatal(err)
	}
	return results[claimUID]
}

func TestPrepare(t *testing.T) {
	p, d := newPlugin(t)
	want := kubeletplugin.PrepareResult{Devices: []kubeletplugin.Device{{
		Requests: []string{"gpu"}, PoolName: "node1", DeviceName: "gpu1", CDIDeviceIDs: []string{"vgpud.internal/vgpu=" + claimUID + "-0"},
	}}}
	// The kubelet asks again after its restart, and gets what there is.
	for range 2 {
		if diff := cmp.Diff(want, p.prepareOne(t, claim(kubernetes.Driver, "gpu1", "25", "2Gi"))); diff != "" {
			t.Fatalf("prepare (-want +got):\n%s", diff)
		}
	}
	if len(d.vms) != 1 || d.vms[0].GPU != "gpu1" || d.vms[0].Weight != 25 || d.vms[0].MemoryLimitBytes != 2<<30 {
		t.Fatalf("the daemon has %+v", d.vms)
	}
	b, err := os.ReadFile(cdiFile(p.config.CDIDir, claimUID))
	if err != nil {
		t.Fatal(err)
	}
	var spec cdi.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		t.Fatal(err)
	}
	if got := spec.Devices[0].ContainerEdits.Mounts[0]; spec.Kind != "vgpud.internal/vgpu" || got.HostPath != d.vms[0].Socket || got.ContainerPath != "/run/vgpud/vgpu0.sock" {
		t.Errorf("container runtimes are told %s", b)
	}
	// Another's claim is not unprepared with it, and twice is as good as once.
	for _, uid := range []types.UID{"5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c1f", claimUID, claimUID} {
		had := len(d.vms)
		errs, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: uid}})
		if err != nil || errs[uid] != nil {
			t.Fatal(err, errs)
		}
		if uid != claimUID && len(d.vms) != had {
			t.Error("another's guest was deleted")
		}
	}
	left, err := os.ReadDir(p.config.CDIDir)
	if err != nil || len(left) != 0 || len(d.vms) != 0 {
		t.Errorf("left behind: %v, %v, %+v", left, err, d.vms)
	}
}

func TestPrepareRefused(t *testing.T) {
	for name, c := range map[string]*resourceapi.ResourceClaim{
		"unknown device":  claim(kubernetes.Driver, "gpu7", "25", "2Gi"),
		"too much":        claim(kubernetes.Driver, "gpu0", "101", "2Gi"),
		"less than a MiB": claim(kubernetes.Driver, "gpu0", "25", "1"),
	} {
		p, d := newPlugin(t)
		if r := p.prepareOne(t, c); !errors.Is(r.Err, kubernetes.ErrNotGranted) || len(d.vms) != 0 {
			t.Errorf("%s: %+v, %+v", name, r, d.vms)
		}
	}
	// Another driver's devices are passed over.
	p, d := newPlugin(t)
	if r := p.prepareOne(t, claim("gpu.example.com", "gpu0", "25", "2Gi")); r.Err != nil || len(r.Devices) != 0 || len(d.vms) != 0 {
		t.Errorf("another driver's device: %+v, %+v", r, d.vms)
	}
}

// TestPrepareChanged has a guest of the claim's name that is not what the claim was given.
func TestPrepareChanged(t *testing.T) {
	p, _ := newPlugin(t)
	if r := p.prepareOne(t, claim(kubernetes.Driver, "gpu0", "25", "2Gi")); r.Err != nil {
		t.Fatal(r.Err)
	}
	if r := p.prepareOne(t, claim(kubernetes.Driver, "gpu0", "50", "2Gi")); !errors.Is(r.Err, kubernetes.ErrNotGranted) {
		t.Errorf("%+v", r)
	}
}
