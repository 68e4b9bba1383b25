package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func rules(t *testing.T, c Config) *Rules {
	t.Helper()
	r, err := c.Rules()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPeer: a connection to a unix socket shows the process at its other end.
func TestPeer(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p, err := Peer(server)
	if err != nil {
		t.Fatal(err)
	}
	if p.PID != os.Getpid() || int(p.UID) != os.Geteuid() || !slices.Contains(p.GIDs, uint32(os.Getegid())) {
		t.Errorf("%+v, want pid %d, uid %d and gid %d", p, os.Getpid(), os.Geteuid(), os.Getegid())
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if !slices.Contains(p.GIDs, uint32(g)) {
			t.Errorf("%+v lacks supplementary group %d", p, g)
		}
	}
	req := httptest.NewRequestWithContext(ConnContext(t.Context(), server), "GET", "/", nil)
	if c := rules(t, Config{}).Caller(req); c.Role != Operator || c.Process.PID != os.Getpid() {
		t.Errorf("%+v, want the daemon's own user to be an operator", c)
	}
	if _, err := Peer(&net.TCPConn{}); err == nil {
		t.Error("a TCP connection has a peer process")
	}
}

// request is one of a process.
func request(t *testing.T, p Process) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	return r.WithContext(context.WithValue(r.Context(), contextKey{}, &p))
}

func TestProcesses(t *testing.T) {
	const group, ops, bob, carol, dave, eve = 500, 501, 1001, 1002, 1003, 1004
	r := rules(t, Config{
		Group:     strconv.Itoa(group),
		Operators: Subjects{Users: []string{strconv.Itoa(bob)}, Groups: []string{strconv.Itoa(ops)}},
		Viewers:   Subjects{Users: []string{strconv.Itoa(dave), strconv.Itoa(bob)}},
	})
	for _, c := range []struct {
		p    Process
		want Role
	}{
		{Process{UID: 0}, Operator},
		{Process{UID: bob, GIDs: []uint32{group}}, Operator}, // although named as a viewer, too
		{Process{UID: carol, GIDs: []uint32{group, ops}}, Operator},
		{Process{UID: carol, GIDs: []uint32{group}}, Viewer},
		{Process{UID: dave, GIDs: []uint32{dave}}, Viewer},
		{Process{UID: eve, GIDs: []uint32{eve}}, None},
		{Process{UID: eve}, None},
	} {
		if got := r.Caller(request(t, c.p)).Role; got != c.want {
			t.Errorf("%+v is %v, want %v", c.p, got, c.want)
		}
	}
	if got := r.Caller(httptest.NewRequest("GET", "/", nil)); got.Role != None {
		t.Errorf("a connection without a process is %+v", got)
	}
	if gid, ok := r.SocketGroup(); gid != group || !ok {
		t.Errorf("the socket's group is %d, %v", gid, ok)
	}
	if _, ok := rules(t, Config{}).SocketGroup(); ok {
		t.Error("the socket is for a group that is not configured")
	}
}

func TestCertificates(t *testing.T) {
	spiffe, err := url.Parse("spiffe://example.org/ops")
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(0xabc), Subject: pkix.Name{CommonName: "alice", Organization: []string{"Example"}},
		DNSNames: []string{"ops.example.org"}, EmailAddresses: []string{"alice@example.org"}, URIs: []*url.URL{spiffe},
	}
	of := func(r *Rules, verified bool) Caller {
		req := httptest.NewRequest("GET", "https://vgpud/", nil)
		req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		if verified {
			req.TLS.VerifiedChains = [][]*x509.Certificate{{cert}}
		}
		return r.Caller(req)
	}
	for name, want := range map[string]Role{
		"subject:CN=alice,O=Example": Operator, "cn:alice": Operator, "dns:ops.example.org": Operator, "email:alice@example.org": Operator, "uri:spiffe://example.org/ops": Operator,
		"subject:CN=alice": None, "cn:Alice": None, "cn:ops.example.org": None, "dns:alice": None, "dns:example.org": None, "email:alice": None, "uri:spiffe://example.org": None,
	} {
		r := rules(t, Config{Operators: Subjects{Certificates: []string{name}}})
		if got := of(r, true); got.Role != want || got.Serial != "abc" {
			t.Errorf("%s: %+v, want %v", name, got, want)
		}
		if got := of(r, false); got.Role != None || got.Certificate != "" {
			t.Errorf("%s, not verified: %+v", name, got)
		}
	}
	r := rules(t, Config{Operators: Subjects{Certificates: []string{"cn:bob"}}, Viewers: Subjects{Certificates: []string{"cn:alice"}}})
	if got := of(r, true); got.Role != Viewer {
		t.Errorf("a viewer's certificate is %v", got.Role)
	}
	// A certificate names no user of this host, whatever it says.
	cert.Subject.CommonName = "root"
	if got := of(rules(t, Config{Group: "0", Operators: Subjects{Users: []string{"root"}}}), true); got.Role != None {
		t.Errorf("a certificate for root is %v", got.Role)
	}
}

