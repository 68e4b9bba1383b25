package executor

import (
	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// deferredAccount is a launch that was answered and is still to be accounted for.
type deferredAccount struct {
	fence    gpu.Fence
	fn       *function
	estimate estimate
}

// slot returns where the next completion goes, or nil if the ring is full.
func (ch *channel) slot() (*abi.Entry, error) {
	if ch.dead {
		return nil, nil
	}
	slot, err := ch.com.Next()
	if err != nil {
		ch.die(err)
	}
	return slot, err
}

// finish completes a command whose fence is reached.
func (ch *channel) finish(p *pending, done gpu.Fence) {
	x := ch.x
	p.done = true
	if p.fence == 0 {
		if p.zeroed != 0 && x.poison != nil {
			p.com.Status = x.status // it is not known to be zero
		}
		if p.com.Status != abi.StatusOK {
			x.slot.AddErrorReason(reasonOf(p.com.Status))
			x.slot.AddError()
		}
		return
	}
	if ch.finishPromptly(p, done) {
		return
	}
	var out gpu.Outcome
	if p.fence <= done {
		out = ch.gpu.Outcome(p.fence)
	} else {
		out.Err = x.poison
	}
	p.fence = 0
	if p.timed {
		p.com.Start, p.com.End = x.guestTime(out.Start), x.guestTime(out.End)
	}
	if out.Err != nil {
		p.com.Status = statusOf(out.Err)
		if p.com.Status.Poisons() || x.o.Context.Fault() != nil {
			x.fail(out.Err)
			p.com.Status = x.status
		}
	}
	if out.Err == nil && x.poison != nil {
		// It ran behind the fault, or beside it: what it did is of no use.
		p.com.Status = x.status
	}
	if p.event != nil {
		p.reach(out.End + x.shift)
	}
	if p.copied > 0 && out.Err == nil {
		x.slot.AddCopied(p.copied)
	}
	if p.fn != nil {
		ch.account(&deferredAccount{p.fence, p.fn, p.estimate}, out)
		p.fn = nil
		return
	}
	if p.fill > 0 {
		x.accountFill(&ch.onGPU, p.fill, p.brief, out)
	}
	if out.Err != nil {
		x.slot.AddErrorReason(reasonOf(p.com.Status))
		x.slot.AddError()
	}
}

// finishPromptly finishes a launch or a copy that succeeded, if the GPU tells at once about when it
// ran. The guest waits for the answer; the accounting is deferred until the guest can see it.
func (ch *channel) finishPromptly(p *pending, done gpu.Fence) bool {
	if ch.prompt == nil || p.fn == nil && p.copied == 0 || p.fill > 0 || p.event != nil || p.fence > done || ch.x.poison != nil {
		return false
	}
	out, ok := ch.prompt.Glimpse(p.fence)
	if !ok {
		return false
	}
	p.com.Start, p.com.End = ch.x.guestTime(out.Start), ch.x.guestTime(out.End)
	if p.copied > 0 {
		ch.x.slot.AddCopied(p.copied)
	}
	if p.fn != nil {
		ch.deferred = append(ch.deferred, deferredAccount{p.fence, p.fn, p.estimate})
	}
	p.fence, p.fn = 0, nil
	return true
}

// accountPolls is how many steps in vain a launch that was answered promptly is not accounted for.
// That takes the driver up to 8 µs, and a guest that waits for each launch sends the next one within
// a few: it goes to the GPU first.
const accountPolls = 64

// accountInTime accounts for launches that were answered promptly, unless the guest is likely to send
// more at once: answered reports whether this step has answered some, and idle whether it found
// nothing to fetch. Where they keep other launches waiting, it does so at once.
func (ch *channel) accountInTime(answered, idle bool) {
	if len(ch.deferred) == 0 {
		return
	}
	if answered {
		ch.deferredPolls = 0
	}
	if ch.deferredPolls++; idle && !ch.x.bounded() && ch.deferredPolls <= accountPolls {
		return
	}
	ch.accountDeferred()
}

// accountDeferred accounts for launches that were answered promptly.
func (ch *channel) accountDeferred() {
	for i := range ch.deferred {
		ch.account(&ch.deferred[i], ch.gpu.Outcome(ch.deferred[i].fence))
	}
	ch.deferred = ch.deferred[:0]
}

// account accounts for a launch that has ended.
func (ch *channel) account(a *deferredAccount, out gpu.Outcome) {
	x := ch.x
	ch.gone(out)
	x.release(a.estimate)
	t, _ := x.gpuTime(out.Start, out.End)
	a.fn.ran(t)
	t, late := x.newTime(out.Start, out.End)
	if out.Err != nil {
		x.slot.AddErrorReason(reasonOf(statusOf(out.Err)))
	}
	x.slot.AddFinished(t, late, out.Err != nil)
}

// publish makes the answers visible to the guest.
func (ch *channel) publish() {
	if ch.com.Publish() {
		ch.x.raise(ch.vector)
	}
}
