package cluster

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"vgpud/e2e/host"
)

var enabled = flag.Bool("cluster", false, "run the tests that need the control plane of scripts/kubernetes-deps.sh")

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if err := host.Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// namespace is where the tests' pods and claims are.
const namespace = "default"

// plane is a control plane that runs.
type plane struct {
	dir    string
	url    string
	ca     string // the file with the API server's certificate
	config *rest.Config
	client clientset.Interface // may do everything
}

// tokens of the control plane's users, with their groups.
var tokens = []struct{ token, user, group string }{
	{"admin-token", "admin", "system:masters"},
	{"scheduler-token", "system:kube-scheduler", ""},
	{"controller-token", "system:kube-controller-manager", ""},
}

// startPlane starts a control plane without nodes. It ends with the test.
func startPlane(tb testing.TB) *plane {
	tb.Helper()
	if !*enabled {
		tb.Skip("part of `make test-kubernetes`: -cluster is not set")
	}
	// This module can't build vgpud.
	if os.Getenv(host.ProgramsVariable) == "" {
		tb.Fatalf("%s is not set: `make test-kubernetes` sets it", host.ProgramsVariable)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	bin := filepath.Join(cmp.Or(os.Getenv("VGPUD_KUBERNETES_DEPS"), filepath.Join(cache, "vgpud", "kubernetes")), "bin")
	p := &plane{dir: tb.TempDir()}
	p.startAPIServer(tb, bin)
	for _, c := range []struct {
		program, token string
		flags          []string
	}{
		{"kube-scheduler", "scheduler-token", nil},
		{"kube-controller-manager", "controller-token", []string{
			// Which frees claims, and those that let it work with rights by controller.
			"--controllers=resourceclaim-controller,serviceaccount-controller,serviceaccount-token-controller",
			"--use-service-account-credentials", "--service-account-private-key-file=" + p.key(),
		}},
	} {
		kubeconfig := p.kubeconfig(tb, filepath.Join(p.dir, c.program+".kubeconfig"), "token: "+c.token)
		start(tb, p.dir, filepath.Join(bin, c.program), append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"}, c.flags...)...)
	}
	until(tb, "the service account of pods", func() error {
		_, err := p.client.CoreV1().ServiceAccounts(namespace).Get(tb.Context(), "default", meta.GetOptions{})
		return err
	})
	return p
}

func (p *plane) key() string { return filepath.Join(p.dir, "service-accounts.key") }

// startAPIServer starts etcd and an API server with RBAC, and waits until it is ready.
func (p *plane) startAPIServer(tb testing.TB, bin string) {
	tb.Helper()
	etcd, peers := "http://"+freeAddress(tb), "http://"+freeAddress(tb)
	start(tb, p.dir, filepath.Join(bin, "etcd"), "--data-dir="+filepath.Join(p.dir, "etcd"), "--unsafe-no-fsync", "--name=etcd",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=etcd="+peers)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	write(tb, p.key(), "%s", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}))
	var users strings.Builder
	for _, t := range tokens {
		fmt.Fprintf(&users, "%s,%s,%s,%q\n", t.token, t.user, t.user, t.group)
	}
	address := freeAddress(tb)
	p.url, p.ca = "https://"+address, filepath.Join(p.dir, "apiserver", "apiserver.crt")
	server := start(tb, p.dir, filepath.Join(bin, "kube-apiserver"), "--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--secure-port="+port(tb, address),
		"--cert-dir="+filepath.Dir(p.ca), "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=Node,RBAC", "--token-auth-file="+write(tb, filepath.Join(p.dir, "tokens.csv"), "%s", users.String()),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+p.key(), "--service-account-signing-key-file="+p.key())
	p.config = &rest.Config{Host: p.url, BearerToken: tokens[0].token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAFile: p.ca}}
	server.await(tb, "the API server", func() error {
		if p.client == nil {
			c, err := clientset.NewForConfig(p.config) // which reads the certificate
			if err != nil {
				return err
			}
			p.client = c
		}
		_, err := p.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(tb.Context())
		return err
	})
	v, err := p.client.Discovery().ServerVersion()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Logf("the API server is of version %s", v.GitVersion)
}

// kubeconfig writes a file by which to reach the API server with a credential, and returns its path.
func (p *plane) kubeconfig(tb testing.TB, path, credential string) string {
	tb.Helper()
	return write(tb, path, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, p.url, p.ca, credential)
}

// addNode adds a node that takes pods, and removes it with the test.
func (p *plane) addNode(tb testing.TB, name string) *core.Node {
	tb.Helper()
	nodes := p.client.CoreV1().Nodes()
	n, err := nodes.Create(tb.Context(), &core.Node{ObjectMeta: meta.ObjectMeta{Name: name}}, meta.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	// A new node has a taint until somebody says that it is ready: the kubelet, and a controller.
	n.Spec.Taints = nil
	if n, err = nodes.Update(tb.Context(), n, meta.UpdateOptions{}); err != nil {
		tb.Fatal(err)
	}
	n.Status.Allocatable = core.ResourceList{core.ResourcePods: *quantity("100"), core.ResourceCPU: *quantity("16"), core.ResourceMemory: *quantity("64Gi")}
	n.Status.Capacity = n.Status.Allocatable
	n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
	if n, err = nodes.UpdateStatus(tb.Context(), n, meta.UpdateOptions{}); err != nil {
		tb.Fatal(err)
	}
	return n
}
