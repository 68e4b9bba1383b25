package daemon

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/mediator/ipc"
)

// TestPollBell: a listener that polls finds a ring with its next look, does so for as long
// as it would sleep, and sleeps where others keep the processor.
func TestPollBell(t *testing.T) {
	const step = 20 * time.Microsecond
	for name, c := range map[string]struct {
		rings  int // after so many offers; 0: never
		took   time.Duration
		want   bool
		offers int
	}{
		"a ring":                 {3, step, true, 3},
		"no ring":                {0, step, true, int(ipc.HeartbeatInterval / step)},
		"others want to run":     {0, hogged + 1, false, 1},
		"others wanted a little": {2, hogged, true, 2},
	} {
		var sim clock.Sim
		offers, bell := 0, uint32(7)
		got := pollBell(func() uint32 { return bell }, 7, &sim, func() {
			sim.Advance(c.took)
			if offers++; offers == c.rings {
				bell++
			}
		})
		if got != c.want || offers != c.offers {
			t.Errorf("%s: %v after %d offers, want %v after %d", name, got, offers, c.want, c.offers)
		}
	}
}

// TestOfferKeepsItsThread: an offer does not have the listener's thread sleep until another
// thread has found nothing else to run.
func TestOfferKeepsItsThread(t *testing.T) {
	offer := offerOn(fewProcessors)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slept := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return u.Nvcsw
	}
	const offers = 1000
	before := slept()
	for range offers {
		offer()
	}
	if n := slept() - before; n > offers/10 {
		t.Errorf("its thread slept %d times in %d offers", n, offers)
	}
}

// BenchmarkOffer is what one look at the bell costs a listener that polls.
func BenchmarkOffer(b *testing.B) {
	for name, processors := range map[string]int{"to-goroutines": 1, "to-threads": fewProcessors} {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			offer := offerOn(processors)
			for b.Loop() {
				offer()
			}
		})
	}
}
