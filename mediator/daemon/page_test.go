package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/mediator/access"
	"vgpud/mediator/api"
)

func TestPageAddress(t *testing.T) {
	for address, ok := range map[string]bool{
		"": true, "127.0.0.1:9877": true, "localhost:9877": true, "[::1]:9877": true, "127.0.0.1:0": true,
		":9877": false, "0.0.0.0:9877": false, "[::]:9877": false, "10.0.0.7:9877": false, "gpuhost:9877": false, "127.0.0.1": false, "9877": false,
	} {
		_, err := ParseConfig([]byte(leastConfig + "web: '" + address + "'\n"))
		if (err == nil) != ok || err != nil && !(errors.Is(err, api.ErrInvalid) && strings.Contains(err.Error(), "127.0.0.1")) {
			t.Errorf("web %q: %v", address, err)
		}
	}
}

// TestPageOnItsAddress: whoever reaches the page's address may look and not change, and only by a
// name of this machine.
func TestPageOnItsAddress(t *testing.T) {
	dir := runDir(t)
	d := &daemon{t: t, device: idleGPU{}, config: Config{RunDir: dir, Socket: filepath.Join(dir, "vgpud.sock"), Web: "127.0.0.1:0", GPUs: []GPUConfig{
		{Name: "gpu0", Kind: "soft", Socket: "unused", Policy: "none"},
	}}}
	s, err := New(t.Context(), d.options())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	l, err := s.listenPage()
	if err != nil {
		t.Fatal(err)
	}
	server := s.servePage(l, s.apiHandler(anybody, nil), func(err error) { t.Error(err) })
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		s.wg.Wait()
	}()
	for _, test := range []struct {
		method, path, host, body string
		status                   int
		text                     string
	}{
		{"GET", "/", "", "", 200, "<title>vgpud</title>"},
		{"GET", "/page/page.js", "", "", 200, "import"},
		{"GET", "/page/state", "", "", 200, `"role":"viewer"`},
		{"GET", "/v1/gpus", "", "", 200, "gpu0"},
		{"PATCH", "/v1/gpus/gpu0", "", `{"policy":"dfq"}`, 403, access.Operator.String()},
		{"POST", "/v1/vms", "", `{"name":"a"}`, 403, access.Operator.String()},
		{"GET", "/page/state", "evil.example", "", 403, "localhost"},
		{"GET", "/v1/gpus", "evil.example", "", 403, "localhost"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), test.method, "http://"+l.Addr().String()+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = test.host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != test.status || !strings.Contains(string(body), test.text) {
			t.Errorf("%s %s of %q: %d %.200s, want %d with %q", test.method, test.path, test.host, resp.StatusCode, body, test.status, test.text)
		}
	}
	if g, err := s.GPU("gpu0"); err != nil || g.Policy != "none" {
		t.Errorf("policy %q (%v): the page's reader has changed it", g.Policy, err)
	}
}

// TestPageOverTLS: beside the API for other hosts the page has the role of its reader's certificate,
// and a foreign site can't use that certificate for changes.
func TestPageOverTLS(t *testing.T) {
	ours := newAuthority(t)
	for i, name := range []string{"server", "ops", "watcher", "nobody"} {
		ours.Issue(name, int64(10+i))
	}
	address := freePort(t)
	d := startDaemonConfigured(t, runDir(t), func(c *Config) {
		c.Web = freePort(t)
		c.TLS = TLSConfig{Address: address, Cert: ours.File("server.pem"), Key: ours.File("server.key"), ClientCA: ours.File("ca.pem")}
		c.Access = access.Config{Operators: access.Subjects{Certificates: []string{"cn:ops"}}, Viewers: access.Subjects{Certificates: []string{"cn:watcher"}}}
	})
	d.create("a")
	authorities := x509.NewCertPool()
	pem, err := os.ReadFile(ours.File("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	authorities.AppendCertsFromPEM(pem)
	for _, test := range []struct {
		name, method, path, origin, body string
		status                           int
		text                             string
	}{
		{"watcher", "GET", "/", "", "", 200, "<title>vgpud</title>"},
		{"watcher", "GET", "/page/state", "", "", 200, `"role":"viewer"`},
		{"ops", "GET", "/page/state", "", "", 200, `"role":"operator"`},
		{"nobody", "GET", "/page/state", "", "", 403, "CN=nobody"},
		{"watcher", "PATCH", "/v1/vms/a", "https://" + address, `{"weight":2}`, 403, "operator"},
		{"ops", "PATCH", "/v1/vms/a", "https://evil.example", `{"weight":2}`, 403, "cross-origin"},
		{"ops", "PATCH", "/v1/vms/a", "https://" + address, `{"weight":2}`, 200, `"weight":2`},
	} {
		cert, err := tls.LoadX509KeyPair(ours.File(test.name+".pem"), ours.File(test.name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{cert}}}
		r, err := http.NewRequestWithContext(t.Context(), test.method, "https://"+address+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		resp, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		transport.CloseIdleConnections()
		if resp.StatusCode != test.status || !strings.Contains(string(body), test.text) {
			t.Errorf("%s: %s %s from %q: %d %.200s, want %d with %q", test.name, test.method, test.path, test.origin, resp.StatusCode, body, test.status, test.text)
		}
	}
}
