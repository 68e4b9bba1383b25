package executor

import (
	"context"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// offTimes are the intervals in which the daemon or the executor had the context's channels off the
// GPU, if need be in mid-kernel. They don't count as time that a launch used.
type offTimes struct {
	off       bool
	intervals []interval // ascending; the last has no end yet while off is set
}

type interval struct{ from, to time.Duration }

// maxOffTimes bounds the number of intervals that are kept while launches are on the GPU all the
// time: those of a kernel that runs for half a minute in the shortest duty cycle.
const maxOffTimes = 4096

// set starts or ends an interval at now. Earlier intervals are needed only while launches are on
// the GPU that started before them.
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

// overlap returns how much of the time from start to end the context was off the GPU.
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

// updateOffTimes records whether the context is off the GPU now.
func (x *Executor) updateOffTimes() {
	disabled := x.o.Page.Disabled(x.o.Slot)
	if !disabled {
		x.selfEnabled.Store(false)
	}
	off := x.preempted != nil || disabled && !x.selfEnabled.Load()
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

// gpuTime returns how much of the time from start to end, on the GPU's clock, a launch was on the
// GPU, and how much of that the guest was suspended.
func (x *Executor) gpuTime(start, end time.Duration) (t, late time.Duration) {
	from, to := x.suspension.within(start, end)
	return max(end-start-x.offGPU.overlap(start, end), 0), max(to-from-x.offGPU.overlap(from, to), 0)
}

const (
	// enableInterval is the time between two checks whether the context was left disabled.
	enableInterval = ipc.SuspensionLimit / 8
	// enableGrace is how long a live daemon may take to enable the contexts of a guest that it lets
	// run.
	enableGrace = ipc.SuspensionLimit / 2
)

// selfEnabler enables the executor's own context if the daemon does not, because it is gone or its
// calls of the driver fail. The driver counts disables of all processes, and keeps the count when
// they end. So the selfEnabler undoes a disable that the page records just once, and nothing else.
// It also restores the driver's time slice if the daemon is gone.
type selfEnabler struct {
	x             *Executor
	driver        gpu.Suspender
	slicer        gpu.Slicer    // or nil
	since         time.Duration // when the context was first seen disabled without a reason, or 0
	sliceRestored bool          // the time slice was given back since the daemon was there
}

// enableSelf runs a selfEnabler until ctx ends. It is apart from Run, which may be waiting in the
// driver for the GPU that the context is off.
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

// restoreSlice restores the driver's time slice if the daemon that set another is gone.
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
		k.x.o.Log.Debug("restore the driver's time slice", "err", err)
	}
}

// check enables the context if that is due.
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
		k.x.slot.Wake() // the time of its kernels counts again
	}
}

// enable undoes one disable of the context, and reports whether that worked.
func (x *Executor) enable(driver gpu.Suspender) bool {
	if err := driver.Resume(x.o.Context); err != nil {
		x.o.Log.Debug("enable a context that was left off the GPU", "err", err)
		return false
	}
	x.o.Log.Debug("context was left off the GPU, and is enabled again")
	return true
}

// enableAtEnd enables a context that is about to be closed. Otherwise what waits for its kernels
// would wait for ever.
func (x *Executor) enableAtEnd() {
	driver, ok := x.o.Device.(gpu.Suspender)
	if !ok {
		return
	}
	if x.o.Page.Disabled(x.o.Slot) {
		x.enable(driver)
	}
	if x.preempted != nil {
		x.preempted = nil
		x.enable(driver)
	}
}
