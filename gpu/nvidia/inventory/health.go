package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// maxXids bounds how many kinds of errors are counted of a GPU.
const maxXids = 256

// Count is how often one Xid came.
type Count struct {
	Xid
	Count uint64
}

// Health is what there was to say of one GPU. It is told by Xid and Sample; the
// zero value knows nothing, and finds nothing wrong.
type Health struct {
	counts map[uint64]uint64
	ended  *Xid // the error that ended the GPU
	sound  int  // samples since in which the driver wants nothing done
	last   Sample
}

// Xid takes an error in.
func (h *Health) Xid(number uint64) Xid {
	x := LookUp(number)
	if h.counts == nil {
		h.counts = make(map[uint64]uint64)
	}
	if _, ok := h.counts[number]; ok || len(h.counts) < maxXids {
		h.counts[number]++
	}
	if x.Ends {
		h.ended, h.sound = &x, 0
	}
	return x
}

// absolving is how many samples in a row without anything to be done overrule an
// error that should have ended the GPU: the first may be older than the error.
const absolving = 2

// Sample takes a sample in.
func (h *Health) Sample(s Sample) {
	h.last = s
	if h.ended == nil || !h.ended.Told {
		return
	}
	if s.Lost || s.Recovery != RecoveryNone {
		h.sound = 0
		return
	}
	// The driver knows better than a table which contexts it could save.
	if h.sound++; h.sound >= absolving {
		h.ended = nil
	}
}

// recoveries are what an operator does where a driver wants something done. What
// is not here leaves the GPU usable.
var recoveries = map[Recovery]string{
	RecoveryReset:         "the driver wants the GPU reset: " + doReset,
	RecoveryReboot:        "the driver wants the host rebooted: " + doReboot,
	RecoveryDrainAndReset: "the driver wants the GPU idle and reset, since part of its memory is not in use any more: " + doReset,
}

// Problem is why the GPU can't be used, and what to do; empty where it can.
func (h *Health) Problem() string {
	switch text, wanted := recoveries[h.last.Recovery]; {
	case h.last.Lost:
		return fmt.Sprintf("the driver can't reach it any more: %s", doReboot)
	case h.ended != nil:
		return h.ended.String()
	case wanted:
		return text
	}
	return ""
}

// Xids are the errors that came, by number.
func (h *Health) Xids() []Count {
	var all []Count
	for number, n := range maps.All(h.counts) {
		all = append(all, Count{Xid: LookUp(number), Count: n})
	}
	slices.SortFunc(all, func(a, b Count) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// Last is the newest sample.
func (h *Health) Last() Sample { return h.last }
