package accounting

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Priority tells under which scheduling the polling thread runs.
type Priority struct {
	// Realtime reports whether SCHED_FIFO was granted, and Level is its priority.
	Realtime bool
	Level    int
	// Reason tells why it was not granted, and what would help.
	Reason string
}

// String describes the scheduling for logs.
func (p Priority) String() string {
	if p.Realtime {
		return fmt.Sprintf("SCHED_FIFO %d", p.Level)
	}
	return "no real-time priority: " + p.Reason
}

// raisePriority puts the calling thread under SCHED_FIFO. The caller has locked the thread and lets
// it end.
func raisePriority(level int) Priority {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: uint32(level)}
	err := unix.SchedSetAttr(0, &attr, 0)
	switch {
	case err == nil:
		return Priority{Realtime: true, Level: level}
	case errors.Is(err, unix.EPERM):
		return Priority{Reason: fmt.Sprintf("SCHED_FIFO %d not permitted: needs CAP_SYS_NICE, or RLIMIT_RTPRIO of at least %d "+
			"(systemd: LimitRTPRIO=), and a cgroup that allows real-time threads", level, level)}
	default:
		return Priority{Reason: fmt.Sprintf("SCHED_FIFO %d: %v", level, err)}
	}
}

// realtimeShare returns the part of a processor's time that real-time threads may use before the
// kernel stops them for the rest of its period (sched_rt_runtime_us over sched_rt_period_us). A
// kernel without the limit gives 1. procRoot is /proc except in tests.
func realtimeShare(procRoot string) (float64, error) {
	read := func(name string) (float64, error) {
		text, err := os.ReadFile(filepath.Join(procRoot, "sys/kernel", name))
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	}
	runtimeMicros, err := read("sched_rt_runtime_us")
	if errors.Is(err, os.ErrNotExist) || err == nil && runtimeMicros < 0 {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("accounting: read the kernel's real-time limit: %w", err)
	}
	periodMicros, err := read("sched_rt_period_us")
	if err != nil {
		return 0, fmt.Errorf("accounting: read the kernel's real-time limit: %w", err)
	}
	if periodMicros <= 0 {
		return 0, fmt.Errorf("accounting: the kernel's real-time period is %v µs", periodMicros)
	}
	return min(runtimeMicros/periodMicros, 1), nil
}

// yielder tells when a thread that polls under SCHED_FIFO must give up its processor, so that the
// kernel doesn't take it away for 50 ms at a time. The thread does so in short pauses.
type yielder struct {
	pause time.Duration // zero: the thread never pauses
	next  time.Duration // host time of the next pause
}

// yieldEvery is how long the thread runs between two pauses if it never sleeps for another reason.
const yieldEvery = time.Millisecond

// newYielder returns a yielder that stays clearly below the share.
func newYielder(share float64) yielder {
	if share >= 1 {
		return yielder{}
	}
	share *= 0.98
	return yielder{pause: time.Duration(float64(yieldEvery) * (1 - share) / share)}
}

// slept notes that the thread has just slept until now, for d.
func (y *yielder) slept(now, d time.Duration) {
	if y.pause == 0 {
		return
	}
	run := time.Duration(float64(d) / float64(y.pause) * float64(yieldEvery))
	y.next = now + max(yieldEvery, min(run, 100*yieldEvery))
}

// due reports whether the thread must pause.
func (y *yielder) due(now time.Duration) bool { return y.pause != 0 && now >= y.next }
