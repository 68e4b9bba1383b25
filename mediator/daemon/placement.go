package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"vgpud/mediator/api"
	"vgpud/mediator/tasks"
)

// capacity is what a GPU has, and what of that its guests have already.
type capacity struct {
	name    string
	healthy bool
	cordon  cordon
	memory  uint64 // 0 if it is not known
	// limits is the sum of the guests' memory limits. A guest without one counts nothing, as it is
	// promised nothing.
	limits     uint64
	weights    float64
	guarantees float64
}

// unguaranteed returns the part of the GPU's time that is not guaranteed to any guest.
func (c *capacity) unguaranteed() float64 { return max(1-c.guarantees, 0) }

// tolerance is how far sums of parts may be off that were given in decimals.
const tolerance = 1e-9

// admit returns an error if the GPU has no room for a guarantee.
func (c *capacity) admit(guarantee float64) error {
	if guarantee <= c.unguaranteed()+tolerance {
		return nil
	}
	return fmt.Errorf("guarantee %v: of the time of GPU %s %.4g is left that is not guaranteed to others: %w",
		guarantee, c.name, c.unguaranteed(), api.ErrNoRoom)
}

// place chooses the GPU for a guest: of those with room for its memory limit and guarantee, the one
// with the least sum of weights; of several such, the first by name.
func place(gpus []capacity, memory uint64, guarantee float64) (string, error) {
	var fit []capacity
	var why []string
	for _, r := range gpus {
		switch {
		case !r.healthy:
			why = append(why, r.name+" is not healthy")
		case r.cordon.Cordoned:
			why = append(why, r.name+" "+r.cordon.text())
		case r.memory > 0 && (r.limits > r.memory || memory > r.memory-r.limits):
			why = append(why, fmt.Sprintf("%s has %d of %d bytes of memory left", r.name, r.memory-min(r.limits, r.memory), r.memory))
		case r.admit(guarantee) != nil:
			why = append(why, fmt.Sprintf("%s has %.4g of its time left", r.name, r.unguaranteed()))
		default:
			fit = append(fit, r)
		}
	}
	if len(fit) == 0 {
		return "", fmt.Errorf("no GPU for %d bytes of memory and a guarantee of %v: %s: %w", memory, guarantee, strings.Join(why, "; "), api.ErrNoRoom)
	}
	return slices.MinFunc(fit, func(a, b capacity) int {
		return cmp.Or(cmp.Compare(a.weights, b.weights), strings.Compare(a.name, b.name))
	}).name, nil
}

// add adds a guest.
func (c *capacity) add(t api.Terms, limit uint64) {
	c.weights += t.Weight
	c.guarantees += t.Guarantee
	c.limits += limit
}

// capacity returns a GPU's capacity without the guest that is named.
//
// Preconditions: s.admission is held.
func (s *Service) capacity(d *device, without string) capacity {
	st := d.loop.Status()
	c := capacity{name: d.config.Name, memory: st.Properties.MemoryBytes, healthy: d.problem(&st) == "", cordon: d.cordonNow()}
	silent := s.silentGuests() // before the guests: one that is adopted meanwhile is among both
	there := make(map[string]bool)
	s.mu.RLock()
	for _, g := range s.guests {
		there[g.spec.Name] = true
		if g.spec.Name == without {
			continue
		}
		if g.floats() {
			s.addFloating(&c, g, d)
		} else if g.device == d {
			c.add(g.terms(), g.terms().MemoryLimitBytes)
		}
	}
	s.mu.RUnlock()
	for name, p := range s.pending {
		if p.device == d && !p.spec.Float && !there[name] {
			c.add(p.spec.Terms(), p.spec.MemoryLimitBytes)
		}
	}
	for _, t := range silent {
		if k := t.saved; k == nil || t.name == without || there[t.name] {
			continue
		} else if len(k.Spec.Floats) == 0 {
			if k.Spec.GPU.Name == c.name {
				c.add(k.Terms, k.Spec.MemoryLimit)
			}
			continue
		}
		var memory uint64
		for _, x := range t.saved.Tasks {
			if x.GPU == c.name {
				memory += x.Memory
			}
		}
		if memory > 0 {
			c.add(t.saved.Terms, memory)
		}
	}
	return c
}

// addFloating adds what a guest that floats has on a GPU now.
//
// Preconditions: s.mu is held.
func (s *Service) addFloating(c *capacity, g *guest, d *device) {
	p := g.onDevice(d)
	if p == nil || !slices.Contains(s.there(g), p) {
		return
	}
	memory := s.plainMemory(g, p)
	s.tasks.locked(func(t *tasks.Table) {
		_, granted := t.On(g.spec.Name, s.tasks.index(d.config.Name))
		memory += granted
	})
	c.add(g.terms(), memory)
}

// chooseDevice returns the GPU for a new guest. For one that floats it is the GPU of contexts that
// don't; memory is kept for none before it asks.
//
// Preconditions: s.admission is held.
func (s *Service) chooseDevice(spec *api.VMSpec) (*device, error) {
	if spec.GPU != "" && spec.GPU != api.AnyGPU {
		d, err := s.device(spec.GPU)
		if err != nil {
			return nil, err
		}
		c := s.capacity(d, "")
		return d, errors.Join(c.cordon.admit(d.config.Name), c.admit(spec.Guarantee))
	}
	gpus := make([]capacity, len(s.devices))
	for i, d := range s.devices {
		gpus[i] = s.capacity(d, "")
	}
	memory := spec.MemoryLimitBytes
	if spec.Float {
		if err := s.checkFloat(memory); err != nil {
			return nil, err
		}
		memory = 0
	}
	name, err := place(gpus, memory, spec.Guarantee)
	if err != nil {
		return nil, err
	}
	return s.device(name)
}
