package placement

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/capacity"
	"vgpud/mediator/nova"
	"vgpud/mediator/nova/placement/placementtest"
)

const (
	node     = "0c8bd1e8-7a4b-4a45-9d3b-4f4a1d2b3c4d"
	instance = "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"
)

// config returns a configuration for a Keystone at url.
func config(t *testing.T, url string) Config {
	t.Helper()
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(placementtest.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Keystone: Keystone{URL: url, Username: "vgpud", PasswordFile: password}}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	return c
}

// client returns a client of a Placement over HTTP, with a compute node in it.
func client(t *testing.T) (*Client, *placementtest.Server) {
	t.Helper()
	s := placementtest.New()
	s.AddProvider(nova.Provider{UUID: node, Name: "host1"})
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	c, err := New(config(t, h.URL+"/v3"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, s
}

func TestRequests(t *testing.T) {
	c, s := client(t)
	ctx := t.Context()
	p, err := c.Named(ctx, "host1")
	if err != nil || p.UUID != node {
		t.Fatalf("Named: %+v, %v", p, err)
	}
	if _, err := c.Named(ctx, "host2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a host that Placement does not have: %v", err)
	}
	h := nova.Host{Node: node, Name: "host1"}
	id := nova.ProviderUUID(node, "gpu0")
	offer := nova.Offer{Offer: capacity.Offer{GPU: "gpu0", Share: capacity.Amount{Total: 100, Reserved: 25}, Memory: capacity.Amount{Total: 1024, Reserved: 1024}}, Traits: []string{nova.TraitVGPUD}}
	for _, err := range []error{c.DeclareClass(ctx, nova.ClassShare), c.DeclareClass(ctx, nova.ClassShare), c.DeclareClass(ctx, nova.ClassMemory), c.DeclareTrait(ctx, nova.TraitVGPUD), c.DeclareTrait(ctx, nova.TraitVGPUD)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var state nova.State
	for range 5 {
		for _, r := range nova.Plan(h, []nova.Offer{offer}, &state, false) {
			generation, err := c.Do(ctx, r)
			if err != nil {
				t.Fatalf("%v: %v", r, err)
			}
			state.Done(r, generation)
		}
	}
	have, _ := s.Provider(id)
	if diff := cmp.Diff(have, state.Own[id]); diff != "" {
		t.Errorf("what is known of the provider (-Placement +known):\n%s", diff)
	}
	read, err := c.Read(ctx, nova.Provider{UUID: id, Name: have.Name, Parent: node})
	if diff := cmp.Diff(have, read); diff != "" || err != nil {
		t.Errorf("Read: %v (-Placement +got):\n%s", err, diff)
	}
	tree, err := c.Tree(ctx, node)
	if err != nil || len(tree) != 2 {
		t.Errorf("Tree: %v, %v", tree, err)
	}

	s.Allocate(instance, id, map[string]int{nova.ClassShare: 25})
	if a, err := c.Allocation(ctx, instance); err != nil || a[id][nova.ClassShare] != 25 || !a.Ours() {
		t.Errorf("Allocation: %v, %v", a, err)
	}
	if a, err := c.Allocation(ctx, node); err != nil || len(a) != 0 {
		t.Errorf("Allocation of nobody: %v, %v", a, err)
	}
	if who, err := c.Consumers(ctx, id); err != nil || !cmp.Equal(who, []string{instance}) {
		t.Errorf("Consumers: %v, %v", who, err)
	}
	for what, test := range map[string]struct {
		r    nova.Request
		want error
	}{
		"an old generation":    {nova.Request{Kind: nova.SetTraits, Provider: id, Generation: 1, Traits: []string{}}, ErrConflict},
		"a class in use":       {nova.Request{Kind: nova.SetInventories, Provider: id, Generation: have.Generation + 1, Inventories: map[string]nova.Inventory{}}, ErrInUse},
		"a provider in use":    {nova.Request{Kind: nova.Delete, Provider: id}, ErrInUse},
		"a name that is taken": {nova.Request{Kind: nova.Rename, Provider: id, Name: "host1"}, ErrExists},
		"a UUID that is taken": {nova.Request{Kind: nova.Create, Provider: id, Name: "x", Parent: node}, ErrExists},
		"no parent":            {nova.Request{Kind: nova.Create, Provider: instance, Name: "x", Parent: instance}, ErrRefused},
		"no such provider":     {nova.Request{Kind: nova.Delete, Provider: instance}, ErrNotFound},
		"no such trait":        {nova.Request{Kind: nova.SetTraits, Provider: id, Generation: have.Generation + 1, Traits: []string{"CUSTOM_X"}}, ErrRefused},
	} {
		if _, err := c.Do(ctx, test.r); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", what, err, test.want)
		}
	}
	if n := s.Tokens(); n != 1 {
		t.Errorf("%d tokens, want one for all requests", n)
	}
	s.Expire()
	if _, err := c.Tree(ctx, node); err != nil {
		t.Errorf("after the token expired: %v", err)
	}
}

func TestDenied(t *testing.T) {
	c, s := client(t)
	s.SetFault(func(r *http.Request) *placementtest.Fault {
		if strings.HasPrefix(r.URL.Path, "/v3") {
			return nil
		}
		return &placementtest.Fault{Status: http.StatusForbidden}
	})
	if _, err := c.Tree(t.Context(), node); !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "role service") {
		t.Errorf("without rights: %v", err)
	}
	wrong := config(t, c.config.Keystone.URL)
	if err := os.WriteFile(wrong.Keystone.PasswordFile, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.SetFault(nil)
	other, err := New(wrong)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Tree(t.Context(), node); !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("with a wrong password: %v", err)
	}
}

