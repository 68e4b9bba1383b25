package web

import (
	"net"
	"net/http"
	"strings"
)

// Guard answers with 403 what a foreign site makes a browser send: requests that name a host which
// allowed refuses, since a foreign site's name may have been made to lead here (DNS rebinding), and
// changes from another origin (cross-site request forgery). Programs that are no browsers send no
// Origin and no Sec-Fetch-Site, and only the first check applies to them.
func Guard(next http.Handler, allowed func(host string) bool) http.Handler {
	forgery := http.NewCrossOriginProtection()
	checked := forgery.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed(hostname(r.Host)) {
			http.Error(w, "this daemon is not called "+strings.ToValidUTF8(hostname(r.Host), "?")+": use localhost, or the name in its certificate", http.StatusForbidden)
			return
		}
		checked.ServeHTTP(w, r)
	})
}

// hostname returns a Host header without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.Trim(host, "[]")
}

// Loopback reports whether a host is this machine, by a name that no foreign site can have.
func Loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// LoopbackOrLabel is [Loopback] or a name without a dot. It is for unix sockets, over which clients
// use any such name, and to which a browser gets by a forwarded port alone: a foreign site's name
// has a dot.
func LoopbackOrLabel(host string) bool {
	return Loopback(host) || !strings.ContainsAny(host, ".:")
}

// Anywhere allows every host. It is for TLS, where the browser has checked that the certificate has
// the host's name.
func Anywhere(string) bool { return true }
