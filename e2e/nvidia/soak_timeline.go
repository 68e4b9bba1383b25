package main

import (
	"time"

	"vgpud/e2e/nvidia/report"
)

// standstill is a time in which a guest with work had no kernel end.
type standstill struct {
	who  string
	from time.Duration // since the begin of the soak
	took time.Duration
}

// happening is an event of the soak, or a part of one, from its begin to its end.
type happening struct {
	who, what string
	from, to  time.Duration // since the begin of the soak; to is 0 while it lasts
}

// mostHappenings bounds the timeline: a soak of 8 minutes has some 1,000 events.
const mostHappenings = 20_000

// happens records the begin of an event. The function that it returns records its end.
func (s *soaked) happens(who, what string) (ends func()) {
	at := -1
	s.note(func() {
		if len(s.saw.timeline) < mostHappenings {
			at = len(s.saw.timeline)
			s.saw.timeline = append(s.saw.timeline, happening{who: who, what: what, from: time.Since(s.begin)})
		}
	})
	return func() {
		s.note(func() {
			if at >= 0 {
				s.saw.timeline[at].to = time.Since(s.begin)
			}
		})
	}
}

// stoodStill records a standstill if it is the longest so far.
func (s *soaked) stoodStill(x standstill) {
	s.note(func() {
		if x.took > s.saw.standstill.took {
			s.saw.standstill = x
		}
	})
}

// shortly is how long before a standstill an event may have ended that is listed with it.
const shortly = time.Second

// during returns a table of the events that a standstill may be due to: those that were under way in
// it or in the second before. Their times are in seconds, from the standstill's begin.
func (f *soakFound) during(x standstill) *report.Table {
	t := detail("from, s", "to, s")
	for _, h := range f.timeline {
		if h.to == 0 {
			h.to = x.from + x.took
		}
		if h.to < x.from-shortly || h.from > x.from+x.took {
			continue
		}
		if len(t.Lines) == detailed {
			break
		}
		t.Add(h.who+": "+h.what, (h.from - x.from).Seconds(), (h.to - x.from).Seconds())
	}
	return t
}