// TestBadConfigurations: messages name the key and what it should be.
func TestBadConfigurations(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Group: "no-such-group"}, `group "no-such-group": want a group of this host's /etc/group, or a number`},
		{Config{Viewers: Subjects{Users: []string{"root"}}}, "group: want the group that may connect"},
		{Config{Group: "0", Viewers: Subjects{Users: []string{"root", "no-such-user"}}}, `viewers.users[1]: user "no-such-user": want a user`},
		{Config{Group: "0", Operators: Subjects{Groups: []string{"-1"}}}, `operators.groups[0]: group "-1"`},
		{Config{Group: "0", Operators: Subjects{Groups: []string{"4294967296"}}}, `operators.groups[0]: group "4294967296"`},
		{Config{Operators: Subjects{Certificates: []string{"alice"}}}, `operators.certificates[0]: "alice": want one of subject:, cn:, dns:, email:, uri: and a name`},
		{Config{Operators: Subjects{Certificates: []string{"cn:"}}}, `operators.certificates[0]: "cn:"`},
		{Config{Viewers: Subjects{Certificates: []string{"cn:alice", "host:x"}}}, `viewers.certificates[1]: "host:x"`},
	} {
		if _, err := c.config.Rules(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}

// TestCallersAreOneLine: a name can't be mistaken for more than a name.
func TestCallersAreOneLine(t *testing.T) {
	for _, c := range []struct {
		caller Caller
		want   string
	}{
		{Caller{Process: &Process{PID: 7, UID: 1000, User: "alice"}}, "user alice (uid 1000, pid 7)"},
		{Caller{Process: &Process{PID: 7, UID: 1000}}, "uid 1000 (pid 7)"},
		{Caller{Process: &Process{PID: 7, UID: 1000, User: "a\nlevel=ERROR"}}, `user "a\nlevel=ERROR" (uid 1000, pid 7)`},
		{Caller{Certificate: "CN=ops", Address: "192.0.2.1:5"}, "certificate CN=ops from 192.0.2.1:5"},
		{Caller{Certificate: "CN=ops from 192.0.2.9", Address: "192.0.2.1:5"}, `certificate "CN=ops from 192.0.2.9" from 192.0.2.1:5`},
		{Self("libvirt"), "libvirt"},
		{Caller{}, "unknown"},
	} {
		if got := c.caller.String(); got != c.want {
			t.Errorf("%+v is %s, want %s", c.caller, got, c.want)
		}
	}
}

// TestIdentity: requests are counted by user, certificate or address, whatever the process or the port.
func TestIdentity(t *testing.T) {
	for _, c := range []struct {
		caller Caller
		want   string
	}{
		{Caller{Process: &Process{PID: 7, UID: 1000, User: "ann"}}, "uid 1000"},
		{Caller{Certificate: "CN=ann", Serial: "1", Address: "10.0.0.1:5000"}, "certificate CN=ann"},
		{Caller{Part: "the page", Address: "127.0.0.1:5000"}, "the page 127.0.0.1"},
		{Caller{Address: "[::1]:5000"}, "::1"},
		{Caller{Address: "@"}, "@"},
	} {
		if got := c.caller.Identity(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.caller, got, c.want)
		}
	}
}
