package mediator

import (
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/mediator/link"
)

// pace is how soon the next round is wanted, after one of a length in which observe has
// seen the guests and decide decided about them. The caller, who is the watcher, holds mu.
func (s *share) pace(guests []*guest, length time.Duration) accounting.Pace {
	told := s.launchesTold
	s.launchesTold = 0
	switch {
	case time.Duration(told)*easyRound > link.WorkRoom/2*length:
		return accounting.Brisk // there may not be room to tell of all
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

// easyRound is how long a round is at an easy pace, by the defaults.
const easyRound = 40 * time.Millisecond

// noPolicy is the name of the policy that decides nothing.
const noPolicy = "none"
