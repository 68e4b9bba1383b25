package placementtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"vgpud/mediator/nova"
)

// inventory is an inventory as Placement writes it.
type inventory struct {
	Total           int     `json:"total"`
	Reserved        int     `json:"reserved"`
	MinUnit         int     `json:"min_unit"`
	MaxUnit         int     `json:"max_unit"`
	StepSize        int     `json:"step_size"`
	AllocationRatio float32 `json:"allocation_ratio"`
}

// provider is a provider as Placement writes it.
type provider struct {
	UUID       string  `json:"uuid"`
	Name       string  `json:"name"`
	Parent     *string `json:"parent_provider_uuid"`
	Root       string  `json:"root_provider_uuid"`
	Generation int     `json:"generation"`
}

// root returns the UUID at the root of a provider's tree.
func (s *Server) root(p *nova.Provider) string {
	for p.Parent != "" && s.providers[p.Parent] != nil {
		p = s.providers[p.Parent]
	}
	return p.UUID
}

func (s *Server) show(p *nova.Provider) provider {
	v := provider{UUID: p.UUID, Name: p.Name, Generation: p.Generation, Root: s.root(p)}
	if p.Parent != "" {
		v.Parent = &p.Parent
	}
	return v
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	all := []provider{}
	for _, p := range s.providers {
		if in := q.Get("in_tree"); in != "" && (s.providers[in] == nil || s.root(p) != s.root(s.providers[in])) {
			continue
		}
		if name := q.Get("name"); name != "" && p.Name != name {
			continue
		}
		all = append(all, s.show(p))
	}
	slices.SortFunc(all, func(a, b provider) int { return strings.Compare(a.UUID, b.UUID) })
	answer(w, http.StatusOK, map[string]any{"resource_providers": all})
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Name, UUID string
		Parent     string `json:"parent_provider_uuid"`
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || ask.Name == "" || len(ask.Name) > 200 {
		fail(w, http.StatusBadRequest, "", "JSON does not validate")
		return
	}
	if ask.Parent != "" && s.providers[ask.Parent] == nil {
		fail(w, http.StatusBadRequest, "", "Parent provider UUID "+ask.Parent+" does not exist.")
		return
	}
	if s.providers[ask.UUID] != nil || s.nameTaken(ask.Name, ask.UUID) {
		fail(w, http.StatusConflict, "placement.duplicate_name", "Conflicting resource provider already exists.")
		return
	}
	p := &nova.Provider{UUID: ask.UUID, Name: ask.Name, Parent: ask.Parent, Inventories: map[string]nova.Inventory{}}
	s.providers[p.UUID] = p
	answer(w, http.StatusOK, s.show(p))
}

func (s *Server) nameTaken(name, besides string) bool {
	for _, p := range s.providers {
		if p.Name == name && p.UUID != besides {
			return true
		}
	}
	return false
}

func (s *Server) provider(w http.ResponseWriter, r *http.Request, p *nova.Provider, what string) {
	switch r.Method + " " + what {
	case "GET ":
		answer(w, http.StatusOK, s.show(p))
	case "PUT ":
		s.rename(w, r, p)
	case "DELETE ":
		s.remove(w, p)
	case "GET inventories":
		answer(w, http.StatusOK, showInventories(p))
	case "PUT inventories":
		s.setInventories(w, r, p)
	case "GET traits":
		answer(w, http.StatusOK, showTraits(p))
	case "PUT traits":
		s.setTraits(w, r, p)
	case "GET usages":
		used := make(map[string]int)
		for class := range p.Inventories {
			used[class] = 0
		}
		for _, a := range s.allocations {
			for class, n := range a[p.UUID] {
				used[class] += n
			}
		}
		answer(w, http.StatusOK, map[string]any{"resource_provider_generation": p.Generation, "usages": used})
	case "GET allocations":
		s.consumers(w, p)
	default:
		fail(w, http.StatusNotFound, "", "no such page")
	}
}

func (s *Server) rename(w http.ResponseWriter, r *http.Request, p *nova.Provider) {
	var ask struct{ Name string }
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || ask.Name == "" {
		fail(w, http.StatusBadRequest, "", "JSON does not validate")
		return
	}
	if s.nameTaken(ask.Name, p.UUID) {
		fail(w, http.StatusConflict, "placement.duplicate_name", "Conflicting resource provider "+ask.Name+" already exists.")
		return
	}
	p.Name = ask.Name
	answer(w, http.StatusOK, s.show(p))
}

