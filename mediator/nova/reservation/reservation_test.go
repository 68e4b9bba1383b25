package reservation

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var request = Request{Guest: "web1", GPU: "gpu0", Float: true, Weight: 2, Cap: 0.5, Guarantee: 0.25, MemoryLimitBytes: 1 << 30}

// TestReserve: what is asked arrives, and the answer's kind does.
func TestReserve(t *testing.T) {
	var answer error
	var got Request
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(Handler(func(_ context.Context, r Request) error {
		got = r
		return answer
	}))
	s.Listener = l
	s.Start()
	defer s.Close()
	c := Client{socket}
	for _, test := range []struct {
		answer error
		sold   bool
		text   string
	}{
		{nil, false, ""},
		{ErrSold, true, "promised"},
		{errors.New("Placement\nanswers 503"), false, "answers 503"},
		{errors.New(strings.Repeat("z", maxBody)), false, "zzz"},
	} {
		answer = test.answer
		err := c.Reserve(t.Context(), request)
		if (err == nil) != (test.answer == nil) || errors.Is(err, ErrSold) != test.sold || err != nil && (!strings.Contains(err.Error(), test.text) || len(err.Error()) > 600) {
			t.Errorf("the agent says %.50v: Reserve: %.700v", test.answer, err)
		}
		if diff := cmp.Diff(request, got); diff != "" {
			t.Errorf("the request (-sent +arrived):\n%s", diff)
		}
	}
	if err := (Client{filepath.Join(t.TempDir(), "none")}).Reserve(t.Context(), request); err == nil || errors.Is(err, ErrSold) || !strings.Contains(err.Error(), "systemctl") {
		t.Errorf("without an agent: %v", err)
	}
}

// TestHandlerRefuses: what no daemon sends does not reach the agent.
func TestHandlerRefuses(t *testing.T) {
	h := Handler(func(_ context.Context, r Request) error {
		t.Errorf("it reached the agent: %+v", r)
		return nil
	})
	for name, test := range map[string]struct {
		method, path, body string
		status             int
	}{
		"empty":             {"POST", "/v1/reserve", ``, 400},
		"a list":            {"POST", "/v1/reserve", `[]`, 400},
		"no name":           {"POST", "/v1/reserve", `{"gpu":"gpu0","weight":1}`, 400},
		"a path as name":    {"POST", "/v1/reserve", `{"guest":"../x","gpu":"gpu0","weight":1}`, 400},
		"no weight":         {"POST", "/v1/reserve", `{"guest":"a","gpu":"gpu0"}`, 400},
		"a negative cap":    {"POST", "/v1/reserve", `{"guest":"a","gpu":"gpu0","weight":1,"cap":-1}`, 400},
		"too much memory":   {"POST", "/v1/reserve", `{"guest":"a","gpu":"gpu0","weight":1,"memory_limit_bytes":18446744073709551615}`, 400},
		"larger than large": {"POST", "/v1/reserve", `{"guest":"` + strings.Repeat("a", maxBody) + `"}`, 400},
		"another path":      {"POST", "/", `{"guest":"a","gpu":"gpu0","weight":1}`, 404},
		"another method":    {"GET", "/v1/reserve", ``, 404},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), test.method, test.path, strings.NewReader(test.body)))
		if w.Code != test.status {
			t.Errorf("%s: %d (%s), want %d", name, w.Code, http.StatusText(w.Code), test.status)
		}
	}
}
