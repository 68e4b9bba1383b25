package daemon

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/mediator/access"
	"vgpud/mediator/access/accesstest"
	"vgpud/mediator/api"
	"vgpud/mediator/audit"
	"vgpud/mediator/events"
)

// authority signs certificates.
type authority struct {
	*accesstest.Authority
	t *testing.T
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	return &authority{accesstest.NewAuthority(t, t.TempDir()), t}
}

// client returns a client with a certificate of one authority that trusts another.
func (a *authority) client(address, name string, trusted *authority) *api.Client {
	a.t.Helper()
	c, err := api.NewTLSClient(address, api.TLSFiles{Cert: a.File(name + ".pem"), Key: a.File(name + ".key"), CA: trusted.File("ca.pem")})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(c.Close)
	return c
}

// httpsClient returns a client that trusts the authority and has no certificate.
func (a *authority) httpsClient() *http.Client {
	trusted := x509.NewCertPool()
	trusted.AddCert(a.Cert)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
}

// freePort returns an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestTLS: clients over TLS have the role of their certificates, changes are recorded and say who made
// them, and certificates are read again with the configuration.
func TestTLS(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	for i, name := range []string{"server", "ops", "watcher", "nobody"} {
		ours.Issue(name, int64(10+i))
		others.Issue(name, int64(10+i))
	}
	address := freePort(t)
	record := filepath.Join(t.TempDir(), "audit.log")
	d := startDaemonConfigured(t, runDir(t), func(c *Config) {
		c.TLS = TLSConfig{Address: address, Cert: ours.File("server.pem"), Key: ours.File("server.key"), ClientCA: ours.File("ca.pem")}
		c.Access = access.Config{Operators: access.Subjects{Certificates: []string{"cn:ops"}}, Viewers: access.Subjects{Certificates: []string{"subject:CN=watcher"}}}
		c.Audit = AuditConfig{File: record}
	})
	d.create("a")
	weight := 3.0
	ctx := t.Context()
	ops, watcher := ours.client(address, "ops", ours), ours.client(address, "watcher", ours)

	if _, err := watcher.VM(ctx, "a"); err != nil {
		t.Errorf("a viewer reads: %v", err)
	}
	if _, err := watcher.UpdateVM(ctx, "a", api.VMUpdate{Weight: &weight}); !errors.Is(err, api.ErrForbidden) || !strings.Contains(err.Error(), "want role operator, and certificate CN=watcher from 127.0.0.1:") {
		t.Errorf("a viewer changes: %v", err)
	}
	if _, err := ours.client(address, "nobody", ours).VMs(ctx); !errors.Is(err, api.ErrForbidden) {
		t.Errorf("a certificate without a role: %v", err)
	}
	if _, err := others.client(address, "ops", ours).VMs(ctx); err == nil || errors.As(err, new(*api.Error)) {
		t.Errorf("another authority's certificate is answered: %v", err)
	}
	if _, err := ops.UpdateVM(ctx, "a", api.VMUpdate{Weight: &weight}); err != nil {
		t.Errorf("an operator changes: %v", err)
	}
	for _, u := range []*float64{nil, new(0.0)} {
		if _, err := ops.UpdateVM(ctx, "a", api.VMUpdate{Weight: u}); (err == nil) != (u == nil) {
			t.Errorf("weight %v: %v", u, err)
		}
	}

	var got []string
	f, err := os.Open(record)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var r audit.Record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		who := r.Certificate + " " + r.Serial
		if r.UID != nil {
			who = "local"
		}
		got = append(got, strings.Join([]string{who, r.Role, r.Method, r.Path, string(r.Arguments), r.Error}, " "))
	}
	want := []string{
		`local operator POST /v1/vms {"name":"a","bar2_bytes":16777216} `,
		`CN=watcher c viewer PATCH /v1/vms/a  PATCH /v1/vms/a: want role operator, and`,
		`CN=ops b operator PATCH /v1/vms/a {"weight":3} `,
		`CN=ops b operator PATCH /v1/vms/a {} `,
		`CN=ops b operator PATCH /v1/vms/a {"weight":0} guest "a": weight 0`,
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("records\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}

	all, err := watcher.Events(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string]events.Event)
	for _, e := range all {
		said[e.Kind] = e
	}
	if e := said[events.SettingsChanged]; !strings.HasPrefix(e.By, "certificate CN=ops from 127.0.0.1:") || e.VM != "a" || !maps.Equal(e.Details, map[string]string{"weight": "3"}) {
		t.Errorf("the change's event is %+v", e)
	}
	if e := said[events.GuestCreated]; !strings.Contains(e.By, "uid") || e.GPU != "gpu0" {
		t.Errorf("the creation's event is %+v", e)
	}

	// A role is gone with the next request, also on an open connection.
	config := d.config
	config.Access.Operators = access.Subjects{}
	if _, err := d.service.Reload(config); err != nil {
		t.Fatal(err)
	}
	if _, err := ops.UpdateVM(ctx, "a", api.VMUpdate{}); !errors.Is(err, api.ErrForbidden) || !strings.Contains(err.Error(), "has role none") {
		t.Errorf("after the role is gone: %v", err)
	}

	// Certificates that can't be read change nothing. New ones hold from the next connection on.
	config = d.config
	config.TLS.Cert = filepath.Join(t.TempDir(), "none.pem")
	if _, err := d.service.Reload(config); err == nil || !strings.Contains(err.Error(), config.TLS.Cert) {
		t.Errorf("a certificate that is not there: %v", err)
	}
	if _, err := d.service.Reload(d.config); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.client(address, "ops", ours).VMs(ctx); err != nil {
		t.Errorf("after a bad reload: %v", err)
	}
	config.TLS = TLSConfig{Address: address, Cert: others.File("server.pem"), Key: others.File("server.key"), ClientCA: others.File("ca.pem")}
	if fixed, err := d.service.Reload(config); err != nil || len(fixed) > 0 {
		t.Fatalf("%v, %v", fixed, err)
	}
	if _, err := others.client(address, "ops", others).VMs(ctx); err != nil {
		t.Errorf("after a reload: %v", err)
	}
	if _, err := ours.client(address, "ops", others).VMs(ctx); err == nil {
		t.Error("the authority of before still counts")
	}
}

func TestTLSConfigurations(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "not.pem")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{
		{"tls: {address: x}", `tls: address "x": want an address and a port`},
		{"tls: {cert: /c}", `tls: address ""`},
		{"tls: {address: ':1', cert: /c, key: /k}", "tls: client_ca: want a PEM file"},
		{"audit: {file: audit.log}", `audit: file "audit.log": want an absolute path`},
		{"audit: {max_bytes: 1}", "audit: max_bytes 1: want 65536 to"},
		{"audit: {keep: -1}", "audit: keep -1: want 1 to"},
		{"access: {operators: {certificates: [ops]}}", `access: operators.certificates[0]: "ops": want one of`},
	} {
		_, err := ParseConfig([]byte(c.text + "\ngpus: [{name: gpu0, socket: /s}]\n"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
	config := Config{RunDir: dir, TLS: TLSConfig{Address: "127.0.0.1:0", Cert: file, Key: file, ClientCA: file}, GPUs: []GPUConfig{{Name: "gpu0", Kind: "soft"}}}
	o := (&daemon{device: idleGPU{}, config: config}).options()
	if _, err := New(context.Background(), o); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a daemon without certificates starts: %v", err)
	}
}
