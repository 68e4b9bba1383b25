package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
	"vgpud/mediator/nova"
	"vgpud/mediator/nova/placement"
	"vgpud/mediator/nova/reservation"
)

// held is what is reserved for a guest that the daemon does not show yet, or not with these terms.
type held struct {
	vm    api.VM
	until time.Duration
}

// holdFor is how long the daemon may take to show what was reserved: longer than the creation of a
// guest may take.
const holdFor = time.Minute

// maxHeld bounds what is reserved for guests that the daemon does not show.
const maxHeld = 1024

// withHeld returns the guests as they are about to be, and forgets what the daemon shows by now.
func (a *Agent) withHeld(now time.Duration) []api.VM {
	vms := slices.Clone(a.vms)
	for name, h := range a.held {
		i := slices.IndexFunc(vms, func(v api.VM) bool { return v.Name == name })
		switch {
		case now >= h.until, i >= 0 && capacity.Covers(&vms[i], &h.vm):
			delete(a.held, name)
		case i >= 0:
			vms[i] = h.vm
		default:
			vms = append(vms, h.vm)
		}
	}
	return vms
}

// offer works out what is offered.
func (a *Agent) offer(now time.Duration) {
	a.offers = nova.Offers(a.gpus, a.withHeld(now), keep(a.o.Config))
}

// Reserve reserves a part of a GPU in Placement for a guest that Nova does not place, if it is not
// promised to an instance: the error wraps [reservation.ErrSold] then. It may be called beside Run.
func (a *Agent) Reserve(ctx context.Context, r reservation.Request) error {
	a.work.Lock()
	defer a.work.Unlock()
	if err := ctx.Err(); err != nil {
		return err // who asked has left
	}
	switch {
	case a.node == nil || !a.everOffers:
		return fmt.Errorf("vgpu-placement has not reached Placement: %s", errText(a.Status().Err))
	case len(a.held) >= maxHeld:
		return errors.New("vgpu-placement has reserved for many guests that vgpud does not show")
	}
	now := a.o.Clock.Now()
	before, had := a.held[r.Guest]
	a.held[r.Guest] = held{api.VM{
		Name: r.Guest, GPU: r.GPU, Float: r.Float, Weight: r.Weight, Cap: r.Cap, Guarantee: r.Guarantee, MemoryLimitBytes: r.MemoryLimitBytes,
	}, now + holdFor}
	a.offer(now)
	err := errors.New("vgpud has no such GPU")
	if i := slices.IndexFunc(a.offers, func(o nova.Offer) bool { return o.GPU == r.GPU }); i >= 0 {
		err = a.node.claim(ctx, a.offers[i])
	}
	if err != nil {
		delete(a.held, r.Guest)
		if had {
			a.held[r.Guest] = before
		}
		a.offer(now)
		a.settled = false // a request whose answer was lost may have reserved it
		return fmt.Errorf("GPU %s: %w", r.GPU, err)
	}
	return nil
}

// claim makes Placement reserve what an offer reserves, unless instances have a part of it. Both are
// read and written in one generation, so that no instance gets a part in between.
func (s *sync) claim(ctx context.Context, o nova.Offer) error {
	id := nova.ProviderUUID(s.host.Node, o.GPU)
	for range maxTries {
		if _, there := s.state.Own[id]; !there {
			return fmt.Errorf("Placement does not have it yet")
		}
		if err := s.reread(ctx, id); err != nil {
			return err
		}
		p, there := s.state.Own[id]
		if !there {
			continue
		}
		used, generation, err := s.placement.Usages(ctx, id)
		if err != nil {
			return err
		}
		if generation != p.Generation {
			continue
		}
		if err := sold("shares", used[nova.ClassShare], o.Share); err != nil {
			return err
		}
		if err := sold("MiB", used[nova.ClassMemory], o.Memory); err != nil {
			return err
		}
		requests := nova.Plan(s.host, []nova.Offer{o}, &nova.State{Own: map[string]nova.Provider{id: p}}, false)
		if i := slices.IndexFunc(requests, func(r nova.Request) bool { return r.Kind == nova.SetInventories }); i < 0 {
			return nil // as much is reserved already
		} else if err := s.request(ctx, requests[i]); err != nil {
			return err
		}
		if p, there := s.state.Own[id]; there && reserves(p, o) {
			return nil
		}
	}
	return fmt.Errorf("its provider keeps changing: %w", placement.ErrConflict)
}

// sold returns an error if instances have a part of what is to be reserved.
func sold(what string, used int, a capacity.Amount) error {
	if used+a.Reserved <= a.Total {
		return nil
	}
	return fmt.Errorf("instances have %d of %d %s, and %d would be reserved: %w", used, a.Total, what, a.Reserved, reservation.ErrSold)
}

// reserves reports whether Placement has reserved what an offer reserves.
func reserves(p nova.Provider, o nova.Offer) bool {
	return p.Inventories[nova.ClassShare].Reserved == o.Share.Reserved && p.Inventories[nova.ClassMemory].Reserved == o.Memory.Reserved
}