func (s *Server) remove(w http.ResponseWriter, p *nova.Provider) {
	for _, q := range s.providers {
		if q.Parent == p.UUID {
			fail(w, http.StatusConflict, "placement.resource_provider.cannot_delete_parent", "Unable to delete parent resource provider")
			return
		}
	}
	for _, a := range s.allocations {
		if len(a[p.UUID]) > 0 {
			fail(w, http.StatusConflict, "placement.resource_provider.inuse", "Unable to delete resource provider: it has allocations.")
			return
		}
	}
	delete(s.providers, p.UUID)
	w.WriteHeader(http.StatusNoContent)
}

func showInventories(p *nova.Provider) any {
	all := make(map[string]inventory)
	for class, i := range p.Inventories {
		all[class] = inventory(i)
	}
	return map[string]any{"resource_provider_generation": p.Generation, "inventories": all}
}

func (s *Server) setInventories(w http.ResponseWriter, r *http.Request, p *nova.Provider) {
	var ask struct {
		Generation  *int `json:"resource_provider_generation"`
		Inventories map[string]inventory
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || ask.Generation == nil {
		fail(w, http.StatusBadRequest, "", "JSON does not validate")
		return
	}
	if *ask.Generation != p.Generation {
		fail(w, http.StatusConflict, "placement.concurrent_update", "resource provider generation conflict")
		return
	}
	next := make(map[string]nova.Inventory)
	for class, i := range ask.Inventories {
		const most = 1<<31 - 1
		switch {
		case strings.HasPrefix(class, "CUSTOM_") && !s.classes[class]:
			fail(w, http.StatusBadRequest, "", "Unknown resource class in inventory for resource provider "+p.UUID)
			return
		case i.Total < 1 || i.Total > most || i.MinUnit < 1 || i.MaxUnit < 1 || i.MaxUnit > most || i.StepSize < 1 || i.Reserved < 0 || i.Reserved > i.Total:
			fail(w, http.StatusBadRequest, "", "Invalid inventory for "+class)
			return
		}
		next[class] = nova.Inventory(i)
	}
	for class := range p.Inventories {
		if _, stays := next[class]; stays {
			continue
		}
		for _, a := range s.allocations {
			if a[p.UUID][class] > 0 {
				fail(w, http.StatusConflict, "placement.inventory.inuse", "Inventory for "+class+" on resource provider "+p.UUID+" in use.")
				return
			}
		}
	}
	p.Inventories = next
	p.Generation++
	answer(w, http.StatusOK, showInventories(p))
}

func showTraits(p *nova.Provider) any {
	return map[string]any{"resource_provider_generation": p.Generation, "traits": append([]string{}, p.Traits...)}
}

func (s *Server) setTraits(w http.ResponseWriter, r *http.Request, p *nova.Provider) {
	var ask struct {
		Generation *int `json:"resource_provider_generation"`
		Traits     []string
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || ask.Generation == nil {
		fail(w, http.StatusBadRequest, "", "JSON does not validate")
		return
	}
	if *ask.Generation != p.Generation {
		fail(w, http.StatusConflict, "placement.concurrent_update", "Resource provider's generation already changed.")
		return
	}
	for _, t := range ask.Traits {
		if !s.traits[t] {
			fail(w, http.StatusBadRequest, "", "No such trait(s): "+t+".")
			return
		}
	}
	p.Traits = ask.Traits
	p.Generation++
	answer(w, http.StatusOK, showTraits(p))
}

// DeclareTrait makes a trait known, as an operator would.
func (s *Server) DeclareTrait(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.traits[name] = true
}

func (s *Server) consumers(w http.ResponseWriter, p *nova.Provider) {
	all := make(map[string]any)
	for consumer, a := range s.allocations {
		if len(a[p.UUID]) > 0 {
			all[consumer] = map[string]any{"resources": a[p.UUID], "consumer_generation": 1}
		}
	}
	answer(w, http.StatusOK, map[string]any{"allocations": all, "resource_provider_generation": p.Generation})
}

func (s *Server) consumer(w http.ResponseWriter, id string) {
	all := make(map[string]any)
	for p, amounts := range s.allocations[id] {
		if len(amounts) > 0 {
			generation := 0
			if q := s.providers[p]; q != nil {
				generation = q.Generation
			}
			all[p] = map[string]any{"resources": amounts, "generation": generation}
		}
	}
	v := map[string]any{"allocations": all}
	if len(all) > 0 {
		v["project_id"], v["user_id"], v["consumer_generation"] = "project", "user", 1
	}
	answer(w, http.StatusOK, v)
}
