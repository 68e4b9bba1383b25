package nvidia

import (
	"fmt"
	"time"

	"vgpud/gpu"
)

// Outcome returns the outcome of a command. If a fault ended the context, the first unfinished
// command of its channel has the fault if it was a launch; the driver gives no further detail.
func (ch *Channel) Outcome(fence gpu.Fence) gpu.Outcome {
	f := uint64(fence)
	ch.mu.Lock()
	s, latest, before := ch.slots[f%slotCount], ch.latest, ch.slots[(f-1)%slotCount].end
	end, next := ch.slots[ch.nextSignalled(f)%slotCount].end, ch.awaited()
	ch.mu.Unlock()
	done := ch.word.Load() - ch.base
	sent := ch.sent.Load()
	fault := ch.c.Fault()
	switch {
	case f == 0 || f > sent || s.fence != f || sent-f >= gpu.OutcomesKept, f > done && fault == nil && !ch.dead.Load():
		return gpu.Outcome{Err: fmt.Errorf("outcome of fence %d: %w", f, gpu.ErrNotFound)}
	case f > done && fault == nil:
		return gpu.Outcome{Err: fmt.Errorf("command dropped: %w", gpu.ErrLost)}
	case f > done && f == next && s.kernel != nil:
		return gpu.Outcome{Err: fault}
	case f > done:
		return gpu.Outcome{Err: fmt.Errorf("command dropped: %w", gpu.ErrPoisoned)}
	}
	var o gpu.Outcome
	err := ch.c.do("read a command's times", func() (err error) {
		if o.End, err = ch.c.clock.at(end); err != nil {
			return err
		}
		switch o.Start = o.End; {
		case s.began == recorded:
			if o.Start, err = ch.c.clock.at(ch.starts[f%slotCount]); s.took > 0 && o.Start < s.called+otherContextDelay {
				// The GPU passed the event during the launch call.
				o.Start += min(s.took, maxCallTime) + ch.c.lag
			}
		case s.began == behind && latest.fence == f-1:
			o.Start = latest.at
		case s.began == behind:
			o.Start, err = ch.c.clock.at(before)
		}
		o.Start = min(o.Start, o.End)
		return err
	})
	if err != nil && fault == nil && ch.c.fault.Load() == nil {
		o.Err = err
	}
	if err == nil {
		ch.mu.Lock()
		if f > ch.latest.fence {
			ch.latest = ended{f, o.End}
		}
		ch.mu.Unlock()
	}
	return o // the times are lost if a fault has ended the context since
}

// maxCallTime bounds the time from the start of a launch call until its doorbell rings. A longer
// call was held up, before the doorbell or after it.
const maxCallTime = 20 * time.Microsecond

// An event that is reached at least otherContextDelay after its launch's call shows that the GPU
// was busy with another context, and then passed event and launch without a pause. The switch from
// another context takes more than 100 µs.
const otherContextDelay = 60 * time.Microsecond

const (
	// glimpseWithin is the greatest distance of two polls, the first in vain and the second not,
	// for the end between them to be known well enough.
	glimpseWithin = 5 * time.Microsecond
	// wordAfter is the approximate time from a kernel's end until its word is seen.
	wordAfter = 3 * time.Microsecond
)

// Glimpse returns approximate times of a launch that was polled all the time, from the poll that
// found it done. The exact time of its end takes 4 µs to read the first time.
func (ch *Channel) Glimpse(fence gpu.Fence) (o gpu.Outcome, ok bool) {
	f := uint64(fence)
	ch.mu.Lock()
	s, last, latest := ch.slots[f%slotCount], ch.lastPoll, ch.latest
	ch.mu.Unlock()
	if s.fence != f || last.fence != f || s.kernel == nil || s.called == 0 || last.at-last.before > glimpseWithin ||
		ch.c.fault.Load() != nil || ch.dead.Load() {
		return o, false
	}
	seen, err := ch.c.was(last.at)
	if err != nil {
		return o, false
	}
	o.End = seen - wordAfter
	if o.Start = s.called; s.began == behind {
		if latest.fence != f-1 {
			return o, false
		}
		o.Start = latest.at
	}
	o.Start = min(o.Start, o.End)
	return o, true
}
