package scheduler

import (
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/suspend"
)

// Control says how guests' contexts are controlled on hardware that allows it.
type Control struct {
	// DisableAfter is how long a suspended guest's contexts may stay on the GPU until they are
	// disabled; 0 is for ever.
	DisableAfter time.Duration
	// Slices bounds the time slices that are set; zero leaves them to the driver.
	Slices fairshare.SliceLimits
}

// SetControl changes how contexts are controlled. Time slices are left to the driver until the
// policy says otherwise.
func (s *Scheduler) SetControl(c Control) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Control != c {
		s.o.Control = c
		s.dropSlices = true
	}
}

// control returns how contexts can be controlled on the GPU as it is open now.
//
// Preconditions: s.mu is held.
func (s *Scheduler) control() Control {
	if !s.gpu.Controllable || !s.gpu.Properties.Preempts {
		return Control{}
	}
	return s.o.Control
}

// controlContexts sets the desired state of a guest's contexts to what was decided about it.
//
// Preconditions: s.mu is held.
func (s *Scheduler) controlContexts(g *Guest) {
	if g.o.Controller == nil {
		return
	}
	c := s.control()
	var w suspend.DesiredState
	if c.Slices.Max > 0 && !s.over() {
		w.Slice = g.recent.slice
	}
	at, suspended := g.suspendedSince()
	if w.Suspend = suspended; suspended && c.DisableAfter > 0 {
		w.DisableAt = at + c.DisableAfter
	}
	g.o.Controller.SetDesired(w)
}
