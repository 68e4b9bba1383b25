package accounting

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPinToSpareCPU(t *testing.T) {
	cpu, ok, err := SpareCPU()
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		t.Skip("this machine has a single processor")
	}
	got := make(chan unix.CPUSet)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the pinned thread ends with its goroutine
		var set unix.CPUSet
		if err := pin(cpu); err != nil {
			t.Error(err)
		} else if err := unix.SchedGetaffinity(0, &set); err != nil {
			t.Error(err)
		}
		got <- set
	}()
	if set := <-got; set.Count() != 1 || !set.IsSet(cpu) {
		t.Errorf("pinned to %d processors, not to %d alone", set.Count(), cpu)
	}
}
