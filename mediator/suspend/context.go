package suspend

import (
	"errors"
	"fmt"
	"math"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// DesiredState is the desired state of all of a guest's contexts.
type DesiredState struct {
	// Suspend reports whether the guest is suspended, so that its executors put nothing more on the
	// GPU. From DisableAt on a context that still has something there is disabled; 0 is never.
	Suspend   bool
	DisableAt time.Duration
	// Slice is how long a context runs before the next one's turn; 0 is the driver's own choice.
	Slice time.Duration
}

// unknownSlice is the slice of a context for which an earlier daemon or an executor may have set
// it.
const unknownSlice = -1

const (
	// sliceTolerance is the relative change of a slice that is not worth a call of half a
	// millisecond.
	sliceTolerance = 0.05
	// A call that fails is made this often for one desired state, after delays that double from
	// minRetryDelay to maxRetryDelay.
	disableAttempts = 3
	enableAttempts  = 10
	sliceAttempts   = 3
	minRetryDelay   = 5 * time.Millisecond
	maxRetryDelay   = time.Second
	// quietTime is how long a context that its executor may have enabled is neither disabled nor
	// sliced after the controller has enabled it too. The executor checks twice in that time. It
	// may still be about to enable the context or to restore its time slice, and must not take the
	// next disable for the one that it undid.
	quietTime = ipc.SuspensionLimit / 4
)

// contextState is the actual state of one context. It belongs to the controller's goroutine.
type contextState struct {
	c    *Controller
	slot int
	// control is nil until the context's handles come.
	control gpu.Control
	// disabled reports whether a disable is or may be outstanding; mustEnable whether it must be
	// undone whatever the desired state, because its origin or success is not known; and
	// maybeEnabled whether the context's executor may have undone it already.
	disabled, mustEnable, maybeEnabled bool
	disabledSince                      time.Duration
	slice                              time.Duration // as set; 0: the driver's own; or unknownSlice
	quietUntil                         time.Duration // see quietTime
	enabling                           retry
	disabling                          retry
	slicing                            retry
}

// retry counts a call's failures, and has the time of the next attempt.
type retry struct {
	failed int
	at     time.Duration
}

func (r *retry) fail(now time.Duration) {
	r.at = now + min(minRetryDelay<<min(r.failed, 16), maxRetryDelay)
	r.failed++
}

// due reports whether to make an attempt at now; if not, it returns when, or 0 for never.
func (r *retry) due(now time.Duration, tries int) (yes bool, at time.Duration) {
	switch {
	case r.failed >= tries:
		return false, 0
	case now < r.at:
		return false, r.at
	}
	return true, 0
}

// resetRetries allows new attempts of all calls.
func (s *contextState) resetRetries() { s.enabling, s.disabling, s.slicing = retry{}, retry{}, retry{} }

// invalidate marks what was done as unknown, because the context's executor may have undone it.
func (s *contextState) invalidate() {
	if !s.disabled && s.slice == 0 {
		return
	}
	s.quietUntil = s.c.o.Clock.Now() + quietTime
	if s.disabled {
		s.mustEnable, s.maybeEnabled = true, true
	}
	if s.slice != 0 {
		s.slice = unknownSlice
	}
	s.resetRetries()
}

// apply makes the calls that lead to the desired state and are due. It returns when to apply it
// again, or 0 if only a change requires that.
func (s *contextState) apply(w DesiredState) (next time.Duration) {
	if s.control == nil {
		return 0
	}
	now := s.c.o.Clock.Now()
	switch {
	case s.disabled && (s.mustEnable || !w.Suspend):
		yes, at := s.enabling.due(now, enableAttempts)
		if yes && !s.enable() {
			if !w.Suspend {
				// If this fails for long, the executor enables the context.
				s.mustEnable, s.maybeEnabled = true, true
			}
			_, at = s.enabling.due(now, enableAttempts)
		}
		if s.disabled {
			return at // the context is not sliced or disabled again before
		}
		if s.maybeEnabled {
			s.quietUntil = s.c.o.Clock.Now() + quietTime
		}
		if s.mustEnable, s.maybeEnabled = false, false; w.Suspend {
			return s.apply(w)
		}
	case !s.disabled && w.Suspend && w.DisableAt > 0:
		next = s.suspend(now, w)
	}
	if s.disabled {
		return next
	}
	if now < s.quietUntil {
		if next == 0 || s.quietUntil < next {
			next = s.quietUntil
		}
		return next
	}
	if at := s.setSlice(w.Slice); at != 0 && (next == 0 || at < next) {
		next = at
	}
	return next
}

// suspend disables the context of a suspended guest if it has anything on the GPU.
func (s *contextState) suspend(now time.Duration, w DesiredState) (next time.Duration) {
	if at := max(w.DisableAt, s.quietUntil); now < at {
		return at
	}
	if c := s.c.o.Page.Context(s.slot); !c.OnGPU() || c.State() != ipc.ContextReady {
		// Its executor may notice the suspension late, and put something there.
		return now + ipc.HeartbeatInterval
	}
	yes, at := s.disabling.due(now, disableAttempts)
	if !yes {
		return at
	}
	if s.disable() {
		return 0
	}
	_, at = s.disabling.due(now, disableAttempts)
	return at
}

// disable takes the context off the GPU, and reports whether that worked.
func (s *contextState) disable() bool {
	c := s.c
	began := c.o.Clock.Now()
	if err := c.o.Intents.Add(c.o.Guest, s.slot); err != nil {
		c.failed(s.slot, err)
		s.disabling.fail(began)
		return false
	}
	c.o.Page.SetDisabled(s.slot, true)
	s.disabled, s.disabledSince = true, began
	err := s.control.Suspend()
	now := c.o.Clock.Now()
	if err != nil && s.contextOver("disable", err) {
		s.recordEnabled()
		return true
	}
	if err != nil {
		if !ended(err) {
			c.failed(s.slot, fmt.Errorf("disable its channels: %w", err))
		}
		s.disabling.fail(now)
		// It is not known how much of the call was carried out.
		s.mustEnable = true
		if s.enable() {
			s.mustEnable = false
		}
		return false
	}
	s.enabling, s.disabling = retry{}, retry{}
	c.update(func(st *State) { st.Disables++; st.DisableTime += now - began; st.Problem = "" })
	return true
}

// enable puts the context back on the GPU, and reports whether that worked.
func (s *contextState) enable() bool {
	c := s.c
	began := c.o.Clock.Now()
	err := s.control.Resume()
	now := c.o.Clock.Now()
	if err != nil && s.contextOver("enable", err) {
		s.recordEnabled()
		return true
	}
	if err != nil {
		s.enabling.fail(now)
		if !ended(err) || s.enabling.failed == enableAttempts {
			c.failed(s.slot, fmt.Errorf("enable its channels: %w", err))
		}
		return false
	}
	s.enabling = retry{}
	c.update(func(st *State) {
		st.Enables++
		st.EnableTime += now - began
		st.DisabledTime += now - s.disabledSince
		if s.disabling.failed == 0 {
			st.Problem = ""
		}
	})
	s.recordEnabled()
	return true
}

// contextOver reports whether a call failed because the context is over: it never runs again, and
// the driver no longer knows it. Its slot is freed soon.
func (s *contextState) contextOver(call string, err error) bool {
	state := s.c.o.Page.Context(s.slot).State()
	if state == ipc.ContextReady {
		return false
	}
	s.c.o.Log.Debug("control a context that is over", "guest", s.c.o.Guest, "context", s.slot, "state", state, "call", call, "err", err)
	return true
}

// ended reports whether a call failed because the driver no longer knows the context, whose process
// has ended. The page may say so only later, so the call is made again; it counts as a failure of
// the driver only if that does not help.
func ended(err error) bool { return errors.Is(err, gpu.ErrLost) }

// recordEnabled records that no disable is outstanding.
func (s *contextState) recordEnabled() {
	c := s.c
	s.disabled = false
	c.o.Page.SetDisabled(s.slot, false)
	if err := c.o.Intents.Remove(c.o.Guest, s.slot); err != nil {
		c.o.Log.Warn("context may be enabled once too often, which does no harm", "guest", c.o.Guest, "context", s.slot, "err", err)
	}
}

// setSlice sets the time slice if it differs, and returns when to make the next attempt, or 0.
func (s *contextState) setSlice(want time.Duration) (next time.Duration) {
	set := want
	if want == 0 {
		if set = s.c.o.DefaultSlice; s.slice == 0 {
			return 0
		}
	}
	if want != 0 && s.slice > 0 && math.Abs(float64(want-s.slice)) <= sliceTolerance*float64(s.slice) {
		return 0
	}
	now := s.c.o.Clock.Now()
	yes, at := s.slicing.due(now, sliceAttempts)
	if !yes {
		return at
	}
	if want != 0 {
		s.c.o.Page.SetSliced(s.slot, true)
	}
	err := s.control.SetTimeslice(set)
	if err != nil && s.contextOver("set its time slice", err) {
		s.slice = want // the context needs none
		return 0
	}
	if err != nil {
		s.slice = unknownSlice
		if !ended(err) {
			s.c.failed(s.slot, fmt.Errorf("set its time slice to %v: %w", set, err))
		}
		s.slicing.fail(now)
		_, at = s.slicing.due(now, sliceAttempts)
		return at
	}
	s.slicing, s.slice = retry{}, want
	if want == 0 {
		s.c.o.Page.SetSliced(s.slot, false)
	}
	s.c.update(func(st *State) { st.Slices++ })
	return 0
}

// release undoes everything and closes the context's control. ended reports whether the context's
// process has ended or is about to: then nothing need be undone.
func (s *contextState) release(ended bool) error {
	if s.control == nil {
		if ended {
			s.recordEnabled()
		}
		return nil
	}
	var errs []error
	if s.disabled {
		for range disableAttempts {
			if s.enable() || ended {
				break
			}
		}
		switch {
		case s.disabled && ended:
			s.recordEnabled()
		case s.disabled:
			errs = append(errs, fmt.Errorf("context %d stays disabled until its executor notices", s.slot))
		}
	}
	if s.slice != 0 && !ended {
		s.setSlice(0)
	}
	errs = append(errs, s.control.Close())
	s.control = nil
	return errors.Join(errs...)
}
