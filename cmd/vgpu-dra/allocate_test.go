package main

import (
	"fmt"
	"os"
	"testing"

	core "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"sigs.k8s.io/yaml"

	"vgpud/mediator/capacity"
	"vgpud/mediator/kubernetes"
)

// manifest decodes one of the files of deploy/kubernetes.
func manifest[T any](t *testing.T, name string) *T {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/" + name)
	if err != nil {
		t.Fatal(err)
	}
	v := new(T)
	if err := yaml.UnmarshalStrict(text, v); err != nil {
		t.Fatal(err)
	}
	return v
}

// classes has our device class alone.
type classes struct{ vgpud *resourceapi.DeviceClass }

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{c.vgpud}, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if name != c.vgpud.Name {
		return nil, fmt.Errorf("device class %q", name)
	}
	return c.vgpud, nil
}

// scheduler allocates claims as kube-scheduler does, by its own allocator, which is a library.
type scheduler struct {
	slices []*resourceapi.ResourceSlice
	state  structured.AllocatedState
}

// allocate returns the device of which a claim of so many shares and 2 GiB is allocated; "" if there
// is none.
func (s *scheduler) allocate(t *testing.T, shares int64) string {
	t.Helper()
	a, err := structured.NewAllocator(t.Context(), structured.Features{ConsumableCapacity: true}, s.state,
		classes{manifest[resourceapi.DeviceClass](t, "deviceclass.yaml")}, s.slices, cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		t.Fatal(err)
	}
	c := manifest[resourceapi.ResourceClaim](t, "claim.yaml")
	exactly := c.Spec.Devices.Requests[0].Exactly
	exactly.AllocationMode, exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1 // the API server's defaults
	exactly.Capacity.Requests[kubernetes.CapacityShare] = *resource.NewQuantity(shares, resource.DecimalSI)
	found, err := a.Allocate(t.Context(), &core.Node{ObjectMeta: meta.ObjectMeta{Name: "node1"}}, []*resourceapi.ResourceClaim{c})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		return ""
	}
	r := found[0].Devices.Results[0]
	share, memory := r.ConsumedCapacity[kubernetes.CapacityShare], r.ConsumedCapacity[kubernetes.CapacityMemory]
	if len(found[0].Devices.Results) != 1 || share.Value() != shares || memory.String() != "2Gi" {
		t.Errorf("for %d shares and 2Gi: %+v", shares, found)
	}
	id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
	s.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
	s.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	return r.Device
}

// publish has the scheduler see what a daemon offers.
func (s *scheduler) publish(d *fakeDaemon) {
	devices, _ := kubernetes.Devices(d.gpus, capacity.Offers(d.gpus, d.vms, kubernetes.Engine, capacity.Keep{}))
	node := "node1"
	s.slices = []*resourceapi.ResourceSlice{{
		ObjectMeta: meta.ObjectMeta{Name: "a"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: kubernetes.Driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: slice(devices).Devices,
		},
	}}
}

// TestAllocator has claims of 25, 50 and 60 shares on two GPUs.
func TestAllocator(t *testing.T) {
	s := scheduler{state: structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}}
	d := newDaemon()
	s.publish(d)
	for n, step := range []struct {
		shares int64
		want   string
	}{{60, "gpu0"}, {60, "gpu1"}, {60, ""}, {50, ""}, {25, "gpu0"}, {101, ""}} {
		if got := s.allocate(t, step.shares); got != step.want {
			t.Errorf("claim %d, of %d shares: device %q, want %q", n, step.shares, got, step.want)
		}
	}
	// A cordoned GPU gets nothing new, and has its room again afterwards.
	d.gpus[1].Cordoned = true
	s.publish(d)
	if got := s.allocate(t, 25); got != "" {
		t.Errorf("only a cordoned GPU had room, and %q was given", got)
	}
	d.gpus[1].Cordoned = false
	s.publish(d)
	if got := s.allocate(t, 25); got != "gpu1" {
		t.Errorf("then %q was given", got)
	}
}
