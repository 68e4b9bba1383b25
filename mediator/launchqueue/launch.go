package launchqueue

import (
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// Launch is one launch that waits or runs. Of the embedded [fairshare.Launch], which is what a
// policy is shown, ID, Guest, Arrived and Predicted always hold; [Queue.Launches]
// refreshes the rest. Arrived is never earlier than is possible, whatever the slot says.
type Launch struct {
	fairshare.Launch
	GuestName string

	queue  *guestQueue
	index  int             // of the slot
	shared *ipc.LaunchSlot // the slot itself
	slot   ipc.Launch      // as last read, but for what the daemon writes, which is as it was written
	// told reports whether the policy knows of the launch, announced whether the event that tells
	// it so is queued, and over whether the launch has ended.
	told, announced, over bool
	// ahead reports whether it went to the GPU by itself and the policy has not let it run yet: to
	// the policy it waits.
	ahead bool
	// asked reports whether it is to leave the SMs below belowSM as soon as it has come to the
	// GPU, and within how long then; 0 is no limit.
	asked   bool
	belowSM uint32
	within  time.Duration
	// evictions is how often it was seen to have left the GPU. unresponsive reports whether it
	// did not leave when told to.
	evictions    uint32
	unresponsive bool
	progress
}

// Slot returns the launch's slot as it was last read.
func (l *Launch) Slot() *ipc.Launch { return &l.slot }

// Unresponsive reports whether the launch did not leave the GPU when told to.
func (l *Launch) Unresponsive() bool { return l.unresponsive }

// Waits reports whether the launch waits for a verdict, also if it went ahead of one.
func (l *Launch) Waits() bool { return l.ahead || l.slot.State == slotstate.Ready }

// Ready reports whether the policy may let the launch run, which has not started.
func (l *Launch) Ready() bool {
	return l.slot.State == slotstate.Ready && l.excluded == notExcluded
}

// EvictionPending reports whether the launch will be told to leave once it has come to the GPU.
func (l *Launch) EvictionPending() bool { return l.asked }

// leaving reports whether the launch was told to leave, or will be, and which SMs.
func (l *Launch) leaving() (belowSM uint32, yes bool) {
	switch {
	case l.asked:
		return l.belowSM, true
	case l.slot.State == slotstate.ToEvict:
		return l.slot.BelowSM, true
	}
	return 0, false
}

// refresh updates what a policy is shown of the launch at now, on a GPU with sms SMs.
func (l *Launch) refresh(now time.Duration, sms uint32) {
	s := &l.slot
	l.Running, l.Priority, l.Evictable = !l.Waits(), s.Priority, s.Evictable
	l.Context, l.Blocks, l.PerSM = uint64(s.Context), uint64(s.Blocks), s.PerSM
	l.Used = s.Used
	if (s.State == slotstate.Running || s.State == slotstate.ToEvict) && s.Started > 0 {
		l.Used += max(now-s.Started, 0)
	}
	below, leaves := l.leaving()
	l.Evicting, l.BelowSM = leaves && below >= sms, 0
	if leaves && !l.Evicting {
		l.BelowSM = below
	}
}

// Run lets the launch go to the GPU at now, or back to the SMs that it was to leave. It reports
// whether that changed anything.
func (l *Launch) Run(now time.Duration) bool {
	switch {
	case l.over || l.excluded != notExcluded:
		return false
	case l.slot.State == slotstate.Ready && l.shared.Run(l.slot.ID):
		l.slot.State, l.ahead = slotstate.ToRun, false
		l.grant(now)
		return true
	case l.ahead:
		l.ahead = false
		l.grant(now)
		return true
	case l.asked:
		l.asked = false
		return true
	case l.slot.State == slotstate.ToEvict && l.shared.Recall(l.slot.ID):
		l.slot.State = slotstate.Running
		return true
	}
	return false
}

// Evict tells the launch to leave the SMs below belowSM by deadline, an instant; 0 is none. One
// that is on its way to the GPU is told so when it has come there. Evict returns false if the
// launch is not on the GPU, can't be evicted, or leaves as many SMs already.
func (l *Launch) Evict(belowSM uint32, now, deadline time.Duration) bool {
	if l.over || l.excluded != notExcluded || !l.slot.Evictable {
		return false
	}
	switch l.slot.State {
	case slotstate.ToRun:
		if !l.asked {
			l.slot.Asked = now
		}
		l.asked, l.belowSM, l.within = true, belowSM, max(deadline-now, 0)
		return true
	case slotstate.Running, slotstate.ToEvict:
		if l.slot.State == slotstate.ToEvict && belowSM <= l.slot.BelowSM {
			return false
		}
		if !l.shared.Evict(l.slot.ID, belowSM, now, deadline) {
			return false // it leaves as many, or has ended, as the next read will show
		}
		l.asked = false
		l.slot.State, l.slot.BelowSM, l.slot.Asked = slotstate.ToEvict, belowSM, now
		return true
	default:
		return false
	}
}

// retryEviction tells the launch to leave if it was on its way to the GPU when it was first told.
// It reports whether it still is.
func (l *Launch) retryEviction(now time.Duration) (late bool) {
	if !l.asked {
		return false
	}
	deadline := time.Duration(0)
	if l.within > 0 {
		deadline = now + l.within
	}
	l.Evict(l.belowSM, now, deadline)
	return l.asked
}

func (l *Launch) countIn(n *Counts) {
	if _, leaves := l.leaving(); l.slot.State == slotstate.Ready {
		n.Waiting++
	} else if leaves {
		n.Leaving++
	} else {
		n.Running++
	}
}
