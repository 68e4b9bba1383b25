package rm_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/rm"
)

// endless is more rounds than any test waits for: some minutes.
const endless = 10_000_000

// hardware opens the NVIDIA GPU, or skips the test if there is none.
func hardware(t *testing.T) *rm.Client {
	t.Helper()
	if _, err := os.Stat("/dev/" + rm.ControlNode); err != nil {
		t.Skipf("no GPU of NVIDIA's here: %v", err)
	}
	c, err := rm.Open(rm.Linux{}, rm.GPU{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// administrator skips the test without administrator's rights.
func administrator(t *testing.T) {
	t.Helper()
	if !(rm.Linux{}).Admin() {
		t.Skip("this process lacks CAP_SYS_ADMIN")
	}
}

// now reads the GPU's clock.
func now(t *testing.T, c *rm.Client) time.Duration {
	t.Helper()
	at, err := c.Now()
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// spread returns the median, least and greatest of some times, in microseconds.
func spread(d []time.Duration) []float64 {
	slices.Sort(d)
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	return []float64{us(d[len(d)/2]), us(d[0]), us(d[len(d)-1])}
}

// processorTime returns the processor time of this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestHardwareFindsOwnContext(t *testing.T) {
	hardware(t)
	var took []time.Duration
	for range 3 {
		w := newWorker(t)
		took = append(took, w.Found)
		if len(w.Channels) == 0 || len(w.Copies) == 0 || len(w.CopyGroups) == 0 {
			t.Errorf("found %+v, want channels for compute and copies", w.hello)
		}
		t.Logf("%d channels, %d groups and %d channels of copies, group %d, %d descriptors: %+v",
			len(w.Channels), len(w.CopyGroups), len(w.Copies), w.hello.Group, w.Descriptors, w.Objects)
	}
	t.Logf("found in us (median, least, most): %v", spread(took))
}

func TestHardwareByPCIAddress(t *testing.T) {
	hardware(t)
	dirs, err := os.ReadDir("/proc/driver/nvidia/gpus")
	if err != nil || len(dirs) == 0 {
		t.Skipf("the driver lists no GPUs: %v", err)
	}
	c, err := rm.Open(rm.Linux{}, rm.GPU{PCI: dirs[0].Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Logf("%s: clock %v", dirs[0].Name(), now(t, c))
}

func TestHardwareClockIsTheKernels(t *testing.T) {
	c := hardware(t)
	var took, ahead []time.Duration
	for range 100 {
		start := time.Now()
		at := now(t, c)
		took = append(took, time.Since(start))
		ahead = append(ahead, at-time.Duration(time.Now().UnixNano()))
	}
	t.Logf("a reading takes us: %v; GPU less CLOCK_REALTIME us: %v", spread(took), spread(ahead))
	w := newWorker(t)
	var behind []time.Duration
	for range 20 {
		before := now(t, c)
		w.do("run 1 20")
		w.do("wait")
		after := now(t, c)
		_, newest := w.progress()
		if newest < before || newest > after {
			t.Errorf("a kernel's last stamp %v is not between %v and %v", newest, before, after)
		}
		behind = append(behind, after-newest)
	}
	t.Logf("clock after a kernel less the kernel's last %%globaltimer, us: %v", spread(behind))
}

func TestHardwareDisablesInMidKernel(t *testing.T) {
	for name, opt := range map[string]rm.ControlOptions{"all channels": {}, "compute only": {ComputeOnly: true}} {
		t.Run(name, func(t *testing.T) { disablesInMidKernel(t, opt) })
	}
}

func disablesInMidKernel(t *testing.T, opt rm.ControlOptions) {
	c := hardware(t)
	w := newWorker(t)
	ctl := w.control(opt) // through the passed descriptor, in a process that isn't the owner
	w.do("run 1 %d", endless)
	var disable, stopped, enable, restarted []time.Duration
	for range 20 {
		w.moving()
		at := now(t, c)
		start := time.Now()
		if err := ctl.Disable(); err != nil {
			t.Fatal(err)
		}
		disable = append(disable, time.Since(start))
		time.Sleep(5 * time.Millisecond)
		n, newest := w.progress()
		time.Sleep(20 * time.Millisecond)
		if m, _ := w.progress(); m != n {
			t.Errorf("%d rounds while disabled", m-n)
		}
		stopped = append(stopped, newest-at)
		at = now(t, c)
		first := make(chan time.Duration)
		go func() { // polls while the call is made
			for {
				if _, step := w.progress(); step > at {
					first <- step - at
					return
				}
			}
		}()
		start = time.Now()
		if err := ctl.Enable(); err != nil {
			t.Fatal(err)
		}
		enable = append(enable, time.Since(start))
		restarted = append(restarted, <-first)
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("us, median, least, most (n=20): disable %v, GPU stopped after %v, enable %v, restarted after %v",
		spread(disable), spread(stopped), spread(enable), spread(restarted))
	if err := ctl.Enable(); err != nil {
		t.Errorf("an enable too many: %v", err)
	}
	start := time.Now()
	if err := ctl.Preempt(); err != nil {
		t.Error(err)
	}
	t.Logf("preempt took %v", time.Since(start))
}

func TestHardwareWorkWaitsWhileDisabled(t *testing.T) {
	hardware(t)
	w := newWorker(t)
	ctl := w.control(rm.ControlOptions{})
	if err := ctl.Disable(); err != nil {
		t.Fatal(err)
	}
	// The worker reverts it through its own descriptor, as an executor does after its daemon has
	// exited.
	w.do("run 1 10")
	if _, err := w.try(time.Second/2, "wait"); err == nil {
		t.Error("a kernel ended while its channel was disabled")
	}
	if err := ctl.Enable(); err != nil {
		t.Fatal(err)
	}
	w.sock.SetReadDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 64)
	if n, err := w.sock.Read(buf); err != nil || string(buf[:n]) != "ok" {
		t.Errorf("the kernel's end: %q, %v", buf[:n], err)
	}
	w.do("disable")
	w.do("enable")
	w.do("run 1 10")
	w.do("wait")
}

// TestHardwareEndsAfterControl ends contexts that were controlled, idle and after work, alone and
// beside a process that keeps the GPU busy.
func TestHardwareEndsAfterControl(t *testing.T) {
	hardware(t)
	for _, beside := range []bool{false, true} {
		if beside {
			busy := newWorker(t)
			busy.do("run 1 %d", endless)
			busy.moving()
		}
		for _, work := range []bool{false, true} {
			for _, controlled := range []bool{false, true} {
				w := newWorker(t)
				if work {
					w.do("run 1 10")
					w.do("wait")
				}
				if controlled {
					c := w.control(rm.ControlOptions{})
					for range 3 {
						if err := errors.Join(c.Disable(), c.Enable()); err != nil {
							t.Fatal(err)
						}
					}
					if err := c.SetTimeslice(time.Millisecond); err != nil {
						t.Fatal(err)
					}
				}
				start := time.Now()
				_, err := w.try(5*time.Second, "end")
				t.Logf("beside another %v, has worked %v, was controlled %v: ends in %v", beside, work, controlled, time.Since(start))
				if err != nil {
					t.Errorf("it does not: %v", err)
				}
			}
		}
	}
}

func TestHardwareTimeslices(t *testing.T) {
	hardware(t)
	a, b := newWorker(t), newWorker(t)
	ca, cb := a.control(rm.ControlOptions{}), b.control(rm.ControlOptions{})
	d, err := ca.Timeslice()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("default slice %v", d)
	a.do("run 1 %d", endless)
	a.moving()
	solo := a.rate(300 * time.Millisecond)
	b.do("run 1 %d", endless)
	b.moving()
	for _, s := range [][2]time.Duration{{2048, 2048}, {1000, 4000}, {4000, 1000}, {10000, 1000}, {16000, 4000}} {
		start := time.Now()
		if err := errors.Join(ca.SetTimeslice(s[0]*time.Microsecond), cb.SetTimeslice(s[1]*time.Microsecond)); err != nil {
			t.Fatal(err)
		}
		took := time.Since(start) / 2
		if got, err := ca.Timeslice(); err != nil || got != s[0]*time.Microsecond {
			t.Errorf("slice %v, %v after %v was set", got, err, s[0]*time.Microsecond)
		}
		time.Sleep(20 * time.Millisecond)
		a0, _ := a.progress()
		b0, _ := b.progress()
		start = time.Now()
		time.Sleep(600 * time.Millisecond)
		a1, _ := a.progress()
		b1, _ := b.progress()
		per := 100 / time.Since(start).Seconds() / solo
		t.Logf("slices %5d %5d us: %.1f %.1f %% of solo; a set takes %v", s[0], s[1], float64(a1-a0)*per, float64(b1-b0)*per, took)
	}
}

func TestHardwareRecordsSwitches(t *testing.T) {
	c := hardware(t)
	administrator(t)
	start := time.Now()
	ev, err := c.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	t.Logf("opened in %v", time.Since(start))
	a, b := newWorker(t), newWorker(t)
	a.do("run 1 %d", endless)
	b.do("run 1 %d", endless)
	a.moving()
	b.moving()
	buf := make([]rm.Switch, 4096)
	if _, err := ev.Read(buf); err != nil {
		t.Fatal(err)
	}
	var switches []rm.Switch
	var took []time.Duration
	asleep := processorTime(t)
	for range 100 {
		time.Sleep(10 * time.Millisecond)
	}
	asleep = processorTime(t) - asleep
	if _, err := ev.Read(buf); err != nil {
		t.Fatal(err)
	}
	begin, cpu := now(t, c), processorTime(t)
	for range 100 {
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		n, err := ev.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
		switches = append(switches, buf[:n]...)
	}
	cpu = processorTime(t) - cpu
	window := now(t, c) - begin
	on, held, spans := map[int]time.Duration{}, map[int]time.Duration{}, map[int]int{}
	pa, pb := a.cmd.Process.Pid, b.cmd.Process.Pid
	for i, s := range switches {
		if i > 0 && s.Clock < switches[i-1].Clock {
			t.Errorf("record %d is at %v, after one at %v", i, s.Clock, switches[i-1].Clock)
		}
		if s.On {
			on[s.PID] = s.Clock
		} else if at, ok := on[s.PID]; ok {
			held[s.PID] += s.Clock - at
			spans[s.PID]++
			delete(on, s.PID)
		}
	}
	if spans[pa] == 0 || spans[pb] == 0 {
		t.Errorf("spans by process %v, want some of %d and %d", spans, pa, pb)
	}
	for pid, d := range held {
		t.Logf("process %d: %d spans of %v, %.1f %% of %v", pid, spans[pid], d/time.Duration(spans[pid]), 100*float64(d)/float64(window), window)
	}
	t.Logf("%d records; a read takes us %v; %v of a processor for 100, %v for as many times of sleep", len(switches), spread(took), cpu, asleep)
	// A suspension is in the record too.
	ctl := a.control(rm.ControlOptions{})
	if err := ctl.Disable(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	if _, err := ev.Read(buf); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	n, err := ev.Read(buf)
	t.Logf("%d records in 50 ms with %d disabled and %d alone, %v", n, pa, pb, err)
	for _, s := range buf[:n] {
		if s.PID == pa {
			t.Errorf("%+v of a disabled process", s)
		}
	}
	if err := ctl.Enable(); err != nil {
		t.Fatal(err)
	}
}

// TestHardwareRecordsForSeveral has several readers of the record, one of which closes it and one
// of which is killed. The others go on.
func TestHardwareRecordsForSeveral(t *testing.T) {
	c := hardware(t)
	administrator(t)
	var readers [2]*rm.Events
	for i := range readers {
		var err error
		if readers[i], err = c.Events(); err != nil {
			t.Fatal(err)
		}
	}
	defer readers[0].Close()
	a, b, third := newWorker(t), newWorker(t), newWorker(t)
	third.do("watch")
	a.do("run 1 %d", endless)
	b.do("run 1 %d", endless)
	buf := make([]rm.Switch, 4096)
	count := func(e *rm.Events) int {
		t.Helper()
		a.moving()
		b.moving()
		if _, err := e.Read(buf); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		n, err := e.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	both := [2]int{count(readers[0]), count(readers[1])}
	if err := readers[1].Close(); err != nil {
		t.Error(err)
	}
	closed := count(readers[0])
	if err := third.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-third.exit
	killed := count(readers[0])
	t.Logf("records in 100 ms: %v; after one reader closed %d, after another was killed %d", both, closed, killed)
	for _, n := range []int{both[0], both[1], closed, killed} {
		if n < 20 {
			t.Error("a reader misses records")
		}
	}
}

// TestHardwareKilledWhileDisabled runs last, because the GPU's state after it is not guaranteed.
func TestHardwareKilledWhileDisabled(t *testing.T) {
	hardware(t)
	other := newWorker(t)
	free := func() int {
		n, err := strconv.Atoi(other.do("free"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := free()
	for _, keep := range []bool{false, true} {
		w := newWorker(t)
		w.do("take 4096")
		ctl := w.control(rm.ControlOptions{})
		w.do("run 1 %d", endless)
		w.moving()
		other.do("run 200 100")
		if err := ctl.Disable(); err != nil {
			t.Fatal(err)
		}
		with := free()
		if !keep {
			ctl.Close()
			w.file.Close()
		}
		start := time.Now()
		if err := w.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.exit:
			t.Logf("keep %v: killed while disabled, gone after %v", keep, time.Since(start))
		case <-time.After(15 * time.Second):
			t.Errorf("keep %v: still there 15 s after it was killed", keep)
		}
		time.Sleep(500 * time.Millisecond)
		t.Logf("keep %v: free MiB %d at first, %d with it, %d after its end", keep, before, with, free())
		if _, err := other.try(10*time.Second, "wait"); err != nil {
			t.Errorf("keep %v: the other process: %v", keep, err)
		}
		if keep {
			_, terr := ctl.Timeslice()
			start := time.Now()
			t.Logf("through the kept descriptor: time slice: %v; enable: %v (%v)", terr, ctl.Enable(), time.Since(start))
			n, _ := w.progress()
			time.Sleep(20 * time.Millisecond)
			m, _ := w.progress()
			t.Logf("rounds after that: %d", m-n)
			start = time.Now()
			ctl.Close()
			w.file.Close()
			took := time.Since(start)
			time.Sleep(500 * time.Millisecond)
			t.Logf("closed in %v: free MiB %d", took, free())
		}
		start = time.Now()
		next := newWorker(t)
		next.do("run 1 100")
		next.do("wait")
		t.Logf("keep %v: a new process works, %v after its start", keep, time.Since(start))
		other.do("run 1 100")
		other.do("wait")
	}
	if out, err := exec.Command("dmesg").Output(); err == nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Logf("kernel's log ends:\n%s", strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
}
