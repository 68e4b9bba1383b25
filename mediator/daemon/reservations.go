package daemon

import (
	"context"
	"errors"
	"fmt"

	"vgpud/mediator/api"
	"vgpud/mediator/nova/reservation"
)

// claim has vgpu-placement reserve in Placement what a guest is to have of a GPU, if the host is
// configured so and Nova did not place the guest. The error wraps [reservation.ErrSold] if it is promised
// to instances. It waits for others, so no lock may be held.
func (s *Service) claim(spec *api.VMSpec, d *device) error {
	if s.o.Config.PlacementAgent == "" || spec.Engine != "" {
		return nil
	}
	t := spec.Terms()
	err := reservation.Client{Socket: s.o.Config.PlacementAgent}.Reserve(context.Background(), reservation.Request{
		Guest: spec.Name, GPU: d.config.Name, Float: spec.Float, Weight: t.Weight, Cap: t.Cap, Guarantee: t.Guarantee, MemoryLimitBytes: t.MemoryLimitBytes,
	})
	if errors.Is(err, reservation.ErrSold) {
		return fmt.Errorf("%w: %w", err, api.ErrNoRoom)
	}
	return err
}

// claimUpdate is claim for what a guest is to have after an update, if the update changes that.
func (s *Service) claimUpdate(name string, u *api.VMUpdate) error {
	if s.o.Config.PlacementAgent == "" || u.Weight == nil && u.Cap == nil && u.Guarantee == nil && u.MemoryLimitBytes == nil {
		return nil
	}
	g, err := s.guest(name)
	if err != nil {
		return nil // the update says so
	}
	t := u.Apply(g.terms())
	if err := t.Check(); err != nil {
		return err
	}
	return s.claim(&api.VMSpec{
		Name: name, Engine: g.spec.Engine, Float: g.floats(), Weight: t.Weight, Cap: t.Cap, Guarantee: t.Guarantee, MemoryLimitBytes: t.MemoryLimitBytes,
	}, g.device)
}
