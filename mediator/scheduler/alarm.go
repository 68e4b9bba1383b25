package scheduler

import (
	"log/slog"
	"sync/atomic"
	"time"

	"vgpud/clock"
	"vgpud/internal/futex"
)

// alarm is what a goroutine waits by until an instant, or until it is rung for.
type alarm interface {
	// ring ends the wait. It may be called from any goroutine.
	ring()
	// reading returns how often it was rung.
	reading() uint32
	// wait waits until an instant, 0 for ever, and reports whether that has come. It returns false at
	// once if the alarm was rung since the reading.
	wait(reading uint32, until time.Duration) bool
}

// threadAlarm waits in real time on the calling goroutine's thread, which has precedence like a
// listener's: a launch waits for it, and the GPU with it. The runtime's own timers are up to a
// millisecond late in a process that has nothing else to do, since it waits for them in whole
// milliseconds; that is several kernels.
type threadAlarm struct {
	log    *slog.Logger
	word   atomic.Uint32
	raised bool // whether wait has asked for precedence
}

func (a *threadAlarm) ring() {
	a.word.Add(1)
	futex.Wake(&a.word)
}

func (a *threadAlarm) reading() uint32 { return a.word.Load() }

// longestAlarm bounds a wait for an instant that is never.
const longestAlarm = time.Hour

func (a *threadAlarm) wait(reading uint32, until time.Duration) bool {
	if !a.raised {
		a.raised = true
		if err := raisePriority(); err != nil {
			a.log.Debug("timers are a little later", "err", err)
		}
	}
	for {
		now := clock.Real{}.Now()
		switch {
		case a.word.Load() != reading:
			return false
		case until != 0 && now >= until:
			return true
		}
		at := until
		if until == 0 {
			at = now + longestAlarm
		}
		// Whatever ends it is looked at above.
		_ = futex.WaitUntil(&a.word, reading, at)
	}
}
