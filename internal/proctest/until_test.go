package proctest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUnstarved has threads wait for processors in some of the time.
func TestUnstarved(t *testing.T) {
	const s = time.Second
	var w unstarved
	for _, step := range []struct {
		now    time.Duration
		delays map[int]time.Duration
		want   time.Duration
	}{
		{1 * s, map[int]time.Duration{7: 5 * s}, 0}, // from before the wait
		{2 * s, map[int]time.Duration{7: 5 * s}, 1 * s},
		{3 * s, map[int]time.Duration{7: 6 * s}, 1 * s},
		{4 * s, map[int]time.Duration{7: 6 * s, 8: s / 4}, 1*s + 3*s/4}, // a new one
		{6 * s, map[int]time.Duration{7: 7 * s, 8: s/4 + s/2}, 2*s + s/4},
		{7 * s, map[int]time.Duration{7: 9 * s, 8: 9 * s}, 2*s + s/4}, // several together
		{9 * s, map[int]time.Duration{7: 9 * s}, 4*s + s/4},           // one has ended
	} {
		if got := w.add(step.now, step.delays); got != step.want {
			t.Fatalf("at %v: %v, want %v", step.now, got, step.want)
		}
	}
}

// TestRunDelays has two children compete for one processor.
func TestRunDelays(t *testing.T) {
	var pids []int
	var first unix.CPUSet
	if err := unix.SchedGetaffinity(0, &first); err != nil {
		t.Fatal(err)
	}
	for cpu, found := 0, false; cpu < 8*len(first)*8; cpu++ { // all but one
		if found {
			first.Clear(cpu)
		}
		found = found || first.IsSet(cpu)
	}
	for range 2 {
		c := exec.Command("sh", "-c", "while :; do :; done")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer c.Wait() // it is killed
		defer c.Process.Kill()
		pids = append(pids, c.Process.Pid)
		if err := unix.SchedSetaffinity(c.Process.Pid, &first); err != nil {
			t.Fatal(err)
		}
	}
	Until(t, "each has waited for the other", func() bool {
		delays, err := runDelays(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return delays[pids[0]] > 50*time.Millisecond && delays[pids[1]] > 50*time.Millisecond
	})
}
