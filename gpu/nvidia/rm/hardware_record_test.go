package rm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/rm"
)

// The cost of the record of context switches: of each switch for the GPU, and of each record for
// the host. The driver searches all channels for those of a record, so their number matters.

// recording is a way to read the record.
type recording int

const (
	unrecorded recording = iota // nobody has opened it
	unread                      // the driver's own timer moves the records
	read20                      // every 20 ms, as the daemon does
	read40
)

var recordings = [...]string{"off", "unread", "20 ms", "40 ms"}

// recordCost is the cost in one window.
type recordCost struct {
	kernels, switches int
	took              time.Duration
	reader, driver    time.Duration // processor time
	away              []time.Duration
}

// TestHardwareRecordCosts has processes wait for kernels of about 10 µs, so that the GPU does
// little but switch.
func TestHardwareRecordCosts(t *testing.T) {
	c := hardware(t)
	administrator(t)
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	for _, connections := range []int{8, 2, 1} {
		workers := crowd(t, 11, connections)
		t.Logf("connections %d: %d and %d channels a context", connections, len(workers[0].Channels), len(workers[0].Copies))
		for _, n := range []int{11, 8, 4, 2} {
			leave(workers[n:])
			workers = workers[:n]
			time.Sleep(50 * time.Millisecond)
			if connections == 8 && (n == 11 || n == 2) {
				recordCosts(t, c, workers, connections, 5, unrecorded, unread, read20, read40)
			} else {
				recordCosts(t, c, workers, connections, 2, unrecorded, read20)
			}
		}
		controlCost(t, workers[0], connections)
		leave(workers)
		time.Sleep(50 * time.Millisecond)
	}
}

// crowd starts n workers that poll for their kernels' ends.
func crowd(t *testing.T, n, connections int) (workers []*worker) {
	t.Helper()
	for len(workers) < n {
		// A few at a time: each searches the newest clients for its own.
		some := make([]*worker, min(4, n-len(workers)))
		for i := range some {
			some[i] = startWorker(t, workerEnv+"="+spins, fmt.Sprintf("CUDA_DEVICE_MAX_CONNECTIONS=%d", connections))
		}
		for _, w := range some {
			w.greet()
		}
		workers = append(workers, some...)
	}
	return workers
}

// controlCost measures the time to disable a context and to enable it.
func controlCost(t *testing.T, w *worker, connections int) {
	ctl := w.control(rm.ControlOptions{})
	defer ctl.Close()
	var disable, enable []time.Duration
	for range 20 {
		start := time.Now()
		if err := ctl.Disable(); err != nil {
			t.Fatal(err)
		}
		disable = append(disable, time.Since(start))
		start = time.Now()
		if err := ctl.Enable(); err != nil {
			t.Fatal(err)
		}
		enable = append(enable, time.Since(start))
	}
	t.Logf("connections %d: us, median, least, most (n=20): disable %v, enable %v", connections, spread(disable), spread(enable))
}

// leave ends workers.
func leave(workers []*worker) {
	for _, w := range workers {
		w.cmd.Process.Kill()
		<-w.exit
		w.file.Close()
	}
}

// recordCosts measures with these contexts, by turns.
func recordCosts(t *testing.T, c *rm.Client, workers []*worker, connections, rounds int, ways ...recording) {
	all := make(map[recording][]recordCost)
	for i := range rounds {
		if i > 0 {
			slices.Reverse(ways)
		}
		for _, r := range ways {
			all[r] = append(all[r], recorded(t, c, workers, r))
		}
	}
	micros := func(d time.Duration, n int) float64 { return float64(d) / 1e3 / float64(max(n, 1)) }
	slices.Sort(ways)
	for _, r := range ways {
		var each []string
		var sum recordCost
		for _, k := range all[r] {
			each = append(each, fmt.Sprintf("%.2f", micros(k.took, k.kernels)))
			sum.kernels += k.kernels
			sum.took += k.took
			sum.switches += k.switches
			sum.reader += k.reader
			sum.driver += k.driver
			sum.away = append(sum.away, k.away...)
		}
		line := fmt.Sprintf("connections %d, %2d contexts, record %6s: %.2f us a kernel (%s)", connections, len(workers), recordings[r],
			micros(sum.took, sum.kernels), strings.Join(each, " "))
		if r != unrecorded {
			slices.Sort(sum.away)
			line += fmt.Sprintf("; %d switches, %.3f a kernel; us of processor a switch: reader %.2f, driver %.2f; %.2f %% of a core; nobody there for %v",
				sum.switches, float64(sum.switches)/float64(sum.kernels), micros(sum.reader, sum.switches), micros(sum.driver, sum.switches),
				100*float64(sum.reader+sum.driver)/float64(sum.took), spread(sum.away))
		}
		t.Log(line)
	}
}

// recorded measures one window.
func recorded(t *testing.T, c *rm.Client, workers []*worker, r recording) (k recordCost) {
	const window = 200 * time.Millisecond
	var ev *rm.Events
	if r != unrecorded {
		var err error
		if ev, err = c.Events(); err != nil {
			t.Fatal(err)
		}
		defer ev.Close()
	}
	buf := make([]rm.Switch, 8192)
	var off time.Duration
	take := func() {
		before := threadTime(t)
		n, err := ev.Read(buf)
		k.reader += threadTime(t) - before
		if err != nil {
			t.Error(err)
		}
		for _, s := range buf[:n] {
			if !s.On {
				off = s.Clock
				continue
			}
			k.switches++
			if off != 0 {
				k.away = append(k.away, s.Clock-off)
			}
		}
	}
	driver, start := driverTime(t), time.Now()
	for _, w := range workers {
		if _, err := fmt.Fprintf(w.sock, "again %d 1", window/time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	switch r {
	case read20, read40:
		every := 20 * time.Millisecond
		if r == read40 {
			every *= 2
		}
		for next := every; next <= window; next += every {
			time.Sleep(time.Until(start.Add(next)))
			take()
		}
	}
	answer := make([]byte, 64)
	for _, w := range workers {
		w.sock.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, err := w.sock.Read(answer)
		if err != nil {
			t.Fatal(err)
		}
		kernels, err := strconv.Atoi(string(answer[:n]))
		if err != nil {
			t.Fatalf("worker %d says %q", w.cmd.Process.Pid, answer[:n])
		}
		k.kernels += kernels
	}
	k.took = time.Since(start)
	if r == unread {
		time.Sleep(50 * time.Millisecond) // the driver's timer
	}
	if r != unrecorded {
		take()
	}
	k.driver = driverTime(t) - driver
	return k
}

// threadTime returns the processor time of this thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// driverThreads returns the driver's own kernel threads.
func driverThreads() (dirs []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, f := range names {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), "nv") {
			dirs = append(dirs, filepath.Dir(f))
		}
	}
	return dirs
}

// driverTime returns the processor time of the driver's threads.
func driverTime(t *testing.T) (sum time.Duration) {
	t.Helper()
	for _, d := range driverThreads() {
		b, err := os.ReadFile(filepath.Join(d, "schedstat"))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n)
	}
	return sum
}
