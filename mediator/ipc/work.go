package ipc

import (
	"sync/atomic"
	"time"
)

// Layout of the work's part of the page.
const (
	workAreaBytes = lineBytes + MaxContexts*workBytes
	workBytes     = 2*lineBytes + workSpans*spanBytes
	workSpans     = WorkRoom
	spanBytes     = 16
)

// WorkRoom is how many spans of a context may wait to be taken: what kernels of 20 µs
// with gaps between them come to in 20 ms. Of more the gaps count too.
const WorkRoom = 512

// From workMany waiting spans on, two that are workTouches apart or less count as
// one: about what the GPU takes from the end of a kernel to the start of the next
// one in its queue.
const (
	workMany    = workSpans / 2
	workTouches = 5 * time.Microsecond
)

// workArea follows the stubs on the page. It is read where the GPU records whose
// turn it is, and not what for.
type workArea struct {
	// Written by serve.
	wanted atomic.Uint32
	_      [lineBytes - 4]byte

	contexts [MaxContexts]workLayout
}

// workLayout is a ring of spans with one writer and one reader. A span from begun
// down to taken waits to be read.
//
// Where many wait, the writer makes the newest span longer as long as it is not
// taken, and may do so while it is being read. So a span only ever grows: its start gets less and its end
// more, each by one store, and whatever is read of it is a part of what it comes to.
// The reader looks again at the last one that it took, since that may have grown
// after it was read, and the writer leaves it alone until another one is taken.
type workLayout struct {
	// Written by exec.
	begun atomic.Uint64
	since atomic.Int64
	_     [lineBytes - 16]byte

	// Written by serve.
	taken atomic.Uint64
	_     [lineBytes - 8]byte

	// Written by exec.
	spans [workSpans]spanLayout
}

type spanLayout struct{ start, end atomic.Int64 }

// Work is the account of when a context had something on the GPU: launches of all
// its channels, on the GPU's clock. Its executor writes it, and serve reads it. It
// is a value; on a page of an older version it is the zero Work, of which every
// method says and does nothing.
type Work struct {
	l    *workLayout
	area *workArea
}

// HasWork is whether the page has room for accounts of work. One of an older
// version of vgpud does not.
func (p *Page) HasWork() bool { return p.work != nil }

// Work is context i's account.
func (p *Page) Work(i int) Work {
	if p.work == nil {
		return Work{}
	}
	return Work{l: &p.work.contexts[i], area: p.work}
}

// WantWork says whether accounts of work are read; serve calls it.
func (p *Page) WantWork(yes bool) {
	if p.work != nil {
		storeBool(&p.work.wanted, yes)
	}
}

// Wanted is whether the account is read, so that there is a point in writing it.
func (w Work) Wanted() bool { return w.l != nil && w.area.wanted.Load() != 0 }

// Add notes a launch that was on the GPU; the context's executor calls it. Spans may
// overlap, and need not be in order. Where the reader is late by hundreds of them
// those that touch become one, and at last the newest takes in what comes, with the
// time between.
func (w Work) Add(start, end time.Duration) {
	if w.l == nil || end <= start {
		return
	}
	l := w.l
	begun := l.begun.Load()
	waiting := begun - l.taken.Load()
	if newest := &l.spans[(begun-1)%workSpans]; waiting > 0 && waiting <= workSpans {
		s, e := newest.span()
		if waiting >= workSpans-1 || waiting >= workMany && start <= e+workTouches && end >= s-workTouches {
			newest.start.Store(int64(min(s, start)))
			newest.end.Store(int64(max(e, end)))
			return
		}
	}
	next := &l.spans[begun%workSpans]
	next.start.Store(int64(start))
	next.end.Store(int64(end))
	l.begun.Store(begun + 1)
}

// SetSince says that something has been on the GPU since t at the earliest; 0:
// nothing is. The context's executor calls it, when it has added what ended.
func (w Work) SetSince(t time.Duration) {
	if w.l != nil {
		w.l.since.Store(int64(t))
	}
}

// Since is since when something has been on the GPU, 0 for nothing. Who wants to
// miss nothing asks before it takes the spans.
func (w Work) Since() time.Duration {
	if w.l == nil {
		return 0
	}
	return time.Duration(w.l.since.Load())
}

// Take calls f with each span that was added since the last call, and once more
// with the last one of those; serve calls it, from one goroutine at a time.
func (w Work) Take(f func(start, end time.Duration)) {
	if w.l == nil {
		return
	}
	l := w.l
	begun, taken := l.begun.Load(), l.taken.Load()
	i := taken
	if taken > 0 {
		i--
	}
	if begun-i > workSpans {
		i = begun - min(begun, workSpans) // nobody that keeps to the rules writes that
	}
	for ; i < begun; i++ {
		f(l.spans[i%workSpans].span())
	}
	l.taken.Store(begun)
}

func (s *spanLayout) span() (start, end time.Duration) {
	return time.Duration(s.start.Load()), time.Duration(s.end.Load())
}
