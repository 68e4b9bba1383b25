package abi

import (
	"encoding/binary"
	"sync/atomic"
)

// Layout of BAR4, the event area, which exists with [FeatureEventKernels]: page 0 is the device's
// page; a page for each event kernel of the guest follows, and then a queue for each. The area is
// apart from BAR2 so that whoever only launches event kernels, a network card for example, can be
// given all of it and reaches neither a ring nor a window.
const (
	// EventAreaBytes is the size of BAR4.
	EventAreaBytes = 1 << 20
	// MaxEventKernels bounds the event kernels of a guest.
	MaxEventKernels = 16
	// EventQueueBytes is the room for the entries and flags of an event kernel's queue.
	EventQueueBytes = 56 << 10
	// MaxEventEntries bounds the entries of a queue.
	MaxEventEntries = 1024

	eventQueues = (1 + MaxEventKernels) * PageSize
)

// EventKicksWord is the word of the area's page 0 that whoever rings, where nobody polls, adds 1 to
// and wakes as a futex, if it shares the host's kernel and so can't reach the doorbell registers.
const EventKicksWord = 0

// Words of an event kernel's page, each on a line of its own. The first is written by whoever
// launches events, the others by the host.
const (
	EventDoorbellWord = 0 * LineSize // rings since registration
	// EventPreparedWord, behind the doorbell, is stored with it, 8 bytes at a time: 0, or a number that
	// is another if the parameters of any entry were changed since the ring before.
	EventPreparedWord = 4
	EventKickAtWord   = 1 * LineSize // write the doorbell register when the doorbell word passes this
	EventSeenWord     = 2 * LineSize // rings that the host has seen
	EventStateWord    = 3 * LineSize // EventState
	EventDroppedWord  = 4 * LineSize // rings that found no free entry
	EventRowOffset    = 8 * LineSize // the kernel's row, EventRowBytes
)

// EventAreaWords lists the words of the area's page 0.
var EventAreaWords = []Word{{"KICKS", EventKicksWord, "both"}}

// EventWords lists the words of an event kernel's page.
var EventWords = []Word{
	{"DOORBELL", EventDoorbellWord, "guest"},
	{"PREPARED", EventPreparedWord, "guest"},
	{"KICK_AT", EventKickAtWord, "host"},
	{"SEEN", EventSeenWord, "host"},
	{"STATE", EventStateWord, "host"},
	{"DROPPED", EventDroppedWord, "host"},
	{"ROW", EventRowOffset, "host"},
}

// EventPage returns the offset in BAR4 of the page of event kernel n.
func EventPage(n int) int { return (1 + n) * PageSize }

// EventQueue returns the offset in BAR4 of the queue of event kernel n.
func EventQueue(n int) int { return eventQueues + n*EventQueueBytes }

// EventDoorbell returns the offset in BAR0 of the doorbell of event kernel n.
func EventDoorbell(n int) int { return EventDoorbellTable + n*DoorbellSize }

// EventState is the state of an event kernel, as its page shows it.
type EventState uint32

// The states of an event kernel.
const (
	EventUnregistered EventState = 0 // rings count as stray
	EventRegistered   EventState = 1 // rings launch it
	EventEnding       EventState = 2 // what was rung for before ends; later rings count as stray
	EventFailed       EventState = 3 // its context has ended
)

var eventStateNames = []string{"unregistered", "registered", "ending", "failed"}

// String returns the state's name.
func (s EventState) String() string { return nameOf(uint32(s), eventStateNames, "state") }

// An EventFlag is the completion flag of a queue's entry (EDGE §III.B).
type EventFlag uint32

// The flags. The device that launches events sets an entry free and busy, the host sets it done.
const (
	EventFree EventFlag = 0 // nothing is under way
	EventBusy EventFlag = 1 // its event was, or is about to be, rung for
	EventDone EventFlag = 2 // its event has ended
)

var eventFlagNames = []string{"free", "busy", "done"}

// String returns the flag's name.
func (f EventFlag) String() string { return nameOf(uint32(f), eventFlagNames, "flag") }

// EventTier is what launches a kernel's events.
type EventTier uint8

// The tiers.
const (
	EventEngine EventTier = iota // the GPU's own engine
	EventWarp                    // a resident warp, which polls and calls the kernel
	EventBlocks                  // resident blocks, one of which polls
	EventHost                    // the host, when it is kicked
)

var eventTierNames = []string{"engine", "warp", "blocks", "host"}

// String returns the tier's name.
func (t EventTier) String() string { return nameOf(uint32(t), eventTierNames, "tier") }

// eventEntryAlign is the alignment of a queue's entries.
const eventEntryAlign = 16

