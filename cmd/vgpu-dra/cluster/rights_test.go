package cluster

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// testRights checks that the driver's credential, with which all the other tests run, is good for nothing
// else than what the driver does.
func testRights(t *testing.T, p *plane) {
	for _, name := range []string{"node1", "node2"} {
		startNode(t, p, name, 1)
	}
	w := p.place(t, "pod", 25, "1Gi")
	node, err := p.client.CoreV1().Nodes().Get(t.Context(), "node1", meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(p.config)
	config.BearerToken = p.token(t, node)
	c, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, get, list := t.Context(), meta.GetOptions{}, meta.ListOptions{}
	if _, err := c.ResourceV1().ResourceClaims(namespace).Get(ctx, w.claim.Name, get); err != nil {
		t.Errorf("its node's claim: %v", err)
	}
	all, err := c.ResourceV1().ResourceSlices().List(ctx, list)
	if err != nil || len(all.Items) != 2 {
		t.Fatalf("the slices: %+v, %v", all, err)
	}
	slices := make(map[string]resourceapi.ResourceSlice)
	for _, s := range all.Items {
		slices[*s.Spec.NodeName] = s
	}
	// of returns a new slice of a node and a driver.
	of := func(node, driver string) *resourceapi.ResourceSlice {
		s := slices[node]
		return &resourceapi.ResourceSlice{ObjectMeta: meta.ObjectMeta{GenerateName: "x-"}, Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: s.Spec.Pool.Generation + 100, ResourceSliceCount: 1}, Devices: []resourceapi.Device{},
		}}
	}
	other := slices["node2"]
	for what, do := range map[string]func() error{
		"read pods":      func() error { _, err := c.CoreV1().Pods(namespace).List(ctx, list); return err },
		"read secrets":   func() error { _, err := c.CoreV1().Secrets(namespace).List(ctx, list); return err },
		"list nodes":     func() error { _, err := c.CoreV1().Nodes().List(ctx, list); return err },
		"write its node": func() error { _, err := c.CoreV1().Nodes().Update(ctx, node, meta.UpdateOptions{}); return err },
		"list claims":    func() error { _, err := c.ResourceV1().ResourceClaims(namespace).List(ctx, list); return err },
		"delete a claim": func() error {
			return c.ResourceV1().ResourceClaims(namespace).Delete(ctx, w.claim.Name, meta.DeleteOptions{})
		},
		"allocate a claim": func() error {
			_, err := c.ResourceV1().ResourceClaims(namespace).UpdateStatus(ctx, w.claim, meta.UpdateOptions{})
			return err
		},
		"write device classes": func() error { return c.ResourceV1().DeviceClasses().Delete(ctx, "vgpud", meta.DeleteOptions{}) },
		"create another node's slice": func() error {
			_, err := c.ResourceV1().ResourceSlices().Create(ctx, of("node2", driverName), meta.CreateOptions{})
			return err
		},
		"create another driver's slice": func() error {
			_, err := c.ResourceV1().ResourceSlices().Create(ctx, of("node1", "gpu.example.com"), meta.CreateOptions{})
			return err
		},
		"change another node's slice": func() error {
			s := other.DeepCopy()
			s.Spec.Devices = nil
			_, err := c.ResourceV1().ResourceSlices().Update(ctx, s, meta.UpdateOptions{})
			return err
		},
		"delete another node's slice": func() error { return c.ResourceV1().ResourceSlices().Delete(ctx, other.Name, meta.DeleteOptions{}) },
	} {
		if err := do(); !refused(err) {
			t.Errorf("with the driver's credential one can %s: %v", what, err)
		}
	}
}

// refused reports whether the API server did not let a request through, by RBAC or by the policy.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'vgpu-dra'")
}
