package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	core "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"sigs.k8s.io/yaml"
)

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

// manifest returns the content of one of the files of deploy/kubernetes.
func manifest(tb testing.TB, name string) []byte {
	tb.Helper()
	text, err := os.ReadFile("../../../deploy/kubernetes/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// apply has the API server take a file of deploy/kubernetes as it is, as kubectl apply --server-side does.
func (p *plane) apply(tb testing.TB, name string) {
	tb.Helper()
	groups, err := restmapper.GetAPIGroupResources(p.client.Discovery())
	if err != nil {
		tb.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	client, err := dynamic.NewForConfig(p.config)
	if err != nil {
		tb.Fatal(err)
	}
	documents := yamlutil.NewYAMLOrJSONDecoder(bytes.NewReader(manifest(tb, name)), 4<<10)
	for {
		var o unstructured.Unstructured
		if err := documents.Decode(&o); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			tb.Fatalf("%s: %v", name, err)
		}
		kind := o.GroupVersionKind()
		m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			tb.Fatalf("%s: %v", name, err)
		}
		var resources dynamic.ResourceInterface = client.Resource(m.Resource)
		if m.Scope.Name() == "namespace" {
			in := o.GetNamespace()
			if in == "" {
				in = namespace
			}
			resources = client.Resource(m.Resource).Namespace(in)
		}
		if _, err := resources.Apply(tb.Context(), o.GetName(), &o, meta.ApplyOptions{FieldManager: "test"}); err != nil {
			tb.Fatalf("%s: %s %s: %v", name, kind.Kind, o.GetName(), err)
		}
	}
}

// tenant is a pod with a claim.
type tenant struct {
	pod   *core.Pod
	claim *resourceapi.ResourceClaim
	// node and device are where it was placed, and took is what it has there. All are empty if it is not
	// placed.
	node, device string
	took         amounts
}

func (w *tenant) claims() []*drapb.Claim {
	return []*drapb.Claim{{Namespace: w.claim.Namespace, Name: w.claim.Name, Uid: string(w.claim.UID)}}
}

// order creates a claim for that much of a GPU, and a pod with it.
func (p *plane) order(tb testing.TB, name string, share int64, memory string) tenant {
	tb.Helper()
	c := new(resourceapi.ResourceClaim)
	if err := yaml.UnmarshalStrict(manifest(tb, "claim.yaml"), c); err != nil {
		tb.Fatal(err)
	}
	c.Name = name
	c.Spec.Devices.Requests[0].Exactly.Capacity.Requests = map[resourceapi.QualifiedName]resource.Quantity{
		"share": *resource.NewQuantity(share, resource.DecimalSI), "memory": *quantity(memory),
	}
	if _, err := p.client.ResourceV1().ResourceClaims(namespace).Create(tb.Context(), c, meta.CreateOptions{}); err != nil {
		tb.Fatal(err)
	}
	return p.orderWith(tb, name, name)
}

// orderWith creates a pod with a claim that is there.
func (p *plane) orderWith(tb testing.TB, name, claim string) tenant {
	tb.Helper()
	no := false
	pod, err := p.client.CoreV1().Pods(namespace).Create(tb.Context(), &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec: core.PodSpec{
			AutomountServiceAccountToken: &no,
			Containers:                   []core.Container{{Name: "vm", Image: "vm", Resources: core.ResourceRequirements{Claims: []core.ResourceClaim{{Name: "gpu"}}}}},
			ResourceClaims:               []core.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}},
		},
	}, meta.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	w := tenant{pod: pod}
	if w.claim, err = p.client.ResourceV1().ResourceClaims(namespace).Get(tb.Context(), claim, meta.GetOptions{}); err != nil {
		tb.Fatal(err)
	}
	return w
}

