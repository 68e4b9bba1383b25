// Package agent keeps Placement at what a host's daemon offers of its GPUs.
//
// [Agent.Run] asks the daemon every second. A change of what is offered is one request to Placement
// for each GPU that it concerns. Once a minute the host's providers are read, which is one request if
// nobody has changed them, and what others changed is put right.
//
// If the daemon does not answer for a while, everything is reserved: an instance that came here could
// not start. If Placement or Keystone does not answer, the agent tries again, at first every second.
//
// Nothing that the agent must know is lost with it: Placement has it. A file remembers the compute
// node, so that the providers under an earlier one are taken away after the host got another.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	gosync "sync"
	"time"

	"vgpud/clock"
	"vgpud/mediator/api"
	"vgpud/mediator/nova"
	"vgpud/mediator/nova/placement"
)

// Daemon is what the agent asks of the daemon: see [api.Client].
type Daemon interface {
	GPUs(ctx context.Context) ([]api.GPU, error)
	VMs(ctx context.Context) ([]api.VM, error)
}

// Options are what an agent needs. All but Status and Machine are required.
type Options struct {
	Config    placement.Config
	Placement Placement
	Daemon    Daemon
	Clock     clock.Clock
	Log       *slog.Logger
	// Status, if not nil, is called after each round.
	Status func(Status)
	// Machine identifies the machine, so that what a copy of its disk remembers is not believed
	// elsewhere.
	Machine string
}

// Status is what an agent has come to.
type Status struct {
	Host   nova.Host
	Offers []nova.Offer
	// DaemonUp reports whether the daemon answered last, and InSync whether Placement has the offers.
	DaemonUp, InSync bool
	// Err says what went wrong last; nil if nothing did.
	Err error
	// Confirmed is when Placement was last known to have the offers, in the clock's time.
	Confirmed time.Duration
}

// Agent keeps Placement at what the daemon offers. Status and Reserve may be called beside the others,
// which are called by one goroutine.
type Agent struct {
	o Options

	// work is held while a round or a reservation changes what follows. It is taken before mu.
	work gosync.Mutex
	node *sync // nil before the compute node is known
	// current is the compute node that was found last, and former are earlier ones.
	current string
	former  []string
	loaded  bool

	gpus       []api.GPU
	vms        []api.VM
	held       map[string]held
	offers     []nova.Offer
	closed     bool // the daemon does not answer: everything is reserved
	answered   time.Duration
	applied    []nova.Offer
	settled    bool // applied is what Placement has
	failures   int
	retryAt    time.Duration
	heartbeat  time.Duration // when the tree is to be read next
	everOffers bool

	mu     gosync.Mutex
	status Status
}

// New returns an agent. now is the clock's time.
func New(o Options) *Agent {
	return &Agent{o: o, answered: o.Clock.Now(), held: make(map[string]held)}
}

// Status returns what the agent has come to.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// Run keeps Placement up to date until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	for {
		a.Round(ctx)
		if clock.Sleep(ctx, a.o.Clock, a.o.Config.Poll) != nil {
			return
		}
	}
}

