package api

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
)

// Host is the state behind the API. Its methods are called from many goroutines; their errors wrap
// those of this package.
type Host interface {
	VMs() []VM
	VM(name string) (VM, error)
	CreateVM(s VMSpec) (VM, error)
	UpdateVM(name string, u VMUpdate) (VM, error)
	// DeleteVM deletes a guest's virtual GPU. While its VMM is connected this needs force.
	DeleteVM(name string, force bool) error
	GPUs() []GPU
	GPU(name string) (GPU, error)
	UpdateGPU(name string, u GPUUpdate) (GPU, error)
	Health() Health
}

//go:embed openapi.yaml
var openAPI []byte

// maxBody bounds a request's body, in bytes.
const maxBody = 64 << 10

// route is one line of the API.
type route struct {
	method, path string
	serve        func(h Host, r *http.Request) (any, error)
}

var routes = []route{
	{"GET", "/v1/health", func(h Host, _ *http.Request) (any, error) { return h.Health(), nil }},
	{"GET", "/v1/vms", func(h Host, r *http.Request) (any, error) {
		vms := h.VMs()
		if d := r.URL.Query().Get("domain"); d != "" {
			vms = slices.DeleteFunc(vms, func(v VM) bool { return !v.InDomain(d) })
		}
		return vms, nil
	}},
	{"POST", "/v1/vms", func(h Host, r *http.Request) (any, error) {
		s, err := decode[VMSpec](r)
		if err != nil {
			return nil, err
		}
		return h.CreateVM(s)
	}},
	{"GET", "/v1/vms/{name}", func(h Host, r *http.Request) (any, error) { return h.VM(r.PathValue("name")) }},
	{"PATCH", "/v1/vms/{name}", func(h Host, r *http.Request) (any, error) {
		u, err := decode[VMUpdate](r)
		if err != nil {
			return nil, err
		}
		return h.UpdateVM(r.PathValue("name"), u)
	}},
	{"DELETE", "/v1/vms/{name}", func(h Host, r *http.Request) (any, error) {
		force := false
		if s := r.URL.Query().Get("force"); s != "" {
			var err error
			if force, err = strconv.ParseBool(s); err != nil {
				return nil, fmt.Errorf("force=%q: want true or false: %w", s, ErrInvalid)
			}
		}
		return struct{}{}, h.DeleteVM(r.PathValue("name"), force)
	}},
	{"GET", "/v1/gpus", func(h Host, _ *http.Request) (any, error) { return h.GPUs(), nil }},
	{"GET", "/v1/gpus/{name}", func(h Host, r *http.Request) (any, error) { return h.GPU(r.PathValue("name")) }},
	{"PATCH", "/v1/gpus/{name}", func(h Host, r *http.Request) (any, error) {
		u, err := decode[GPUUpdate](r)
		if err != nil {
			return nil, err
		}
		return h.UpdateGPU(r.PathValue("name"), u)
	}},
}

// Handler serves the API. metrics, if not nil, is served at /metrics.
func Handler(h Host, metrics http.Handler, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	for _, rt := range routes {
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			v, err := rt.serve(h, r)
			if err != nil {
				p := problem{Error: err.Error()}
				switch {
				case errors.Is(err, ErrInUse):
					p.Code = codeInUse
				case errors.Is(err, ErrNotSaved):
					p.Code = codeNotSaved
				}
				write(w, log, statusOf(err), p)
				return
			}
			write(w, log, http.StatusOK, v)
		})
	}
	mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		if _, err := w.Write(openAPI); err != nil {
			log.Debug("answer a request", "err", err)
		}
	})
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	return mux
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
	case errors.Is(err, ErrNoRoom), errors.Is(err, ErrNotSaved):
		return http.StatusInsufficientStorage
	default:
		return http.StatusInternalServerError
	}
}

// decode reads a request's body, in which unknown fields are errors.
func decode[T any](r *http.Request) (T, error) {
	var v T
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("request body: %w: %w", err, ErrInvalid)
	}
	if _, err := d.Token(); err != io.EOF {
		return v, fmt.Errorf("request body: more data follows after its end; nothing was done: %w", ErrInvalid)
	}
	return v, nil
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
