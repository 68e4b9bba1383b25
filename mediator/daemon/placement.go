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
	// promised nothing. granted is the part of it that contexts of guests that float have.
	limits     uint64
	granted    uint64
	weights    float64
	guarantees float64
	// sold says why nothing of the GPU can be given to a guest that Nova did not place; nil if it can.
	sold error
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

// admitMemory returns an error if the GPU could not hold a guest's memory limit beside what contexts of
// guests that float have there. Those keep what they were granted, while the limits of guests on one GPU
// may exceed its memory where an operator chose that GPU for them.
func (c *capacity) admitMemory(limit uint64) error {
	if c.memory == 0 || limit <= c.memory-min(c.granted, c.memory) {
		return nil
	}
	return fmt.Errorf("memory limit of %d bytes: of the memory of GPU %s, %d bytes, guests that float have %d: %w",
		limit, c.name, c.memory, c.granted, api.ErrNoRoom)
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
		case r.sold != nil:
			why = append(why, r.name+": "+r.sold.Error())
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
		return "", fmt.Errorf("no GPU for %s: %s: %w", demand(memory, guarantee), strings.Join(why, "; "), api.ErrNoRoom)
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
	s.eachPromise(func(p *promise) {
		switch {
		case p.name == without:
		case p.floats && p.g != nil:
			s.addFloating(&c, p.g, d)
		case p.floats:
			var memory uint64
			for _, x := range p.tasks {
				if x.GPU == c.name {
					memory += x.Memory
				}
			}
			if memory > 0 {
				c.add(p.terms, memory)
				c.granted += memory
			}
		case p.gpu == c.name:
			c.add(p.terms, p.memory)
		}
	})
	return c
}

// promise is what a guest is promised of the host's GPUs: one that is there, that is being created,
// or that does not answer.
type promise struct {
	name   string
	gpu    string // its own
	floats bool
	terms  api.Terms
	memory uint64      // its limit in bytes; 0: none
	g      *guest      // nil unless it is there
	tasks  []savedTask // of one that floats and does not answer: those that have a GPU
}

// eachPromise calls f once for each guest to which something may be promised.
//
// Preconditions: s.admission is held. f is called with s.mu held.
func (s *Service) eachPromise(f func(*promise)) {
	silent := s.silentGuests() // before the guests: one that is adopted meanwhile is among both
	there := make(map[string]bool)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, g := range s.guests {
		there[g.spec.Name] = true
		t := g.terms()
		f(&promise{name: g.spec.Name, gpu: g.device.config.Name, floats: g.floats(), terms: t, memory: t.MemoryLimitBytes, g: g})
	}
	for name, p := range s.pending {
		if !there[name] {
			f(&promise{name: name, gpu: p.device.config.Name, floats: p.spec.Float, terms: p.spec.Terms(), memory: p.spec.MemoryLimitBytes})
		}
	}
	for _, t := range silent {
		if k := t.saved; k != nil && !there[t.name] {
			f(&promise{name: t.name, gpu: k.Spec.GPU.Name, floats: len(k.Spec.Floats) > 0, terms: k.Terms, memory: k.Spec.MemoryLimit, tasks: k.Tasks})
		}
	}
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
	c.granted += memory
	c.add(g.terms(), memory)
}

// chooseDevice returns the GPU for a new guest. For one that floats it is the GPU of contexts that
// don't; memory is kept for none before it asks. sold are GPUs that are left out, with the reasons.
//
// Preconditions: s.admission is held.
func (s *Service) chooseDevice(spec *api.VMSpec, sold map[string]error) (*device, error) {
	if spec.GPU != "" && spec.GPU != api.AnyGPU {
		d, err := s.device(spec.GPU)
		if err != nil {
			return nil, err
		}
		c := s.capacity(d, "")
		return d, errors.Join(c.cordon.admit(d.config.Name), c.admit(spec.Guarantee), c.admitMemory(spec.MemoryLimitBytes))
	}
	gpus := make([]capacity, len(s.devices))
	for i, d := range s.devices {
		gpus[i] = s.capacity(d, "")
		gpus[i].sold = sold[d.config.Name]
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

// demand describes what a guest needs of a GPU beside a part of its time.
func demand(memory uint64, guarantee float64) string {
	var needs []string
	if memory > 0 {
		needs = append(needs, fmt.Sprintf("%d bytes of memory", memory))
	}
	if guarantee > 0 {
		needs = append(needs, fmt.Sprintf("a guarantee of %v", guarantee))
	}
	return cmp.Or(strings.Join(needs, " and "), "another guest")
}
