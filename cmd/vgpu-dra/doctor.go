package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	authorization "k8s.io/api/authorization/v1"
	resourceapi "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"vgpud/cmd/internal/ability"
	"vgpud/cmd/internal/checks"
	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
	"vgpud/mediator/kubernetes"
)

// errNotReady is the result of `doctor` if pods can't have GPUs here. The table has said why.
var errNotReady = errors.New("pods can't have GPUs here yet: see the entries marked needed above")

func newDoctor(path *string) *cobra.Command {
	return checks.NewCommand(checks.Doctor{
		Short: "Check what is between this node, vgpud and the cluster, and say what to do",
		Long: `Check the configuration, vgpud, the API server, the credential's rights, the kubelet's directory,
the driver's service, and what the cluster has of each GPU. It changes nothing. The exit status is 1
if something is missing without which pods can't have GPUs here.`,
		Examine:  func(ctx context.Context) []ability.Ability { return examine(ctx, *path) },
		NotReady: errNotReady,
	})
}

// examine checks one thing after the other, as long as the next can be checked.
func examine(ctx context.Context, path string) []ability.Ability {
	c, err := readConfig(path)
	if err != nil {
		return []ability.Ability{checks.Needed(ability.Missing("configuration", err.Error(), "see docs/other-engines.md"))}
	}
	all := []ability.Ability{checks.Needed(ability.Available("configuration", "node %s", c.Node))}
	d := api.NewClientBy(c.Socket, "`socket` in "+path)
	defer d.Close()
	health, err := d.Health(ctx)
	if err != nil {
		return append(all, checks.Needed(ability.Missing("vgpud", err.Error(), "systemctl start vgpud")))
	}
	all = append(all, checks.Needed(ability.Available("vgpud", "version %s", health.Version)))
	client, err := connect(c)
	if err != nil {
		return append(all, checks.Needed(ability.Missing("API server", err.Error(), "name a kubeconfig in "+path)))
	}
	all = append(all, cluster(ctx, c, client)...)
	all = append(all, runs(ctx, c))
	return append(all, published(ctx, c, client, d)...)
}

// cluster checks the API server, and what the credential is good for.
func cluster(ctx context.Context, c config, client clientset.Interface) (all []ability.Ability) {
	v, err := client.Discovery().ServerVersion()
	if err != nil {
		return []ability.Ability{checks.Needed(ability.Missing("API server", err.Error(), ""))}
	}
	all = append(all, checks.Needed(ability.Available("API server", "version %s", v.GitVersion)))
	if _, err := client.CoreV1().Nodes().Get(ctx, c.Node, meta.GetOptions{}); err != nil {
		all = append(all, checks.Needed(ability.Missing("node", err.Error(), "set node in the configuration to this node's name in the cluster")))
	} else {
		all = append(all, checks.Needed(ability.Available("node", "%s", c.Node)))
	}
	all = append(all, checks.Needed(rights(ctx, client)))
	return append(all, checks.Needed(slicesTaken(ctx, c, client)))
}

// rights asks the API server for each of the driver's rights.
func rights(ctx context.Context, client clientset.Interface) ability.Ability {
	const group = "resource.k8s.io"
	var lacks []string
	for _, r := range []authorization.ResourceAttributes{
		{Resource: "nodes", Verb: "get"}, {Group: group, Resource: "resourceclaims", Verb: "get"},
		{Group: group, Resource: "resourceslices", Verb: "list"}, {Group: group, Resource: "resourceslices", Verb: "watch"},
		{Group: group, Resource: "resourceslices", Verb: "create"}, {Group: group, Resource: "resourceslices", Verb: "update"},
		{Group: group, Resource: "resourceslices", Verb: "delete"},
	} {
		review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &r}}
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, meta.CreateOptions{})
		if err != nil {
			return ability.Missing("rights", err.Error(), "")
		}
		if !answer.Status.Allowed {
			lacks = append(lacks, r.Verb+" "+r.Resource)
		}
	}
	if len(lacks) > 0 {
		return ability.Missing("rights", "the credential may not "+strings.Join(lacks, ", "), "kubectl apply -f deploy/kubernetes/rbac.yaml")
	}
	return ability.Available("rights", "all that are needed")
}