// EventEntryBytes returns the size of a queue's entry: the parameters, zeroes up to a multiple of 8,
// and the offset in BAR4 of the entry's flag as the last 8 bytes.
func EventEntryBytes(paramBytes int) int {
	return ((paramBytes+7)&^7 + 8 + eventEntryAlign - 1) &^ (eventEntryAlign - 1)
}

// EventQueueSize returns what a queue of that many entries takes: the entries, and a flag for each.
func EventQueueSize(paramBytes, entries int) int {
	return entries*EventEntryBytes(paramBytes) + 4*entries
}

// EventRowBytes is the size of a row of the event kernel table: EDGE §IV.E's 66.
const EventRowBytes = 66

// SharedUnit is the unit of [EventRow.Shared] in bytes.
const SharedUnit = 16

// EventRow is a row of the event kernel table (EDGE §III.C and §IV.E): "five 8B values for the kernel
// pointers and parameter buffer pointers, six 4B values for the kernel dimensions, and a 2B value for
// the shared memory requirements". Base, Head and End are offsets in BAR4.
type EventRow struct {
	Function  uint64
	Base      uint64 // first entry
	Head      uint64 // the entry that the next event uses
	EntrySize uint64
	End       uint64 // last entry
	Grid      [3]uint32
	Block     [3]uint32
	Shared    uint16 // dynamic shared memory, in units of SharedUnit
}

// EventRowHead is the offset of the head in a row.
const EventRowHead = 16

const (
	eventRowGrid  = 40
	eventRowBlock = 52
	eventRowShare = 64
)

// EventRowFields is a row of the event kernel table.
var EventRowFields = []Field{
	{"function", 0, 8}, {"base", 8, 8}, {"head", EventRowHead, 8}, {"entry_size", 24, 8}, {"end", 32, 8},
	{"grid_x", eventRowGrid, 4}, {"grid_y", eventRowGrid + 4, 4}, {"grid_z", eventRowGrid + 8, 4},
	{"block_x", eventRowBlock, 4}, {"block_y", eventRowBlock + 4, 4}, {"block_z", eventRowBlock + 8, 4},
	{"shared", eventRowShare, 2},
}

// Encode writes the row.
func (r *EventRow) Encode(b *[EventRowBytes]byte) {
	for i, v := range [...]uint64{r.Function, r.Base, r.Head, r.EntrySize, r.End} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	for i := range 3 {
		binary.LittleEndian.PutUint32(b[eventRowGrid+4*i:], r.Grid[i])
		binary.LittleEndian.PutUint32(b[eventRowBlock+4*i:], r.Block[i])
	}
	binary.LittleEndian.PutUint16(b[eventRowShare:], r.Shared)
}

// DecodeEventRow reads a row. It checks nothing: see [EventRow.Entries].
func DecodeEventRow(b *[EventRowBytes]byte) (r EventRow) {
	for i, v := range [...]*uint64{&r.Function, &r.Base, &r.Head, &r.EntrySize, &r.End} {
		*v = binary.LittleEndian.Uint64(b[8*i:])
	}
	for i := range 3 {
		r.Grid[i] = binary.LittleEndian.Uint32(b[eventRowGrid+4*i:])
		r.Block[i] = binary.LittleEndian.Uint32(b[eventRowBlock+4*i:])
	}
	r.Shared = binary.LittleEndian.Uint16(b[eventRowShare:])
	return r
}

// Entries returns how many entries the queue of event kernel n has by its row, and false if that is
// not a queue that the host allots: at the place of the kernel's queue, with room for the flags, and
// with its head on an entry.
func (r *EventRow) Entries(n int) (entries int, ok bool) {
	base := uint64(EventQueue(n))
	if n < 0 || n >= MaxEventKernels || r.Base != base || r.EntrySize < eventEntryAlign || r.EntrySize%eventEntryAlign != 0 ||
		r.EntrySize > EventQueueBytes || r.End < base || r.End-base > EventQueueBytes || (r.End-base)%r.EntrySize != 0 ||
		r.Head < base || r.Head > r.End || (r.Head-base)%r.EntrySize != 0 {
		return 0, false
	}
	entries = int((r.End-base)/r.EntrySize) + 1
	return entries, entries <= MaxEventEntries && entries*(int(r.EntrySize)+4) <= EventQueueBytes
}

// AtomicWord returns the 32-bit word at offset off of shared memory for atomic use: a host that stores
// a word and then looks at one of the guest's stores it by Swap, a guest by [Show]. It panics unless
// off is a multiple of 4 within the memory.
func AtomicWord(b []byte, off int) *atomic.Uint32 { return word(b, off) }

// NeedWake reports whether publishing the counts after old up to put must wake the other side, which
// asked for that at at (virtio's event index).
func NeedWake(at, put, old uint32) bool { return needWake(at, put, old) }
