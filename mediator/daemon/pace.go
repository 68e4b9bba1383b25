package daemon

import (
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// pace is how soon the next round is wanted, after one of a length in which observe has
// seen the guests and decide decided about them. The caller, who is the watcher, holds mu.
func (s *share) pace(guests []*guest, length time.Duration) accounting.Pace {
	told := s.launchesTold
	s.launchesTold = 0
	easy := accounting.Easy.Phase(s.opened.watch.Round)
	held, quota := false, false
	for i, g := range guests {
		held = held || g.heldNow()
		quota = quota || s.state[i].Quota != (fairshare.Quota{})
	}
	switch {
	case time.Duration(told)*easy > ipc.WorkLogIntervals/2*length:
		return accounting.Brisk // there may not be room to tell of all
	case held:
		return accounting.Brisk // rounds end suspensions, also of who has nothing to do yet
	case s.load.Active == 0:
		return accounting.Easy
	case s.launching.byKernel, quota:
		return accounting.Brisk
	case s.policyName == noPolicy, s.load.Active == 1:
		return accounting.Easy
	}
	return accounting.Brisk
}

// noPolicy is the name of the policy that decides nothing.
const noPolicy = "none"
