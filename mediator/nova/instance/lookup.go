package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"vgpud/mediator/libvirt/domain"
	"vgpud/mediator/nova"
	"vgpud/mediator/nova/placement"
)

// Placement is what is asked of Placement: see [placement.Client].
type Placement interface {
	placement.Namer
	Allocation(ctx context.Context, consumer string) (nova.Allocation, error)
}

// Lookup finds out what an instance was granted.
type Lookup struct {
	Config    placement.Config
	Placement Placement
	Known     Known
	// GPUs returns the names of this host's GPUs. It is called only for an instance that has
	// resources of vgpud's.
	GPUs func(ctx context.Context) ([]string, error)
	// Warn is told what does not prevent an answer.
	Warn func(error)
	// Now is the time to remember with an answer.
	Now func() time.Time
}

// Grants returns what an instance was granted of this host's GPUs; nothing if it has no resources of
// vgpud's. If Placement can't be asked, it is what Placement said last.
//
// An answer that can't be carried out is an error, and so is one that Placement could not have
// given: to start the instance with what it had before would sell that twice.
func (l *Lookup) Grants(ctx context.Context, v *domain.Instance) ([]nova.Grant, error) {
	a, err := l.Placement.Allocation(ctx, v.UUID)
	if errors.Is(err, placement.ErrNonsense) {
		return nil, err
	}
	var node string
	if err == nil && a.Ours() {
		node, err = placement.FindNode(ctx, l.Config, l.Placement)
		if errors.Is(err, placement.ErrNotFound) {
			return nil, err
		}
	}
	if err != nil {
		return l.last(v, err)
	}
	if !a.Ours() {
		l.remember(v.UUID, nil)
		return nil, nil
	}
	gpus, err := l.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	grants, err := nova.Grants(a, node, gpus)
	if err != nil {
		return nil, err
	}
	l.remember(v.UUID, grants)
	return grants, nil
}

// remember saves an answer. Without it the instance starts as well.
func (l *Lookup) remember(uuid string, grants []nova.Grant) {
	if err := l.Known.Remember(uuid, grants, l.Now()); err != nil {
		l.Warn(fmt.Errorf("if Placement is away when it starts the next time, it will be refused: %w", err))
	}
}

// last returns what Placement said last, which can't be asked now for the reason why.
func (l *Lookup) last(v *domain.Instance, why error) ([]nova.Grant, error) {
	if without(v.ExtraSpecs) {
		l.Warn(fmt.Errorf("Placement can't be asked, but its flavor asks for nothing of vgpud's: %w", why))
		return nil, nil
	}
	grants, at, err := l.Known.Recall(v.UUID)
	if err != nil {
		return nil, fmt.Errorf("Placement can't be asked whether it has a virtual GPU (%w), and it is not known from before (%w): start it again when Placement answers; `vgpu-placement doctor` says what is wrong", why, err)
	}
	l.Warn(fmt.Errorf("Placement can't be asked, so it has what Placement granted it on %s: %w", at.UTC().Format(time.DateTime+" MST"), why))
	return grants, nil
}

// without reports whether a flavor's extra specs are known and ask for nothing of vgpud's.
func without(specs map[string]string) bool {
	for name := range specs {
		if strings.Contains(name, "CUSTOM_VGPUD") {
			return false
		}
	}
	return specs != nil
}

// Movable returns an error if an instance can't be moved while it runs: if it has resources of
// vgpud's, or if Placement can't be asked whether it has.
func (l *Lookup) Movable(ctx context.Context, v *domain.Instance) error {
	a, err := l.Placement.Allocation(ctx, v.UUID)
	switch {
	case err != nil:
		return fmt.Errorf("Placement can't be asked whether it has a virtual GPU, with which it can't be migrated while it runs: try again when Placement answers: %w", err)
	case a.Ours():
		return errors.New("an instance with a virtual GPU can't be migrated while it runs, since its state on the GPU can't be moved: stop it, and migrate it then (openstack server stop, openstack server migrate)")
	}
	return nil
}
