package api

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"vgpud/mediator/access"
	"vgpud/mediator/audit"
	"vgpud/mediator/events"
)

// Host is the state behind the API. Its methods are called from many goroutines; their errors wrap
// those of this package. Methods that change something are told who asks for that.
type Host interface {
	VMs() []VM
	VM(name string) (VM, error)
	CreateVM(by access.Caller, s VMSpec) (VM, error)
	UpdateVM(by access.Caller, name string, u VMUpdate) (VM, error)
	// DeleteVM deletes a guest's virtual GPU. While its VMM is connected this needs force.
	DeleteVM(by access.Caller, name string, force bool) error
	// Tasks returns the contexts of guests that float.
	Tasks() Tasks
	GPUs() []GPU
	GPU(name string) (GPU, error)
	UpdateGPU(by access.Caller, name string, u GPUUpdate) (GPU, error)
	Health() Health
	// Usage returns what guests used, and UsageCosts what that costs, as OpenCost's custom cost
	// plugins do.
	Usage(ctx context.Context, q UsageQuery) (Usage, error)
	UsageCosts(ctx context.Context, q UsageQuery) (any, error)
}

//go:embed openapi.yaml
var openAPI []byte

// maxBody bounds a request's body, in bytes.
const maxBody = 64 << 10

// route is one line of the API. role is what its callers need. stream takes the place of serve where
// the answer is more than one value.
type route struct {
	method, path string
	role         access.Role
	serve        func(h Host, r *http.Request) (any, error)
	stream       func(s *handler, w http.ResponseWriter, r *http.Request)
}

var routes = []route{
	{method: "GET", path: "/v1/health", role: access.Viewer, serve: func(h Host, _ *http.Request) (any, error) { return h.Health(), nil }},
	{method: "GET", path: "/v1/vms", role: access.Viewer, serve: func(h Host, r *http.Request) (any, error) {
		vms := h.VMs()
		if d := r.URL.Query().Get("domain"); d != "" {
			vms = slices.DeleteFunc(vms, func(v VM) bool { return !v.InDomain(d) })
		}
		return vms, nil
	}},
	{method: "POST", path: "/v1/vms", role: access.Operator, serve: func(h Host, r *http.Request) (any, error) {
		s, err := decode[VMSpec](r)
		if err != nil {
			return nil, err
		}
		return h.CreateVM(callerOf(r), s)
	}},
	{method: "GET", path: "/v1/vms/{name}", role: access.Viewer, serve: func(h Host, r *http.Request) (any, error) { return h.VM(r.PathValue("name")) }},
	{method: "PATCH", path: "/v1/vms/{name}", role: access.Operator, serve: func(h Host, r *http.Request) (any, error) {
		u, err := decode[VMUpdate](r)
		if err != nil {
			return nil, err
		}
		return h.UpdateVM(callerOf(r), r.PathValue("name"), u)
	}},
	{method: "DELETE", path: "/v1/vms/{name}", role: access.Operator, serve: func(h Host, r *http.Request) (any, error) {
		force := false
		if s := r.URL.Query().Get("force"); s != "" {
			var err error
			if force, err = strconv.ParseBool(s); err != nil {
				return nil, fmt.Errorf("force=%q: want true or false: %w", s, ErrInvalid)
			}
		}
		return struct{}{}, h.DeleteVM(callerOf(r), r.PathValue("name"), force)
	}},
	{method: "GET", path: "/v1/usage", role: access.Viewer, serve: serveUsage},
	{method: "GET", path: "/v1/usage/opencost", role: access.Viewer, serve: serveUsageCosts},
	{method: "GET", path: "/v1/tasks", role: access.Viewer, serve: func(h Host, r *http.Request) (any, error) {
		t := h.Tasks()
		if vm := r.URL.Query().Get("vm"); vm != "" {
			t.Tasks = slices.DeleteFunc(t.Tasks, func(t Task) bool { return t.VM != vm })
		}
		return t, nil
	}},
	{method: "GET", path: "/v1/event-kernels", role: access.Viewer, serve: serveEventKernels},
	{method: "GET", path: "/v1/gpus", role: access.Viewer, serve: func(h Host, _ *http.Request) (any, error) { return h.GPUs(), nil }},
	{method: "GET", path: "/v1/gpus/{name}", role: access.Viewer, serve: func(h Host, r *http.Request) (any, error) { return h.GPU(r.PathValue("name")) }},
	{method: "PATCH", path: "/v1/gpus/{name}", role: access.Operator, serve: func(h Host, r *http.Request) (any, error) {
		u, err := decode[GPUUpdate](r)
		if err != nil {
			return nil, err
		}
		return h.UpdateGPU(callerOf(r), r.PathValue("name"), u)
	}},
	{method: "GET", path: "/v1/events", role: access.Viewer, stream: (*handler).serveEvents},
}

