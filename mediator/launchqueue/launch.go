package launchqueue

import (
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// Launch is one launch that waits or runs. Of the embedded [fairshare.Launch], which is what a
// policy is shown, ID, Guest, Arrived and Predicted always hold; [Queue.Launches] refreshes the
// rest. Arrived is never earlier than is possible, whatever the slot says.
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
	// unstarted reports whether it was told to leave while it had its turn and was not on the GPU
	// yet.
	unstarted bool
	// evictions is how often it was seen to have left the GPU. unresponsive reports whether it did
	// not leave when told to.
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

// leaving reports whether the launch was told to leave, and which SMs.
func (l *Launch) leaving() (belowSM uint32, yes bool) {
	if l.slot.State != slotstate.ToEvict {
		return 0, false
	}
	return l.slot.BelowSM, true
}

// onGPU reports whether the launch is on the GPU, and not only on its way there.
func (l *Launch) onGPU() bool {
	s := l.slot.State
	return (s == slotstate.Running || s == slotstate.ToEvict) && !l.unstarted
}

// refresh updates what a policy is shown of the launch at now, on a GPU with sms SMs.
func (l *Launch) refresh(now time.Duration, sms uint32) {
	s := &l.slot
	l.Running, l.Priority, l.Evictable = !l.Waits(), s.Priority, s.Evictable
	l.Context, l.Blocks, l.PerSM = uint64(s.Context), uint64(s.Blocks), s.PerSM
	l.Used = s.Used
	if l.onGPU() && s.Started > 0 {
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
	case l.slot.State == slotstate.Ready && (l.shared.Run(l.slot.ID) || l.wentByItself()):
		l.slot.State, l.ahead = slotstate.ToRun, false
		l.grant(now)
		return true
	case l.ahead:
		l.ahead = false
		l.grant(now)
		return true
	case l.slot.State == slotstate.ToEvict && l.shared.Recall(l.slot.ID):
		l.slot.State = slotstate.Running
		return true
	}
	return false
}

// wentByItself reports whether the launch, which was ready when its slot was read, has gone to the
// GPU since. It may have done so in its guest's turn.
func (l *Launch) wentByItself() bool {
	launch, state := l.shared.State()
	return launch == l.slot.ID && state.OnGPU()
}

// Evict tells the launch to leave the SMs below belowSM by deadline, an instant; 0 is none. One
// that is on its way to the GPU and is to leave all SMs gives its turn up. Evict returns false if
// the launch has no turn, can't be evicted, or was told to leave as many SMs already.
func (l *Launch) Evict(belowSM uint32, now, deadline time.Duration) bool {
	before := &l.slot
	if l.over || l.excluded != notExcluded || !before.Evictable || !before.State.OnGPU() {
		return false
	}
	if before.State == slotstate.ToEvict && belowSM <= before.BelowSM {
		return false
	}
	if !l.shared.Evict(before.ID, belowSM, now, deadline) {
		return false // it was told to leave as many, or has ended, as the next read will show
	}
	l.unstarted = l.unstarted || before.State == slotstate.ToRun
	before.State, before.BelowSM, before.Asked = slotstate.ToEvict, belowSM, now
	return true
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
