// Package placementtest is a Placement in memory, with a Keystone before it, for tests. It keeps to
// the rules of the real API that matter here: generations, unique names and UUIDs, trees, classes
// and traits that must be known, providers in use. Package placement's tests compare it with what a
// real Placement (13.0) answered to the same requests, which e2e/nova records.
package placementtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"vgpud/mediator/nova"
)

// Server is a Placement and a Keystone. It is an [http.Handler] and, for tests without sockets, an
// [http.RoundTripper].
type Server struct {
	mu        sync.Mutex
	providers map[string]*nova.Provider
	classes   map[string]bool
	traits    map[string]bool
	// allocations are by consumer, provider and class.
	allocations map[string]map[string]map[string]int
	requests    []string
	tokens      int
	fault       func(r *http.Request) *Fault
	before      func(r *http.Request)
	answered    chan struct{} // closed with the next request's answer
}

// Fault is an answer in place of Placement's.
type Fault struct {
	Status int
	Body   string
	// After has the request be carried out first, so that only its answer is lost.
	After bool
	// Err is the transport's error, for RoundTrip only.
	Err error
}

// Password is that of Keystone's users, and Project their project.
const (
	Password = "secret"
	token    = "token"
)

// New returns a Placement without providers.
func New() *Server {
	return &Server{providers: make(map[string]*nova.Provider), classes: make(map[string]bool), traits: make(map[string]bool), allocations: make(map[string]map[string]map[string]int), answered: make(chan struct{})}
}

// SetFault has f choose what goes wrong with each request; nil for nothing.
func (s *Server) SetFault(f func(r *http.Request) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// SetBefore has f run before each request, as if another client had been faster.
func (s *Server) SetBefore(f func(r *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// AddProvider adds or replaces a provider, as its owner would.
func (s *Server) AddProvider(p nova.Provider) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Inventories == nil {
		p.Inventories = map[string]nova.Inventory{}
	}
	s.providers[p.UUID] = &p
}

// RemoveTree removes a root and all beneath, with their allocations, as Nova does with a compute
// service.
func (s *Server) RemoveTree(root string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.providers {
		if id == root || p.Parent == root {
			delete(s.providers, id)
			for _, a := range s.allocations {
				delete(a, id)
			}
		}
	}
}

// Edit changes a provider, whose generation counts up.
func (s *Server) Edit(id string, f func(p *nova.Provider)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.providers[id]; p != nil {
		f(p)
		p.Generation++
	}
}

// Allocate gives a consumer amounts of a provider, whatever its inventories; nil takes them back.
func (s *Server) Allocate(consumer, provider string, amounts map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.allocations[consumer] == nil {
		s.allocations[consumer] = make(map[string]map[string]int)
	}
	if amounts == nil {
		delete(s.allocations[consumer], provider)
	} else {
		s.allocations[consumer][provider] = amounts
	}
	if p := s.providers[provider]; p != nil {
		p.Generation++
	}
}

// Fits reports whether Placement would give a consumer amounts of a provider.
func (s *Server) Fits(provider string, amounts map[string]int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.providers[provider]
	if p == nil {
		return false
	}
	for class, n := range amounts {
		i, ok := p.Inventories[class]
		used := 0
		for _, a := range s.allocations {
			used += a[provider][class]
		}
		if !ok || n < i.MinUnit || n > i.MaxUnit || n%max(i.StepSize, 1) != 0 || used+n > int(float32(i.Total-i.Reserved)*i.AllocationRatio) {
			return false
		}
	}
	return true
}

// Providers returns all providers, by name.
func (s *Server) Providers() []nova.Provider {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []nova.Provider
	for _, p := range s.providers {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b nova.Provider) int { return strings.Compare(a.Name+a.UUID, b.Name+b.UUID) })
	return all
}

// Provider returns a provider; ok is false if there is none.
func (s *Server) Provider(id string) (p nova.Provider, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.providers[id]; q != nil {
		return *q, true
	}
	return p, false
}

// TakeRequests returns the requests to Placement since the last call, as METHOD /path.
func (s *Server) TakeRequests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

// Tokens returns how many tokens Keystone has given.
func (s *Server) Tokens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens
}