// HandlerOptions configure a handler. Caller and Log must be set.
type HandlerOptions struct {
	// Caller returns who sent a request, and their role.
	Caller func(*http.Request) access.Caller
	// Audit is called with each request for a change, after it was carried out or refused, and
	// before it is answered.
	Audit func(audit.Record)
	// Events are served at /v1/events.
	Events *events.Ring
	// Metrics is served at /metrics.
	Metrics http.Handler
	Log     *slog.Logger
}

// handler serves a host.
type handler struct {
	host    Host
	o       HandlerOptions
	streams streams
}

// Handler serves the API.
func Handler(h Host, o HandlerOptions) http.Handler {
	if o.Audit == nil {
		o.Audit = func(audit.Record) {}
	}
	if o.Events == nil {
		o.Events = events.NewRing(1, time.Now())
	}
	s := &handler{host: h, o: o}
	mux := http.NewServeMux()
	for _, rt := range routes {
		mux.HandleFunc(rt.method+" "+rt.path, s.allow(rt.role, func(w http.ResponseWriter, r *http.Request) {
			if rt.stream != nil {
				rt.stream(s, w, r)
				return
			}
			// The body is kept for the record of changes.
			var body bytes.Buffer
			r.Body = io.NopCloser(io.TeeReader(http.MaxBytesReader(w, r.Body, maxBody), &body))
			v, err := rt.serve(h, r)
			if rt.role >= access.Operator {
				s.record(callerOf(r), r, body.Bytes(), err)
			}
			if err != nil {
				s.refuse(w, err)
				return
			}
			write(w, o.Log, http.StatusOK, v)
		}))
	}
	mux.HandleFunc("GET /openapi.yaml", s.allow(access.Viewer, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		if _, err := w.Write(openAPI); err != nil {
			o.Log.Debug("answer a request", "err", err)
		}
	}))
	if o.Metrics != nil {
		mux.HandleFunc("GET /metrics", s.allow(access.Viewer, o.Metrics.ServeHTTP))
	}
	// A page of another site, in a browser that has a client's certificate, changes nothing.
	return http.NewCrossOriginProtection().Handler(mux)
}

// callerKey is the key of a request's caller in its context.
type callerKey struct{}

// callerOf returns who sent a request that was allowed.
func callerOf(r *http.Request) access.Caller {
	c, _ := r.Context().Value(callerKey{}).(access.Caller)
	return c
}

// Sender returns the identity that a request is counted by: its caller's if the API allowed it, else
// the address that it comes from.
func Sender(r *http.Request) string {
	c := callerOf(r)
	if c.Role == access.None {
		c.Address = r.RemoteAddr
	}
	return c.Identity()
}

// allow serves requests of callers with the role, and refuses those of others.
func (s *handler) allow(role access.Role, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := s.o.Caller(r)
		if c.Role < role {
			err := fmt.Errorf("%s %s: want role %s, and %v has role %v: %w (the daemon's configuration gives roles: access.%ss)",
				r.Method, r.URL.Path, role, c, c.Role, ErrForbidden, role)
			if role >= access.Operator {
				s.record(c, r, nil, err)
			}
			s.refuse(w, err)
			return
		}
		serve(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	}
}

// record records a request for a change, whose result is err.
func (s *handler) record(c access.Caller, r *http.Request, body []byte, err error) {
	rec := audit.NewRecord(c, r.Method, r.URL.RequestURI(), body)
	rec.Time, rec.Status = time.Now(), http.StatusOK
	if err != nil {
		rec.Status, rec.Error = statusOf(err), events.Line(err.Error())
	}
	s.o.Audit(rec)
}

// refuse answers a request that failed.
func (s *handler) refuse(w http.ResponseWriter, err error) {
	p := problem{Error: err.Error()}
	switch {
	case errors.Is(err, ErrInUse):
		p.Code = codeInUse
	case errors.Is(err, ErrNotSaved):
		p.Code = codeNotSaved
	}
	write(w, s.o.Log, statusOf(err), p)
}

// problem is the body of an unsuccessful answer.
type problem struct {
	Error string `json:"error"`
	// Code distinguishes errors of the same status.
	Code string `json:"code,omitempty"`
}

const (
	codeInUse    = "in_use"
	codeNotSaved = "not_kept"
)

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrExists), errors.Is(err, ErrInUse):
		return http.StatusConflict
	case errors.Is(err, ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, ErrBusy):
		return http.StatusServiceUnavailable
	case errors.Is(err, ErrForbidden):
		return http.StatusForbidden
	case errors.Is(err, ErrNoRoom), errors.Is(err, ErrNotSaved):
		return http.StatusInsufficientStorage
	default:
		return http.StatusInternalServerError
	}
}

func write(w http.ResponseWriter, log *slog.Logger, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		log.Error("encode an answer", "err", err)
		status, b = http.StatusInternalServerError, []byte(`{"error":"the answer can't be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(b, '\n')); err != nil {
		log.Debug("answer a request", "err", err)
	}
}
