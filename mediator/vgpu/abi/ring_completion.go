package abi

import "sync/atomic"

// A CompletionWriter is the host's end of a completion ring. One goroutine uses
// it at a time. After an error the channel has failed for good.
type CompletionWriter struct {
	put, get, interruptAt, roomAt *atomic.Uint32
	ring                          []byte
	mask                          uint32
	next                          uint32
	published                     uint32
	seenGet                       uint32
}

// NewCompletionWriter returns the host's end of the completion ring of a channel
// that was just created.
func NewCompletionWriter(page, ring []byte) (*CompletionWriter, error) {
	if err := checkRing(page, ring); err != nil {
		return nil, err
	}
	return &CompletionWriter{
		put:         word(page, CompletionPutWord),
		get:         word(page, CompletionGetWord),
		interruptAt: word(page, InterruptAtWord),
		roomAt:      word(page, RoomAtWord),
		ring:        ring,
		mask:        uint32(len(ring)/EntrySize) - 1,
	}, nil
}

// Room returns how many more completions fit. The error is [ErrorGetRange]: the
// guest claims to have consumed what was never published.
func (w *CompletionWriter) Room() (int, error) {
	get := w.get.Load()
	if w.next-get > w.mask+1 || w.next-get < w.next-w.published {
		return 0, ErrorGetRange
	}
	w.seenGet = get
	return int(w.mask + 1 - (w.next - get)), nil
}

// Next returns the slot for the next completion, in shared memory, or nil when
// the guest has left no room. The host writes it and never reads it back.
func (w *CompletionWriter) Next() (*Entry, error) {
	if w.next-w.seenGet > w.mask {
		if room, err := w.Room(); err != nil || room == 0 {
			return nil, err
		}
	}
	off := int(w.next&w.mask) * EntrySize
	w.next++
	return (*Entry)(w.ring[off : off+EntrySize]), nil
}

// Publish shows the guest all completions written since the last call and
// reports whether the channel's vector must be raised.
func (w *CompletionWriter) Publish() (interrupt bool) {
	old := w.published
	if w.next == old {
		return false
	}
	w.published = w.next
	w.put.Store(w.next)
	return needWake(w.interruptAt.Load(), w.next, old)
}

// ArmRoom asks the guest for a doorbell when it consumes its next completion and
// reports whether the ring is still full, so that the host may sleep until then.
func (w *CompletionWriter) ArmRoom() (full bool) {
	w.roomAt.Store(w.seenGet)
	return w.get.Load() == w.seenGet
}

// A CompletionReader is the guest's end of a completion ring. One goroutine uses
// it at a time.
type CompletionReader struct {
	put, get, interruptAt, roomAt *atomic.Uint32
	ring                          []byte
	mask                          uint32
	consumed                      uint32
}

// NewCompletionReader returns the guest's end of the completion ring of a channel
// that was just created.
func NewCompletionReader(page, ring []byte) (*CompletionReader, error) {
	if err := checkRing(page, ring); err != nil {
		return nil, err
	}
	return &CompletionReader{
		put:         word(page, CompletionPutWord),
		get:         word(page, CompletionGetWord),
		interruptAt: word(page, InterruptAtWord),
		roomAt:      word(page, RoomAtWord),
		ring:        ring,
		mask:        uint32(len(ring)/EntrySize) - 1,
	}, nil
}

// Pending returns how many completions wait: one load, what a polling guest does.
// The error is [ErrorPutRange].
func (r *CompletionReader) Pending() (int, error) {
	n := r.put.Load() - r.consumed
	if n > r.mask+1 {
		return 0, ErrorPutRange
	}
	return int(n), nil
}

// Fetch decodes completions into dst, gives their slots back to the host, and
// reports whether the channel's doorbell must be rung because the host waits for
// room. The error is [ErrorPutRange] or that of [DecodeCompletion].
func (r *CompletionReader) Fetch(dst []Completion) (n int, kick bool, err error) {
	pending, err := r.Pending()
	if err != nil || pending == 0 {
		return 0, false, err
	}
	for n = 0; n < min(pending, len(dst)); n++ {
		off := int((r.consumed+uint32(n))&r.mask) * EntrySize
		if dst[n], err = DecodeCompletion((*Entry)(r.ring[off : off+EntrySize])); err != nil {
			break
		}
	}
	if n == 0 {
		return 0, false, err
	}
	old := r.consumed
	r.consumed += uint32(n)
	r.get.Store(r.consumed)
	return n, needWake(r.roomAt.Load(), r.consumed, old), err
}

// Arm asks for an interrupt as soon as more than skip completions wait, and
// reports whether that is still to come, so that the guest may sleep.
func (r *CompletionReader) Arm(skip int) (sleep bool) {
	r.interruptAt.Store(r.consumed + uint32(skip))
	return r.put.Load()-r.consumed <= uint32(skip)
}
