package placement

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/nova"
	"vgpud/mediator/nova/placement/placementtest"
)

// exchange is a request and the answer of a real Placement: `make test-nova` records them.
type exchange struct {
	About  string          `json:"about"`
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body"`
	Status int             `json:"status"`
	Answer json.RawMessage `json:"answer"`
}

// recorded returns the exchanges of a file, which followed each other.
func recorded(t *testing.T, name string) []exchange {
	t.Helper()
	b, err := os.ReadFile("../testdata/placement-" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Exchanges []exchange }
	if err := json.Unmarshal(b, &file); err != nil || len(file.Exchanges) == 0 {
		t.Fatalf("%d exchanges, %v", len(file.Exchanges), err)
	}
	return file.Exchanges
}

// TestRecordedAnswers: the client takes each answer of a real Placement for what it is.
func TestRecordedAnswers(t *testing.T) {
	const recordedNode = "11111111-1111-4111-8111-111111111111"
	id := nova.ProviderUUID(recordedNode, "gpu7")
	do := func(k nova.Kind) func(*Client) error {
		return func(c *Client) error {
			_, err := c.Do(t.Context(), nova.Request{Kind: k, Provider: id, Name: "fake1_vgpud_gpu7", Parent: recordedNode})
			return err
		}
	}
	named := func(name string) func(*Client) error {
		return func(c *Client) error {
			p, err := c.Named(t.Context(), name)
			if err == nil && p.UUID != recordedNode {
				err = errors.New("it is " + p.UUID)
			}
			return err
		}
	}
	allocation := func(want int) func(*Client) error {
		return func(c *Client) error {
			a, err := c.Allocation(t.Context(), instance)
			sum := 0
			for _, amounts := range a {
				sum += amounts[nova.ClassShare]
			}
			if err == nil && (sum != want || a.Ours() != (want > 0)) {
				t.Errorf("%v: want %d shares", a, want)
			}
			return err
		}
	}
	tests := map[string]struct {
		ask  func(*Client) error
		want error
	}{
		"the compute node":                            {named("fake1"), nil},
		"a host without a compute node":               {named("nobody"), ErrNotFound},
		"a resource class that is there":              {func(c *Client) error { return c.DeclareClass(t.Context(), nova.ClassShare) }, nil},
		"a trait that is there":                       {func(c *Client) error { return c.DeclareTrait(t.Context(), nova.TraitVGPUD) }, nil},
		"a trait that is not ours to name":            {func(c *Client) error { return c.DeclareTrait(t.Context(), "VGPUD") }, ErrRefused},
		"a new GPU":                                   {do(nova.Create), nil},
		"the same again":                              {do(nova.Create), ErrExists},
		"a GPU whose parent is unknown":               {do(nova.Create), ErrRefused},
		"inventories":                                 {do(nova.SetInventories), nil},
		"inventories, with a generation that is past": {do(nova.SetInventories), ErrConflict},
		"an unknown class":                            {do(nova.SetInventories), ErrRefused},
		"more reserved than there is":                 {do(nova.SetInventories), ErrRefused},
		"traits":                                      {do(nova.SetTraits), nil},
		"traits, with a generation that is past":      {do(nova.SetTraits), ErrConflict},
		"an unknown trait":                            {do(nova.SetTraits), ErrRefused},
		"all of the shares reserved":                  {do(nova.SetInventories), nil},
		"its name changes":                            {do(nova.Rename), nil},
		"it goes":                                     {do(nova.Delete), nil},
		"it goes again":                               {do(nova.Delete), ErrNotFound},
		"an instance's allocation":                    {allocation(60), nil},
		"an instance that has none":                   {allocation(0), nil},
		"no instance":                                 {allocation(0), nil},
		"what an instance was given stays":            {allocation(60), nil},
		"what the GPU has given": {func(c *Client) error {
			who, err := c.Consumers(t.Context(), id)
			if len(who) != 1 {
				t.Errorf("consumers %v", who)
			}
			return err
		}, nil},
		"how much of it": {func(c *Client) error {
			used, generation, err := c.Usages(t.Context(), id)
			if used[nova.ClassShare] != 60 || generation == 0 {
				t.Errorf("used %v at generation %d", used, generation)
			}
			return err
		}, nil},
		"the GPU goes":                  {do(nova.Delete), ErrInUse},
		"its inventories go":            {do(nova.SetInventories), ErrInUse},
		"it has less than it has given": {do(nova.SetInventories), nil},
		"all of its shares are reserved, also those that it has given": {do(nova.SetInventories), nil},
		"a token that is none": {named("fake1"), ErrDenied},
		"a tenant's token":     {named("fake1"), ErrDenied},
	}
	seen := 0
	for _, file := range []string{"providers", "allocation", "refusals"} {
		for _, e := range recorded(t, file) {
			test, ok := tests[e.About]
			if !ok {
				continue
			}
			seen++
			t.Run(e.About, func(t *testing.T) {
				if err := test.ask(plain(answering{e.Status, bytes.NewReader(e.Answer)})); !errors.Is(err, test.want) || test.want == nil && err != nil {
					t.Errorf("%d %s: %v, want %v", e.Status, e.Answer, err, test.want)
				}
			})
		}
	}
	if seen < len(tests) {
		t.Errorf("%d of %d answers are recorded", seen, len(tests))
	}
}