// slicesTaken has the API server look at a slice without keeping it: an admission policy may refuse it, and
// a server that shares no devices leaves out what it doesn't know.
func slicesTaken(ctx context.Context, c config, client clientset.Interface) ability.Ability {
	const name = "shared devices"
	s := &resourceapi.ResourceSlice{ObjectMeta: meta.ObjectMeta{GenerateName: c.Node + "-vgpu-doctor-"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: kubernetes.Driver, NodeName: &c.Node, Pool: resourceapi.ResourcePool{Name: c.Node, ResourceSliceCount: 1},
		Devices: slice([]kubernetes.Device{{Name: "doctor", GPU: "doctor", Kind: "soft", Model: "none", Share: capacity.Shares, MemoryMiB: 1024}}).Devices,
	}}
	got, err := client.ResourceV1().ResourceSlices().Create(ctx, s, meta.CreateOptions{DryRun: []string{meta.DryRunAll}})
	switch {
	case err != nil:
		return ability.Missing(name, "the API server takes no slice of this node: "+err.Error(), "bind the credential to this node, as docs/other-engines.md says")
	case len(got.Spec.Devices) != 1 || got.Spec.Devices[0].AllowMultipleAllocations == nil:
		return ability.Missing(name, "the API server knows none", "switch on the feature gate DRAConsumableCapacity in the API server and the scheduler, or upgrade to Kubernetes 1.36")
	}
	return ability.Available(name, "the API server takes a slice of this node")
}

// runs checks that the driver's service answers on the socket by which the kubelet finds it.
func runs(ctx context.Context, c config) ability.Ability {
	socket := filepath.Join(c.registryDir(), kubernetes.Driver+"-reg.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return checks.Needed(ability.Missing("driver", err.Error(), ""))
	}
	defer func() { _ = conn.Close() }() // nothing is pending
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if _, err := registration.NewRegistrationClient(conn).GetInfo(ctx, &registration.InfoRequest{}); err != nil {
		return checks.Needed(ability.Missing("driver", err.Error(), "systemctl start vgpu-dra; its log says what keeps it from that. Without "+c.registryDir()+" no kubelet runs here"))
	}
	return checks.Needed(ability.Available("driver", "answers at %s", socket))
}

// published compares what the cluster has of each GPU with what vgpud says.
func published(ctx context.Context, c config, client clientset.Interface, d *api.Client) (all []ability.Ability) {
	gpus, err := d.GPUs(ctx)
	if err != nil {
		return []ability.Ability{ability.Undetermined("offer", err.Error(), "")}
	}
	vms, err := d.VMs(ctx)
	if err != nil {
		return []ability.Ability{ability.Undetermined("offer", err.Error(), "")}
	}
	l, err := client.ResourceV1().ResourceSlices().List(ctx, meta.ListOptions{FieldSelector: "spec.driver=" + kubernetes.Driver + ",spec.nodeName=" + c.Node})
	if err != nil {
		return []ability.Ability{ability.Undetermined("offer", err.Error(), "")}
	}
	has := make(map[string]capacityPair)
	for _, s := range l.Items {
		for _, d := range s.Spec.Devices {
			share, memory := d.Capacity[kubernetes.CapacityShare].Value, d.Capacity[kubernetes.CapacityMemory].Value
			has[d.Name] = capacityPair{int(share.Value()), int(memory.Value() / mib)}
		}
	}
	devices, left := kubernetes.Devices(gpus, capacity.Offers(gpus, vms, kubernetes.Engine, c.keep()))
	for _, d := range devices {
		all = append(all, checks.OfGPU(d.GPU, offered(has[d.Name], capacityPair{d.Share, d.MemoryMiB}, "")))
		delete(has, d.Name)
	}
	for _, o := range left {
		name := kubernetes.DeviceName(o.GPU)
		all = append(all, checks.OfGPU(o.GPU, offered(has[name], capacityPair{}, cmp.Or(o.Closed, "nothing is left of it"))))
		delete(has, name)
	}
	for name := range has {
		all = append(all, checks.OfGPU(name, offered(has[name], capacityPair{}, "vgpud has no such GPU")))
	}
	slices.SortFunc(all, func(a, b ability.Ability) int { return strings.Compare(a.GPU, b.GPU) })
	if len(all) == 0 {
		all = append(all, checks.Needed(ability.Missing("offer", "vgpud has no GPU", "name the host's GPUs in vgpud.yaml")))
	}
	return all
}

// capacityPair is what a device has.
type capacityPair struct{ share, memoryMiB int }

func (c capacityPair) String() string {
	if c == (capacityPair{}) {
		return "nothing"
	}
	return fmt.Sprintf("%d shares and %d MiB", c.share, c.memoryMiB)
}

// offered compares what the cluster has of a GPU with what is to be offered. why says why that is nothing.
func offered(has, want capacityPair, why string) ability.Ability {
	if has != want {
		return ability.Missing("offer", fmt.Sprintf("the cluster has %v of it, to be offered is %v", has, want), "start the driver: systemctl start vgpu-dra; its log says what keeps it from that")
	}
	if why != "" {
		return ability.Available("offer", "nothing, because %s", why)
	}
	return ability.Available("offer", "%v", has)
}
