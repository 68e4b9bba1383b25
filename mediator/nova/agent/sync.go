package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"vgpud/mediator/nova"
	"vgpud/mediator/nova/placement"
)

// Placement is what the agent asks of Placement: see [placement.Client].
type Placement interface {
	Named(ctx context.Context, name string) (nova.Provider, error)
	Tree(ctx context.Context, root string) ([]nova.Provider, error)
	Read(ctx context.Context, p nova.Provider) (nova.Provider, error)
	Usages(ctx context.Context, provider string) (used map[string]int, generation int, err error)
	Do(ctx context.Context, r nova.Request) (generation int, err error)
	DeclareClass(ctx context.Context, class string) error
	DeclareTrait(ctx context.Context, trait string) error
}

// errNoNode means that Placement does not have the compute node.
var errNoNode = errors.New("Placement does not have this compute node: start nova-compute on this host, which registers it")

// sync brings the providers of one compute node to what is offered. Its methods are called by one
// goroutine.
type sync struct {
	placement Placement
	log       *slog.Logger
	host      nova.Host
	state     nova.State
	declared  map[string]bool // classes and traits that Placement knows
}

func newSync(p Placement, log *slog.Logger, node string) *sync {
	return &sync{placement: p, log: log, host: nova.Host{Node: node}, declared: make(map[string]bool)}
}

// refresh reads the compute node's tree: one request, and two for each provider of ours that has
// changed since.
func (s *sync) refresh(ctx context.Context) error {
	all, err := s.placement.Tree(ctx, s.host.Node)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(p nova.Provider) bool { return p.UUID == s.host.Node })
	switch {
	case i < 0:
		return fmt.Errorf("compute node %s: %w", s.host.Node, errNoNode)
	case all[i].Parent != "":
		return fmt.Errorf("provider %s (%.100q) is not a compute node: it has the parent %s; see compute_node in the configuration", s.host.Node, all[i].Name, all[i].Parent)
	}
	s.host.Name = all[i].Name
	for _, id := range s.state.SetTree(s.host.Node, all) {
		if err := s.reread(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// reread reads one provider of ours.
func (s *sync) reread(ctx context.Context, id string) error {
	p, err := s.placement.Read(ctx, s.state.Own[id])
	if errors.Is(err, placement.ErrNotFound) {
		delete(s.state.Own, id) // it is created again if it is offered
		return nil
	}
	if err != nil {
		delete(s.state.Own, id) // so that the next reading of the tree reads it, too
		return err
	}
	s.state.Own[id] = p
	return nil
}

// maxTries bounds the requests for one provider in one pass: the four that make it and as many
// conflicts with others, who change it once a pass at most.
const maxTries = 10

// apply makes requests until Placement has what is offered, or a provider was tried too often. It
// goes on with the other providers after an error that concerns one.
func (s *sync) apply(ctx context.Context, offers []nova.Offer, sweep bool) error {
	tries := make(map[string]int)
	failed := make(map[string]error)
	for {
		progress := false
		for _, r := range nova.Plan(s.host, offers, &s.state, sweep) {
			if failed[r.Provider] != nil {
				continue
			}
			if tries[r.Provider]++; tries[r.Provider] > maxTries {
				failed[r.Provider] = fmt.Errorf("GPU %s: its provider %s keeps changing: who else writes to it? It is tried again", r.GPU, r.Provider)
				continue
			}
			progress = true
			if err := s.request(ctx, r); err != nil {
				if !ofOne(err) {
					return err // another would end the same way
				}
				failed[r.Provider] = fmt.Errorf("GPU %s: %w", r.GPU, err)
			}
		}
		if !progress {
			return errors.Join(slices.Collect(values(failed))...)
		}
	}
}

// values yields a map's values in order of its keys.
func values[V any](m map[string]V) func(yield func(V) bool) {
	return func(yield func(V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(m[k]) {
				return
			}
		}
	}
}

// ofOne reports whether an error concerns one provider alone.
func ofOne(err error) bool {
	return errors.Is(err, placement.ErrRefused) || errors.Is(err, placement.ErrExists) || errors.Is(err, placement.ErrInUse)
}

// request carries out a request. It returns nil, too, after an answer that changes what is known, so
// that the next plan may succeed.
func (s *sync) request(ctx context.Context, r nova.Request) error {
	if err := s.declare(ctx, r); err != nil {
		return err
	}
	generation, err := s.placement.Do(ctx, r)
	switch {
	case err == nil:
		s.log.Info("Placement changed", "request", r.String())
		s.state.Done(r, generation)
		return nil
	case errors.Is(err, placement.ErrNotFound):
		if r.Kind == nova.Create {
			return err
		}
		delete(s.state.Own, r.Provider)
		return nil
	case errors.Is(err, placement.ErrExists):
		return s.exists(ctx, r, err)
	case errors.Is(err, placement.ErrInUse) && r.Kind == nova.Delete:
		s.state.StaysInUse(r.Provider)
		s.log.Warn("the provider of a GPU that is no longer here stays: instances have allocations there", "gpu", r.GPU, "provider", r.Provider)
		return nil
	case errors.Is(err, placement.ErrConflict) && r.Kind != nova.Create:
		s.log.Debug("read again what has changed meanwhile", "provider", r.Provider, "err", err)
		return s.reread(ctx, r.Provider)
	case errors.Is(err, placement.ErrRefused):
		clear(s.declared) // somebody may have removed a class or a trait
		return err
	}
	return err
}

// exists handles the answer that a provider's name or UUID is taken: by one of ours that is not known
// yet, or by another's.
func (s *sync) exists(ctx context.Context, r nova.Request, err error) error {
	if s.state.Taken[r.Name] || strings.HasSuffix(r.Name, "_"+r.Provider[:8]) {
		return fmt.Errorf("provider %s can't be called %.120q: another one has this name, or this UUID under another parent: remove it (openstack resource provider show %s): %w", r.Provider, r.Name, r.Provider, err)
	}
	taken := maps.Clone(s.state.Taken)
	if err := s.refresh(ctx); err != nil {
		return err
	}
	s.state.Taken = taken
	if _, there := s.state.Own[r.Provider]; !there || r.Kind == nova.Rename {
		s.state.NameTaken(r.Name)
	}
	return nil
}

// declare makes Placement know what a request names.
func (s *sync) declare(ctx context.Context, r nova.Request) error {
	declare := func(name string, f func(context.Context, string) error) error {
		if s.declared[name] || !strings.HasPrefix(name, "CUSTOM_VGPUD") {
			return nil
		}
		err := f(ctx, name)
		s.declared[name] = err == nil
		return err
	}
	for class := range r.Inventories {
		if err := declare(class, s.placement.DeclareClass); err != nil {
			return err
		}
	}
	for _, trait := range r.Traits {
		if err := declare(trait, s.placement.DeclareTrait); err != nil {
			return err
		}
	}
	return nil
}