// TestFakeIsLikeTheRecorded: the Placement in memory, on which other tests rely, answers a recorded
// sequence of requests with the same statuses, codes and contents.
func TestFakeIsLikeTheRecorded(t *testing.T) {
	for _, file := range []string{"providers", "allocation"} {
		s := placementtest.New()
		exchanges := recorded(t, file)
		prepare(t, s, file, exchanges)
		n := 0
		for _, e := range exchanges {
			if e.Path == "/" || e.Path == "/traits/VGPUD" && e.Status == 400 {
				continue // versions, and a detail of names
			}
			var generation struct {
				Is *int `json:"resource_provider_generation"`
			}
			if file == "allocation" && json.Unmarshal(e.Body, &generation) == nil && generation.Is != nil {
				// Nova changes the provider, too, so that the recorder has replaced its generations.
				id := strings.Split(e.Path, "/")[2]
				s.Edit(id, func(p *nova.Provider) { p.Generation = *generation.Is - 1 })
			}
			r := httptest.NewRequestWithContext(t.Context(), e.Method, "http://placement"+e.Path, bytes.NewReader(e.Body))
			r.Header.Set("X-Auth-Token", "admin")
			r.Header.Set("OpenStack-API-Version", "placement 1.28")
			resp, err := s.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			n++
			if resp.StatusCode != e.Status {
				t.Errorf("%s: %s: status %d, want %d", file, e.About, resp.StatusCode, e.Status)
				continue
			}
			if diff := cmp.Diff(essence(t, e.Answer, file), essence(t, body, file)); diff != "" {
				t.Errorf("%s: %s (-Placement +fake):\n%s", file, e.About, diff)
			}
		}
		if n < 5 {
			t.Errorf("%s: %d exchanges were compared", file, n)
		}
	}
}

// prepare gives a fake what the real one had before a file's first exchange.
func prepare(t *testing.T, s *placementtest.Server, file string, exchanges []exchange) {
	t.Helper()
	const recordedNode = "11111111-1111-4111-8111-111111111111"
	s.AddProvider(nova.Provider{UUID: recordedNode, Name: "fake1", Generation: 1})
	c := NewWith(plain(s).config, s)
	for _, class := range append([]string{"VCPU", "MEMORY_MB"}, nova.Classes...) {
		if strings.HasPrefix(class, "CUSTOM_") {
			if err := c.DeclareClass(t.Context(), class); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, trait := range []string{nova.TraitVGPUD, nova.TraitSoftGPU} {
		if err := c.DeclareTrait(t.Context(), trait); err != nil {
			t.Fatal(err)
		}
	}
	if file != "allocation" {
		return
	}
	// The instance's allocation is the first answer, and the GPU's inventories are in a later request.
	var first struct {
		Allocations map[string]struct {
			Resources  map[string]int
			Generation int
		}
	}
	if err := json.Unmarshal(exchanges[0].Answer, &first); err != nil {
		t.Fatal(err)
	}
	full := map[string]nova.Inventory{}
	for _, class := range nova.Classes {
		full[class] = nova.Inventory{Total: 100, MinUnit: 1, MaxUnit: 100, StepSize: 1, AllocationRatio: 1}
	}
	consumer := strings.TrimPrefix(exchanges[0].Path, "/allocations/")
	for id, a := range first.Allocations {
		p := nova.Provider{UUID: id, Name: "fake1", Generation: a.Generation - 1}
		if id != recordedNode {
			p.Name, p.Parent, p.Inventories = "fake1_vgpud_gpu0", recordedNode, full
		}
		s.AddProvider(p)
		s.Allocate(consumer, id, a.Resources)
	}
}

// essence returns an answer without what the fake leaves out: links, texts for people, and whose
// the allocation is.
func essence(t *testing.T, answer []byte, file string) any {
	t.Helper()
	if len(bytes.TrimSpace(answer)) == 0 || string(bytes.TrimSpace(answer)) == "null" {
		return nil
	}
	var v any
	if err := json.Unmarshal(answer, &v); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	drop := []string{"links", "detail", "title", "request_id", "consumer_generation", "project_id", "user_id"}
	if file == "allocation" {
		drop = append(drop, "generation", "resource_provider_generation")
	}
	return strip(v, drop)
}

func strip(v any, drop []string) any {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range drop {
			delete(v, name)
		}
		for name := range v {
			v[name] = strip(v[name], drop)
		}
	case []any:
		for i := range v {
			v[i] = strip(v[i], drop)
		}
	}
	return v
}
