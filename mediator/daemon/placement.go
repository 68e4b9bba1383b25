package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vgpud/mediator/api"
)

// room is what a GPU has, and what of it is its guests' already.
type room struct {
	name    string
	healthy bool
	memory  uint64 // 0 where it is not known
	// limits is the sum of the guests' memory limits; a guest without one counts
	// nothing, as it is promised nothing.
	limits     uint64
	weights    float64
	guarantees float64
}

// left is the part of the GPU's time that is not guaranteed to anybody.
func (r *room) left() float64 { return max(1-r.guarantees, 0) }

// slack is how far sums of parts may be off, which were given in decimals.
const slack = 1e-9

// admit is whether the GPU has room for a guarantee.
func (r *room) admit(guarantee float64) error {
	if guarantee <= r.left()+slack {
		return nil
	}
	return fmt.Errorf("guarantee %v: of the time of GPU %s %.4g is left that is not guaranteed to others: %w",
		guarantee, r.name, r.left(), api.ErrNoRoom)
}

// place finds the GPU for a guest: of those with room for its memory limit and
// guarantee, the one with the least sum of weights, and the first by name of
// several such.
func place(rooms []room, memory uint64, guarantee float64) (string, error) {
	var fit []room
	var why []string
	for _, r := range rooms {
		switch {
		case !r.healthy:
			why = append(why, r.name+" is not healthy")
		case r.memory > 0 && (r.limits > r.memory || memory > r.memory-r.limits):
			why = append(why, fmt.Sprintf("%s has %d of %d bytes of memory left", r.name, r.memory-min(r.limits, r.memory), r.memory))
		case r.admit(guarantee) != nil:
			why = append(why, fmt.Sprintf("%s has %.4g of its time left", r.name, r.left()))
		default:
			fit = append(fit, r)
		}
	}
	if len(fit) == 0 {
		return "", fmt.Errorf("no GPU for %d bytes of memory and a guarantee of %v: %s: %w", memory, guarantee, strings.Join(why, "; "), api.ErrNoRoom)
	}
	return slices.MinFunc(fit, func(a, b room) int {
		return cmp.Or(cmp.Compare(a.weights, b.weights), strings.Compare(a.name, b.name))
	}).name, nil
}

// add takes a guest into account.
func (r *room) add(t api.Terms, limit uint64) {
	r.weights += t.Weight
	r.guarantees += t.Guarantee
	r.limits += limit
}

// room is a GPU's, but for the guest that is named. The caller holds admission.
func (s *Service) room(sh *share, without string) room {
	r := room{name: sh.config.Name, memory: sh.open().props.MemoryBytes}
	there := make(map[string]bool)
	sh.guests(func(guests []*guest) {
		for _, g := range guests {
			there[g.spec.Name] = true
			if g.spec.Name != without {
				r.add(g.termsNow(), g.spec.MemoryLimit)
			}
		}
	})
	for name, b := range s.unborn {
		if b.share == sh && !there[name] {
			r.add(b.spec.Terms(), b.spec.MemoryLimitBytes)
		}
	}
	for _, t := range s.silents() {
		if t.noted != nil && t.noted.Spec.GPU.Name == r.name && t.name != without && !there[t.name] {
			r.add(t.noted.Terms, t.noted.Spec.MemoryLimit)
		}
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r.healthy = sh.wrong() == ""
	return r
}

// home is the GPU that a guest is to be on. The caller holds admission.
func (s *Service) home(spec *api.VMSpec) (*share, error) {
	if spec.GPU != "" && spec.GPU != api.AnyGPU {
		sh, err := s.share(spec.GPU)
		if err != nil {
			return nil, err
		}
		r := s.room(sh, "")
		return sh, r.admit(spec.Guarantee)
	}
	rooms := make([]room, len(s.shares))
	for i, sh := range s.shares {
		rooms[i] = s.room(sh, "")
	}
	name, err := place(rooms, spec.MemoryLimitBytes, spec.Guarantee)
	if err != nil {
		return nil, err
	}
	return s.share(name)
}
