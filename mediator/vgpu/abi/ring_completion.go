package abi

import "sync/atomic"

// A CompletionWriter is the host's end of a completion ring. One goroutine uses it at a time. After
// an error the channel has failed for good.
type CompletionWriter struct {
	slots
	put, get, interruptAt, roomAt *atomic.Uint32
	next                          uint32
	published                     uint32
	seenGet                       uint32
}

// NewCompletionWriter returns the host's end of the completion ring of a channel that was just
// created.
func NewCompletionWriter(page, ring []byte) (*CompletionWriter, error) {
	slots, err := newSlots(page, ring)
	if err != nil {
		return nil, err
	}
	return &CompletionWriter{
		slots:       slots,
		put:         word(page, CompletionPutWord),
		get:         word(page, CompletionGetWord),
		interruptAt: word(page, InterruptAtWord),
		roomAt:      word(page, RoomAtWord),
	}, nil
}

// Position returns how many completions were written, modulo 2³². It is the argument of Resume for a
// writer that is to continue at that point. All of them are published.
func (w *CompletionWriter) Position() uint32 { return w.next }

// Resume has a new writer continue where another one was.
func (w *CompletionWriter) Resume(position uint32) {
	w.next, w.published, w.seenGet = position, position, w.get.Load()
}

// Room returns how many more completions fit. Its error is [ErrorGetRange]: the guest claims to
// have consumed unpublished completions.
func (w *CompletionWriter) Room() (int, error) {
	get := w.get.Load()
	if w.next-get > w.mask+1 || w.next-get < w.next-w.published {
		return 0, ErrorGetRange
	}
	w.seenGet = get
	return int(w.mask + 1 - (w.next - get)), nil
}

// Next returns the slot for the next completion, in shared memory, or nil when the guest has left
// no room. The host writes it and never reads it back.
func (w *CompletionWriter) Next() (*Entry, error) {
	if w.next-w.seenGet > w.mask {
		if room, err := w.Room(); err != nil || room == 0 {
			return nil, err
		}
	}
	w.next++
	return w.at(w.next - 1), nil
}

// Publish shows the guest all completions written since the last call and reports whether the
// channel's vector must be raised.
func (w *CompletionWriter) Publish() (interrupt bool) {
	old := w.published
	if w.next == old {
		return false
	}
	w.published = w.next
	w.put.Swap(w.next)
	return needWake(w.interruptAt.Load(), w.next, old)
}

// ArmRoom asks the guest for a doorbell when it consumes its next completion and reports whether
// the ring is still full, so that the host may sleep until then.
func (w *CompletionWriter) ArmRoom() (full bool) {
	w.roomAt.Swap(w.seenGet)
	return w.get.Load() == w.seenGet
}

// A CompletionReader is the guest's end of a completion ring. One goroutine uses it at a time.
type CompletionReader struct {
	slots
	put, get, interruptAt, roomAt *atomic.Uint32
	consumed                      uint32
}

// NewCompletionReader returns the guest's end of the completion ring of a channel that was just
// created.
func NewCompletionReader(page, ring []byte) (*CompletionReader, error) {
	slots, err := newSlots(page, ring)
	if err != nil {
		return nil, err
	}
	return &CompletionReader{
		slots:       slots,
		put:         word(page, CompletionPutWord),
		get:         word(page, CompletionGetWord),
		interruptAt: word(page, InterruptAtWord),
		roomAt:      word(page, RoomAtWord),
	}, nil
}

// Pending returns how many completions wait: one load, for polling guests. Its error is
// [ErrorPutRange].
func (r *CompletionReader) Pending() (int, error) {
	return r.pending(r.put, r.consumed)
}

// Fetch decodes completions into dst, gives their slots back to the host, and reports whether the
// channel's doorbell must be rung because the host waits for room. The error is [ErrorPutRange] or
// that of [DecodeCompletion].
func (r *CompletionReader) Fetch(dst []Completion) (n int, kick bool, err error) {
	pending, err := r.Pending()
	if err != nil || pending == 0 {
		return 0, false, err
	}
	for n = 0; n < min(pending, len(dst)); n++ {
		if dst[n], err = DecodeCompletion(r.at(r.consumed + uint32(n))); err != nil {
			break
		}
	}
	if n == 0 {
		return 0, false, err
	}
	old := r.consumed
	r.consumed += uint32(n)
	Show(r.get, r.consumed)
	return n, needWake(r.roomAt.Load(), r.consumed, old), err
}

// Arm asks for an interrupt as soon as more than skip completions wait, and reports whether that is
// not yet so, so that the guest may sleep.
func (r *CompletionReader) Arm(skip int) (sleep bool) {
	Show(r.interruptAt, r.consumed+uint32(skip))
	return r.put.Load()-r.consumed <= uint32(skip)
}
