package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	core "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"vgpud/mediator/kubernetes"
)

// TestServe has the driver between a daemon and an API server in memory, and a kubelet's gRPC client.
func TestServe(t *testing.T) {
	dir, err := os.MkdirTemp("", "vgpu-dra-") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}()
	if err := os.MkdirAll(filepath.Join(dir, "plugins_registry"), 0o700); err != nil {
		t.Fatal(err)
	}
	node := "node1"
	client := fake.NewClientset(&core.Node{ObjectMeta: meta.ObjectMeta{Name: node, UID: "u"}}, claim(kubernetes.Driver, "gpu1", "25", "2Gi"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // ends a failed test only
	defer cancel()
	changes, err := client.ResourceV1().ResourceSlices().Watch(ctx, meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()

	d := newDaemon()
	c := config{Node: node, KubeletDir: dir, CDIDir: filepath.Join(dir, "cdi"), Poll: 10 * time.Millisecond}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- serve(serving, c, client, d, slog.New(slog.DiscardHandler)) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	var generation int64
	// published waits until our slice has the devices, in a generation after the last one.
	published := func(want string) {
		t.Helper()
		for {
			select {
			case e := <-changes.ResultChan():
				s, ok := e.Object.(*resourceapi.ResourceSlice)
				if !ok || s.Spec.Driver != kubernetes.Driver {
					t.Fatalf("what changed is %+v", e)
				}
				var names []string
				for _, d := range s.Spec.Devices {
					names = append(names, d.Name)
				}
				if strings.Join(names, " ") != want {
					continue
				}
				if s.Spec.Pool.Generation <= generation || *s.Spec.NodeName != node || s.Spec.Pool.Name != node || len(s.OwnerReferences) != 1 {
					t.Errorf("the slice is %+v, after generation %d", s, generation)
				}
				generation = s.Spec.Pool.Generation
				return
			case <-ctx.Done():
				t.Fatalf("the devices %q are not published", want)
			}
		}
	}
	published("gpu0 gpu1")
	// Only the driver's own slices are read, so others' are never written to. The API server in memory
	// doesn't filter.
	for _, a := range client.Actions() {
		l, ok := a.(kubetesting.ListAction)
		if !ok || a.GetResource().Resource != "resourceslices" {
			continue
		}
		if f := l.GetListRestrictions().Fields; !exactly(f, "spec.driver", kubernetes.Driver) || !exactly(f, "spec.nodeName", node) {
			t.Errorf("the slices that are asked for: %v", f)
		}
	}
	d.cordon(0, true)
	published("gpu1")
	d.cordon(0, false)
	published("gpu0 gpu1")

	dial := func(path ...string) *grpc.ClientConn {
		conn, err := grpc.NewClient("unix://"+filepath.Join(append([]string{dir}, path...)...), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	registry := dial("plugins_registry", kubernetes.Driver+"-reg.sock")
	defer func() { _ = registry.Close() }() // the test ends
	found, err := registration.NewRegistrationClient(registry).GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || found.Type != registration.DRAPlugin || found.Name != kubernetes.Driver || !strings.HasPrefix(found.Endpoint, dir) {
		t.Fatalf("the driver registers as %v, %v", found, err)
	}
	driver := dial("plugins", kubernetes.Driver, "dra.sock")
	defer func() { _ = driver.Close() }()
	kubelet := drapb.NewDRAPluginClient(driver)
	claims := []*drapb.Claim{{Namespace: "team", Name: "c", Uid: claimUID}}
	prepared, err := kubelet.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: claims}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if got := prepared.Claims[claimUID]; got.GetError() != "" || len(got.GetDevices()) != 1 || got.Devices[0].DeviceName != "gpu1" || len(got.Devices[0].CdiDeviceIds) != 1 {
		t.Fatalf("prepared: %v", prepared)
	}
	if vms, err := d.VMs(ctx); err != nil || len(vms) != 1 || vms[0].GPU != "gpu1" || vms[0].Guarantee != 0.25 || vms[0].Project != "team" {
		t.Errorf("the daemon has %+v, %v", vms, err)
	}
	gone, err := kubelet.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	if err != nil || gone.Claims[claimUID].GetError() != "" {
		t.Fatalf("unprepared: %v, %v", gone, err)
	}
	if vms, err := d.VMs(ctx); err != nil || len(vms) != 0 {
		t.Errorf("the daemon still has %+v, %v", vms, err)
	}
}

func (d *fakeDaemon) cordon(gpu int, yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gpus[gpu].Cordoned = yes
}

// exactly reports whether a selector wants that value of a field.
func exactly(s fields.Selector, field, want string) bool {
	got, ok := s.RequiresExactMatch(field)
	return ok && got == want
}
