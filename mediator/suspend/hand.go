package suspend

import (
	"errors"
	"fmt"
	"math"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// Wish is what is wanted of all of a guest's contexts.
type Wish struct {
	// Hold is whether the guest is suspended, so that nothing of it goes to the GPU
	// that is not there. DisableAt is the instant from which on a context that still
	// has something there is disabled; 0 is never.
	Hold      bool
	DisableAt time.Duration
	// Slice is how long a context runs before the next one's turn; 0 is the driver's
	// own choice.
	Slice time.Duration
}

// unknownSlice is what an earlier daemon set, or half set, or an executor gave back.
const unknownSlice = -1

const (
	// sliceSlack is by how much a slice must differ from the one that is set to be
	// worth a call of half a millisecond.
	sliceSlack = 0.05
	// disableTries and enableTries bound how often a call that fails is made for one
	// wish, and retryFirst and retryMost how long to wait before the next.
	disableTries = 3
	enableTries  = 10
	sliceTries   = 3
	retryFirst   = 5 * time.Millisecond
	retryMost    = time.Second
	// settleTime is for how long a context that its executor may have enabled itself is
	// left alone once it is enabled for certain: the executor, which looks twice in that
	// time, may still be about to enable it or to give its time slice back, and must not
	// take the next disable for the one that it undid.
	settleTime = ipc.SuspensionLimit / 4
)

// hand is the grip on one context. Its goroutine is the grip's.
type hand struct {
	g    *Grip
	slot int
	// control is nil as long as the context's handles have not come.
	control gpu.Control
	// off is whether a disable is outstanding, or may be; stale is whether it must be
	// undone whatever is wanted, since nobody knows how it came to be, or undone, whether
	// the context's executor has done that already.
	off, stale, undone bool
	since              time.Duration // off
	slice              time.Duration // as it is set; 0: the driver's own; unknownSlice
	// settled is until when the context is neither disabled nor sliced: see settleTime.
	settled   time.Duration
	enabling  retry
	disabling retry
	slicing   retry
}

// retry is how often something failed, and when to try again.
type retry struct {
	failed int
	at     time.Duration
}

func (r *retry) fail(now time.Duration) {
	r.at = now + min(retryFirst<<min(r.failed, 16), retryMost)
	r.failed++
}

// due is whether to try at now; if not, when, 0 being never.
func (r *retry) due(now time.Duration, tries int) (yes bool, at time.Duration) {
	switch {
	case r.failed >= tries:
		return false, 0
	case now < r.at:
		return false, r.at
	}
	return true, 0
}

// again has everything tried anew that was given up.
func (h *hand) again() { h.enabling, h.disabling, h.slicing = retry{}, retry{}, retry{} }

// doubt is for a time in which the context's executor may have undone what was done.
func (h *hand) doubt() {
	if !h.off && h.slice == 0 {
		return
	}
	h.settled = h.g.o.Clock.Now() + settleTime
	if h.off {
		h.stale, h.undone = true, true
	}
	if h.slice != 0 {
		h.slice = unknownSlice
	}
	h.again()
}

// step does what is wanted, as far as it is time for it, and returns when to look
// again; 0 is when something else is wanted.
func (h *hand) step(w Wish) (next time.Duration) {
	if h.control == nil {
		return 0
	}
	now := h.g.o.Clock.Now()
	switch {
	case h.off && (h.stale || !w.Hold):
		yes, at := h.enabling.due(now, enableTries)
		if yes && !h.enable() {
			if !w.Hold {
				// The executor does it, if this fails for long.
				h.stale, h.undone = true, true
			}
			_, at = h.enabling.due(now, enableTries)
		}
		if h.off {
			return at // not to be sliced, or disabled anew, before that
		}
		if h.undone {
			h.settled = h.g.o.Clock.Now() + settleTime
		}
		if h.stale, h.undone = false, false; w.Hold {
			return h.step(w)
		}
	case !h.off && w.Hold && w.DisableAt > 0:
		next = h.hold(now, w)
	}
	if h.off {
		return next
	}
	if now < h.settled {
		if next == 0 || h.settled < next {
			next = h.settled
		}
		return next
	}
	if at := h.setSlice(w.Slice); at != 0 && (next == 0 || at < next) {
		next = at
	}
	return next
}

// hold disables the context of a guest that is suspended, where that takes anything
// off the GPU.
func (h *hand) hold(now time.Duration, w Wish) (next time.Duration) {
	if at := max(w.DisableAt, h.settled); now < at {
		return at
	}
	if c := h.g.o.Page.Context(h.slot); !c.OnGPU() || c.State() != ipc.ContextReady {
		// Its executor may have been late to hear that it is suspended.
		return now + ipc.HeartbeatInterval
	}
	yes, at := h.disabling.due(now, disableTries)
	if !yes {
		return at
	}
	if h.disable() {
		return 0
	}
	_, at = h.disabling.due(now, disableTries)
	return at
}

// disable takes the context off the GPU, and reports whether that worked.
func (h *hand) disable() bool {
	g := h.g
	began := g.o.Clock.Now()
	if err := g.o.Intents.Note(g.o.Guest, h.slot); err != nil {
		g.failed(h.slot, err)
		h.disabling.fail(began)
		return false
	}
	g.o.Page.SetDisabled(h.slot, true)
	h.off, h.since = true, began
	err := h.control.Suspend()
	now := g.o.Clock.Now()
	if err != nil && h.over("disable", err) {
		h.forgetDisable()
		return true
	}
	if err != nil {
		if !ended(err) {
			g.failed(h.slot, fmt.Errorf("disable its channels: %w", err))
		}
		h.disabling.fail(now)
		// How much of it was done is not known.
		h.stale = true
		if h.enable() {
			h.stale = false
		}
		return false
	}
	h.enabling, h.disabling = retry{}, retry{}
	g.note(func(s *State) { s.Disables++; s.DisableTime += now - began; s.Problem = "" })
	return true
}

// enable puts the context back on the GPU, and reports whether that worked.
func (h *hand) enable() bool {
	g := h.g
	began := g.o.Clock.Now()
	err := h.control.Resume()
	now := g.o.Clock.Now()
	if err != nil && h.over("enable", err) {
		h.forgetDisable()
		return true
	}
	if err != nil {
		h.enabling.fail(now)
		if !ended(err) || h.enabling.failed == enableTries {
			g.failed(h.slot, fmt.Errorf("enable its channels: %w", err))
		}
		return false
	}
	h.enabling = retry{}
	g.note(func(s *State) {
		s.Enables++
		s.EnableTime += now - began
		s.DisabledTime += now - h.since
		if h.disabling.failed == 0 {
			s.Problem = ""
		}
	})
	h.forgetDisable()
	return true
}

// over reports whether a call failed because the context is over: it will never run
// again, and the driver knows it no more. That it has a slot yet is for a moment.
func (h *hand) over(call string, err error) bool {
	state := h.g.o.Page.Context(h.slot).State()
	if state == ipc.ContextReady {
		return false
	}
	h.g.o.Log.Debug("control a context that is over", "guest", h.g.o.Guest, "context", h.slot, "state", state, "call", call, "err", err)
	return true
}

// ended reports whether a call failed because the driver no longer knows the context. Its process
// has ended, which its page may say only later: the call is tried again, and is a failure of the
// driver only if that does not help.
func ended(err error) bool { return errors.Is(err, gpu.ErrLost) }

// forgetDisable takes back that a disable is outstanding.
func (h *hand) forgetDisable() {
	g := h.g
	h.off = false
	g.o.Page.SetDisabled(h.slot, false)
	if err := g.o.Intents.Clear(g.o.Guest, h.slot); err != nil {
		g.o.Log.Warn("context may be enabled once too often, which does no harm", "guest", g.o.Guest, "context", h.slot, "err", err)
	}
}

// setSlice sets the time slice where it is to be another, and returns when to try
// again.
func (h *hand) setSlice(want time.Duration) (next time.Duration) {
	set := want
	if want == 0 {
		if set = h.g.o.DefaultSlice; h.slice == 0 {
			return 0
		}
	}
	if want != 0 && h.slice > 0 && math.Abs(float64(want-h.slice)) <= sliceSlack*float64(h.slice) {
		return 0
	}
	now := h.g.o.Clock.Now()
	yes, at := h.slicing.due(now, sliceTries)
	if !yes {
		return at
	}
	if want != 0 {
		h.g.o.Page.SetSliced(h.slot, true)
	}
	err := h.control.SetTimeslice(set)
	if err != nil && h.over("set its time slice", err) {
		h.slice = want // it needs none
		return 0
	}
	if err != nil {
		h.slice = unknownSlice
		if !ended(err) {
			h.g.failed(h.slot, fmt.Errorf("set its time slice to %v: %w", set, err))
		}
		h.slicing.fail(now)
		_, at = h.slicing.due(now, sliceTries)
		return at
	}
	h.slicing, h.slice = retry{}, want
	if want == 0 {
		h.g.o.Page.SetSliced(h.slot, false)
	}
	h.g.note(func(s *State) { s.Slices++ })
	return 0
}

// release undoes everything, and lets go of the context. ended is whether its process
// has ended, or is about to: then what can't be undone is over anyway.
func (h *hand) release(ended bool) error {
	if h.control == nil {
		if ended {
			h.forgetDisable()
		}
		return nil
	}
	var errs []error
	if h.off {
		for range disableTries {
			if h.enable() || ended {
				break
			}
		}
		switch {
		case h.off && ended:
			h.forgetDisable()
		case h.off:
			errs = append(errs, fmt.Errorf("context %d stays disabled until its executor notices", h.slot))
		}
	}
	if h.slice != 0 && !ended {
		h.setSlice(0)
	}
	errs = append(errs, h.control.Close())
	h.control = nil
	return errors.Join(errs...)
}
