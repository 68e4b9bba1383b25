package nova

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
)

// Allocation is what an instance has of each resource provider: amounts by resource class, by the
// provider's UUID.
type Allocation map[string]map[string]int

// Grant is what an instance has of one GPU.
type Grant struct {
	GPU       string `json:"gpu"`
	Share     int    `json:"share"`      // hundredths of the GPU's time, 1 to [capacity.Shares]
	MemoryMiB int    `json:"memory_mib"` // above 0
}

// MaxGrants bounds the virtual GPUs of an instance: as many as a domain may have.
const MaxGrants = 16

// ErrNotGranted means that an allocation names resources of vgpud's and yet can't be carried out on
// this host. The error's text says why and what to do.
var ErrNotGranted = errors.New("the instance can't have its virtual GPU")

// Ours reports whether an allocation names resources of vgpud's.
func (a Allocation) Ours() bool {
	for _, amounts := range a {
		for class := range amounts {
			if strings.HasPrefix(class, prefix) {
				return true
			}
		}
	}
	return false
}

// Grants returns what an allocation grants of this host's GPUs, by GPU; none if it does not name
// resources of vgpud's. Amounts that no flavor can ask for, or of a provider that is not one of these
// GPUs', are an error that wraps [ErrNotGranted].
//
// An instance that is evacuated has an allocation on two hosts: Nova adds what it has here to what it
// had on the host that died, and takes the latter back when that host returns. Its part of the other
// host's GPUs is passed over then.
func Grants(a Allocation, node string, gpus []string) ([]Grant, error) {
	known := make(map[string]string, len(gpus))
	for _, gpu := range gpus {
		known[ProviderUUID(node, gpu)] = gpu
	}
	var grants []Grant
	var foreign string
	for _, id := range slices.Sorted(maps.Keys(a)) {
		amounts := a[id]
		if !(Allocation{id: amounts}).Ours() {
			continue
		}
		gpu, ok := known[id]
		if !ok {
			foreign = id
			continue
		}
		g, err := grant(gpu, amounts)
		if err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	if foreign != "" && (len(grants) == 0 || !evacuated(a, node)) {
		return nil, refuse("Placement's allocation names the resource provider %.50q, which is none of this host's GPUs (compute node %s): has the GPU been taken out of vgpud's configuration, or does vgpu-placement use another compute node?", foreign, node)
	}
	if len(grants) > MaxGrants {
		return nil, refuse("its flavor asks for %d GPUs, of at most %d", len(grants), MaxGrants)
	}
	slices.SortFunc(grants, func(a, b Grant) int { return cmp.Compare(a.GPU, b.GPU) })
	return grants, nil
}

// evacuated reports whether an allocation is of two hosts: of this compute node, and of another
// provider that is no GPU.
func evacuated(a Allocation, node string) bool {
	others := 0
	for id, amounts := range a {
		if id != node && !(Allocation{id: amounts}).Ours() {
			others++
		}
	}
	return len(a[node]) > 0 && others > 0
}

func grant(gpu string, amounts map[string]int) (Grant, error) {
	for class := range amounts {
		if strings.HasPrefix(class, prefix) && !slices.Contains(Classes, class) {
			return Grant{}, refuse("its flavor asks for %.60q of GPU %s, which is not known here: want %s and %s", class, gpu, ClassShare, ClassMemory)
		}
	}
	share, hasShare := amounts[ClassShare]
	memory, hasMemory := amounts[ClassMemory]
	const group = "resources_GPU:" + ClassShare + "=… and resources_GPU:" + ClassMemory + "=…"
	switch {
	case !hasShare:
		return Grant{}, refuse("it has memory of GPU %s but no share of its time: want both in its flavor, in one group: %s", gpu, group)
	case !hasMemory:
		return Grant{}, refuse("it has a share of GPU %s but no memory: want both in its flavor, in one group: %s", gpu, group)
	case share < 1 || share > capacity.Shares:
		return Grant{}, refuse("Placement's allocation has %d shares of GPU %s: want 1 to %d", share, gpu, capacity.Shares)
	case memory < 1 || int64(memory) > api.MaxMemoryLimit>>20:
		return Grant{}, refuse("Placement's allocation has %d MiB of GPU %s: want 1 to %d", memory, gpu, int64(api.MaxMemoryLimit)>>20)
	}
	return Grant{GPU: gpu, Share: share, MemoryMiB: memory}, nil
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNotGranted, fmt.Sprintf(format, args...))
}
