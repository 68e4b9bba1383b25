package fairshare_test

import (
	"slices"
	"time"

	"vgpud/fairshare"
)

// behindWork is how long two kernels take at most together of which one is put on the GPU behind the
// other.
const behindWork = 1 * ms

// twin returns the kernel that its guest launches next, at a time.
func (k *kernel) twin(at time.Duration) *kernel {
	t := *k
	t.Launch = fairshare.Launch{Guest: k.Guest, Context: k.Context, Priority: k.Priority, Blocks: k.Blocks, PerSM: k.PerSM, Evictable: k.Evictable}
	t.at, t.evicted, t.next, t.behind, t.leftAt = at, 0, false, nil, 0
	return &t
}

// inTurn reports whether it is a guest's turn for a launch that begins in a while.
func (s *kernelSim) inTurn(id fairshare.GuestID, in time.Duration) bool {
	return s.turns && s.open.Guest == id && s.now+in < s.until
}

// goesByItself has a kernel that arrives run without a verdict, if it is its guest's turn and the
// guest has no other.
func (s *kernelSim) goesByItself(k *kernel) {
	if !s.inTurn(k.Guest, 0) || s.has(k.Guest) {
		return
	}
	k.Running, k.started = true, s.now
	s.went++
}

// goOn has the guest whose turn it is put its next kernel on the GPU behind the one that runs, and
// reports whether it did.
func (s *kernelSim) goOn() bool {
	i := slices.IndexFunc(s.here, func(k *kernel) bool {
		return k.stream && !k.next && k.Running && !k.Evicting && 2*k.work <= behindWork && s.open.Behind && s.inTurn(k.Guest, time.Duration(k.left))
	})
	if i < 0 {
		return false
	}
	first := s.here[i]
	if slices.ContainsFunc(s.here, func(k *kernel) bool { return k != first && k.Guest == first.Guest }) {
		return false
	}
	first.next = true
	k := first.twin(s.now)
	s.submit(k)
	s.coming = slices.DeleteFunc(s.coming, func(o *kernel) bool { return o == k })
	k.Arrived, k.Running, k.started, k.behind = s.now, true, s.now, first
	s.here = append(s.here, k)
	s.went++
	s.wentOn++
	s.decide(fairshare.Event{Kind: fairshare.Arrived, Guest: k.Guest, Launch: k.ID})
	return true
}
