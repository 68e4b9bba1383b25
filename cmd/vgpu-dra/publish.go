package main

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"vgpud/clock"
	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
	"vgpud/mediator/kubernetes"
)

// daemon is what the driver asks of vgpud: see [api.Client].
type daemon interface {
	GPUs(ctx context.Context) ([]api.GPU, error)
	VMs(ctx context.Context) ([]api.VM, error)
	CreateVM(ctx context.Context, s api.VMSpec) (api.VM, error)
	DeleteVM(ctx context.Context, name string) error
}

// publisher keeps the node's ResourceSlice at what the daemon offers. Its methods are called by one
// goroutine.
type publisher struct {
	config config
	daemon daemon
	clock  clock.Clock
	log    *slog.Logger
	// publish has the API server follow. It does not wait for that.
	publish func(resourceslice.DriverResources) error
	counts  *counts

	answered  time.Duration // when the daemon answered last
	known     bool          // published says what was published last
	published []kubernetes.Device
	left      map[string]string // why GPUs are not offered, by GPU
	problem   string
}

// run publishes until ctx ends. each is called after each round.
func (p *publisher) run(ctx context.Context, each func()) error {
	p.answered = p.clock.Now()
	for {
		if err := p.round(ctx); err != nil {
			return err
		}
		each()
		if clock.Sleep(ctx, p.clock, p.config.Poll) != nil {
			return nil
		}
	}
}

// round asks the daemon once and publishes what has changed. Nothing is offered after the daemon has
// not answered for a while: a pod that came here could not start.
func (p *publisher) round(ctx context.Context) error {
	now := p.clock.Now()
	devices, offers, err := p.ask(ctx)
	if ctx.Err() != nil {
		return nil
	}
	p.complain(err)
	p.counts.daemonUp.Store(err == nil)
	switch {
	case err == nil:
		p.answered = now
		p.counts.offers.Store(&offers)
	case now-p.answered < p.config.DaemonGrace:
		return nil
	default:
		devices = nil
	}
	if p.known && reflect.DeepEqual(devices, p.published) {
		return nil
	}
	p.log.Info("publishing", "node", p.config.Node, "devices", len(devices))
	if err := p.publish(resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		p.config.Node: {Slices: []resourceslice.Slice{slice(devices)}},
	}}); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("publish the ResourceSlice: %w", err)
	}
	p.known, p.published = true, devices
	p.counts.changes.Inc()
	return nil
}

// ask asks the daemon what there is to offer: the devices, and what each GPU offers.
func (p *publisher) ask(ctx context.Context) ([]kubernetes.Device, []capacity.Offer, error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	gpus, err := p.daemon.GPUs(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("ask vgpud: %w", err)
	}
	vms, err := p.daemon.VMs(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("ask vgpud: %w", err)
	}
	offers := capacity.Offers(gpus, vms, kubernetes.Engine, p.config.keep())
	devices, left := kubernetes.Devices(gpus, offers)
	why := make(map[string]string, len(left))
	for _, o := range left {
		why[o.GPU] = o.String()
		if p.left[o.GPU] != why[o.GPU] {
			p.log.Info("a GPU is not offered", "gpu", o.GPU, "why", why[o.GPU])
		}
	}
	p.left = why
	return devices, offers, nil
}

// complain logs an error of the daemon's once.
func (p *publisher) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == p.problem:
	case err != nil:
		p.log.Error("what this node offers is not up to date", "err", text)
	default:
		p.log.Info("vgpud answers again")
	}
	p.problem = text
}

// slice returns the devices as Kubernetes has them.
func slice(devices []kubernetes.Device) resourceslice.Slice {
	s := resourceslice.Slice{Devices: []resourceapi.Device{}}
	yes := true
	for _, d := range devices {
		s.Devices = append(s.Devices, resourceapi.Device{
			Name:                     d.Name,
			AllowMultipleAllocations: &yes,
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"gpu":          {StringValue: &d.GPU},
				"kind":         {StringValue: &d.Kind},
				"model":        {StringValue: &d.Model},
				"preemption":   {BoolValue: &d.Preemption},
				"eventKernels": {BoolValue: &d.EventKernels},
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				kubernetes.CapacityShare:  capacityOf(int64(d.Share), 1, resource.DecimalSI),
				kubernetes.CapacityMemory: capacityOf(int64(d.MemoryMiB)*mib, mib, resource.BinarySI),
			},
		})
	}
	return s
}

const mib = 1 << 20

// capacityOf returns a capacity that is given in multiples of unit. A claim that names no amount takes
// all of it, as it would of a device that is not shared.
func capacityOf(total, unit int64, f resource.Format) resourceapi.DeviceCapacity {
	all, least := resource.NewQuantity(total, f), resource.NewQuantity(unit, f)
	valid := &resourceapi.CapacityRequestPolicyRange{Min: least, Max: all}
	if total > unit { // the API server takes no step that leads beyond all
		valid.Step = least
	}
	return resourceapi.DeviceCapacity{Value: *all, RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: all, ValidRange: valid}}
}
