package abi

import "sync/atomic"

// A SubmissionWriter is the guest's end of a submission ring. One goroutine uses it at a time.
type SubmissionWriter struct {
	slots
	put, get, kickAt *atomic.Uint32
	next             uint32 // the next slot to fill
	published        uint32 // put as the host may see it
	seenGet          uint32 // get as last loaded
}

// NewSubmissionWriter returns the guest's end of the ring, for a channel that was just created.
// page is the channel's page of BAR2, ring exactly the ring.
func NewSubmissionWriter(page, ring []byte) (*SubmissionWriter, error) {
	slots, err := newSlots(page, ring)
	if err != nil {
		return nil, err
	}
	return &SubmissionWriter{
		slots:  slots,
		put:    word(page, SubmissionPutWord),
		get:    word(page, SubmissionGetWord),
		kickAt: word(page, KickAtWord),
	}, nil
}

// Room returns how many more entries fit.
func (w *SubmissionWriter) Room() int {
	w.seenGet = w.get.Load()
	return w.room()
}

func (w *SubmissionWriter) room() int {
	used := w.next - w.seenGet
	if used > w.mask+1 { // the host's get makes no sense: nothing fits
		return 0
	}
	return int(w.mask + 1 - used)
}

// Reserve reports whether n more entries fit. It loads the host's pointer only if its last value is
// not enough.
func (w *SubmissionWriter) Reserve(n int) bool {
	return w.room() >= n || w.Room() >= n
}

// Next returns the next slot to write, in shared memory, or nil when the ring is full. The slot
// holds an old entry's bytes. The host sees nothing before [SubmissionWriter.Publish].
func (w *SubmissionWriter) Next() *Entry {
	if !w.Reserve(1) {
		return nil
	}
	w.next++
	return w.at(w.next - 1)
}

// Publish shows the host all entries written since the last call and reports whether the channel's
// doorbell must be rung.
func (w *SubmissionWriter) Publish() (kick bool) {
	old := w.published
	if w.next == old {
		return false
	}
	w.published = w.next
	Show(w.put, w.next)
	return needWake(w.kickAt.Load(), w.next, old)
}

// A SubmissionReader is the host's end of a submission ring. One goroutine uses it at a time. After
// an error the channel has failed for good.
type SubmissionReader struct {
	slots
	put, get, kickAt *atomic.Uint32
	fetched          uint32
}

// NewSubmissionReader returns the host's end of the ring of a channel that was just created.
func NewSubmissionReader(page, ring []byte) (*SubmissionReader, error) {
	slots, err := newSlots(page, ring)
	if err != nil {
		return nil, err
	}
	return &SubmissionReader{
		slots:  slots,
		put:    word(page, SubmissionPutWord),
		get:    word(page, SubmissionGetWord),
		kickAt: word(page, KickAtWord),
	}, nil
}

// Position returns how many entries were fetched, modulo 2³². It is the argument of Resume for a
// reader that is to continue at that point.
func (r *SubmissionReader) Position() uint32 { return r.fetched }

// Resume has a new reader continue where another one was.
func (r *SubmissionReader) Resume(position uint32) { r.fetched = position }

// Pending returns how many entries wait to be fetched: one load, for polling hosts. Its error is
// [ErrorPutRange].
func (r *SubmissionReader) Pending() (int, error) {
	return r.pending(r.put, r.fetched)
}

// Fetch copies entries out of the ring into dst and gives their slots back to the guest. It returns
// whole commands only, each followed by its continuation entries. dst must hold at least MaxMore+1
// entries. Fetch reads nothing of the entries beyond [Span]. Its error is [ErrorPutRange] or
// [ErrorTorn]; commands before a torn one are returned first, without the error.
func (r *SubmissionReader) Fetch(dst []Entry) (int, error) {
	pending, err := r.Pending()
	if err != nil || pending == 0 {
		return 0, err
	}
	n := min(pending, len(dst))
	for i := range n {
		dst[i] = *r.at(r.fetched + uint32(i))
	}
	whole := 0
	for whole < n {
		end := whole + Span(&dst[whole])
		if end > n {
			break
		}
		whole = end
	}
	if whole == 0 {
		if Span(&dst[0]) > pending {
			return 0, ErrorTorn
		}
		return 0, errShortBuffer
	}
	r.fetched += uint32(whole)
	r.get.Store(r.fetched)
	return whole, nil
}

// Arm asks the guest for a doorbell with its next entry and reports whether the ring is still
// empty, so that the host may sleep. If it reports false, there is work, or
// [SubmissionReader.Pending] returns an error.
func (r *SubmissionReader) Arm() (empty bool) {
	r.kickAt.Swap(r.fetched)
	return r.put.Load() == r.fetched
}
