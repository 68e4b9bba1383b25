package nvidia

import (
	"fmt"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// Outcome returns the outcome of a command. If a fault ended the context, the first unfinished
// command of its channel has the fault if it was a launch; the driver gives no further detail.
func (ch *Channel) Outcome(fence gpu.Fence) gpu.Outcome {
	f := uint64(fence)
	ch.mu.Lock()
	s, next := ch.slots[f%slotCount], ch.awaited()
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
	t, err := ch.timesOf(f)
	switch {
	case err == nil:
		o.Start, o.End = t.part(f)
	case fault == nil && ch.c.fault.Load() == nil:
		o.Err = err
	}
	return o // the times are lost if a fault has ended the context since
}

// train is a row of commands whose ends are told together, mostly one command, and its times.
type train struct {
	first, last uint64
	start, end  time.Duration
}

// part returns the times of command f: its part of the train's.
func (t *train) part(f uint64) (start, end time.Duration) {
	n, all := time.Duration(t.last-t.first+1), t.end-t.start
	k := time.Duration(f - t.first)
	return t.start + all*k/n, t.start + all*(k+1)/n
}

// trainAround returns the train of a command that has ended, without times. The caller holds mu.
func (ch *Channel) trainAround(f uint64) train {
	t := train{first: f, last: f}
	if s := ch.slot(f); s.began == inTrain {
		t.first = s.first
	}
	for sent := ch.sent.Load(); t.last < sent && ch.slot(t.last).ahead && ch.slot(t.last+1).began == inTrain; t.last++ {
	}
	return t
}

// endOf returns the event at the end of a train that has ended. The caller holds mu.
func (ch *Channel) endOf(t train) cuda.Event {
	if ch.slot(t.last).ahead && t.last < ch.sent.Load() && ch.slot(t.last+1).began == recorded {
		return ch.starts[(t.last+1)%slotCount] // what follows is of no train
	}
	return ch.slot(ch.nextSignalled(t.last)).end
}

// slot returns the record of a command. The caller holds mu.
func (ch *Channel) slot(f uint64) *slot { return &ch.slots[f%slotCount] }

// timesOf returns the train of a command that has ended.
func (ch *Channel) timesOf(f uint64) (train, error) {
	ch.mu.Lock()
	t := ch.train
	if f != 0 && t.first <= f && f <= t.last {
		ch.mu.Unlock()
		return t, nil
	}
	t = ch.trainAround(f)
	end, s, latest, before := ch.endOf(t), *ch.slot(t.first), ch.latest, ch.slot(t.first-1).end
	ch.mu.Unlock()
	err := ch.c.do("read a command's times", func() (err error) {
		if t.end, err = ch.c.clock.at(end); err != nil {
			return err
		}
		switch t.start = t.end; {
		case s.began == recorded:
			if t.start, err = ch.c.clock.at(ch.starts[t.first%slotCount]); s.took > 0 && t.start < s.called+otherContextDelay {
				// The GPU passed the event during the launch call.
				t.start += min(s.took, maxCallTime) + ch.c.lag
			}
		case s.began == behind && latest.fence == t.first-1:
			t.start = latest.at
		case s.began == behind:
			t.start, err = ch.c.clock.at(before)
		}
		t.start = min(t.start, t.end)
		return err
	})
	if err != nil {
		return t, err
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if t.last > ch.latest.fence {
		ch.latest = ended{t.last, t.end}
	}
	if t.first < t.last {
		ch.train = t
	}
	return t, nil
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
	// for the end between them to be known well enough. To read the exact times of what came before
	// takes 6 µs, which must fit in.
	glimpseWithin = 10 * time.Microsecond
	// wordAfter is the approximate time from a command's end until its word is seen.
	wordAfter = 3 * time.Microsecond
)

// Glimpse returns approximate times of a command that was polled all the time, alone or with its
// train, from the poll that found it done. The exact time of its end takes 4 µs to read the first
// time.
func (ch *Channel) Glimpse(fence gpu.Fence) (o gpu.Outcome, ok bool) {
	f := uint64(fence)
	ch.mu.Lock()
	last, latest := ch.lastPoll, ch.latest
	if last.fence < f || last.at-last.before > glimpseWithin || ch.slots[f%slotCount].fence != f {
		ch.mu.Unlock()
		return o, false
	}
	t := ch.trainAround(f)
	first := *ch.slot(t.first)
	ch.mu.Unlock()
	if last.fence != t.last || first.fence != t.first || first.called == 0 || ch.c.fault.Load() != nil || ch.dead.Load() {
		return o, false
	}
	seen, err := ch.c.was(last.at)
	if err != nil {
		return o, false
	}
	t.end = seen - wordAfter
	if t.start = first.called; first.began == behind {
		if latest.fence != t.first-1 {
			return o, false
		}
		t.start = latest.at
	}
	t.start = min(t.start, t.end)
	o.Start, o.End = t.part(f)
	return o, true
}