// Round asks the daemon once and does what is due.
func (a *Agent) Round(ctx context.Context) {
	a.work.Lock()
	defer a.work.Unlock()
	now := a.o.Clock.Now()
	derr := a.ask(ctx, now)
	err := a.update(ctx, now)
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	was := a.status
	a.status.Offers, a.status.DaemonUp, a.status.InSync, a.status.Err = a.offers, derr == nil, a.settled, errors.Join(derr, err)
	if a.node != nil {
		a.status.Host = a.node.host
	}
	if a.settled {
		a.status.Confirmed = now
	}
	st := a.status
	a.mu.Unlock()
	if text := errText(st.Err); text != errText(was.Err) {
		if st.Err != nil {
			a.o.Log.Error("Placement is not up to date", "err", text)
		} else {
			a.o.Log.Info("Placement is up to date again")
		}
	}
	if a.o.Status != nil {
		a.o.Status(st)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// ask asks the daemon what there is to offer.
func (a *Agent) ask(ctx context.Context, now time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, a.o.Config.Timeout)
	defer cancel()
	gpus, err := a.o.Daemon.GPUs(ctx)
	var vms []api.VM
	if err == nil {
		vms, err = a.o.Daemon.VMs(ctx)
	}
	if err != nil {
		a.closed = a.closed || now-a.answered >= a.o.Config.DaemonGrace
		return fmt.Errorf("ask vgpud: %w", err)
	}
	a.gpus, a.vms = gpus, vms
	a.offer(now)
	a.answered, a.closed, a.everOffers = now, false, true
	return nil
}

// wanted returns what Placement is to have. Nothing offered means that all is reserved.
func (a *Agent) wanted() []nova.Offer {
	if a.closed {
		return nil
	}
	return a.offers
}

// maxBackoff is the longest time between two tries.
const maxBackoff = 30 * time.Second

// update does what is due: it reads the tree, and makes Placement have what is wanted.
func (a *Agent) update(ctx context.Context, now time.Duration) error {
	if !a.everOffers && !a.closed {
		return nil // it is not known what to offer
	}
	want := a.wanted()
	changed := !reflect.DeepEqual(want, a.applied)
	beat := now >= a.heartbeat || a.node == nil
	if !changed && !beat && a.settled {
		return nil
	}
	if !changed && now < a.retryAt {
		return a.Status().Err
	}
	a.applied, a.settled = want, false
	err := a.bring(ctx, want, beat || a.failures > 0)
	if err != nil {
		a.retryAt = now + min(time.Second<<min(a.failures, 10), maxBackoff)
		a.failures++
		return err
	}
	a.failures, a.settled = 0, true
	if beat {
		a.heartbeat = now + a.o.Config.Heartbeat
	}
	return nil
}

// bring makes Placement have what is wanted.
func (a *Agent) bring(ctx context.Context, want []nova.Offer, read bool) error {
	if read {
		if err := a.findNode(ctx); err != nil {
			return err
		}
		if err := a.node.refresh(ctx); err != nil {
			if errors.Is(err, errNoNode) {
				a.node = nil
			}
			return err
		}
	}
	// GPUs are not given up because the daemon does not answer.
	if err := a.node.apply(ctx, want, read && !a.closed); err != nil {
		return err
	}
	if read {
		return a.clearFormer(ctx)
	}
	return nil
}

// findNode finds the compute node, which may be another one than before.
func (a *Agent) findNode(ctx context.Context) error {
	if err := a.load(); err != nil {
		return err
	}
	node, err := placement.LocalNode(a.o.Config)
	switch {
	case err != nil:
		return err
	case node != "":
	case a.node != nil && a.node.host.Name == a.o.Config.Host:
		return nil // reading its tree tells whether it is still there
	default:
		if node, err = placement.FindNode(ctx, a.o.Config, a.o.Placement); err != nil {
			return err
		}
	}
	if a.node == nil || a.node.host.Node != node {
		a.node = newSync(a.o.Placement, a.o.Log, node)
	}
	if a.current == node {
		return nil
	}
	if a.current != "" && len(a.former) < maxFormer {
		a.former = append(a.former, a.current)
	}
	a.current = node
	a.former = slices.DeleteFunc(a.former, func(id string) bool { return id == node })
	return a.save()
}

// clearFormer takes our providers under earlier compute nodes of this host away.
func (a *Agent) clearFormer(ctx context.Context) error {
	var left []string
	var errs []error
	for _, id := range a.former {
		s := newSync(a.o.Placement, a.o.Log, id)
		err := s.refresh(ctx)
		if err == nil {
			err = s.apply(ctx, nil, true)
		}
		if errors.Is(err, errNoNode) {
			continue // it has gone with its providers
		}
		if err != nil || len(s.state.Own) > 0 {
			left = append(left, id)
		}
		errs = append(errs, err)
	}
	if !slices.Equal(left, a.former) {
		a.former = left
		errs = append(errs, a.save())
	}
	return errors.Join(errs...)
}

// Withdraw takes all providers of this host out of Placement: they are deleted, or reserved as long
// as instances have allocations there. It returns those that stay.
func (a *Agent) Withdraw(ctx context.Context) ([]nova.Provider, error) {
	if err := a.findNode(ctx); err != nil {
		return nil, err
	}
	if err := a.node.refresh(ctx); err != nil {
		return nil, err
	}
	if err := a.node.apply(ctx, nil, true); err != nil {
		return nil, err
	}
	if err := a.clearFormer(ctx); err != nil {
		return nil, err
	}
	return slices.SortedFunc(values(a.node.state.Own), func(x, y nova.Provider) int { return cmp.Compare(x.Name, y.Name) }), nil
}
