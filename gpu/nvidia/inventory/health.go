package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// maxXids bounds the number of different errors that are counted for a GPU.
const maxXids = 256

// Count is the number of occurrences of one Xid.
type Count struct {
	Xid
	Count uint64
}

// Health is the state of one GPU, updated by Xid and Sample. The zero value reports no problem.
type Health struct {
	counts map[uint64]uint64
	ended  *Xid // the error that made the GPU unusable
	sound  int  // consecutive samples since then for which the driver wants nothing done
	last   Sample
}

// Xid records an error.
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

// overrulingSamples is the number of samples in a row without a recovery action that overrule an
// error that should have made the GPU unusable. The first may be older than the error.
const overrulingSamples = 2

// Sample records a sample.
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
	if h.sound++; h.sound >= overrulingSamples {
		h.ended = nil
	}
}

// recoveries are an operator's actions for the driver's recoveries. With any other recovery the GPU
// stays usable.
var recoveries = map[Recovery]string{
	RecoveryReset:         "the driver wants the GPU reset: " + doReset,
	RecoveryReboot:        "the driver wants the host rebooted: " + doReboot,
	RecoveryDrainAndReset: "the driver wants the GPU idle and reset, since part of its memory is not in use any more: " + doReset,
}

// Problem returns the reason why the GPU can't be used, with advice, or "" if it can.
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

// Xids returns the errors that occurred, by number.
func (h *Health) Xids() []Count {
	var all []Count
	for number, n := range maps.All(h.counts) {
		all = append(all, Count{Xid: LookUp(number), Count: n})
	}
	slices.SortFunc(all, func(a, b Count) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// Last returns the newest sample.
func (h *Health) Last() Sample { return h.last }
