package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// twoProcessors returns two processors that this process may use, of different cores where there are
// several: one for the host, and one for what stands in for a card.
func twoProcessors() (host, card int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, 0, fmt.Errorf("ask which processors there are: %w", err)
	}
	var all []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	if len(all) == 0 {
		return 0, 0, errors.New("there are no processors")
	}
	// Interrupts like the first one.
	host = all[len(all)/2]
	card = all[(len(all)/2+1)%len(all)]
	for i := range all {
		if cpu := all[(len(all)/2+i)%len(all)]; core(cpu) != core(host) {
			return host, cpu, nil
		}
	}
	return host, card, nil
}

// core names the core of a processor by all processors of it.
func core(cpu int) string {
	b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
	if err != nil {
		return fmt.Sprint(cpu) // each is one of its own then
	}
	return strings.TrimSpace(string(b))
}

// onProcessor calls f on one processor. The programs that f starts stay there.
func onProcessor(cpu int, f func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("ask which processors there are: %w", err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("stay on processor %d: %w", cpu, err)
	}
	defer func() { err = errors.Join(err, unix.SchedSetaffinity(0, &before)) }()
	return f()
}