// settle waits until the scheduler has placed a pod, or said that it can't.
func (p *plane) settle(tb testing.TB, w tenant) tenant {
	tb.Helper()
	until(tb, "the scheduler's answer for pod "+w.pod.Name, func() (err error) {
		if w.pod, err = p.client.CoreV1().Pods(namespace).Get(tb.Context(), w.pod.Name, meta.GetOptions{}); err != nil {
			return err
		}
		for _, c := range w.pod.Status.Conditions {
			if c.Type == core.PodScheduled && (c.Status == core.ConditionTrue || c.Reason == core.PodReasonUnschedulable) {
				return nil
			}
		}
		return fmt.Errorf("its state is %+v", w.pod.Status)
	})
	return p.read(tb, w)
}

// read reads what a pod's claim has.
func (p *plane) read(tb testing.TB, w tenant) tenant {
	tb.Helper()
	c, err := p.client.ResourceV1().ResourceClaims(namespace).Get(tb.Context(), w.claim.Name, meta.GetOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	w.claim = c
	if w.node = w.pod.Spec.NodeName; w.node == "" {
		if c.Status.Allocation != nil {
			tb.Errorf("pod %s is placed nowhere, but its claim has %+v", w.pod.Name, c.Status.Allocation)
		}
		return w
	}
	if c.Status.Allocation == nil || len(c.Status.Allocation.Devices.Results) != 1 {
		tb.Fatalf("pod %s is on node %s, and its claim has %+v", w.pod.Name, w.node, c.Status.Allocation)
	}
	r := c.Status.Allocation.Devices.Results[0]
	if r.Driver != driverName || r.Pool != w.node {
		tb.Errorf("pod %s is on node %s with %+v", w.pod.Name, w.node, r)
	}
	share, memory := r.ConsumedCapacity["share"], r.ConsumedCapacity["memory"]
	w.device, w.took = r.Device, amounts{share.Value(), memory.Value() >> 20}
	return w
}

// place orders a pod, which must be placed with what it asks for.
func (p *plane) place(tb testing.TB, name string, share int64, memory string) tenant {
	tb.Helper()
	w := p.settle(tb, p.order(tb, name, share, memory))
	if want := (amounts{share, quantity(memory).Value() >> 20}); w.node == "" || w.took != want {
		tb.Fatalf("pod %s is on %q with %v, want %v: %+v", name, w.node, w.took, want, w.pod.Status.Conditions)
	}
	return w
}

// refuse orders a pod, for which there must be no room.
func (p *plane) refuse(tb testing.TB, name string, share int64, memory string) tenant {
	tb.Helper()
	w := p.settle(tb, p.order(tb, name, share, memory))
	if w.node != "" {
		tb.Fatalf("pod %s is on %s of node %s, want it nowhere", name, w.device, w.node)
	}
	return w
}

// awaitPlaced waits until a pod that there was no room for is placed.
func (p *plane) awaitPlaced(tb testing.TB, w tenant) tenant {
	tb.Helper()
	until(tb, "room for pod "+w.pod.Name, func() (err error) {
		if w.pod, err = p.client.CoreV1().Pods(namespace).Get(tb.Context(), w.pod.Name, meta.GetOptions{}); err == nil && w.pod.Spec.NodeName == "" {
			err = fmt.Errorf("its state is %+v", w.pod.Status.Conditions)
		}
		return err
	})
	return p.read(tb, w)
}

// remove deletes a pod, as the kubelet does when its containers have ended, and its claim.
func (p *plane) remove(tb testing.TB, w tenant) {
	tb.Helper()
	var now int64
	if err := errors.Join(
		p.client.CoreV1().Pods(namespace).Delete(tb.Context(), w.pod.Name, meta.DeleteOptions{GracePeriodSeconds: &now}),
		p.client.ResourceV1().ResourceClaims(namespace).Delete(tb.Context(), w.claim.Name, meta.DeleteOptions{}),
	); err != nil {
		tb.Fatal(err)
	}
	until(tb, "the end of claim "+w.claim.Name, func() error {
		_, err := p.client.ResourceV1().ResourceClaims(namespace).Get(tb.Context(), w.claim.Name, meta.GetOptions{})
		if err == nil {
			err = errors.New("it is there")
		}
		return ignoreNotFound(err)
	})
}