// Expire has the tokens not be valid any more.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens++
}

// Answered returns a channel that is closed once the next request was carried out.
func (s *Server) Answered() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// RoundTrip implements [http.RoundTripper].
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if err := s.serve(w, r); err != nil {
		return nil, err
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.serve(w, r); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	before, fault := s.before, s.fault
	s.mu.Unlock()
	if before != nil {
		before(r)
	}
	var f *Fault
	if fault != nil {
		f = fault(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		close(s.answered)
		s.answered = make(chan struct{})
	}()
	if !strings.HasPrefix(r.URL.Path, "/v3/") {
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	}
	if f == nil {
		s.route(w, r)
		return nil
	}
	if f.After {
		s.route(httptest.NewRecorder(), r)
	}
	if f.Err != nil {
		return f.Err
	}
	w.WriteHeader(f.Status)
	fmt.Fprint(w, f.Body)
	return nil
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "v3" {
		s.keystone(w, r)
		return
	}
	if got := r.Header.Get("X-Auth-Token"); got != fmt.Sprint(token, s.tokens) && got != "admin" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.Header.Get("OpenStack-API-Version") == "" {
		fail(w, http.StatusNotAcceptable, "", "no microversion")
		return
	}
	switch {
	case parts[0] == "resource_classes" && len(parts) == 2 && r.Method == "PUT":
		declare(w, s.classes, parts[1])
	case parts[0] == "traits" && len(parts) == 2 && r.Method == "PUT":
		declare(w, s.traits, parts[1])
	case parts[0] == "allocations" && len(parts) == 2 && r.Method == "GET":
		s.consumer(w, parts[1])
	case parts[0] == "resource_providers" && len(parts) == 1 && r.Method == "GET":
		s.list(w, r)
	case parts[0] == "resource_providers" && len(parts) == 1 && r.Method == "POST":
		s.create(w, r)
	case parts[0] == "resource_providers" && len(parts) <= 3:
		p := s.providers[parts[1]]
		if p == nil {
			fail(w, http.StatusNotFound, "", "No resource provider with uuid "+parts[1]+" found")
			return
		}
		s.provider(w, r, p, strings.Join(parts[2:], "/"))
	default:
		fail(w, http.StatusNotFound, "", "no such page")
	}
}

// keystone gives a token, and a catalog with this server as Placement.
func (s *Server) keystone(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Auth struct {
			Identity struct {
				Password struct {
					User struct{ Name, Password string }
				}
				Application struct {
					Secret string
				} `json:"application_credential"`
			}
		}
	}
	if json.NewDecoder(r.Body).Decode(&ask) != nil || ask.Auth.Identity.Password.User.Password != Password && ask.Auth.Identity.Application.Secret != Password {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.tokens++
	w.Header().Set("X-Subject-Token", fmt.Sprint(token, s.tokens))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"token":{"expires_at":"2099-01-01T00:00:00.000000Z","catalog":[{"type":"placement","name":"placement","endpoints":[{"interface":"internal","region":"RegionOne","region_id":"RegionOne","url":"http://%s"}]}]}}`, r.Host)
}

func declare(w http.ResponseWriter, known map[string]bool, name string) {
	switch {
	case !strings.HasPrefix(name, "CUSTOM_") || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || len(name) > 255:
		fail(w, http.StatusBadRequest, "", "The name is invalid")
	case known[name]:
		w.WriteHeader(http.StatusNoContent)
	default:
		known[name] = true
		w.WriteHeader(http.StatusCreated)
	}
}

// fail answers with an error as Placement does since 1.23.
func fail(w http.ResponseWriter, status int, code, detail string) {
	if code == "" {
		code = "placement.undefined_code"
	}
	answer(w, status, map[string]any{"errors": []map[string]any{{"status": status, "title": http.StatusText(status), "detail": detail, "code": code}}})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		panic(err)
	}
}
