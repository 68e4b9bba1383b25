package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"vgpud/e2e/host"
)

// driverName is what vgpu-dra is called in Kubernetes.
const driverName = "vgpud.internal"

// gpuMemory is the memory of each soft GPU.
const gpuMemory = 8 << 30

// node is a node with a vgpud and a vgpu-dra that run.
type node struct {
	*plane
	name    string
	host    *host.Host
	dir     string // of the kubelet and of vgpu-dra
	program string
	metrics string // the address at which the driver serves them
	driver  *process
}

// startNode adds a node with so many GPUs, and waits until it offers them. It is removed with the test.
func startNode(tb testing.TB, p *plane, name string, gpus int) *node {
	tb.Helper()
	bin, err := host.Programs("vgpu-dra")
	if err != nil {
		tb.Fatal(err)
	}
	// Paths of sockets are short.
	dir, err := os.MkdirTemp("", "dra-")
	if err != nil {
		tb.Fatal(err)
	}
	n := &node{plane: p, name: name, dir: dir, program: filepath.Join(bin, "vgpu-dra"), metrics: freeAddress(tb)}
	tb.Cleanup(func() {
		n.forget(tb)
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	n.host = host.StartGPUs(tb, gpus, "dfq", "--memory-bytes", fmt.Sprint(gpuMemory))
	account := p.addNode(tb, name)
	if err := os.MkdirAll(filepath.Join(dir, "plugins_registry"), 0o700); err != nil { // the kubelet makes it
		tb.Fatal(err)
	}
	token := write(tb, filepath.Join(dir, "token"), "%s", p.token(tb, account))
	kubeconfig := p.kubeconfig(tb, filepath.Join(dir, "kubeconfig"), "tokenFile: "+token)
	write(tb, n.config(), "kubeconfig: %s\nnode: %s\nsocket: %s\nkubelet_dir: %s\ncdi_dir: %s\nmetrics: %s\n",
		kubeconfig, name, n.host.Config.Socket, dir, filepath.Join(dir, "cdi"), n.metrics)
	n.startDriver(tb)
	n.awaitOffer(tb, n.all(gpus))
	return n
}

func (n *node) config() string { return filepath.Join(n.dir, "kubernetes.yaml") }

// token returns a credential of the driver's service account for a node, as docs/other-engines.md has an
// administrator get one.
func (p *plane) token(tb testing.TB, n *core.Node) string {
	tb.Helper()
	day := int64((24 * time.Hour).Seconds())
	r, err := p.client.CoreV1().ServiceAccounts("kube-system").CreateToken(tb.Context(), "vgpu-dra", &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{
		ExpirationSeconds: &day, BoundObjectRef: &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: n.Name, UID: n.UID},
	}}, meta.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return r.Status.Token
}

// startDriver starts vgpu-dra, initially or after its end.
func (n *node) startDriver(tb testing.TB) {
	tb.Helper()
	n.driver = start(tb, n.dir, n.program, "serve", "--config", n.config())
}

// forget removes the node from the cluster, with what it offers and the test's pods and claims.
func (n *node) forget(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var now int64
	err := errors.Join(
		n.client.CoreV1().Pods(namespace).DeleteCollection(ctx, meta.DeleteOptions{GracePeriodSeconds: &now}, meta.ListOptions{}),
		n.client.ResourceV1().ResourceClaims(namespace).DeleteCollection(ctx, meta.DeleteOptions{}, meta.ListOptions{}),
		n.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, meta.DeleteOptions{}, meta.ListOptions{FieldSelector: "spec.nodeName=" + n.name}),
		ignoreNotFound(n.client.CoreV1().Nodes().Delete(ctx, n.name, meta.DeleteOptions{})),
	)
	if err != nil {
		tb.Errorf("remove node %s: %v", n.name, err)
	}
	until(tb, "the end of claims", func() error {
		l, err := n.client.ResourceV1().ResourceClaims(namespace).List(ctx, meta.ListOptions{})
		if err == nil && len(l.Items) > 0 {
			err = fmt.Errorf("there are %d", len(l.Items))
		}
		return err
	})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// amounts is what a device has, or what is taken of it.
type amounts struct{ share, memoryMiB int64 }

// all returns what a node with so many idle GPUs offers.
func (n *node) all(gpus int) map[string]amounts {
	offer := make(map[string]amounts)
	for i := range gpus {
		offer[fmt.Sprintf("gpu%d", i)] = amounts{100, gpuMemory >> 20}
	}
	return offer
}

// offer returns what the API server has of the node's devices.
func (n *node) offer(ctx context.Context) (map[string]amounts, error) {
	l, err := n.client.ResourceV1().ResourceSlices().List(ctx, meta.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
	if err != nil {
		return nil, err
	}
	offer := make(map[string]amounts)
	for _, s := range l.Items {
		if s.Spec.Driver != driverName {
			return nil, fmt.Errorf("slice %s is of %s", s.Name, s.Spec.Driver)
		}
		for _, d := range s.Spec.Devices {
			share, memory := d.Capacity["share"].Value, d.Capacity["memory"].Value
			offer[d.Name] = amounts{share.Value(), memory.Value() >> 20}
		}
	}
	return offer, nil
}

// awaitOffer waits until the node offers just that, and returns how long it took.
func (n *node) awaitOffer(tb testing.TB, want map[string]amounts) time.Duration {
	tb.Helper()
	began := time.Now()
	n.driver.await(tb, fmt.Sprintf("the offer %v of node %s", want, n.name), func() error {
		got, err := n.offer(tb.Context())
		if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
			err = fmt.Errorf("it offers %v", got)
		}
		return err
	})
	return time.Since(began)
}

// dial connects to one of the driver's sockets.
func (n *node) dial(tb testing.TB, path ...string) *grpc.ClientConn {
	tb.Helper()
	c, err := grpc.NewClient("unix://"+filepath.Join(append([]string{n.dir}, path...)...), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// register does as the kubelet does when it finds the driver.
func (n *node) register(ctx context.Context, tb testing.TB) {
	tb.Helper()
	c := n.dial(tb, "plugins_registry", driverName+"-reg.sock")
	defer func() { _ = c.Close() }() // nothing is pending
	client := registration.NewRegistrationClient(c)
	info, err := client.GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err == nil && (info.Type != registration.DRAPlugin || info.Name != driverName) {
		err = fmt.Errorf("it is %v", info)
	}
	if err == nil {
		_, err = client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true})
	}
	if err != nil {
		tb.Fatalf("the driver registers: %v", err)
	}
}

// kubelet calls f with a client of the driver, as the kubelet does.
func (n *node) kubelet(tb testing.TB, f func(drapb.DRAPluginClient) error) error {
	tb.Helper()
	c := n.dial(tb, "plugins", driverName, "dra.sock")
	defer func() { _ = c.Close() }() // nothing is pending
	return f(drapb.NewDRAPluginClient(c))
}

// prepare has the driver prepare a claim, and returns its devices' names for container runtimes.
func (n *node) prepare(ctx context.Context, tb testing.TB, w tenant, opts ...grpc.CallOption) (ids []string, err error) {
	tb.Helper()
	err = n.kubelet(tb, func(c drapb.DRAPluginClient) error {
		r, err := c.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: w.claims()}, opts...)
		if err != nil {
			return err
		}
		got := r.Claims[string(w.claim.UID)]
		if got == nil || got.Error != "" {
			return fmt.Errorf("prepare: %s", got.GetError())
		}
		for _, d := range got.Devices {
			if d.PoolName != n.name || d.DeviceName != w.device {
				return fmt.Errorf("prepared is %v, allocated is %s of %s", d, w.device, w.node)
			}
			ids = append(ids, d.CdiDeviceIds...)
		}
		return nil
	})
	return ids, err
}

// unprepare has the driver give back what a claim has.
func (n *node) unprepare(ctx context.Context, tb testing.TB, w tenant) error {
	tb.Helper()
	return n.kubelet(tb, func(c drapb.DRAPluginClient) error {
		r, err := c.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: w.claims()}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		if got := r.Claims[string(w.claim.UID)]; got == nil || got.Error != "" {
			return fmt.Errorf("unprepare: %s", got.GetError())
		}
		return nil
	})
}

// giveBack has the driver give back what a claim has, as often as it takes: the claim's VMM may have gone
// just now.
func (n *node) giveBack(tb testing.TB, w tenant) {
	tb.Helper()
	until(tb, "the end of what "+w.claim.Name+" has", func() error { return n.unprepare(tb.Context(), tb, w) })
}

// guests returns the names of the node's guests.
func (n *node) guests(tb testing.TB) string {
	tb.Helper()
	vms, err := n.host.Client.VMs(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, v := range vms {
		names = append(names, v.Name)
	}
	return strings.Join(names, " ")
}
