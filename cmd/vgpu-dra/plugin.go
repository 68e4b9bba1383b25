package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"vgpud/mediator/api"
	"vgpud/mediator/kubernetes"
)

// plugin has the daemon create and delete the virtual GPUs of claims, as the kubelet asks. Its calls
// come one after the other. Its state is in the daemon and in the CDI directory, so the next process
// goes on where this one ended.
type plugin struct {
	config config
	daemon daemon
	log    *slog.Logger
	counts *counts
}

var _ kubeletplugin.DRAPlugin = (*plugin)(nil)

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (p *plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult)
	for _, c := range claims {
		devices, err := p.prepare(ctx, c)
		if err != nil {
			p.log.Error("a claim is not prepared", "claim", c.Namespace+"/"+c.Name, "uid", c.UID, "err", err)
		}
		p.counts.claim("prepare", err)
		results[c.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

// prepare creates a claim's virtual GPUs, as far as they are not there yet.
func (p *plugin) prepare(ctx context.Context, c *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	claim, devices, err := p.read(c)
	if err != nil {
		return nil, err
	}
	gpus, err := p.daemon.GPUs(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask vgpud: %w", err)
	}
	var names []string
	for _, g := range gpus {
		names = append(names, g.Name)
	}
	specs, err := kubernetes.Guests(claim, names)
	if err != nil {
		return nil, err
	}
	vms, err := p.daemon.VMs(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask vgpud: %w", err)
	}
	sockets := make([]string, len(specs))
	for n := range specs {
		s := &specs[n]
		s.UID, s.GID = p.config.UID, p.config.GID
		var v api.VM
		if i := slices.IndexFunc(vms, func(v api.VM) bool { return v.Name == s.Name }); i >= 0 {
			v = vms[i]
			err = kubernetes.Same(&v, s)
		} else if v, err = p.daemon.CreateVM(ctx, *s); err == nil {
			p.log.Info("virtual GPU created", "claim", claim.Namespace+"/"+c.Name, "vm", v.Name, "gpu", s.GPU, "share", s.Weight)
		}
		if err != nil {
			return nil, err
		}
		sockets[n] = v.Socket
		devices[n].CDIDeviceIDs = []string{deviceID(claim.UID, n)}
	}
	return devices, writeCDI(p.config.CDIDir, claim.UID, sockets)
}

// read returns what a claim has of this node's devices, and the devices for the kubelet.
func (p *plugin) read(c *resourceapi.ResourceClaim) (kubernetes.Claim, []kubeletplugin.Device, error) {
	claim := kubernetes.Claim{UID: string(c.UID), Namespace: c.Namespace}
	var devices []kubeletplugin.Device
	if c.Status.Allocation == nil {
		return claim, nil, errors.New("the claim is not allocated")
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != kubernetes.Driver || r.Pool != p.config.Node {
			continue
		}
		share, memory := r.ConsumedCapacity[kubernetes.CapacityShare], r.ConsumedCapacity[kubernetes.CapacityMemory]
		claim.Results = append(claim.Results, kubernetes.Result{Device: r.Device, Share: share.Value(), MemoryMiB: memory.Value() / mib})
		devices = append(devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, ShareID: r.ShareID})
	}
	return claim, devices, nil
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (p *plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	vms, err := p.daemon.VMs(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask vgpud: %w", err)
	}
	results := make(map[types.UID]error)
	for _, c := range claims {
		uid := string(c.UID)
		if err := api.CheckUUID(uid); err != nil {
			results[c.UID] = err
			continue
		}
		var errs []error
		for _, v := range vms {
			if !kubernetes.OfClaim(&v, uid) {
				continue
			}
			err := p.daemon.DeleteVM(ctx, v.Name)
			if err != nil && !errors.Is(err, api.ErrNotFound) {
				errs = append(errs, err)
				continue
			}
			p.log.Info("virtual GPU deleted", "claim", c.Namespace+"/"+c.Name, "vm", v.Name)
		}
		errs = append(errs, removeCDI(p.config.CDIDir, uid))
		results[c.UID] = errors.Join(errs...)
		p.counts.claim("unprepare", results[c.UID])
	}
	return results, nil
}

// HandleError implements [kubeletplugin.DRAPlugin]. A call that failed is made again.
func (p *plugin) HandleError(_ context.Context, err error, msg string) {
	p.counts.errors.Inc()
	p.log.Error(msg, "err", err)
}

// WatchHealthStatus implements [kubeletplugin.DRAPlugin]. A sick GPU is taken out of the ResourceSlice.
func (p *plugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
