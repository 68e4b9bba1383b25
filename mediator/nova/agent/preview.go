package agent

import (
	"context"
	"fmt"
	"log/slog"

	"vgpud/mediator/capacity"
	"vgpud/mediator/nova"
	"vgpud/mediator/nova/placement"
)

// Preview is what an agent would do now.
type Preview struct {
	Host     nova.Host
	Offers   []nova.Offer
	Requests []nova.Request
	// Own are the GPUs' providers as Placement has them, by UUID.
	Own map[string]nova.Provider
}

// maxSteps bounds the requests for one GPU: one of each kind.
const maxSteps = 5

// Look asks the daemon and Placement what there is, and returns what [Agent.Round] would do about it.
// It changes nothing.
func Look(ctx context.Context, c placement.Config, p Placement, d Daemon) (v Preview, err error) {
	gpus, err := d.GPUs(ctx)
	if err != nil {
		return v, fmt.Errorf("ask vgpud: %w", err)
	}
	vms, err := d.VMs(ctx)
	if err != nil {
		return v, fmt.Errorf("ask vgpud: %w", err)
	}
	v.Offers = nova.Offers(gpus, vms, keep(c))
	node, err := placement.FindNode(ctx, c, p)
	if err != nil {
		return v, err
	}
	s := newSync(p, slog.New(slog.DiscardHandler), node)
	if err := s.refresh(ctx); err != nil {
		return v, err
	}
	v.Host, v.Own = s.host, make(map[string]nova.Provider)
	for id, p := range s.state.Own {
		v.Own[id] = p
	}
	for range maxSteps {
		step := nova.Plan(s.host, v.Offers, &s.state, true)
		for _, r := range step {
			s.state.Done(r, r.Generation)
		}
		v.Requests = append(v.Requests, step...)
	}
	return v, nil
}

func keep(c placement.Config) capacity.Keep {
	return capacity.Keep{Share: c.Keep.Share, MemoryMiB: int(c.Keep.MemoryMiB)}
}
