package tasks

import (
	"slices"
	"time"
)

// A spare is a context that a guest's process has made ahead, for a context to come. Its memory is lent:
// it is what no task was granted and nobody else was promised, and where anybody needs it the spare is
// told to end. Decisions about tasks do not depend on spares. Only the news that a task has memory waits
// until the spares have ended that had it, for as long as a process takes to end.

// MaxSpares bounds the spares on a GPU. Each takes a place among the contexts that a GPU can have.
const MaxSpares = 16

// recallLimit is how long tasks wait at most for spares that were told to end.
const recallLimit = 2 * time.Second

// spare is a context that was made ahead.
type spare struct {
	guest    string
	number   uint64
	gpu      int
	bytes    uint64
	recalled bool // it was told to end, at
	at       time.Duration
}

// Spare is a context that was made ahead.
type Spare struct {
	// Guest has the context. Number distinguishes its spares, and is above 0.
	Guest  string
	Number uint64
	GPU    int
	// Bytes are what it takes of the GPU's memory.
	Bytes uint64
}

// Lend lends a guest memory for a spare, and reports whether it did. A guest has one spare, and none is
// lent memory while a task waits. gpus are the host's.
func (t *Table) Lend(s Spare, gpus []GPU) bool {
	if s.Number == 0 || s.GPU < 0 || s.GPU >= len(gpus) || gpus[s.GPU].Closed || s.Bytes > t.gpus[s.GPU].Memory {
		return false
	}
	n := 0
	for _, o := range t.spares {
		if o.guest == s.Guest {
			return false
		}
		if o.gpu == s.GPU {
			n++
		}
	}
	if n >= MaxSpares || slices.ContainsFunc(t.order, t.awaits) {
		return false
	}
	t.apply(gpus)
	defer t.apply(nil)
	if t.over(s.GPU, true, true)+s.Bytes > t.gpus[s.GPU].Memory {
		return false
	}
	t.spares = append(t.spares, &spare{guest: s.Guest, number: s.Number, gpu: s.GPU, bytes: s.Bytes})
	return true
}

// awaits reports whether a task waits for memory.
func (t *Table) awaits(x *task) bool {
	return x.want > 0 || !x.placed && !t.parked(x)
}

// AdoptSpare adds a spare that an earlier daemon has lent memory, whether or not that is still to be had.
func (t *Table) AdoptSpare(s Spare) {
	if s.Number == 0 || s.GPU < 0 || s.GPU >= len(t.gpus) || slices.ContainsFunc(t.spares, func(o *spare) bool { return o.guest == s.Guest }) {
		return
	}
	t.spares = append(t.spares, &spare{guest: s.Guest, number: s.Number, gpu: s.GPU, bytes: min(s.Bytes, t.gpus[s.GPU].Memory)})
}

// SpareGone records that a spare has ended, or has become one of its guest's contexts.
func (t *Table) SpareGone(guest string, number uint64) {
	t.spares = slices.DeleteFunc(t.spares, func(s *spare) bool { return s.guest == guest && s.number == number })
}

// RemoveSpares records that a guest has ended, with its spare.
func (t *Table) RemoveSpares(guest string) {
	t.spares = slices.DeleteFunc(t.spares, func(s *spare) bool { return s.guest == guest })
}

// Lent returns the memory in bytes that spares have on a GPU, and how many they are.
func (t *Table) Lent(gpu int) (n int, bytes uint64) {
	for _, s := range t.spares {
		if s.gpu == gpu {
			n++
			bytes += s.bytes
		}
	}
	return n, bytes
}

// Recalling reports whether spares are to end for tasks that are told then.
func (t *Table) Recalling() bool { return len(t.delayed) > 0 }

// over returns how much of a GPU's memory is granted, promised or lent, in bytes. With kept it includes
// what others may take without a word, and with all the spares that were told to end.
func (t *Table) over(gpu int, kept, all bool) uint64 {
	memory := t.gpus[gpu].Memory
	sum := t.queue.GPUs()[gpu].Granted()
	if gpu < len(t.outside) {
		o := &t.outside[gpu]
		sum += min(o.Pinned, memory)
		if kept {
			sum += min(o.Kept, memory)
		}
		if o.Closed {
			sum += memory
		}
	}
	for _, s := range t.spares {
		if s.gpu == gpu && (all || !s.recalled) {
			sum += s.bytes
		}
	}
	return sum
}

// claim has a task that begins on a GPU take its guest's spare there: its own memory includes that
// context's.
func (t *Table) claim(x *task) {
	t.spares = slices.DeleteFunc(t.spares, func(s *spare) bool { return s.guest == x.key.Guest && s.gpu == x.gpu && !s.recalled })
}

// recall tells spares to end whose memory others have now, those first that were made first.
func (t *Table) recall(now time.Duration, ds []Decision) []Decision {
	for _, s := range t.spares {
		if !s.recalled && t.over(s.gpu, true, false) > t.gpus[s.gpu].Memory {
			s.recalled, s.at = true, now
			ds = append(ds, Decision{Key: Key{Guest: s.guest}, GPU: s.gpu, Recall: s.number})
		}
	}
	return ds
}

// short reports whether spares that are about to end still have memory of a GPU that others were granted,
// and until when that is waited for.
func (t *Table) short(now time.Duration, gpu int) (until time.Duration, short bool) {
	for _, s := range t.spares {
		if s.gpu == gpu && s.recalled && now < s.at+recallLimit {
			until, short = max(until, s.at+recallLimit), true
		}
	}
	return until, short && t.over(gpu, false, true) > t.gpus[gpu].Memory
}

// settle takes those decisions out of ds that give a task memory which spares still have, and adds those
// that were taken out before and can be carried out now.
func (t *Table) settle(now time.Duration, ds []Decision) []Decision {
	all := slices.Concat(t.delayed, ds)
	t.delayed, ds = nil, nil
	for i := range all {
		d := &all[i]
		x := t.byKey[d.Key]
		switch {
		case d.Granted <= d.Before:
			ds = append(ds, *d)
		case x == nil || !x.placed:
			// It ended while it was not told.
		default:
			if _, short := t.short(now, d.GPU); short {
				t.delayed = append(t.delayed, *d)
			} else {
				ds = append(ds, *d)
			}
		}
	}
	return ds
}

// settleOne is settle of a decision that is asked for outside of Decide. It reports whether the decision
// is to be carried out now.
func (t *Table) settleOne(now time.Duration, d *Decision) bool {
	if d.Granted > d.Before {
		t.recalled = t.recall(now, t.recalled)
		if _, short := t.short(now, d.GPU); short {
			t.delayed = append(t.delayed, *d)
			return false
		}
	}
	return true
}

// isDelayed reports whether a task is not told yet what it has.
func (t *Table) isDelayed(x *task) bool {
	return slices.ContainsFunc(t.delayed, func(d Decision) bool { return d.Key == x.key })
}
