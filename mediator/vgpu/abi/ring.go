package abi

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// How the rings work
//
// Put and get are counters that run freely modulo 2³²; a slot is the counter modulo the ring's
// entries. The writer of a counter keeps it privately and only ever stores it. The other side loads
// it, and a host checks that put − get is at most the ring's entries, as it is with any honest
// guest.
//
// Suppression: each side stores in shared memory the counter value ("at") past which it wants to be
// woken. The side that publishes entries from old to put wakes the other when at lies within [old,
// put), by the arithmetic of virtio's event index. To sleep, a side stores at := own counter and
// then loads the other's put once more; to publish, it stores put and then loads at. With
// sequentially consistent accesses at least one of the two sees the other's store, so no wake-up is
// lost. A side that is awake leaves at behind, so it is never woken needlessly and the publisher
// pays one load.
//
// Those stores are swaps, the guest's with a barrier behind: see word.

// needWake reports whether publishing the entries from old to put passes at.
func needWake(at, put, old uint32) bool { return put-at-1 < put-old }

// slots is the memory of a ring's entries.
type slots struct {
	bytes []byte
	mask  uint32 // entries − 1
}

// newSlots returns the slots of a ring. It returns an error unless page is a channel's page and
// ring a ring.
func newSlots(page, ring []byte) (slots, error) {
	n := len(ring) / EntrySize
	switch {
	case len(page) < channelWordsEnd:
		return slots{}, fmt.Errorf("channel page of %d bytes, at least %d needed", len(page), channelWordsEnd)
	case len(ring)%EntrySize != 0 || n < 1 || n > MaxRingEntries || n&(n-1) != 0:
		return slots{}, fmt.Errorf("ring of %d bytes: not a power of two of at most %d entries: %w", len(ring), MaxRingEntries, ErrorRingEntries)
	}
	return slots{ring, uint32(n) - 1}, nil
}

// at returns the slot of a counter's value, in shared memory.
func (s *slots) at(counter uint32) *Entry {
	off := int(counter&s.mask) * EntrySize
	return (*Entry)(s.bytes[off : off+EntrySize])
}

// pending returns how many entries lie between put and the reader's own counter. It returns
// [ErrorPutRange] if put can't be.
func (s *slots) pending(put *atomic.Uint32, get uint32) (int, error) {
	n := put.Load() - get
	if n > s.mask+1 {
		return 0, ErrorPutRange
	}
	return int(n), nil
}

// LoadWord reads one word of shared memory, such as [ChannelStateWord] of a channel's page. It
// panics when off is not a word of b.
func LoadWord(b []byte, off int) uint32 { return word(b, off).Load() }

// StoreWord writes one word of shared memory.
func StoreWord(b []byte, off int, v uint32) { word(b, off).Store(v) }

// AddWord adds to one word of shared memory and returns the new value.
func AddWord(b []byte, off int, v uint32) uint32 { return word(b, off).Add(v) }

// ResetChannelPage puts every word of a channel's page to its value at create: all counters 0, both
// sides to be woken by the first entry. The host does so before a channel opens.
func ResetChannelPage(page []byte) {
	for _, w := range ChannelWords {
		word(page, w.Offset).Store(0)
	}
	// Only a host that has run out of room asks for it.
	word(page, RoomAtWord).Store(roomNever)
}

// roomNever is half the counters' range away: a guest passes it after 2³¹ completions and rings one
// needless doorbell.
const roomNever = 1 << 31

// errShortBuffer is a mistake of the caller, not of the guest.
var errShortBuffer = errors.New("fetch buffer cannot hold a command with all its continuation entries")

// Span returns how many entries the command that begins with e occupies. A count over [MaxMore] is
// ignored: [DecodeHeader] refuses such an entry.
func Span(e *Entry) int {
	if more := e[headerMore]; more <= MaxMore {
		return 1 + int(more)
	}
	return 1
}