// answering is a transport that gives one answer to every request but those to Keystone.
type answering struct {
	status int
	body   io.Reader
}

// RoundTrip implements [http.RoundTripper].
func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(a.body), Request: r}, nil
}

// plain returns a client without Keystone over a transport.
func plain(rt http.RoundTripper) *Client {
	c := Config{Endpoint: "http://placement"}
	if err := c.complete(); err != nil {
		panic(err)
	}
	return NewWith(c, rt)
}

// TestAnswersThatLie: what Placement could not have answered is an error, and does not block, fill
// memory or end the program.
func TestAnswersThatLie(t *testing.T) {
	id := nova.ProviderUUID(node, "gpu0")
	for name, body := range map[string]string{
		"empty":             ``,
		"a page":            `<html>It works!</html>`,
		"half":              `{"allocations":{"` + id + `":{"resources":{"CUSTOM_VGPUD_SHARE":6`,
		"a list":            `[]`,
		"null":              `null`,
		"no allocations":    `{}`,
		"no UUID":           `{"allocations":{"../../etc":{"resources":{"CUSTOM_VGPUD_SHARE":1}}}}`,
		"a fraction":        `{"allocations":{"` + id + `":{"resources":{"CUSTOM_VGPUD_SHARE":60.5}}}}`,
		"beyond integers":   `{"allocations":{"` + id + `":{"resources":{"CUSTOM_VGPUD_SHARE":1e300}}}}`,
		"a text":            `{"allocations":{"` + id + `":{"resources":{"CUSTOM_VGPUD_SHARE":"60"}}}}`,
		"more than we read": `{"allocations":{` + strings.Repeat(" ", maxAnswer) + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			a, err := plain(answering{200, strings.NewReader(body)}).Allocation(t.Context(), instance)
			if err == nil {
				t.Errorf("Allocation: %v, want an error", a)
			}
		})
	}
	for name, body := range map[string]string{
		"a negative generation": `{"resource_providers":[{"uuid":"` + node + `","name":"h","generation":-1}]}`,
		"no UUID":               `{"resource_providers":[{"uuid":"x","name":"h","generation":1}]}`,
		"a parent without UUID": `{"resource_providers":[{"uuid":"` + node + `","name":"h","generation":1,"parent_provider_uuid":"x"}]}`,
	} {
		if all, err := plain(answering{200, strings.NewReader(body)}).Tree(t.Context(), node); !errors.Is(err, ErrNonsense) {
			t.Errorf("%s: Tree: %v, %v", name, all, err)
		}
	}
	if _, err := plain(answering{503, strings.NewReader(strings.Repeat("<p>", 1<<20))}).Tree(t.Context(), node); err == nil || len(err.Error()) > 600 {
		t.Errorf("a long page about an error: %.700v", err)
	}
}

