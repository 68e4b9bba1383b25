package api

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/access"
)

// TestBodyErrors: an error about a body names the field and what would be right, without Go's words.
func TestBodyErrors(t *testing.T) {
	const (
		create = "POST /v1/vms"
		vm     = "PATCH /v1/vms/a"
		gpu    = "PATCH /v1/gpus/gpu0"
		whole  = "want a whole number from -2^63 to 2^63-1"
	)
	h := Handler(&host{}, testOptions(access.Operator))
	for _, try := range []struct{ request, body, want string }{
		{create, `{"name": "b", "wieght": 2}`, `"wieght": unknown field; do you mean weight?`},
		{create, `{"name": "b", "memory-limit-bytes": 2}`, `"memory-limit-bytes": unknown field; do you mean memory_limit_bytes?`},
		{create, `{"name": "b", "peer": {"pidfile": "/x"}}`, `"pidfile": unknown field; do you mean pid_file?`},
		{create, `{"name": 7}`, `name: found a number, want a text`},
		{create, `{"uid": 1.5}`, `uid: found 1.5, ` + whole},
		{create, `{"peer": {"pid": "1"}}`, `peer.pid: found a text, ` + whole},
		{create, `{"peer": 3}`, `peer: found a number, want an object`},
		{create, `{"bar2_bytes": -1}`, `bar2_bytes: found -1, want a whole number from 0 to 2^64-1`},
		{create, `{"memory_limit_bytes": "4GiB"}`, `memory_limit_bytes: found a text, want a whole number from 0 to 2^64-1`},
		{create, `{"kernel_time_limit_nanos": "10s"}`, `kernel_time_limit_nanos: found a text, want a whole number of nanoseconds`},
		{create, `{"name": "b"`, `it ends within the JSON object`},
		{create, `{"name": "` + strings.Repeat("x", maxBody) + `"}`, `more than 65536 bytes`},
		{vm, `{"weight": "heavy"}`, `weight: found a text, want a number of at most 1.7e308`},
		{vm, `{"weight": 1e400}`, `weight: found 1e400, want a number of at most 1.7e308`},
		{vm, `{"weight": true}`, `weight: found true or false, want a number of at most 1.7e308`},
		{vm, `{"domain": {}}`, `domain: found an object, want a text`},
		{vm, `[]`, `found a list, want an object`},
		{vm, ``, `empty, want a JSON object`},
		{vm, `weight=2`, `no JSON at byte 1: invalid character 'w' looking for beginning of value`},
		{vm, `{"` + strings.Repeat("z", 100) + `": 1}`, `"` + strings.Repeat("z", 48) + `": unknown field; known are weight, cap, guarantee, priority_ceiling, latency_nanos, kernel_time_limit_nanos, budget, period, soft_nanos, hard_nanos, at_hard, memory_limit_bytes, domain, owner, project`},
		{gpu, `{"zebra\n": 1}`, `"zebra\n": unknown field; known are policy, cordoned, draining, end_contexts`},
		{gpu, `{"cordoned": "yes"}`, `cordoned: found a text, want true or false`},
	} {
		method, path, _ := strings.Cut(try.request, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(try.body)))
		var p problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		if want := "request body: " + try.want + ": invalid"; p.Error != want || w.Code != 400 {
			t.Errorf("%s %.80s\ngave %d %s\nwant %s", try.request, try.body, w.Code, p.Error, want)
		}
	}
}

// FuzzDecode: whatever a body is, it is refused by one bounded line, or decoded as package json does.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"name": "a", "weight": 2, "peer": {"pid_file": "/x"}, "uid": 1}`, `{"wieght": 2}`, `{"cap": "x"}`, `{"end_contexts": 1e400}`, `{"peer": [1]}`, `{"name": `, `null`,
		`{"a": 1}{}`, "{\"\xff\u202e\n\": 1}", `{"kernel_time_limit_nanos": 1.5}`, "[[[", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		decodes[VMSpec](t, body)
		decodes[VMUpdate](t, body)
		decodes[GPUUpdate](t, body)
	})
}

func decodes[T any](t *testing.T, body string) {
	t.Helper()
	got, err := decode[T](httptest.NewRequest("PATCH", "/", strings.NewReader(body)))
	if err != nil {
		text := err.Error()
		if !errors.Is(err, ErrInvalid) || len(text) > 1<<10 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) ||
			strings.Contains(text, "Go ") || strings.Contains(text, "json: ") {
			t.Errorf("%q gave %q", body, text)
		}
		return
	}
	var want T
	if err := json.Unmarshal([]byte(body), &want); err != nil {
		t.Errorf("%q is taken for %+v, and is none: %v", body, got, err)
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%q (-want +got):\n%s", body, cmp.Diff(want, got))
	}
}
