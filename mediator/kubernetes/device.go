package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
)

// Driver is the name of vgpud's driver, which the names of its attributes and capacities belong to.
const Driver = "vgpud.internal"

// Engine is the engine of guests that Kubernetes placed, in the daemon's API. Claims consume their
// shares, so they are not taken from the offer.
const Engine = "kubernetes"

// The capacities of a device.
const (
	CapacityShare  = "share"
	CapacityMemory = "memory"
)

// Device is what a node offers of one GPU.
type Device struct {
	Name string // a DNS label: see [DeviceName]
	GPU  string
	// Share and MemoryMiB are what the device can give to claims. Both are above 0.
	Share, MemoryMiB int
	// Kind is soft or nvidia, and Model the GPU's.
	Kind, Model string
	// Preemption reports whether running kernels are preempted, and EventKernels whether the GPU runs
	// event kernels.
	Preemption, EventKernels bool
}

// maxString is the longest string attribute that Kubernetes takes, in bytes.
const maxString = 64

// Devices returns the devices that make offers of the GPUs, by the GPUs' names, and the offers of
// those that are left out: those that take no guests, and those of which nothing is left.
func Devices(gpus []api.GPU, offers []capacity.Offer) (devices []Device, left []capacity.Offer) {
	for _, o := range offers {
		// A capacity of which not even the least amount is left can't be published.
		if o.Share.Free() < 1 || o.Memory.Free() < 1 {
			left = append(left, o)
			continue
		}
		g := &gpus[slices.IndexFunc(gpus, func(g api.GPU) bool { return g.Name == o.GPU })]
		devices = append(devices, Device{
			Name: DeviceName(g.Name), GPU: g.Name, Share: o.Share.Free(), MemoryMiB: o.Memory.Free(),
			Kind: g.Kind, Model: strings.ToValidUTF8(g.Model[:min(len(g.Model), maxString)], ""),
			Preemption: g.ByKernel, EventKernels: g.EventKernels,
		})
	}
	return devices, left
}

// DeviceName returns the name of a GPU's device: the GPU's, or one that is derived from it if that is
// no DNS label.
func DeviceName(gpu string) string {
	const maxLabel = 63
	ok := gpu != "" && len(gpu) <= maxLabel && gpu[0] != '-' && gpu[len(gpu)-1] != '-'
	for _, r := range gpu {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-')
	}
	if ok {
		return gpu
	}
	sum := sha256.Sum256([]byte(gpu))
	return "gpu-" + hex.EncodeToString(sum[:8])
}
