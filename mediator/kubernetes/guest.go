package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
)

// Claim is what the scheduler has allocated to a ResourceClaim of this driver's devices on this node.
type Claim struct {
	UID, Namespace string
	Results        []Result
}

// Result is what a claim has of one device.
type Result struct {
	Device    string
	Share     int64
	MemoryMiB int64
}

// maxGuests bounds the virtual GPUs of a claim: as many as a VM may have.
const maxGuests = 16

// ErrNotGranted means that a claim can't be carried out on this node. The error's text says why.
var ErrNotGranted = errors.New("the claim can't have its virtual GPU")

// GuestName returns the name of the guest for a claim's n-th result. Claims' UIDs are not reused.
func GuestName(claim string, n int) string { return prefix(claim) + strconv.Itoa(n) }

func prefix(claim string) string { return "claim-" + claim + "-" }

// Guests returns the guests that a claim means, with one virtual GPU each: share is its weight and its
// guarantee. Amounts that nobody can ask for, or of a device that is none of these GPUs', are an error
// that wraps [ErrNotGranted].
func Guests(c Claim, gpus []string) ([]api.VMSpec, error) {
	if err := api.CheckUUID(c.UID); err != nil {
		return nil, refuse("its UID: %w", err)
	}
	if len(c.Results) > maxGuests {
		return nil, refuse("it asks for %d GPUs, of at most %d", len(c.Results), maxGuests)
	}
	var specs []api.VMSpec
	for n, r := range c.Results {
		i := slices.IndexFunc(gpus, func(gpu string) bool { return DeviceName(gpu) == r.Device })
		switch {
		case i < 0:
			return nil, refuse("it has device %.70q, which is none of this node's GPUs: has the GPU been taken out of vgpud's configuration?", r.Device)
		case r.Share < 1 || r.Share > capacity.Shares:
			return nil, refuse("it has %d shares of device %s: want 1 to %d", r.Share, r.Device, capacity.Shares)
		case r.MemoryMiB < 1 || r.MemoryMiB > api.MaxMemoryLimit>>20:
			return nil, refuse("it has %d MiB of device %s: want 1 to %d", r.MemoryMiB, r.Device, int64(api.MaxMemoryLimit>>20))
		}
		specs = append(specs, api.VMSpec{
			Name: GuestName(c.UID, n), Project: c.Namespace, Engine: Engine, GPU: gpus[i],
			Weight: float64(r.Share), Guarantee: float64(r.Share) / capacity.Shares, MemoryLimitBytes: uint64(r.MemoryMiB) << 20,
		})
	}
	return specs, nil
}

// OfClaim reports whether a guest was created for a claim.
func OfClaim(v *api.VM, claim string) bool {
	return v.Engine == Engine && strings.HasPrefix(v.Name, prefix(claim))
}

// Same returns an error unless the guest is as specified: another one has the name, or the claim was
// allocated anew.
func Same(v *api.VM, s *api.VMSpec) error {
	if v.Engine != Engine || v.GPU != s.GPU || v.Weight != s.Weight || v.Guarantee != s.Guarantee || v.MemoryLimitBytes != s.MemoryLimitBytes || v.Lost != "" {
		return refuse("guest %s is there already, and is another: %.3g of GPU %s with %d bytes", v.Name, v.Guarantee, v.GPU, v.MemoryLimitBytes)
	}
	return nil
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrNotGranted, fmt.Errorf(format, args...))
}
