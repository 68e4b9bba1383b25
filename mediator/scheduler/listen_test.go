package scheduler

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
)

// TestPollRing: a listener that polls sees a ring at its next read, polls as long as it would
// sleep, and sleeps if other threads keep the processor.
func TestPollRing(t *testing.T) {
	const step = 20 * time.Microsecond
	for name, c := range map[string]struct {
		rings  int // after so many yields; 0: never
		took   time.Duration
		want   bool
		yields int
	}{
		"a ring":                 {3, step, true, 3},
		"no ring":                {0, step, true, int(ipc.HeartbeatInterval / step)},
		"others want to run":     {0, keptAway + 1, false, 1},
		"others wanted a little": {2, keptAway, true, 2},
	} {
		var sim clock.Sim
		yields, bell := 0, uint32(7)
		got := pollRing(func() uint32 { return bell }, 7, &sim, func() {
			sim.Advance(c.took)
			if yields++; yields == c.rings {
				bell++
			}
		})
		if got != c.want || yields != c.yields {
			t.Errorf("%s: %v after %d yields, want %v after %d", name, got, yields, c.want, c.yields)
		}
	}
}

// TestYieldKeepsItsThread: a yield does not make the listener's thread sleep until another thread
// has found nothing else to run.
func TestYieldKeepsItsThread(t *testing.T) {
	yield := yieldOn(fewProcessors)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slept := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return u.Nvcsw
	}
	// On a busy host the runtime has the thread give way to other goroutines now and then.
	const yields, few = 100, 10
	var w proctest.Wait
	for {
		before := slept()
		for range yields {
			yield()
		}
		n := slept() - before
		if n <= few {
			return
		}
		if err := w.Over(); err != nil {
			t.Fatalf("its thread slept %d times in %d yields, and never %d times or less (%v)", n, yields, few, err)
		}
	}
}

// BenchmarkYield measures what one read of the ring costs a listener that polls.
func BenchmarkYield(b *testing.B) {
	for name, processors := range map[string]int{"to-goroutines": 1, "to-threads": fewProcessors} {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			yield := yieldOn(processors)
			for b.Loop() {
				yield()
			}
		})
	}
}
