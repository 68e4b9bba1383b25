package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vgpud/mediator/access"
)

// listening starts a server and returns a function that connects to it.
func listening(t *testing.T, s *http.Server) func() net.Conn {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return func() net.Conn {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func server() *http.Server {
	log := slog.New(slog.DiscardHandler)
	return NewServer(Handler(&host{vms: map[string]VM{"a": {Name: "a"}}}, testOptions(access.Operator)), log)
}

func TestLargeHeadersAreRefused(t *testing.T) {
	c := listening(t, server())()
	go fmt.Fprintf(c, "GET /v1/health HTTP/1.1\r\nHost: vgpud\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestSlowCallersAreDisconnected: a caller that does not go on, with the header, the body or the next
// request, is disconnected.
func TestSlowCallersAreDisconnected(t *testing.T) {
	for name, sent := range map[string]string{
		"nothing": "", "half a header": "GET /v1/health HTTP/1.1\r\nHo",
		"half a body":  "PATCH /v1/vms/a HTTP/1.1\r\nHost: vgpud\r\nContent-Length: 20\r\n\r\n{",
		"one request":  "GET /v1/health HTTP/1.1\r\nHost: vgpud\r\n\r\n",
		"no next line": "GET /v1/health HTTP/1.1\r\nHost: vgpud\r\n\r\nG",
	} {
		t.Run(name, func(t *testing.T) {
			s := server()
			for _, limit := range []*time.Duration{&s.ReadHeaderTimeout, &s.ReadTimeout, &s.WriteTimeout, &s.IdleTimeout} {
				if *limit <= 0 || *limit > 2*time.Minute {
					t.Errorf("a limit of %v", *limit)
				}
				*limit = 20 * time.Millisecond
			}
			c := listening(t, s)()
			if _, err := io.WriteString(c, sent); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			}
		})
	}
}

// TestOtherSitesChangeNothing: a web page of another site can't use a browser's client certificate to
// change something.
func TestOtherSitesChangeNothing(t *testing.T) {
	for header, want := range map[string]int{"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden, "same-origin": http.StatusOK, "": http.StatusOK} {
		h := &host{vms: map[string]VM{"a": {Name: "a", Weight: 1}}}
		r := httptest.NewRequest("PATCH", "/v1/vms/a", strings.NewReader(`{"weight": 2}`))
		r.Header.Set("Sec-Fetch-Site", header)
		w := httptest.NewRecorder()
		Handler(h, testOptions(access.Operator)).ServeHTTP(w, r)
		if w.Code != want || (h.vms["a"].Weight == 2) != (want == http.StatusOK) {
			t.Errorf("%q: %d, weight %v", header, w.Code, h.vms["a"].Weight)
		}
	}
}
