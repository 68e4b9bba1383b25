package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestGuard(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for _, test := range []struct {
		name    string
		allowed func(string) bool
		method  string
		host    string
		header  http.Header
		want    int
	}{
		{"a reader", Loopback, "GET", "127.0.0.1:9877", nil, 200},
		{"a reader by IPv6", Loopback, "GET", "[::1]:9877", nil, 200},
		{"a forwarded port", Loopback, "GET", "localhost:1234", nil, 200},
		{"DNS rebinding", Loopback, "GET", "evil.example:9877", nil, 403},
		{"DNS rebinding by a name that looks like an address", Loopback, "GET", "127.0.0.1.evil.example", nil, 403},
		{"another machine's address", Loopback, "GET", "10.0.0.7:9877", nil, 403},
		{"no host", Loopback, "GET", "", nil, 403},
		{"a program on the socket", LoopbackOrLabel, "PATCH", "vgpud", nil, 200},
		{"DNS rebinding to a forwarded socket", LoopbackOrLabel, "GET", "evil.example:9877", nil, 403},
		{"the page", LoopbackOrLabel, "PATCH", "localhost:9877", http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {"http://localhost:9877"}}, 200},
		{"a foreign site's form", Anywhere, "POST", "gpuhost:9878", http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}}, 403},
		{"a foreign site in an old browser", Anywhere, "PATCH", "gpuhost:9878", http.Header{"Origin": {"https://evil.example"}}, 403},
		{"another port of this host", Anywhere, "DELETE", "localhost:9878", http.Header{"Origin": {"http://localhost:8080"}}, 403},
		{"a sandboxed frame", Anywhere, "POST", "localhost:9878", http.Header{"Origin": {"null"}}, 403},
		{"a foreign site's link", Anywhere, "GET", "gpuhost:9878", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 200},
	} {
		r := httptest.NewRequest(test.method, "/v1/vms/a", nil)
		r.Host = test.host
		for k, v := range test.header {
			r.Header[k] = v
		}
		w := httptest.NewRecorder()
		Guard(served, test.allowed).ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("%s: %d %s, want %d", test.name, w.Code, w.Body, test.want)
		}
	}
}
