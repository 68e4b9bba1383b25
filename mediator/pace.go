package mediator

import (
	"vgpud/accounting"
	"vgpud/fairshare"
)

// pace is how soon the next round is wanted, after one in which observe has seen the
// guests and decide decided about them. The caller holds mu.
func (s *share) pace(guests []*guest) accounting.Pace {
	switch {
	case s.load.Active == 0:
		return accounting.Idle
	case s.launching.byKernel:
		return accounting.Brisk
	}
	for i, g := range guests {
		if g.heldNow() || s.state[i].Quota != (fairshare.Quota{}) {
			return accounting.Brisk // rounds end suspensions, and make quotas hold
		}
	}
	if s.policyName == noPolicy || s.load.Active == 1 {
		return accounting.Easy
	}
	return accounting.Brisk
}

// noPolicy is the name of the policy that decides nothing.
const noPolicy = "none"