// TestSlowAnswer: an answer that never ends ends with the time limit.
func TestSlowAnswer(t *testing.T) {
	stop := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"allocations":`)
		w.(http.Flusher).Flush()
		<-stop
	}))
	defer h.Close()
	defer close(stop)
	cfg := Config{Endpoint: h.URL, Timeout: 50 * time.Millisecond}
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Allocation(t.Context(), instance); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Allocation: %v, want the time limit", err)
	}
}

// TestConsumerIsNoPath: a UUID becomes part of a URL.
func TestConsumerIsNoPath(t *testing.T) {
	rt := answering{200, strings.NewReader(`{"allocations":{}}`)}
	for _, id := range []string{"", "../resource_providers", instance + "/", instance + "?x", strings.ToUpper(instance)} {
		if _, err := plain(rt).Allocation(t.Context(), id); err == nil {
			t.Errorf("asked for the allocation of %q", id)
		}
	}
}

// TestNoRedirection: a token goes nowhere but to Placement.
func TestNoRedirection(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the token %q went elsewhere", r.Header.Get("X-Auth-Token"))
	}))
	defer elsewhere.Close()
	h := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer h.Close()
	cfg := Config{Endpoint: h.URL}
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Tree(t.Context(), node); err == nil {
		t.Error("a redirection is no error")
	}
}

func FuzzAnswers(f *testing.F) {
	id := nova.ProviderUUID(node, "gpu0")
	for _, s := range []string{
		`{"allocations":{"` + id + `":{"generation":2,"resources":{"CUSTOM_VGPUD_SHARE":60,"CUSTOM_VGPUD_MEMORY_MIB":2048}},"` + node + `":{"resources":{"VCPU":1}}},"project_id":"p","user_id":"u","consumer_generation":1}`,
		`{"resource_providers":[{"uuid":"` + node + `","name":"host1","generation":5,"parent_provider_uuid":null,"root_provider_uuid":"` + node + `","links":[]}]}`,
		`{"resource_provider_generation":2,"inventories":{"CUSTOM_VGPUD_SHARE":{"total":100,"reserved":0,"min_unit":1,"max_unit":100,"step_size":1,"allocation_ratio":1.0}}}`,
		`{"resource_provider_generation":2,"traits":["CUSTOM_VGPUD"]}`,
		`{"errors":[{"status":409,"title":"Conflict","detail":"x","code":"placement.concurrent_update"}]}`,
		`{"allocations":null}`, `{"allocations":{"x":null}}`,
	} {
		f.Add(200, []byte(s))
		f.Add(409, []byte(s))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		ask := func() *Client { return plain(answering{status, strings.NewReader(string(body))}) }
		if a, err := ask().Allocation(t.Context(), instance); err == nil {
			grants, err := nova.Grants(a, node, []string{"gpu0", "gpu1"})
			for _, g := range grants {
				if err != nil || g.Share < 1 || g.Share > capacity.Shares || g.MemoryMiB < 1 {
					t.Errorf("%s grants %+v, %v", body, g, err)
				}
			}
		}
		if all, err := ask().Tree(t.Context(), node); err == nil {
			for _, p := range all {
				nova.OwnGPU(p)
			}
		}
		p, err := ask().Read(t.Context(), nova.Provider{UUID: id, Name: "host1_vgpud_gpu0", Parent: node})
		if err == nil {
			s := nova.State{Own: map[string]nova.Provider{id: p}}
			for _, r := range nova.Plan(nova.Host{Node: node, Name: "host1"}, nil, &s, true) {
				_, err := ask().Do(t.Context(), r)
				if err != nil && len(err.Error()) > 2000 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
			}
		}
	})
}

func TestConfig(t *testing.T) {
	for name, test := range map[string]struct{ text, err string }{
		"user":                   {"keystone: {url: 'http://c:5000/v3', username: vgpud, password_file: /etc/x}", ""},
		"application credential": {"keystone: {url: 'https://c:5000/v3', application_credential: abc, secret_file: /etc/x}", ""},
		"without Keystone":       {"endpoint: 'http://127.0.0.1:8778'", ""},
		"nothing":                {"", "keystone.url is missing"},
		"no password":            {"keystone: {url: 'http://c:5000/v3', username: vgpud}", "password_file"},
		"no secret":              {"keystone: {url: 'http://c:5000/v3', application_credential: a}", "secret_file"},
		"no address":             {"keystone: {url: 'c:5000', username: vgpud, password_file: /etc/x}", "want an address"},
		"unknown key":            {"endpont: x", "endpont"},
		"a wrong UUID":           {"endpoint: 'http://x'\ncompute_node: HOST1", "compute_node"},
		"a long time":            {"endpoint: 'http://x'\ntimeout: 2h", "timeout"},
		"too much kept":          {"endpoint: 'http://x'\nkeep: {share: 101}", "keep.share"},
		"a relative path":        {"endpoint: 'http://x'\nsocket: vgpud.sock", "absolute"},
		"interface":              {"endpoint: 'http://x'\nkeystone: {interface: inside}", "internal, public or admin"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "placement.yaml")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := ReadConfig(path)
			if test.err == "" && (err != nil || c.Timeout != 5*time.Second || c.Host == "") {
				t.Errorf("ReadConfig: %+v, %v", c, err)
			}
			if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("ReadConfig: %v, want %q", err, test.err)
			}
		})
	}
}
