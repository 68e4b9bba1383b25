package abi

import "sync/atomic"

// A SubmissionWriter is the guest's end of a submission ring. One goroutine uses
// it at a time.
type SubmissionWriter struct {
	put, get, kickAt *atomic.Uint32
	ring             []byte
	mask             uint32
	next             uint32 // the next slot to fill
	published        uint32 // put as the host may see it
	seenGet          uint32 // get as last loaded
}

// NewSubmissionWriter returns the guest's end of the ring, for a channel that was
// just created. page is the channel's page of BAR2, ring exactly the ring.
func NewSubmissionWriter(page, ring []byte) (*SubmissionWriter, error) {
	if err := checkRing(page, ring); err != nil {
		return nil, err
	}
	return &SubmissionWriter{
		put:    word(page, SubmissionPutWord),
		get:    word(page, SubmissionGetWord),
		kickAt: word(page, KickAtWord),
		ring:   ring,
		mask:   uint32(len(ring)/EntrySize) - 1,
	}, nil
}

// Entries returns the ring's size.
func (w *SubmissionWriter) Entries() int { return int(w.mask) + 1 }

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

// Reserve reports whether n more entries fit. It looks at the host's pointer
// only when what it saw last is not enough.
func (w *SubmissionWriter) Reserve(n int) bool {
	return w.room() >= n || w.Room() >= n
}

// Next returns the next slot to write, in shared memory, or nil when the ring is
// full. The slot holds an old entry's bytes. The host sees nothing before
// [SubmissionWriter.Publish].
func (w *SubmissionWriter) Next() *Entry {
	if !w.Reserve(1) {
		return nil
	}
	off := int(w.next&w.mask) * EntrySize
	w.next++
	return (*Entry)(w.ring[off : off+EntrySize])
}

// Publish shows the host all entries written since the last call and reports
// whether the channel's doorbell must be rung.
func (w *SubmissionWriter) Publish() (kick bool) {
	old := w.published
	if w.next == old {
		return false
	}
	w.published = w.next
	w.put.Store(w.next)
	return needWake(w.kickAt.Load(), w.next, old)
}

// Outstanding returns how many published entries the host has not fetched.
func (w *SubmissionWriter) Outstanding() int { return int(w.published - w.get.Load()) }

// A SubmissionReader is the host's end of a submission ring. One goroutine uses
// it at a time. After an error the channel has failed for good.
type SubmissionReader struct {
	put, get, kickAt *atomic.Uint32
	ring             []byte
	mask             uint32
	fetched          uint32
}

// NewSubmissionReader returns the host's end of the ring of a channel that was
// just created.
func NewSubmissionReader(page, ring []byte) (*SubmissionReader, error) {
	if err := checkRing(page, ring); err != nil {
		return nil, err
	}
	return &SubmissionReader{
		put:    word(page, SubmissionPutWord),
		get:    word(page, SubmissionGetWord),
		kickAt: word(page, KickAtWord),
		ring:   ring,
		mask:   uint32(len(ring)/EntrySize) - 1,
	}, nil
}

// Pending returns how many entries wait to be fetched: one load, what a polling
// host does. The error is [ErrorPutRange].
func (r *SubmissionReader) Pending() (int, error) {
	n := r.put.Load() - r.fetched
	if n > r.mask+1 {
		return 0, ErrorPutRange
	}
	return int(n), nil
}

// Fetch copies entries out of the ring into dst and gives their slots back to the
// guest. It returns whole commands only: a command's continuation entries are in
// dst behind it. dst must hold at least MaxMore+1 entries. It does not look at
// what the entries say beyond [Span]. The error is [ErrorPutRange] or
// [ErrorTorn]; commands before a torn one are returned first, without the error.
func (r *SubmissionReader) Fetch(dst []Entry) (int, error) {
	pending, err := r.Pending()
	if err != nil || pending == 0 {
		return 0, err
	}
	n := min(pending, len(dst))
	for i := range n {
		off := int((r.fetched+uint32(i))&r.mask) * EntrySize
		dst[i] = *(*Entry)(r.ring[off : off+EntrySize])
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

// Arm asks the guest for a doorbell with its next entry and reports whether the
// ring is still empty, so that the host may sleep. When it reports false there
// is work (or [SubmissionReader.Pending] has an error to give).
func (r *SubmissionReader) Arm() (empty bool) {
	r.kickAt.Store(r.fetched)
	return r.put.Load() == r.fetched
}
