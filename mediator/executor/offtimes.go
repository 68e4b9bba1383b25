package executor

import (
	"context"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// absences are the times in which the context's channels were off the GPU, in
// mid-kernel where one ran: the daemon, or the executor itself, had them there. They
// are no time that a launch used.
type offTimes struct {
	off       bool
	intervals []interval // ascending; the last has no end yet while off
}

type interval struct{ from, to time.Duration }

// absencesKept bounds how many are remembered while launches are on the GPU all
// along: those of a kernel that runs for half a minute in the shortest duty cycle.
const maxOffTimes = 4096

// turn begins or ends an absence at now. Those of before are of interest as long as
// launches are on the GPU that began before them.
func (a *offTimes) set(off bool, now time.Duration, launches int) {
	switch a.off = off; {
	case !off:
		a.intervals[len(a.intervals)-1].to = now
		return
	case launches == 0:
		a.intervals = a.intervals[:0]
	case len(a.intervals) == maxOffTimes:
		a.intervals = append(a.intervals[:0], a.intervals[maxOffTimes/2:]...)
	}
	a.intervals = append(a.intervals, interval{from: now})
}

// overlap is how much of the time from start to end was in absences.
func (a *offTimes) overlap(start, end time.Duration) (sum time.Duration) {
	for i := len(a.intervals) - 1; i >= 0; i-- {
		s := a.intervals[i]
		if a.off && i == len(a.intervals)-1 {
			s.to = end
		}
		if s.to <= start {
			break
		}
		sum += max(min(end, s.to)-max(start, s.from), 0)
	}
	return sum
}

// notice takes note of the beginning and end of absences.
func (x *Executor) updateOffTimes() {
	disabled := x.o.Page.Disabled(x.o.Slot)
	if !disabled {
		x.selfEnabled.Store(false)
	}
	off := x.parked != nil || disabled && !x.selfEnabled.Load()
	if off == x.offGPU.off {
		return
	}
	at, err := x.o.Device.Now()
	if err != nil {
		x.fail(err)
		return
	}
	x.offGPU.set(off, at, x.launches)
	x.offHost.set(off, x.o.Clock.Now(), x.launches)
	if p, ok := x.o.Context.(gpu.Pausing); ok {
		p.Pause(off)
	}
}

// ran is what of the time from start to end, on the GPU's clock, a launch was on the
// GPU, and what of that was while the guest was suspended.
func (x *Executor) gpuTime(start, end time.Duration) (t, late time.Duration) {
	from, to := x.suspension.within(start, end)
	return max(end-start-x.offGPU.overlap(start, end), 0), max(to-from-x.offGPU.overlap(from, to), 0)
}

const (
	// lookEvery is how often an executor looks whether it was left disabled.
	enableInterval = ipc.SuspensionLimit / 8
	// enableGrace is how long a daemon that is alive may take to enable the contexts
	// of a guest that it lets run.
	enableGrace = ipc.SuspensionLimit / 2
)

// keeper enables the executor's own context where the daemon has not: it is gone, or
// its driver calls fail. The driver counts what is disabled, whoever did it, and
// keeps it when they end; so the keeper undoes what the page says just once, and
// nothing else. And it gives the driver's time slice back where the daemon is gone.
type selfEnabler struct {
	x             *Executor
	driver        gpu.Suspender
	slicer        gpu.Slicer    // nil: there is none
	since         time.Duration // when the context was first seen disabled without a reason; 0: it was not
	sliceRestored bool          // the time slice was given back since the daemon was there
}

// keepEnabled has a keeper look until ctx ends. It is apart from Run, which may be
// waiting for the very GPU that the context is off.
func (x *Executor) enableSelf(ctx context.Context) {
	k := selfEnabler{x: x}
	var ok bool
	if k.driver, ok = x.o.Device.(gpu.Suspender); !ok {
		return
	}
	k.slicer, _ = x.o.Device.(gpu.Slicer)
	for clock.Sleep(ctx, x.o.Clock, enableInterval) == nil {
		now := x.o.Clock.Now()
		k.check(now)
		k.restoreSlice(now)
	}
}

// unslice gives the driver's time slice back if the daemon is gone that set another.
func (k *selfEnabler) restoreSlice(now time.Duration) {
	switch page := k.x.o.Page; {
	case !page.SuspensionExpired(now):
		k.sliceRestored = false
		return
	case k.sliceRestored, k.slicer == nil, !page.Sliced(k.x.o.Slot):
		return
	}
	k.sliceRestored = true
	if err := k.slicer.SetTimeslice(k.x.o.Context, gpu.DriverTimeslice); err != nil {
		k.x.o.Log.Debug("give the driver's time slice back", "err", err)
	}
}

// look enables the context if it is time for that.
func (k *selfEnabler) check(now time.Duration) {
	page := k.x.o.Page
	switch {
	case !page.Disabled(k.x.o.Slot):
		k.since = 0
		k.x.selfEnabled.Store(false)
		return
	case k.x.selfEnabled.Load():
		return
	case page.SuspendWord(now) == ipc.Suspend:
		k.since = 0
		return
	case k.since == 0:
		k.since = now
	}
	if !page.Silent(now) && now-k.since < enableGrace {
		return
	}
	if k.x.enable(k.driver) {
		k.x.selfEnabled.Store(true)
		k.x.slot.Wake() // its kernels' time goes on
	}
}

// enable undoes one disabling of the context, and reports whether that worked.
func (x *Executor) enable(driver gpu.Suspender) bool {
	if err := driver.Resume(x.o.Context); err != nil {
		x.o.Log.Debug("enable a context that was left off the GPU", "err", err)
		return false
	}
	x.o.Log.Debug("context was left off the GPU, and is enabled again")
	return true
}

// enableAtEnd enables a context that is about to be closed: what waits for its
// kernels would wait for ever.
func (x *Executor) enableAtEnd() {
	driver, ok := x.o.Device.(gpu.Suspender)
	if !ok {
		return
	}
	if x.o.Page.Disabled(x.o.Slot) {
		x.enable(driver)
	}
	if x.parked != nil {
		x.parked = nil
		x.enable(driver)
	}
}
