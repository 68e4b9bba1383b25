package executor

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestBoost(t *testing.T) {
	const w = boostWindow
	type look struct {
		cpu, gpu  time.Duration // since the last
		executors int
		off       bool
	}
	for name, looks := range map[string][]look{
		"no-ops": {{w, 0, 1, true}, {w, 0, 1, true}},
		"many short kernels": {
			{w, w / 4, 1, false}, // polls and submits most of the time
			{w, w, 1, false},
		},
		"no-ops and a kernel now and then": {{w, w / 100, 1, true}, {w, w / 100, 1, true}, {w, 0, 1, true}},
		"less than its part": {
			{2 * w / 5, 0, 1, false},
			{2 * w / 5, 0, 2, true}, // two of them are too many
			{2 * w / 5, 0, 1, true}, // still not modest
			{w / 5, 0, 1, false},
		},
		"back to work": {{w, 0, 1, true}, {w, w / 4, 1, false}},
		"asleep":       {{w, 0, 1, true}, {0, 0, 1, false}},
		"no executor is told of": {
			{w / 3, 0, 0, false},
			{w, 0, 0, true},
		},
	} {
		var h boost
		now, cpu, gpu := time.Hour, time.Minute, time.Second
		if h.observe(now, cpu, gpu, 1) {
			t.Errorf("%s: judged before anything was seen", name)
		}
		for i, l := range looks {
			now, cpu, gpu = now+w, cpu+l.cpu, gpu+l.gpu
			was := h.off
			if changed := h.observe(now, cpu, gpu, l.executors); h.off != l.off || changed != (was != h.off) {
				t.Errorf("%s, look %d: off %v (changed %v), want %v", name, i, h.off, changed, l.off)
			}
		}
	}
}

// TestBoostOfAGuest: a guest's executors that have the boost use at most half a processor together
// without GPU work.
func TestBoostOfAGuest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 32).Draw(t, "executors")
		hs := make([]boost, n)
		now, cpu := time.Duration(0), time.Duration(0)
		for i := range hs {
			hs[i].observe(now, cpu, 0, n)
		}
		use := rapid.SliceOfN(rapid.Int64Range(0, int64(boostWindow)), n, n).Draw(t, "cpu")
		var boosted time.Duration
		for i := range hs {
			hs[i].observe(now+boostWindow, cpu+time.Duration(use[i]), 0, n)
			if !hs[i].off {
				boosted += time.Duration(use[i])
			}
		}
		if boosted > boostWindow/boostCPUDivisor {
			t.Fatalf("%v with the boost in %v", boosted, boostWindow)
		}
	})
}

// niceOf returns a thread's niceness. The process's first thread has the process's number.
func niceOf(tid int) (int32, error) {
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return 0, err
	}
	return attr.Nice, nil
}

func TestPriorityOfThreads(t *testing.T) {
	before, err := niceOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	all := func(want int32) {
		t.Helper()
		if err := eachThread(func(tid int) error {
			got, err := niceOf(tid)
			if err == nil && got != want {
				t.Errorf("niceness %d, want %d", got, want)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	err = raisePriority()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		if !strings.Contains(err.Error(), "CAP_SYS_NICE") {
			t.Errorf("without the right to it: %v", err)
		}
		all(before)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	all(niceness)
	if err := lowerPriority(); err != nil {
		t.Fatal(err)
	}
	all(0)
	if err := schedule(before, 0); err != nil {
		t.Fatal(err)
	}
}

// TestThreadsThatBegin: a thread that begins while the others are seen to is seen to as well.
func TestThreadsThatBegin(t *testing.T) {
	before, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	began, end := make(chan int), make(chan struct{})
	defer close(end)
	// begin returns a thread that did not exist before.
	begin := func() int {
		for {
			go func() {
				runtime.LockOSThread() // the thread ends with the goroutine
				began <- unix.Gettid()
				<-end
			}()
			tid := <-began
			if !slices.ContainsFunc(before, func(e os.DirEntry) bool { return e.Name() == strconv.Itoa(tid) }) {
				return tid
			}
		}
	}
	later, seen := 0, false
	if err := eachThread(func(tid int) error {
		if later == 0 {
			later = begin()
		}
		seen = seen || tid == later
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !seen {
		t.Errorf("thread %d was not seen to", later)
	}
}

// TestShortSlices: all threads have the short slice at their own niceness, on kernels that have
// slices. An executor keeps it without the boost.
func TestShortSlices(t *testing.T) {
	usual, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if usual.Runtime == 0 {
		t.Skip("this kernel has no slices (before Linux 6.12)")
	}
	before, err := niceOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := schedule(before, 0); err != nil {
			t.Error(err)
		}
	}()
	all := func(why string) {
		t.Helper()
		if err := eachThread(func(tid int) error {
			attr, err := unix.SchedGetAttr(tid, 0)
			if err == nil && (attr.Nice != before || time.Duration(attr.Runtime) != cpuSlice) {
				t.Errorf("%s: niceness %d and a slice of %v, want %d and %v", why, attr.Nice, time.Duration(attr.Runtime), before, cpuSlice)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ShortSlices(); err != nil {
		t.Fatal(err)
	}
	all("short slices")
	if before != 0 {
		t.Skip("lowerPriority gives a niceness of 0, which this process does not have")
	}
	if err := lowerPriority(); err != nil {
		t.Fatal(err)
	}
	all("without the boost")
}
