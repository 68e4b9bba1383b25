package web

import (
	"embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strconv"

	"vgpud/fairshare"
	"vgpud/mediator/access"
)

//go:embed page
var files embed.FS

// policy is the page's content security policy: its own files and nothing else, and a document that
// scripts can't write as markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Options configure a handler. All must be set.
type Options struct {
	Recorder *Recorder
	// Caller returns who sent a request. The page's files are for everybody, what they ask for is
	// for viewers, and the API decides by itself who may change what.
	Caller func(*http.Request) access.Caller
	// Host is the machine's name, which the page shows.
	Host string
	Log  *slog.Logger
}

// answer is what the page gets once a second.
type answer struct {
	Host          string   `json:"host"`
	Version       string   `json:"version"`
	UptimeSeconds float64  `json:"uptime_seconds"`
	Role          string   `json:"role"`
	Healthy       bool     `json:"healthy"`
	Problems      []string `json:"problems"`
	Unconfined    []string `json:"unconfined"`
	GPUs          []GPU    `json:"gpus"`
	Guests        []Guest  `json:"guests"`
	Policies      []string `json:"policies"`
	History       Span     `json:"history"`
}

// Handler serves the page at /, its files below /page/, and what they ask for at /page/state and
// /page/day.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { o.file(w, r, "index.html") })
	mux.HandleFunc("GET /page/{name}", func(w http.ResponseWriter, r *http.Request) { o.file(w, r, r.PathValue("name")) })
	mux.HandleFunc("GET /page/state", o.allow(func(r *http.Request, role access.Role) any {
		after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
		if err != nil {
			after = 0 // from the beginning
		}
		return o.Recorder.state(o.Host, role, after)
	}))
	mux.HandleFunc("GET /page/day", o.allow(func(*http.Request, access.Role) any { return o.Recorder.day() }))
	return mux
}

// state returns what the page shows now, with the points after those that it has.
func (r *Recorder) state(host string, role access.Role, after uint64) answer {
	r.mu.RLock()
	defer r.mu.RUnlock()
	h := &r.now.Health
	return answer{
		Host: host, Version: h.Version, UptimeSeconds: h.UptimeSeconds, Role: role.String(), Healthy: h.Healthy, Problems: h.Problems,
		Unconfined: h.Unconfined, GPUs: r.now.GPUs, Guests: r.now.Guests, Policies: fairshare.Names(), History: r.fine.since(after),
	}
}

// day returns the coarse history.
func (r *Recorder) day() Span {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.coarse.since(0)
}

// allow answers readers of the page with JSON.
func (o *Options) allow(serve func(*http.Request, access.Role) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := o.Caller(r)
		if c.Role < access.Viewer {
			http.Error(w, fmt.Sprintf("%v may not read this: the daemon's configuration gives roles: access.viewers", c), http.StatusForbidden)
			return
		}
		b, err := json.Marshal(serve(r, c.Role))
		if err != nil {
			o.Log.Error("encode an answer to the page", "err", err)
			http.Error(w, "the answer can't be encoded", http.StatusInternalServerError)
			return
		}
		secure(w.Header())
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if _, err := w.Write(b); err != nil {
			o.Log.Debug("answer the page", "err", err)
		}
	}
}

// types are the files' types, which are not left to the machine's own table.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// file serves one of the page's files.
func (o *Options) file(w http.ResponseWriter, r *http.Request, name string) {
	b, err := files.ReadFile("page/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	secure(w.Header())
	w.Header().Set("Content-Type", types[path.Ext(name)])
	w.Header().Set("Cache-Control", "no-cache")
	if _, err := w.Write(b); err != nil {
		o.Log.Debug("answer the page", "err", err)
	}
}

// secure sets the headers that keep the page to itself.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
