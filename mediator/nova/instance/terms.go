package instance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"vgpud/mediator/capacity"
	"vgpud/mediator/libvirt/domain"
	"vgpud/mediator/nova"
)

// Share says what an instance's share of a GPU gives it.
type Share string

// The values that a share may give. Shares are of a hundred, so with weights alone an instance gets at
// least its share of a GPU whose guests are all placed by shares; with a guarantee, whatever others
// weigh.
const (
	ShareBoth      Share = "weight+guarantee"
	ShareWeight    Share = "weight"
	ShareGuarantee Share = "guarantee"
)

// Check returns an error if s is none of these.
func (s Share) Check() error {
	switch s {
	case ShareBoth, ShareWeight, ShareGuarantee:
		return nil
	}
	return fmt.Errorf("share %.40q: want %s, %s or %s", string(s), ShareBoth, ShareWeight, ShareGuarantee)
}

// specPrefix starts the extra specs that set terms.
const specPrefix = "vgpud:"

// Settings are the settings of a virtual GPU that flavors may have: attributes of <vgpud:gpu>.
// Placement's promises are not among them.
var Settings = []string{"priority", "cap", "budget", "latency", "kernel-time-limit", "bar2"}

// Flavors are settings of flavors by name, for releases of Nova that do not tell extra specs.
type Flavors map[string]map[string]string

// Check returns an error if a flavor's settings can't be used.
func (f Flavors) Check() error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		var g domain.GPU
		if err := apply(&g, f[name]); err != nil {
			return fmt.Errorf("flavors: %s: %w", name, err)
		}
	}
	return nil
}

// Terms returns the virtual GPU that a grant means for an instance. Its flavor's extra specs are
// used where Nova tells them, and otherwise flavors.
func Terms(g nova.Grant, v *domain.Instance, s Share, flavors Flavors) (domain.GPU, error) {
	const mib = 1 << 20
	gpu := domain.GPU{GPU: g.GPU, Memory: uint64(g.MemoryMiB) * mib}
	if s != ShareGuarantee {
		gpu.Weight = float64(g.Share)
	}
	if s != ShareWeight {
		gpu.Guarantee = float64(g.Share) / capacity.Shares
	}
	settings := flavors[v.Flavor]
	if v.ExtraSpecs != nil {
		settings = make(map[string]string)
		for name, value := range v.ExtraSpecs {
			if short, ok := strings.CutPrefix(name, specPrefix); ok {
				settings[short] = value
			}
		}
	}
	err := apply(&gpu, settings)
	if err == nil {
		err = (domain.Devices{gpu}).Check()
	}
	if err != nil {
		return domain.GPU{}, fmt.Errorf("flavor %.100q: %w", v.Flavor, err)
	}
	return gpu, nil
}

func apply(g *domain.GPU, settings map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if !slices.Contains(Settings, name) {
			return fmt.Errorf("%s%.60q is not known: want %s", specPrefix, name, strings.Join(Settings, ", "))
		}
		if err := g.Set(name, settings[name]); err != nil {
			return fmt.Errorf("%s%s: %w", specPrefix, name, err)
		}
	}
	return nil
}
