package web

import (
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vgpud/clock"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
)

func ask(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func handlerFor(s *source, role access.Role) http.Handler {
	r := NewRecorder(s, new(clock.Sim), nil)
	return Handler(Options{Recorder: r, Caller: access.As(role), Host: "host", Log: slog.New(slog.DiscardHandler)})
}

func TestRoles(t *testing.T) {
	for role, want := range map[access.Role]int{access.None: 403, access.Viewer: 200, access.Operator: 200} {
		h := handlerFor(new(source), role)
		for _, path := range []string{"/page/state", "/page/state?after=99", "/page/state?after=x", "/page/day"} {
			if w := ask(t, h, path); w.Code != want {
				t.Errorf("%v: %s: %d %s, want %d", role, path, w.Code, w.Body, want)
			}
		}
		w := ask(t, h, "/page/state")
		if want == 403 {
			continue
		}
		var got answer
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Role != role.String() {
			t.Errorf("the page is told role %q (%v), want %v", got.Role, err, role)
		}
	}
}

// TestPolicyOfThePage: every answer forbids scripts and styles within the document, other hosts, and
// frames.
func TestPolicyOfThePage(t *testing.T) {
	h := handlerFor(new(source), access.Viewer)
	for _, path := range []string{"/", "/page/page.js", "/page/state", "/page/day"} {
		w := ask(t, h, path)
		policy := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
			if !slices.Contains(strings.Split(policy, "; "), want) {
				t.Errorf("%s: the policy %q lacks %q", path, policy, want)
			}
		}
		if w.Code != http.StatusOK || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d, %v", path, w.Code, w.Header())
		}
	}
	for _, path := range []string{"/page/", "/page/..", "/page/none.js", "/page/%2e%2e%2fhandler.go"} {
		if w := ask(t, h, path); w.Code == http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// TestFilesAreSelfContained: the page's files are served with their types, name no other host, and
// have no inline script or style, which the page's policy would refuse.
func TestFilesAreSelfContained(t *testing.T) {
	h := handlerFor(new(source), access.Viewer)
	address := regexp.MustCompile(`(?i)https?://[a-z0-9.-]+`)
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|javascript:|<script(?:>|\s[^>]*[^>]*></script>\s*[^<\s])`)
	entries, err := fs.ReadDir(files, "page")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		w := ask(t, h, "/page/"+e.Name())
		if w.Code != http.StatusOK || types[path.Ext(e.Name())] == "" {
			t.Errorf("%s: %d, of type %q", e.Name(), w.Code, types[path.Ext(e.Name())])
		}
		text := w.Body.String()
		if path.Ext(e.Name()) == ".html" && inline.MatchString(text) {
			t.Errorf("%s has an inline script or style: %q", e.Name(), inline.FindString(text))
		}
		for _, a := range address.FindAllString(text, -1) {
			// The name of a language is no address.
			if a != "http://www.w3.org" && !strings.HasPrefix(e.Name(), "uPlot") {
				t.Errorf("%s names %s", e.Name(), a)
			}
		}
		if strings.HasSuffix(e.Name(), ".js") && !strings.HasPrefix(e.Name(), "uPlot") {
			for _, sink := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "setAttribute(\"style\""} {
				if strings.Contains(text, sink) {
					t.Errorf("%s uses %s", e.Name(), sink)
				}
			}
		}
	}
	if w := ask(t, h, "/page/uPlot.LICENSE.txt"); !strings.Contains(w.Body.String(), "MIT License") {
		t.Error("uPlot's licence is not served")
	}
}

// TestNamesStayText: a guest's name reaches the page as JSON that no browser takes for markup.
func TestNamesStayText(t *testing.T) {
	name := "<img src=x onerror=alert(1)>\u2028\u202e</script>"
	s := &source{vms: []api.VM{{Name: "a", Domain: name, GPU: "gpu0"}}}
	r := record(t, s, 1, func(int) {})
	h := Handler(Options{Recorder: r, Caller: access.As(access.Viewer), Log: slog.New(slog.DiscardHandler)})
	w := ask(t, h, "/page/state")
	if strings.ContainsAny(w.Body.String(), "<>") || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
	var got answer
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Guests[0].Domain != name {
		t.Errorf("%v %+v, want %q", err, got.Guests, name)
	}
}
