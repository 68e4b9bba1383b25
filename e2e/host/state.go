package host

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/e2e/proc"
	"vgpud/mediator/ipc"
)

const (
	// answerLimit bounds the daemon's answers after a wait has failed.
	answerLimit = 30 * time.Second
	// quitLimit bounds the time until a process has dumped its goroutines.
	quitLimit = 30 * time.Second
	// maxLogBytes bounds how much of a log is shown then.
	maxLogBytes = 256 << 10
)

// state describes what all processes are doing, to explain why a wait has failed. It ends the
// host's processes, since that is how they dump their goroutines.
func (h *Host) state() string {
	var b strings.Builder
	stacks := make([]byte, 1<<20)
	fmt.Fprintf(&b, "goroutines of the test:\n%s\n", stacks[:runtime.Stack(stacks, true)])
	fmt.Fprintf(&b, "the daemon's state:\n%s\n", h.daemonAnswers())
	if h.Describe != nil {
		b.WriteString(h.Describe())
	}
	pids := h.processes()
	// Twice, to show which threads run and which wait for a processor.
	first := usageOf(pids)
	_ = clock.Sleep(context.Background(), clock.Real{}, time.Second)
	for _, pid := range pids {
		b.WriteString(describe(pid, first))
	}
	for _, pid := range pids {
		// Executors and the daemon map the same pages.
		if strings.HasSuffix(readLine(fmt.Sprintf("/proc/%d/cmdline", pid)), "\x00vm\x00") {
			b.WriteString(pageOf(pid))
		}
	}
	// Dump first those that others would notice.
	slices.Reverse(pids)
	for _, pid := range pids {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && exe == h.program {
			dumpGoroutines(pid)
		}
	}
	for _, p := range append(slices.Clone(h.GPUs), h.Daemon) {
		if p == nil {
			continue
		}
		log := p.Log()
		fmt.Fprintf(&b, "log of %v:\n%s\n", p.Cmd.Args, log[max(len(log)-maxLogBytes, 0):])
	}
	return b.String()
}

// daemonAnswers returns the daemon's description of its guests and GPUs.
func (h *Host) daemonAnswers() string {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	vms, err1 := h.Client.VMs(ctx)
	gpus, err2 := h.Client.GPUs(ctx)
	text, err3 := json.MarshalIndent(map[string]any{"vms": vms, "gpus": gpus}, "", " ")
	return fmt.Sprintf("%s\n%v %v %v", text, err1, err2, err3)
}

// processes returns the IDs of the host's processes: this test's children and theirs, and the
// guests' of an earlier daemon.
func (h *Host) processes() []int {
	pids := make(map[int]bool)
	var add func(pid int)
	add = func(pid int) {
		if pids[pid] {
			return
		}
		pids[pid] = true
		children, _ := proc.Children(pid) // none if it has ended
		for _, c := range children {
			add(c)
		}
	}
	add(os.Getpid())
	for _, pid := range h.vmPIDs {
		add(pid)
	}
	return slices.Sorted(maps.Keys(pids))
}

// usage is how long a thread has run and has waited for a processor, and in how many time slices.
type usage struct {
	ran, waited time.Duration
	turns       int64
}

// usageOf returns the usage of all threads of some processes, by their paths in /proc.
func usageOf(pids []int) map[string]usage {
	all := make(map[string]usage)
	for _, pid := range pids {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, t := range tasks {
			var u usage
			if _, err := fmt.Sscan(readLine(t+"/schedstat"), &u.ran, &u.waited, &u.turns); err == nil {
				all[t] = u
			}
		}
	}
	return all
}

// describe describes a process's threads: their states, priorities, and what they wait for in the
// kernel; and how long they ran and waited for a processor since before.
func describe(pid int, before map[string]usage) string {
	dir := fmt.Sprintf("/proc/%d", pid)
	var b strings.Builder
	fmt.Fprintf(&b, "process %d: %s\n", pid, strings.ReplaceAll(readLine(dir+"/cmdline"), "\x00", " "))
	now := usageOf([]int{pid})
	for _, t := range slices.SortedFunc(maps.Keys(now), func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }) {
		n, u := now[t], before[t]
		fmt.Fprintf(&b, "  %s %s %s, ran %v, waited %v in %d turns (%v, %v, %d before): %s; %s\n", filepath.Base(t), readLine(t+"/comm"), schedState(t),
			n.ran-u.ran, n.waited-u.waited, n.turns-u.turns, u.ran, u.waited, u.turns, readLine(t+"/wchan"), readLine(t+"/syscall"))
	}
	return b.String()
}

// schedState returns a thread's state, niceness and scheduling policy, as the kernel numbers it.
func schedState(task string) string {
	stat := readLine(task + "/stat")
	// The second field, the name, is in parentheses and may contain anything.
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const state, nice, policy = 0, 16, 38 // counted from the third field (proc(5))
	if len(f) <= policy {
		return "?"
	}
	return fmt.Sprintf("%s nice %s policy %s", f[state], f[nice], f[policy])
}

// pageOf describes the control page of a guest's process; it returns nothing for other processes.
func pageOf(pid int) string {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, path := range files {
		if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/memfd:vgpud-page") {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return fmt.Sprintf("page of process %d: %v\n", pid, err)
		}
		p, err := ipc.OpenControlPage(f)
		if err != nil {
			return fmt.Sprintf("page of process %d: %v\n", pid, err)
		}
		defer func() { _ = p.Close() }()
		return fmt.Sprintf("page of process %d:\n%s", pid, pageWords(p, clock.Real{}.Now()))
	}
	return ""
}

// pageWords describes the contents of a control page.
func pageWords(p *ipc.ControlPage, now time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  verdict %d, as executors take it %d; mode %d; the daemon is silent: %v, has abandoned it: %v; doorbells %d; bill %+v; terms %+v\n",
		p.StoredSuspendWord(), p.SuspendWord(now), p.Mode(), p.Silent(now), p.SuspensionExpired(now), p.Doorbells(), p.Bill(), p.Terms())
	for i := range ipc.MaxContexts {
		c := p.Context(i)
		if c.State() == ipc.ContextNone {
			continue
		}
		var waits time.Duration
		if since := c.Waiting(); since != 0 {
			waits = now - since
		}
		fmt.Fprintf(&b, "  context %d, process %d: %v, disabled %v, bell %d, backlog %v, on the GPU %v (%d launches, ahead %+v), waits for room for %v; %+v\n",
			i, c.PID(), c.State(), p.Disabled(i), c.Futex(), c.Backlog(), c.OnGPU(), c.Outstanding(), c.FetchAhead(), waits, c.Counters())
	}
	for i := range ipc.MaxLaunchSlots {
		if !p.HasLaunchSlots() {
			break
		}
		if s, ok := p.LaunchSlot(i).Read(); ok {
			fmt.Fprintf(&b, "  stub %d: %+v\n", i, s)
		}
	}
	return b.String()
}

// dumpGoroutines makes a process dump its goroutines, which ends it, and waits for its end.
func dumpGoroutines(pid int) {
	if unix.Kill(pid, unix.SIGQUIT) != nil {
		return // it has ended
	}
	ctx, cancel := context.WithTimeout(context.Background(), quitLimit)
	defer cancel()
	for state := "R"; state != "" && state != "Z"; state, _, _ = strings.Cut(schedState("/proc/"+strconv.Itoa(pid)), " ") {
		if clock.Sleep(ctx, clock.Real{}, 5*time.Millisecond) != nil {
			_ = unix.Kill(pid, unix.SIGKILL)
			return
		}
	}
}

// readLine returns a small file on one line.
func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(b))
}
