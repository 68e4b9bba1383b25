package cuda

// Flags of streams and events. A caller that synchronises with an event made with EventBlockingSync
// sleeps: each record of such an event ends in an interrupt. An event without timing costs the GPU
// almost nothing.
const (
	StreamNonBlocking  = 1
	EventBlockingSync  = 1
	EventDisableTiming = 2
)

// StreamCreate makes a stream. Blocks of streams with a lower priority number are scheduled first,
// within the device's range of priorities.
func (l *Library) StreamCreate(flags uint32, priority int) (Stream, error) {
	v, _, err := answers(func(s *scratch) error {
		return l.call(cuStreamCreateWithPriority, s.at(0), uintptr(flags), uintptr(priority))
	})
	return Stream(v), err
}

// StreamDestroy returns at once. Queued work goes on.
func (l *Library) StreamDestroy(s Stream) error { return l.call(cuStreamDestroy, uintptr(s)) }

// StreamSynchronize waits for all queued work.
func (l *Library) StreamSynchronize(s Stream) error { return l.call(cuStreamSynchronize, uintptr(s)) }

// StreamWaitEvent makes s wait for the latest record of e.
func (l *Library) StreamWaitEvent(s Stream, e Event) error {
	return l.call(cuStreamWaitEvent, uintptr(s), uintptr(e), 0)
}

// StreamWriteValue64 writes a word once earlier work in the stream is done and all its writes are
// visible.
func (l *Library) StreamWriteValue64(s Stream, at DevicePtr, value uint64) error {
	return l.call(cuStreamWriteValue64, uintptr(s), uintptr(at), uintptr(value), 0)
}

// EventCreate makes an event, which keeps the time at which it was reached.
func (l *Library) EventCreate(flags uint32) (Event, error) {
	e, _, err := answers(func(s *scratch) error { return l.call(cuEventCreate, s.at(0), uintptr(flags)) })
	return Event(e), err
}

// EventDestroy returns at once.
func (l *Library) EventDestroy(e Event) error { return l.call(cuEventDestroy, uintptr(e)) }

// EventRecord makes e reached once earlier work in s is done.
func (l *Library) EventRecord(e Event, s Stream) error {
	return l.call(cuEventRecord, uintptr(e), uintptr(s))
}

// EventQuery reports whether the event's last record was reached.
func (l *Library) EventQuery(e Event) (bool, error) {
	r := l.raw(cuEventQuery, uintptr(e))
	if r == ErrNotReady {
		return false, nil
	}
	return r == 0, result(r)
}

// EventSynchronize waits until the event's last record was reached. It sleeps if the event was made
// with EventBlockingSync.
func (l *Library) EventSynchronize(e Event) error { return l.call(cuEventSynchronize, uintptr(e)) }
