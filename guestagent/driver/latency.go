package driver

import (
	"time"

	"vgpud/guestagent/preempt/tune"
	"vgpud/mediator/vgpu/abi"
)

// askHostEvery is how often a program that launches kernels asks the host within what time they
// should leave the GPU. That changes when guests with a higher priority come or go.
const askHostEvery = 250 * time.Millisecond

// askHost reads within what time the host wants kernels to leave the GPU, and the hardware suspends
// them. To read a register takes
// longer than to launch a kernel.
func (p *preemption) askHost(bus Bus) {
	latency, err := bus.Read(abi.RegLatencyNanos)
	suspension, serr := bus.Read(abi.RegSuspensionNanos)
	if err != nil || serr != nil {
		return // the device is gone, which others notice
	}
	p.host.Store(int64(latency))
	p.suspension.Store(int64(suspension))
}

// askHostSoon has the flusher ask the host if that was long ago by the GPU's clock, in ns. It does
// not wait.
func (p *preemption) askHostSoon(now uint64) {
	asked := p.asked.Load()
	if now-asked < uint64(askHostEvery) || !p.asked.CompareAndSwap(asked, now) {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// wanted returns what forms should achieve: what this guest wants, within the time that the host
// wants. Where the host wants nothing, no kernel is told to leave for another guest's, and a form may
// cost no more than counts as free.
func (p *preemption) wanted() tune.Parameters {
	w := p.opts.Wanted
	if w.Latency <= 0 {
		w.Latency = tune.DefaultLatency
	}
	if w.Overhead <= 0 {
		w.Overhead = tune.DefaultOverhead
	}
	if host := time.Duration(p.host.Load()); host > 0 {
		w.Latency = min(w.Latency, host)
	} else {
		w.Overhead = min(w.Overhead, tune.FreeOverhead)
	}
	w.Suspends = time.Duration(p.suspension.Load())
	w.AtOnce = w.AtOnce || p.host.Load() > 0 && w.Suspends == 0
	return w
}
