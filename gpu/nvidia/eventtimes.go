package nvidia

import (
	"fmt"
	"time"

	"vgpud/gpu"
)

var _ gpu.EventTimes = (*Context)(nil)

// span is a time on the GPU's clock.
type span struct{ start, end time.Duration }

// maxSpans bounds the times that a kernel keeps until they are asked for. More grow the last one.
const maxSpans = 256

// eventTimes are the times in which an event kernel had something on the GPU.
type eventTimes struct {
	spans []span
	told  time.Duration // up to which the dispatcher's stay was told
}

func (t *eventTimes) add(start, end time.Duration) {
	switch {
	case end <= start:
	case len(t.spans) == maxSpans:
		t.spans[maxSpans-1].end = max(t.spans[maxSpans-1].end, end)
	default:
		t.spans = append(t.spans, span{start, end})
	}
}

// EventTimes implements [gpu.EventTimes].
func (c *Context) EventTimes(f func(start, end time.Duration)) (since time.Duration, err error) {
	e := &c.events
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.past {
		f(s.start, s.end)
	}
	e.past = e.past[:0]
	if !c.hasEvents() {
		return 0, nil
	}
	now, err := c.d.Now()
	if err != nil {
		return 0, fmt.Errorf("times of event kernels: %w", err)
	}
	for i := range e.rows {
		r := e.rows[i].Load()
		if r == nil {
			continue
		}
		r.stay(now)
		for _, s := range r.times.spans {
			f(s.start, s.end)
		}
		r.times.spans = r.times.spans[:0]
		if r.d != nil && r.d.launched.Load() && r.d.control.Resident() || len(r.flying) > 0 {
			since = now
		}
	}
	return since, nil
}

// stay adds the dispatcher's stay on the GPU up to now, as far as it was not told.
func (r *eventRow) stay(now time.Duration) {
	d := r.d
	if d == nil || !d.launched.Load() {
		return
	}
	came, left := d.control.Times()
	if came <= r.cameBefore {
		return // it has not come yet
	}
	if now > 0 && (d.control.Resident() || left <= came) {
		left = now // it is there, or about to say when it left
	}
	from := max(came, r.times.told)
	r.times.add(from, left)
	r.times.told = max(r.times.told, left)
}
