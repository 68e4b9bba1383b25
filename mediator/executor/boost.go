package executor

import (
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
)

// An executor comes before what else the host computes because the GPU waits for
// it. A guest can keep it busy with what the GPU has no part in: no-ops, copies,
// questions. Then it has no claim to that, and gets it back when it works for
// the GPU again.
const (
	boostWindow = 100 * time.Millisecond
	// hasteCPU is the part of a processor, as a divisor, that the executors of a
	// guest may use without GPU work before they are as nice as others; at half of
	// it they are in a hurry again.
	boostCPUDivisor = 2
	// hasteWork is how much GPU time makes up for processor time: an executor that
	// used less of the latter than so many times the former works for the GPU.
	boostGPUFactor = 8
)

// haste is whether an executor may be in a hurry. It is pure.
type boost struct {
	off  bool
	seen bool
	// The window's beginning, and the sums then.
	since, cpu, gpu time.Duration
}

// observe takes in, at now, the processor time and the GPU time that the executor
// used in all, and among how many executors the guest's part is divided. It
// reports whether lax is different now.
func (h *boost) observe(now, cpu, gpu time.Duration, executors int) (changed bool) {
	length, used, worked := now-h.since, cpu-h.cpu, gpu-h.gpu
	first := !h.seen
	h.seen = true
	h.since, h.cpu, h.gpu = now, cpu, gpu
	if first {
		return false
	}
	most := length / time.Duration(boostCPUDivisor*max(executors, 1))
	lax := h.off
	switch {
	case worked >= used/boostGPUFactor, used <= most/2:
		lax = false
	case used > most:
		lax = true
	}
	changed = lax != h.off
	h.off = lax
	return changed
}

// priority is the priority of this process's threads, as its executor deserves
// it. The owner of Step calls it.
type priority struct {
	boost      boost
	nextUpdate time.Duration // when to look again
	page       *ipc.ControlPage
	slot       *ipc.ContextSlot
	log        *slog.Logger
}

// attend looks at what the executor was doing. now is the executor's clock; it
// costs next to nothing where it is not time yet. A nil priority stays as it is.
func (p *priority) update(now time.Duration) {
	if p == nil || now < p.nextUpdate {
		return
	}
	p.nextUpdate = now + boostWindow
	cpu, err := processTime()
	if err != nil {
		p.log.Debug("executor's priority stays as it is", "err", err)
		return
	}
	if !p.boost.observe(now, cpu, p.slot.Counters().GPUTime, p.page.Executors()) {
		return
	}
	set := raisePriority
	if p.boost.off {
		set = lowerPriority
	}
	if err := set(); err != nil {
		p.log.Debug("executor's priority stays as it is", "err", err)
		return
	}
	p.log.Debug("executor's priority", "hurry", !p.boost.off)
}

// processTime is the processor time that this process has used.
func processTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("read the processor time used: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
