package abi

import "fmt"

// Layout of BAR2: page 0 is the device's page; one page for each channel slot follows; they are the
// header. After it come the rings (whole pages), within [RingsBytes], and then the staging windows,
// both laid out by the guest. Each channel has a page of its own so that a guest can map into a
// tenant process only that tenant's. Rings are separate from windows so that a GPU can be given the
// windows' memory to copy from and to, where its kernels can then reach it, but never a ring. In
// version 1.0 rings and windows lie anywhere after the header.
const (
	PageSize = 4096
	// LineSize, a cache line, is the distance between words that different sides write, or that are
	// written at different times.
	LineSize = 64

	// DefaultSharedBytes is the usual size of BAR2; MinSharedBytes and MaxSharedBytes bound what
	// can be configured (powers of two).
	DefaultSharedBytes = 256 << 20
	MinSharedBytes     = 4 << 20
	MaxSharedBytes     = 64 << 30

	// If BAR2 has at least hugeFrom bytes, windows begin on a page of hugePage.
	hugePage = 2 << 20
	hugeFrom = 64 << 20
)

// Words of the device's page (page 0 of BAR2), written by the host, for guests that avoid trapped
// reads.
const (
	DeviceMagicWord      = 0 * LineSize // Magic
	DeviceGenerationWord = 1 * LineSize // as RegGeneration
	DeviceStateWord      = 2 * LineSize // counts changes of state of any context or channel
	DeviceContextWords   = 1024         // one word a context: ContextState in bits 7:0, ErrorCode in 31:8
)

// Words of a channel's page. Those of the first half are written by the guest and those of the
// second by the host, each on a line of its own.
const (
	SubmissionPutWord = 0 * LineSize  // guest: entries published since create
	CompletionGetWord = 1 * LineSize  // guest: completions consumed since create
	InterruptAtWord   = 2 * LineSize  // guest: interrupt when the completion put passes this
	SubmissionGetWord = 8 * LineSize  // host: entries fetched since create
	CompletionPutWord = 9 * LineSize  // host: completions published since create
	KickAtWord        = 10 * LineSize // host: ring the doorbell when the submission put passes this
	RoomAtWord        = 11 * LineSize // host: ring the doorbell when the completion get passes this
	ChannelStateWord  = 12 * LineSize // host: ChannelState in bits 7:0, ErrorCode in 31:8
	channelWordsEnd   = 13 * LineSize
)

// A Word describes one word of BAR2 for documentation and tests.
type Word struct {
	Name   string
	Offset int
	Writer string // "guest" or "host"; of a control block "kernel" or "host"
}

// DeviceWords lists the words of page 0.
var DeviceWords = []Word{
	{"MAGIC", DeviceMagicWord, "host"},
	{"GENERATION", DeviceGenerationWord, "host"},
	{"STATE_CHANGES", DeviceStateWord, "host"},
	{"CONTEXT_STATE", DeviceContextWords, "host"},
}

// ChannelWords lists the words of a channel's page.
var ChannelWords = []Word{
	{"SUBMISSION_PUT", SubmissionPutWord, "guest"},
	{"COMPLETION_GET", CompletionGetWord, "guest"},
	{"INTERRUPT_AT", InterruptAtWord, "guest"},
	{"SUBMISSION_GET", SubmissionGetWord, "host"},
	{"COMPLETION_PUT", CompletionPutWord, "host"},
	{"KICK_AT", KickAtWord, "host"},
	{"ROOM_AT", RoomAtWord, "host"},
	{"CHANNEL_STATE", ChannelStateWord, "host"},
}

// HeaderBytes returns the size of BAR2's header for that many channels: the offset where rings may
// begin.
func HeaderBytes(channels int) int { return (1 + channels) * PageSize }

// RingsBytes returns how many of BAR2's shared bytes after the header are for rings: an eighth of
// BAR2 less the header, or the size of two rings of [UsualRingEntries] for each channel if that is
// more and at most a quarter of BAR2; but never more than all rings at maxEntries.
func RingsBytes(shared int64, channels, maxEntries int) int {
	header := int64(HeaderBytes(channels))
	usual, most := int64(2*channels*RingBytes(UsualRingEntries)), int64(2*channels*RingBytes(maxEntries))
	end := min(max(shared/8, header+min(usual, shared/4)), header+most)
	if shared >= hugeFrom {
		end = (end + hugePage - 1) &^ (hugePage - 1)
	}
	return int(end - header)
}

// ChannelPage returns the offset in BAR2 of the page of channel i.
func ChannelPage(i int) int { return (1 + i) * PageSize }

// ContextWord returns the offset in BAR2 of the state word of context i.
func ContextWord(i int) int { return DeviceContextWords + 4*i }

// PackState returns the value of a state word.
func PackState[S ContextState | ChannelState](s S, e ErrorCode) uint32 {
	return uint32(s)&0xff | uint32(e)<<8
}

// UnpackState returns the parts of a state word.
func UnpackState[S ContextState | ChannelState](w uint32) (S, ErrorCode) {
	return S(w & 0xff), ErrorCode(w >> 8)
}

// Ring sizes, in entries.
const (
	MinRingEntries   = 128  // a command with all its continuation entries fits
	UsualRingEntries = 1024 // the drivers' default
	MaxRingEntries   = 1 << 16
)

// RingBytes returns what a ring of that many entries occupies in BAR2: its size rounded up to whole
// pages.
func RingBytes(entries int) int {
	return (entries*EntrySize + PageSize - 1) &^ (PageSize - 1)
}

// A Window is a range of BAR2 that a command names: bytes at Offset from BAR2's start.
type Window struct {
	Offset uint64
	Size   uint64
}

// End returns the offset after the window; ok is false when it overflows.
func (w Window) End() (end uint64, ok bool) {
	end = w.Offset + w.Size
	return end, end >= w.Offset
}

// Bytes returns the window's part of shared, all of BAR2, whose first from bytes are not for
// windows. Its error wraps [StatusInvalidWindow]. The guest can change the bytes at any time: copy
// them before parsing.
func (w Window) Bytes(shared []byte, from int) ([]byte, error) {
	end, ok := w.End()
	if !ok || w.Offset < uint64(from) || end > uint64(len(shared)) {
		return nil, fmt.Errorf("window of %d bytes at %#x in %d bytes of shared memory whose windows begin at %#x: %w",
			w.Size, w.Offset, len(shared), from, StatusInvalidWindow)
	}
	return shared[w.Offset:end:end], nil
}
