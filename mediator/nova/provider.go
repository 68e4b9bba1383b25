package nova

import (
	"fmt"

	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
)

// The resource classes of a GPU.
const (
	// ClassShare counts hundredths of a GPU's time.
	ClassShare = "CUSTOM_VGPUD_SHARE"
	// ClassMemory counts MiB of a GPU's memory.
	ClassMemory = "CUSTOM_VGPUD_MEMORY_MIB"
)

// Classes are the resource classes of a GPU.
var Classes = []string{ClassShare, ClassMemory}

// prefix starts the names of our classes and traits. Operators' own traits start otherwise.
const prefix = "CUSTOM_VGPUD"

// Host is a compute node as Placement knows it: the provider at the root of its tree.
type Host struct {
	// Node is the provider's UUID, and Name its name, the hypervisor's host name.
	Node, Name string
}

// Provider is a resource provider in Placement.
type Provider struct {
	UUID, Name string
	// Parent is the UUID of the provider above it, "" for a root.
	Parent string
	// Generation changes with each change of the provider and each new allocation on it. A request
	// that names an old one is refused.
	Generation  int
	Inventories map[string]Inventory // by resource class
	Traits      []string
}

// Inventory is what a provider has of a resource class.
type Inventory struct {
	Total, Reserved            int
	MinUnit, MaxUnit, StepSize int
	AllocationRatio            float32
}

// Check returns an error if Placement can't have such a provider, which means that the answer is
// not Placement's.
func (p Provider) Check() error {
	switch {
	case api.CheckUUID(p.UUID) != nil:
		return fmt.Errorf("a resource provider with the UUID %.50q", p.UUID)
	case p.Parent != "" && api.CheckUUID(p.Parent) != nil:
		return fmt.Errorf("resource provider %s has the parent %.50q, which is no UUID", p.UUID, p.Parent)
	case p.Generation < 0:
		return fmt.Errorf("resource provider %s has the generation %d", p.UUID, p.Generation)
	}
	for class, i := range p.Inventories {
		if i.Total < 0 || i.Total > capacity.MaxAmount || i.Reserved < 0 || i.Reserved > i.Total {
			return fmt.Errorf("resource provider %s has %d of %.60q, %d of them reserved", p.UUID, i.Total, class, i.Reserved)
		}
	}
	return nil
}
