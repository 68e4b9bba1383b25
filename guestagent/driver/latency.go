package driver

import (
	"time"

	"vgpud/guestagent/preempt/tune"
	"vgpud/mediator/vgpu/abi"
)

// askHostEvery is how often a program that launches kernels asks the host within what time they
// should leave the GPU. That changes when guests with a higher priority come or go.
const askHostEvery = 250 * time.Millisecond

// askHost reads within what time the host wants kernels to leave the GPU. To read a register takes
// longer than to launch a kernel.
func (p *preemption) askHost(bus Bus) {
	v, err := bus.Read(abi.RegLatencyNanos)
	if err != nil {
		return // the device is gone, which others notice
	}
	p.host.Store(int64(v))
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

// latency returns within what time kernels should leave the GPU: what this guest wants or, if that is
// less, the host.
func (p *preemption) latency() time.Duration {
	own := p.opts.Wanted.Latency
	if own <= 0 {
		own = tune.DefaultLatency
	}
	if host := time.Duration(p.host.Load()); host > 0 {
		return min(own, host)
	}
	return own
}

// wanted returns what forms should achieve.
func (p *preemption) wanted() tune.Parameters {
	w := p.opts.Wanted
	w.Latency = p.latency()
	return w
}
