package ipc

import (
	"math/bits"

	"vgpud/mediator/vgpu/abi"
)

// TakeEventNumber takes a number for an event kernel of a context, the lowest that no context of the
// guest has. ok is false if all are taken. Its executor calls it.
func (p *ControlPage) TakeEventNumber(slot int) (n int, ok bool) {
	for {
		taken := p.l.events.Load()
		n := bits.TrailingZeros32(^taken)
		if n >= abi.MaxEventKernels {
			return 0, false
		}
		if p.l.events.CompareAndSwap(taken, taken|1<<n) {
			p.l.contexts[slot].events.Or(1 << n)
			return n, true
		}
	}
}

// GiveEventNumber gives a number back. Its executor calls it.
func (p *ControlPage) GiveEventNumber(slot, n int) {
	p.dropEventKernels(1 << n)
	p.l.contexts[slot].events.And(^uint32(1 << n))
	p.l.events.And(^uint32(1 << n))
}

// FreeEventNumbers gives all numbers of a context back, whose executor ends or is gone.
func (p *ControlPage) FreeEventNumbers(slot int) {
	own := p.l.contexts[slot].events.Swap(0)
	p.dropEventKernels(own)
	p.l.events.And(^own)
}

// EventNumbers returns the context's numbers, a bit each.
func (c *ContextSlot) EventNumbers() uint32 { return c.events.Load() }

// EventNumber reports whether a number is taken.
func (p *ControlPage) EventNumber(n int) bool {
	return n >= 0 && n < abi.MaxEventKernels && p.l.events.Load()&(1<<n) != 0
}
