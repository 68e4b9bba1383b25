package executor

import (
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
)

// An executor's threads have a higher priority than what else the host computes, because the GPU
// waits for them. A guest can keep its executor busy without the GPU: by no-ops, copies and
// queries. Then the executor loses the boost until it works for the GPU again.
const (
	boostWindow = 100 * time.Millisecond
	// boostCPUDivisor is the fraction of a processor, as a divisor, that a guest's executors may
	// use without GPU work. Above it they lose the boost; below half of it they have it again.
	boostCPUDivisor = 2
	// An executor that used less processor time than boostGPUFactor times its GPU time works for
	// the GPU.
	boostGPUFactor = 8
)

// boost decides whether an executor has the higher priority. It is pure.
type boost struct {
	off  bool
	seen bool
	// The start of the window, and the sums at that time.
	since, cpu, gpu time.Duration
}

// observe updates the decision at now, by the processor time and the GPU time that the executor has
// used in all, and the number of executors that share the guest's part. It reports whether the
// decision changed.
func (b *boost) observe(now, cpu, gpu time.Duration, executors int) (changed bool) {
	length, used, worked := now-b.since, cpu-b.cpu, gpu-b.gpu
	first := !b.seen
	b.seen = true
	b.since, b.cpu, b.gpu = now, cpu, gpu
	if first {
		return false
	}
	most := length / time.Duration(boostCPUDivisor*max(executors, 1))
	off := b.off
	switch {
	case worked >= used/boostGPUFactor, used <= most/2:
		off = false
	case used > most:
		off = true
	}
	changed = off != b.off
	b.off = off
	return changed
}

// priority sets the priority of this process's threads. It belongs to the goroutine of Step.
type priority struct {
	boost      boost
	nextUpdate time.Duration // when to decide again
	page       *ipc.ControlPage
	slot       *ipc.ContextSlot
	log        *slog.Logger
}

// update decides about the priority, if it is time to. now is the executor's clock. A nil priority
// stays as it is.
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
	p.log.Debug("executor's priority", "raised", !p.boost.off)
}

// processTime returns the processor time that this process has used.
func processTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("read the processor time used: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
