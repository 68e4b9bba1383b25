package nova

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// Where the test bed's services are.
const (
	keystoneURL  = "http://127.0.0.1:5000/v3"
	placementURL = "http://127.0.0.1:8778"
	glanceURL    = "http://127.0.0.1:9292/v2"
	novaURL      = "http://127.0.0.1:8774/v2.1"
)

// microversion is that of Placement's API, as vgpu-placement asks for it.
const microversion = "1.28"

// client sends a user's requests.
type client struct {
	tb      testing.TB
	http    *http.Client
	token   string
	project string
	// microversion is that of Placement's API.
	microversion string
}

// newClient logs a user in.
func newClient(b *bed, user, project string) *client {
	b.tb.Helper()
	t := &http.Transport{DialContext: b.dial, DisableKeepAlives: true}
	c := &client{tb: b.tb, http: &http.Client{Transport: t, Timeout: timeout}, microversion: microversion}
	type named struct {
		Name   string            `json:"name,omitempty"`
		ID     string            `json:"id,omitempty"`
		Domain map[string]string `json:"domain,omitempty"`
		Secret string            `json:"password,omitempty"`
	}
	domain := map[string]string{"id": "default"}
	body := map[string]any{"auth": map[string]any{
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{"user": named{Name: user, Domain: domain, Secret: "secret"}}},
		"scope":    map[string]any{"project": named{Name: project, Domain: domain}},
	}}
	a := c.send(http.MethodPost, keystoneURL+"/auth/tokens", body)
	if a.status != http.StatusCreated {
		b.tb.Fatalf("log %s in: %d: %s", user, a.status, a.body)
	}
	var token struct {
		Token struct {
			Project named `json:"project"`
		} `json:"token"`
	}
	a.decode(b.tb, &token)
	c.token, c.project = a.header.Get("X-Subject-Token"), token.Token.Project.ID
	return c
}

// answer is a service's answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// decode reads the answer's body.
func (a answer) decode(tb testing.TB, to any) {
	tb.Helper()
	if err := json.Unmarshal(a.body, to); err != nil {
		tb.Fatalf("%v: %s", err, a.body)
	}
}

// send sends a request; body is JSON, raw bytes, or nil.
func (c *client) send(method, url string, body any) answer {
	c.tb.Helper()
	kind := "application/json"
	text, raw := body.([]byte)
	if raw {
		kind = "application/octet-stream"
	} else if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			c.tb.Fatal(err)
		}
	}
	r, err := http.NewRequest(method, url, bytes.NewReader(text))
	if err != nil {
		c.tb.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", kind)
	}
	r.Header.Set("Accept", "application/json")
	// Nova's own reads flavors' extra specs by 2.61; each service ignores the other's.
	r.Header.Add("OpenStack-API-Version", "placement "+c.microversion)
	r.Header.Add("OpenStack-API-Version", "compute 2.90")
	if c.token != "" {
		r.Header.Set("X-Auth-Token", c.token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		c.tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	text, err = io.ReadAll(resp.Body)
	if err != nil {
		c.tb.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, text}
}

// must sends a request that is not refused, and decodes the answer to to unless that is nil.
func (c *client) must(method, url string, body, to any) {
	c.tb.Helper()
	a := c.send(method, url, body)
	if a.status >= 300 {
		c.tb.Fatalf("%s %s: %d: %s", method, url, a.status, a.body)
	}
	if to != nil {
		a.decode(c.tb, to)
	}
}

// refused sends a request that is refused with a status.
func (c *client) refused(status int, method, url string, body any) error {
	c.tb.Helper()
	if a := c.send(method, url, body); a.status != status {
		return fmt.Errorf("%s %s: %d: %s, want %d", method, url, a.status, a.body, status)
	}
	return nil
}
