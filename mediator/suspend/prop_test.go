package suspend

import (
	"errors"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/gpu/gputest"
)

// TestNeverTwoDisables draws desired states, failures, contexts that come and go, and daemons that
// die. A context is disabled at most once, only while that is recorded, and not at all once the
// guest may run and the driver works; then no time slice of the daemon's is left unless it is
// desired. The same holds if executors undo what a daemon did that stands still, and the desired
// state is reached afterwards.
func TestNeverTwoDisables(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := newScene(t)
		const contexts = 3
		there := [contexts]bool{}
		slot := func() int { return rapid.IntRange(0, contexts-1).Draw(r, "slot") }
		hands := func(i int) {
			f, err := os.Open(os.DevNull)
			if err != nil {
				r.Fatal(err)
			}
			c, err := s.driver.Control(gputest.Handles(name(i), f))
			if err != nil {
				r.Fatal(err)
			}
			s.page.Context(i).SetReady(1)
			s.controller.applyArrivals([]arrival{{i, c}})
			there[i] = true
		}
		look := func() { s.want(s.desired) }
		check := func() {
			noted, err := s.o.Intents.List()
			if err != nil {
				r.Fatal(err)
			}
			written := map[int]bool{}
			for _, i := range noted["a"] {
				written[i] = true
			}
			for i := range contexts {
				n := s.driver.Disables(name(i))
				if n > 1 || n == 1 && !(written[i] && s.page.Disabled(i)) {
					r.Fatalf("context %d: %d disables, file %v, page %v", i, n, written[i], s.page.Disabled(i))
				}
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"time": func(r *rapid.T) {
				s.clock.Advance(time.Duration(rapid.IntRange(0, 50).Draw(r, "ms")) * ms)
				look()
			},
			"suspend": func(*rapid.T) { s.want(s.suspended()) },
			"run":     func(*rapid.T) { s.want(DesiredState{Slice: s.desired.Slice}) },
			"slice": func(r *rapid.T) {
				s.want(DesiredState{s.desired.Suspend, s.desired.DisableAt, time.Duration(rapid.IntRange(0, 9).Draw(r, "slice")) * ms})
			},
			"busy": func(*rapid.T) { s.busy(slot()) },
			"come": func(*rapid.T) { hands(slot()); look() },
			"go": func(*rapid.T) {
				// The process's end is the end of its channels, disabled or not.
				i := slot()
				s.controller.applyArrivals([]arrival{{i, nil}})
				there[i] = false
				s.driver.End(name(i))
			},
			"fail": func(r *rapid.T) {
				op := rapid.SampledFrom([]string{"suspend", "resume", "slice"}).Draw(r, "op")
				s.driver.Fail(op, rapid.IntRange(0, 4).Draw(r, "times"), errors.New("busy"))
			},
			"daemon dies": func(*rapid.T) {
				noted, err := s.o.Intents.List()
				if err != nil {
					r.Fatal(err)
				}
				s.again(noted["a"]...)
				for i := range contexts {
					if there[i] {
						hands(i)
					}
				}
				look()
			},
			"daemon stands still": func(*rapid.T) {
				for i := range contexts {
					if there[i] {
						s.enableSelf(i)
					}
				}
				s.controller.invalidateAll()
				look()
			},
		})
		for _, op := range []string{"suspend", "resume", "slice"} {
			s.driver.Fail(op, 0, nil)
		}
		for i := range contexts {
			s.busy(i)
		}
		s.want(DesiredState{})
		w := s.suspended()
		w.Slice = 3 * ms
		for range 2 {
			s.want(w)
			s.clock.Advance(quietTime)
		}
		s.want(w)
		for i := range contexts {
			if !there[i] {
				continue
			}
			if n := s.driver.Disables(name(i)); n != 1 {
				r.Fatalf("context %d of a suspended guest is disabled %d times", i, n)
			}
		}
		s.want(DesiredState{Slice: 3 * ms})
		for i := range contexts {
			if d := s.driver.Slice(name(i)); there[i] && d != 3*ms {
				r.Fatalf("context %d has a time slice of %v, not the one that is wanted", i, d)
			}
		}
		s.want(DesiredState{})
		for i := range contexts {
			if n := s.driver.Disables(name(i)); n != 0 {
				r.Fatalf("context %d stays disabled %d times", i, n)
			}
			if d := s.driver.Slice(name(i)); there[i] && (d != 0 && d != s.o.DefaultSlice || s.page.Sliced(i)) {
				r.Fatalf("context %d keeps a time slice of %v, on its page %v", i, d, s.page.Sliced(i))
			}
		}
	})
}
