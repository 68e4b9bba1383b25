package executor

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// An executor needs little processor time but needs it at once: while it waits for a processor the
// GPU idles. So its threads have a higher priority than what else the host computes, and short
// slices: since Linux 6.12 a thread with a shorter slice than the running one preempts it on
// waking, where it would otherwise wait for up to 3 ms. They have no real-time priority, since a
// guest decides how busy they are, and lose the higher one while they are busy without the GPU: see
// boost.
const (
	niceness = -15
	cpuSlice = 100 * time.Microsecond // the shortest there is
)

// raisePriority gives this process's threads, and so its future ones, the niceness and slice of
// executors. Without the permission for it the executor works all the same.
func raisePriority() error {
	if err := schedule(niceness, cpuSlice); err != nil {
		return fmt.Errorf("raise the executor's priority (needs CAP_SYS_NICE, or LimitNICE=%d): %w", niceness, err)
	}
	return nil
}

// lowerPriority gives the threads the default niceness. Their slices stay short: so they run sooner
// when they are woken, but not longer.
func lowerPriority() error {
	if err := schedule(0, cpuSlice); err != nil {
		return fmt.Errorf("lower the executor's priority: %w", err)
	}
	return nil
}

// schedule sets the niceness and the slice of this process's threads. Slice 0 is the kernel's
// default.
func schedule(nice int32, slice time.Duration) error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: nice, Runtime: uint64(slice)}
	return eachThread(func(tid int) error { return unix.SchedSetAttr(tid, &attr, 0) })
}

// ShortSlices gives this process's threads, and so its future ones, short slices at their present
// niceness. A guest's process passes doorbells on, so a launch waits for it. Without a short slice
// it may have to wait for the slice of the thread that runs on its processor, 2.8 ms on a host with
// eight processors or more. It gets no more processor time by that, however many registers its
// guest writes, and needs no permission for it.
func ShortSlices() error {
	err := eachThread(func(tid int) error {
		attr, err := unix.SchedGetAttr(tid, 0)
		if err != nil || attr.Policy != unix.SCHED_NORMAL {
			return err
		}
		attr.Runtime = uint64(cpuSlice)
		return unix.SchedSetAttr(tid, attr, 0)
	})
	if err != nil {
		return fmt.Errorf("shorten the threads' slices: %w", err)
	}
	return nil
}

// avoidCPU keeps this process's threads off the processor of the daemon's polling thread, if two
// others are left.
func avoidCPU(cpu int) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return fmt.Errorf("ask for the executor's processors: %w", err)
	}
	if !without(&set, cpu) {
		return nil
	}
	if err := eachThread(func(tid int) error { return unix.SchedSetaffinity(tid, &set) }); err != nil {
		return fmt.Errorf("keep the executor off processor %d: %w", cpu, err)
	}
	return nil
}

// without takes a processor out of those that an executor may use, and reports whether it should keep
// off it. With one processor left it should not: on a busy host others may have that one for many
// milliseconds, while the polling thread has its own for a tenth of one at a time, and for a sixth of
// all time.
func without(set *unix.CPUSet, cpu int) bool {
	set.Clear(cpu)
	return set.Count() >= 2
}

// eachThread calls f for each thread of this process, those included that begin meanwhile: they
// inherit from a thread for which f may not have been called yet. It ignores threads that have
// ended.
func eachThread(f func(tid int) error) error {
	called := map[int]bool{}
	for more := true; more; {
		more = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return fmt.Errorf("list threads: %w", err)
			}
			if called[tid] {
				continue
			}
			called[tid], more = true, true
			if err := f(tid); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}
