package nvidia

import (
	"fmt"

	"vgpud/gpu"
)

// Outcome says what became of a command. Where a fault ended the context before it
// was done, the first command that was not done in its channel has the fault if it
// was a launch; the driver does not tell more.
func (ch *Channel) Outcome(fence gpu.Fence) gpu.Outcome {
	f := uint64(fence)
	ch.mu.Lock()
	s, latest, before := ch.slots[f%slotCount], ch.latest, ch.slots[(f-1)%slotCount].end
	end := ch.slots[ch.teller(f)%slotCount].end
	ch.mu.Unlock()
	done := ch.word.Load() - ch.base
	sent := ch.sent.Load()
	fault := ch.c.Fault()
	switch {
	case f == 0 || f > sent || s.fence != f || sent-f >= gpu.OutcomesKept, f > done && fault == nil && !ch.dead.Load():
		return gpu.Outcome{Err: fmt.Errorf("outcome of fence %d: %w", f, gpu.ErrNotFound)}
	case f > done && fault == nil:
		return gpu.Outcome{Err: fmt.Errorf("command dropped: %w", gpu.ErrLost)}
	case f == done+1 && s.kernel != nil:
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
			o.Start, err = ch.c.clock.at(ch.starts[f%slotCount])
		case s.began == behind && latest.fence == f-1:
			o.Start = latest.at
		case s.began == behind:
			o.Start, err = ch.c.clock.at(before)
		}
		// On an idle GPU the event before a launch is reached while the launch is still
		// being called for: for as long as two kernels of 5 µs where nothing is cached.
		o.Start = min(max(o.Start, s.called), o.End)
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
	return o // of a context that a fault has ended since, times are lost
}
