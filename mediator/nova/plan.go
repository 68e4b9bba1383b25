package nova

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"vgpud/mediator/capacity"
)

// Kind is what a request does.
type Kind int

// The kinds of requests.
const (
	Create Kind = iota
	Rename
	SetInventories
	SetTraits
	Delete
)

var kindNames = [...]string{Create: "create", Rename: "rename", SetInventories: "set inventories", SetTraits: "set traits", Delete: "delete"}

// String returns what the kind does.
func (k Kind) String() string { return kindNames[k] }

// Request is one request to Placement that changes a GPU's provider.
type Request struct {
	Kind     Kind
	GPU      string
	Provider string // its UUID
	// Name is the provider's, for Create and Rename. Parent is for Create.
	Name, Parent string
	// Generation is the provider's as far as known, for SetInventories and SetTraits.
	Generation  int
	Inventories map[string]Inventory
	Traits      []string
}

// String describes the request in one line.
func (r Request) String() string {
	s := fmt.Sprintf("%s: GPU %s, provider %s", r.Kind, r.GPU, r.Provider)
	switch r.Kind {
	case Create, Rename:
		s += " " + r.Name
	case SetInventories:
		for _, class := range slices.Sorted(maps.Keys(r.Inventories)) {
			i := r.Inventories[class]
			s += fmt.Sprintf(", %s %d with %d reserved", class, i.Total, i.Reserved)
		}
	case SetTraits:
		s += " " + strings.Join(r.Traits, ",")
	}
	return s
}

// State is what is known of the providers in a host's tree. Its maps may be nil.
type State struct {
	// Own are the GPUs' providers by UUID.
	Own map[string]Provider
	// Taken are names that other providers have.
	Taken map[string]bool
	// InUse are providers that Placement would not delete, since instances have allocations there.
	InUse map[string]bool
}

// SetTree takes the providers that Placement has in a host's tree, as it lists them: without
// inventories and traits. It keeps those of a provider whose generation is as it was, and returns
// the UUIDs of the others, which are to be read.
func (s *State) SetTree(node string, providers []Provider) (read []string) {
	own := make(map[string]Provider)
	for _, p := range providers {
		if _, ok := OwnGPU(p); !ok || p.Parent != node {
			continue
		}
		if had, ok := s.Own[p.UUID]; ok && had.Generation == p.Generation && had.Inventories != nil {
			p.Inventories, p.Traits = had.Inventories, had.Traits
		} else {
			read = append(read, p.UUID)
		}
		own[p.UUID] = p
	}
	*s = State{Own: own}
	slices.Sort(read)
	return read
}

// Done takes a request's success. generation is the provider's afterwards.
func (s *State) Done(r Request, generation int) {
	if s.Own == nil {
		s.Own = make(map[string]Provider)
	}
	p := s.Own[r.Provider]
	switch r.Kind {
	case Create:
		p = Provider{UUID: r.Provider, Name: r.Name, Parent: r.Parent, Inventories: map[string]Inventory{}, Traits: []string{}}
	case Rename:
		p.Name = r.Name
	case SetInventories:
		p.Inventories = r.Inventories
	case SetTraits:
		p.Traits = r.Traits
	case Delete:
		delete(s.Own, r.Provider)
		return
	}
	p.Generation = generation
	s.Own[r.Provider] = p
}

// NameTaken takes the answer that another provider has a request's name.
func (s *State) NameTaken(name string) {
	if s.Taken == nil {
		s.Taken = make(map[string]bool)
	}
	s.Taken[name] = true
}

// StaysInUse takes the answer that a provider has allocations and can't be deleted.
func (s *State) StaysInUse(provider string) {
	if s.InUse == nil {
		s.InUse = make(map[string]bool)
	}
	s.InUse[provider] = true
}

// Plan returns the next request of each GPU whose provider is not as offered, by GPU. After success
// it is to be called again, until it returns none. A provider of a GPU that is not offered has
// everything reserved, and is deleted if sweep is set and it has no allocations.
func Plan(h Host, offers []Offer, s *State, sweep bool) []Request {
	var requests []Request
	offered := make(map[string]bool)
	for _, o := range offers {
		id := ProviderUUID(h.Node, o.GPU)
		offered[id] = true
		if r, ok := next(h, o, s, id); ok {
			requests = append(requests, r)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.Own)) {
		if offered[id] {
			continue
		}
		if r, ok := withdraw(s.Own[id], s.InUse[id], sweep); ok {
			requests = append(requests, r)
		}
	}
	return requests
}

// next returns the next request towards an offer.
func next(h Host, o Offer, s *State, id string) (Request, bool) {
	name := ProviderName(h, o.GPU, false)
	long := ProviderName(h, o.GPU, true)
	if s.Taken[name] {
		name = long
	}
	r := Request{GPU: o.GPU, Provider: id}
	p, there := s.Own[id]
	if !there {
		r.Kind, r.Name, r.Parent = Create, name, h.Node
		return r, true
	}
	r.Generation = p.Generation
	inventories, traits := wantInventories(o, p), wantTraits(o, p)
	changed := !maps.Equal(inventories, p.Inventories)
	// Nothing is placed on a new provider before it has its traits, since it has no inventories. A
	// provider that is there is closed before anything else.
	if !slices.Equal(traits, sorted(p.Traits)) && (len(p.Inventories) == 0 || !changed) {
		r.Kind, r.Traits = SetTraits, traits
		return r, true
	}
	if changed {
		r.Kind, r.Inventories = SetInventories, inventories
		return r, true
	}
	if p.Name != name && p.Name != long {
		r.Kind, r.Name = Rename, name
		return r, true
	}
	return Request{}, false
}

// withdraw returns the next request for a provider whose GPU is not offered.
func withdraw(p Provider, inUse, sweep bool) (Request, bool) {
	gpu, _ := OwnGPU(p) // the caller has found it to be one of ours
	r := Request{GPU: gpu, Provider: p.UUID, Generation: p.Generation}
	closed := maps.Clone(p.Inventories)
	for _, class := range Classes {
		if i, ok := closed[class]; ok {
			i.Reserved = i.Total
			closed[class] = i
		}
	}
	switch {
	case !maps.Equal(closed, p.Inventories):
		r.Kind, r.Inventories = SetInventories, closed
		return r, true
	case sweep && !inUse:
		r.Kind = Delete
		return r, true
	}
	return r, false
}

// wantInventories returns the inventories of an offer, with those of other classes as they are.
func wantInventories(o Offer, p Provider) map[string]Inventory {
	all := make(map[string]Inventory, len(Classes))
	for class, i := range p.Inventories {
		if !strings.HasPrefix(class, prefix) {
			all[class] = i
		}
	}
	for class, a := range map[string]capacity.Amount{ClassShare: o.Share, ClassMemory: o.Memory} {
		all[class] = Inventory{Total: a.Total, Reserved: a.Reserved, MinUnit: 1, MaxUnit: a.Total, StepSize: 1, AllocationRatio: 1}
	}
	return all
}

// wantTraits returns the traits of an offer and those that operators gave the provider, sorted.
func wantTraits(o Offer, p Provider) []string {
	all := slices.Clone(o.Traits)
	for _, t := range p.Traits {
		if !strings.HasPrefix(t, prefix) {
			all = append(all, t)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }
