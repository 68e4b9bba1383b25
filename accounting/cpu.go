package accounting

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SpareCPU returns the processor to keep the polling thread on: the last of those that this process
// may run on. ok is false if there is only one.
//
// A thread that spins under SCHED_FIFO keeps all other threads off its processor, and Linux leaves
// a thread that wakes there waiting until another processor runs out of work. So threads that must
// react quickly stay away from that processor, and its number has to be known for that. LoGA §5.6
// sets a core aside, too.
func SpareCPU() (cpu int, ok bool, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, false, fmt.Errorf("accounting: ask for the processors of this process: %w", err)
	}
	n := set.Count()
	if n < 2 {
		return 0, false, nil
	}
	for cpu = 0; n > 0; cpu++ {
		if set.IsSet(cpu) {
			n--
		}
	}
	return cpu - 1, true, nil
}

// pin keeps the calling thread on one processor.
func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("accounting: keep the polling thread on processor %d: %w", cpu, err)
	}
	return nil
}
