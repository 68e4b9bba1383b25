package ipc

import (
	"sync/atomic"
	"time"
)

// Layout of the work logs' part of the page.
const (
	workAreaBytes = lineBytes + MaxContexts*workBytes
	workBytes     = 2*lineBytes + WorkLogIntervals*intervalBytes
	intervalBytes = 16
)

// WorkLogIntervals is how many unread intervals a context's log has room for: what kernels of 20 µs
// with gaps between them come to in 20 ms. If there are more, the log counts gaps too.
const WorkLogIntervals = 512

// From mergeFrom unread intervals on, an interval that is within mergeGap of the newest one extends
// it. The gap is about what the GPU takes from the end of a kernel to the start of the next one in
// its queue.
const (
	mergeFrom = WorkLogIntervals / 2
	mergeGap  = 5 * time.Microsecond
)

// workArea follows the launch slots on the page. The daemon reads it where the GPU records which
// channel group has its turn but not whether it computes.
type workArea struct {
	// Written by serve.
	wanted atomic.Uint32
	_      [lineBytes - 4]byte

	contexts [MaxContexts]workLayout
}

// workLayout is a ring of intervals with one writer and one reader. The intervals from read up to
// written are unread.
//
// Where many are unread, the writer extends the newest one while it is unread, and may do so while
// the reader loads it. So an interval only grows: its start decreases and its end increases, each
// by one store, and whatever the reader loads is a part of the final interval. The reader reads the
// last interval of a call again in the next call, since it may have grown in between; the writer no
// longer extends it then.
type workLayout struct {
	// Written by exec.
	written atomic.Uint64
	since   atomic.Int64
	_       [lineBytes - 16]byte

	// Written by serve.
	read atomic.Uint64
	_    [lineBytes - 8]byte

	// Written by exec.
	intervals [WorkLogIntervals]intervalLayout
}

type intervalLayout struct{ start, end atomic.Int64 }

func (i *intervalLayout) load() (start, end time.Duration) {
	return time.Duration(i.start.Load()), time.Duration(i.end.Load())
}

// WorkLog is the log of when a context had something on the GPU: launches of all its channels, on
// the GPU's clock. Its executor writes it, and serve reads it. It is a value; on a page of an older
// version it is the zero WorkLog, whose methods do nothing.
type WorkLog struct {
	l    *workLayout
	area *workArea
}

// HasWorkLog reports whether the page has work logs. One of an older version of vgpud has none.
func (p *ControlPage) HasWorkLog() bool { return p.work != nil }

// WorkLog returns context i's log.
func (p *ControlPage) WorkLog(i int) WorkLog {
	if p.work == nil {
		return WorkLog{}
	}
	return WorkLog{l: &p.work.contexts[i], area: p.work}
}

// SetWorkLogWanted records whether work logs are read; serve calls it.
func (p *ControlPage) SetWorkLogWanted(wanted bool) {
	const offset = contextsBytes + launchAreaBytes
	if p.work != nil && (wanted || p.touchedFrom(offset) == offset) {
		storeBool(&p.work.wanted, wanted)
	}
}

// Wanted reports whether the log is read. If not, there is no need to write it.
func (w WorkLog) Wanted() bool { return w.l != nil && w.area.wanted.Load() != 0 }

// Add adds an interval in which a launch was on the GPU; the context's executor calls it. Intervals
// may overlap and come in any order. If hundreds are unread, an interval close to the newest one
// extends it; if the log is full, any interval does, and the time between is counted too.
func (w WorkLog) Add(start, end time.Duration) {
	if w.l == nil || end <= start {
		return
	}
	l := w.l
	written := l.written.Load()
	unread := written - l.read.Load()
	if newest := &l.intervals[(written-1)%WorkLogIntervals]; unread > 0 && unread <= WorkLogIntervals {
		s, e := newest.load()
		if unread >= WorkLogIntervals-1 || unread >= mergeFrom && start <= e+mergeGap && end >= s-mergeGap {
			newest.start.Store(int64(min(s, start)))
			newest.end.Store(int64(max(e, end)))
			return
		}
	}
	next := &l.intervals[written%WorkLogIntervals]
	next.start.Store(int64(start))
	next.end.Store(int64(end))
	l.written.Store(written + 1)
}

// SetSince records that the context has had something on the GPU since t at the earliest, or has
// nothing there if t is 0. The context's executor calls it, after it has added what ended.
func (w WorkLog) SetSince(t time.Duration) {
	if w.l != nil {
		w.l.since.Store(int64(t))
	}
}

// Since returns since when the context has had something on the GPU, or 0. A reader that is to miss
// nothing calls it before ReadAll.
func (w WorkLog) Since() time.Duration {
	if w.l == nil {
		return 0
	}
	return time.Duration(w.l.since.Load())
}

// ReadAll calls f with the last interval of the call before, which may have grown, and with each
// interval that was added since. serve calls it, from one goroutine at a time.
func (w WorkLog) ReadAll(f func(start, end time.Duration)) {
	if w.l == nil {
		return
	}
	l := w.l
	written := l.written.Load()
	i := l.read.Load()
	if i > 0 {
		i--
	}
	if written-i > WorkLogIntervals {
		i = written - min(written, WorkLogIntervals) // only a hostile writer gets here
	}
	for ; i < written; i++ {
		f(l.intervals[i%WorkLogIntervals].load())
	}
	l.read.Store(written)
}
