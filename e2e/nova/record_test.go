package nova

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recording is a file of Placement's answers to requests that followed each other.
type recording struct {
	// Recorded is the day on which Placement answered so.
	Recorded string `json:"recorded"`
	// By names the versions of Debian's packages that answered.
	By           string     `json:"by"`
	Microversion string     `json:"microversion"`
	Exchanges    []exchange `json:"exchanges"`
}

// exchange is a request and Placement's answer. Values that differ from run to run are replaced:
// UUIDs, and others that a [recorder] was told of.
type exchange struct {
	About  string          `json:"about"`
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body,omitempty"`
	Status int             `json:"status"`
	Answer json.RawMessage `json:"answer,omitempty"`
}

// recorder records a client's requests.
type recorder struct {
	client *client
	stand  []string // what to replace, and by what
	// changing has generations replaced, where others change the providers, too.
	changing bool
	all      []exchange
}

// call has a name replaced from here on.
func (r *recorder) call(real, name string) { r.stand = append(r.stand, real, name) }

var (
	requestID  = regexp.MustCompile(`req-[0-9a-f-]{36}`)
	generation = regexp.MustCompile(`("(?:resource_provider_)?generation":)\d+`)
	// Nova's own changes of a compute node's provider are counted, too.
	nodeGeneration = regexp.MustCompile(`("uuid":"11111111-[^}]*?"generation":)\d+|("generation":)\d+([^}]*?"uuid":"11111111-)`)
)

// send sends a request and records the answer.
func (r *recorder) send(about, method, path string, body any) answer {
	r.client.tb.Helper()
	a := r.client.send(method, placementURL+path, body)
	e := exchange{About: about, Method: method, Path: r.replaced([]byte(path)), Status: a.status}
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			r.client.tb.Fatal(err)
		}
		e.Body = json.RawMessage(r.replaced(text))
	}
	if json.Valid(a.body) {
		e.Answer = json.RawMessage(r.replaced(a.body))
	} else if len(a.body) > 0 {
		r.client.tb.Fatalf("%s %s: the answer is no JSON: %s", method, path, a.body)
	}
	r.all = append(r.all, e)
	return a
}

// replaced returns a text without what differs from run to run, without spaces between its tokens.
func (r *recorder) replaced(text []byte) string {
	var compact bytes.Buffer
	if json.Compact(&compact, text) == nil {
		text = compact.Bytes()
	}
	s := strings.NewReplacer(r.stand...).Replace(string(text))
	s = requestID.ReplaceAllString(s, "req-00000000-0000-4000-8000-000000000000")
	if r.changing {
		s = generation.ReplaceAllString(s, "${1}1")
	}
	return nodeGeneration.ReplaceAllString(s, "${1}${2}1${3}")
}

// check compares what was recorded with the file of an earlier run, or writes it with -update.
func (r *recorder) check(tb testing.TB, name, by string) {
	tb.Helper()
	path := filepath.Join("..", "..", "mediator", "nova", "testdata", name)
	got := recording{time.Now().UTC().Format(time.DateOnly), by, microversion, r.all}
	if *update {
		text, err := json.MarshalIndent(got, "", "  ")
		if err == nil {
			err = os.WriteFile(path, append(text, '\n'), 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
		return
	}
	var want recording
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(plain(tb, want.Exchanges), plain(tb, got.Exchanges)); diff != "" {
		tb.Errorf("%s of %s by %s differs from what %s answers (-recorded +now):\n%s", name, want.Recorded, want.By, by, diff)
	}
}

// plain returns exchanges as values that compare without regard to the order of keys.
func plain(tb testing.TB, all []exchange) (v any) {
	tb.Helper()
	text, err := json.Marshal(all)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return v
}
