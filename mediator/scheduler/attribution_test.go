package scheduler

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/launchqueue"
)

// procOf returns a /proc of processes and their parents.
func procOf(t *testing.T, parents map[int]int) string {
	t.Helper()
	dir := t.TempDir()
	for pid, parent := range parents {
		at := filepath.Join(dir, strconv.Itoa(pid))
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "stat"), fmt.Appendf(nil, "%d (a ) b) S %d 1 1 0", pid, parent), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLiesAboutProcesses: whichever processes a guest's page claims for its contexts, the guest is
// charged for all that its processes have of the GPU, and the other guest for what its own have.
func TestLiesAboutProcesses(t *testing.T) {
	const honest, liar, host = 100, 101, 99
	for name, lie := range map[string]func(*ipc.ContextSlot){
		"of the other guest": func(c *ipc.ContextSlot) { c.Reset(honest); c.SetReady(3) },
		"of nobody":          func(c *ipc.ContextSlot) { c.Reset(4711); c.SetReady(9) },
		"of the host":        func(c *ipc.ContextSlot) { c.Reset(host); c.SetReady(9) },
		"of init":            func(c *ipc.ContextSlot) { c.Reset(1); c.SetReady(9) },
		"none":               func(c *ipc.ContextSlot) { c.Reset(0); c.SetReady(9) },
		"without a group":    func(c *ipc.ContextSlot) { c.SetLost() },
		"gone":               func(c *ipc.ContextSlot) { c.Free() },
	} {
		t.Run(name, func(t *testing.T) {
			h := newRecording(t, func(r *accountingtest.Record) gpu.Monitor { return recordedGPU{r} }, "none", Watching{})
			h.loop.processes.proc = procOf(t, map[int]int{honest: 50, liar: 51, host: 1, 1: 0})
			r := rand.New(rand.NewPCG(3, 4))
			for i, pid := range []int{honest, liar} {
				c := &accountingtest.RecordedContext{PID: pid, Group: accounting.GroupID(3 + i), Depth: 2, Kernel: accountingtest.Random(r, ms, 0.6)}
				h.joinProcess(string(rune('a'+i)), 50+i, 1, newPage(t), c)
			}
			round := accounting.Easy.Phase(20 * ms) // the bill is of the last one
			h.pass(4 * round)
			lie(h.guests[1].o.Page.Context(0))
			h.pass(4 * round)
			var used, busy [2]time.Duration
			for i, g := range h.guests {
				used[i], busy[i] = g.o.Page.Bill().Used, h.record.Contexts[i].Busy()
			}
			h.pass(34 * round)
			for i, g := range h.guests {
				used[i], busy[i] = g.o.Page.Bill().Used-used[i], h.record.Contexts[i].Busy()-busy[i]
			}
			if off := used[0] - busy[0]; off > busy[0]/100 || off < -busy[0]/100 {
				t.Errorf("the other guest is billed %v of %v", used[0], busy[0])
			}
			if used[1] < busy[1]*97/100 {
				t.Errorf("the liar is billed %v of %v", used[1], busy[1])
			}
		})
	}
}

// TestClaimsFillNoLog: a guest's page that claims another process each time it is read writes to the
// guest's own log, which the daemon limits, and not to the scheduler's.
func TestClaimsFillNoLog(t *testing.T) {
	lines := func() (*slog.Logger, *strings.Builder) {
		var b strings.Builder
		return slog.New(slog.NewTextHandler(&b, nil)), &b
	}
	log, common := lines()
	own, limited := lines()
	s, err := New(Options{Name: "gpu0", Clock: new(clock.Sim), Log: log, Policy: "none"})
	if err != nil {
		t.Fatal(err)
	}
	common.Reset()
	s.processes.proc = procOf(t, map[int]int{100: 99, 101: 99, 99: 1})
	g := NewGuest(GuestOptions{Name: "a", PID: 50, Page: newPage(t), Log: own})
	s.Add(g)
	for i := range 20 {
		if pid := s.contextProcess(0, g, 0, 100+i%2); pid != 0 {
			t.Fatalf("process %d is taken to be the guest's", pid)
		}
	}
	s.locked(func(guests []*Guest) {
		l := launchqueue.Launch{}
		l.Guest = g.id
		s.launchChanged(guests, launchqueue.Change{Kind: launchqueue.Unresponsive, Launch: &l})
	})
	if common.Len() > 0 {
		t.Errorf("in the scheduler's log:\n%s", common)
	}
	if n := strings.Count(limited.String(), "\n"); n != 21 {
		t.Errorf("%d lines in the guest's log", n)
	}
}

// TestStartsAreNotCharged: the GPU time that an executor takes to make its context is not charged,
// for no longer than that takes.
func TestStartsAreNotCharged(t *testing.T) {
	h := newRecording(t, func(r *accountingtest.Record) gpu.Monitor { return recordedGPU{r} }, "none", Watching{})
	h.loop.processes.proc = procOf(t, map[int]int{100: 50, 99: 1})
	busy := func() (time.Duration, time.Duration) { return ms, ms }
	g := h.joinProcess("a", 50, 1, newPage(t), &accountingtest.RecordedContext{PID: 100, Group: 3, Kernel: busy})
	// A program of the host, so that there are records.
	native := &accountingtest.RecordedContext{PID: 99, Group: 7, Kernel: busy}
	h.gpu.Add(native)
	g.o.Page.Context(0).Reset(100)
	h.pass(startupGrace - 100*ms)
	if used := g.o.Page.Bill().Used; used > 0 {
		t.Errorf("billed %v while its context was made", used)
	}
	h.pass(time.Second)
	if used := g.o.Page.Bill().Used; used < 300*ms {
		t.Errorf("billed %v long after that", used)
	}
	if len(h.loop.processes.unknown) != 2 {
		t.Errorf("%d unknown processes are remembered, want 2", len(h.loop.processes.unknown))
	}
}

// TestParent reads what the kernel says about a process.
func TestParent(t *testing.T) {
	k := processes{proc: procOf(t, map[int]int{7: 5})}
	for stat, want := range map[string]int{
		"7 (x) S 5 7":         5,
		"7 (x) Z 5 7":         0, // it has ended
		"7 () R 9 9) S 5 1":   5, // a name to mislead
		"7 (x":                0,
		"":                    0,
		"7 (x) S many things": 0,
	} {
		if err := os.WriteFile(filepath.Join(k.proc, "7", "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := k.parent(7); got != want {
			t.Errorf("%q: parent %d, want %d", stat, got, want)
		}
	}
	if got := k.parent(8); got != 0 {
		t.Errorf("no process: parent %d", got)
	}
	var here processes
	if got := here.parent(os.Getpid()); got != os.Getppid() {
		t.Errorf("parent %d, want %d", got, os.Getppid())
	}
}

// TestClaimedGroups: if two guests claim a channel group, it stays with the first one until that
// one does not claim it any more. A guest is charged for a group that it has claimed also when its
// page does not say so any more.
func TestClaimedGroups(t *testing.T) {
	s := newScene(t)
	a, b := s.join(1, 1, 3), s.join(2, 1, 4)
	s.poll(ms, busy(3, ms/2), busy(4, ms/2))
	b.o.Page.Context(0).SetReady(3)
	s.poll(ms, busy(3, ms/2), busy(4, ms/2))
	if a.Bill().Used != ms || b.Bill().Used != ms {
		t.Errorf("charged %v and %v, want 1ms each", a.Bill().Used, b.Bill().Used)
	}
	b.o.Page.Context(0).SetLost()
	s.poll(ms, busy(3, ms/2), busy(4, ms/2))
	if a.Bill().Used != 3*ms/2 || b.Bill().Used != 3*ms/2 {
		t.Errorf("charged %v and %v, want 1.5ms each", a.Bill().Used, b.Bill().Used)
	}
	// The hardware reuses a group's number for the other guest.
	a.o.Page.Context(0).Free()
	b.o.Page.Context(0).SetReady(3)
	s.poll(ms, busy(3, ms))
	if a.Bill().Used != 3*ms/2 || b.Bill().Used != 5*ms/2 {
		t.Errorf("charged %v and %v, want 1.5ms and 2.5ms", a.Bill().Used, b.Bill().Used)
	}
	// A guest claims ever more numbers.
	for i := range 1000 {
		b.o.Page.Context(1).SetReady(uint16(100 + i))
		s.poll(ms)
	}
	if len(b.owned) > mostOwned || len(s.sched.owners) > 2*mostOwned {
		t.Errorf("%d groups are the guest's, %d anybody's", len(b.owned), len(s.sched.owners))
	}
}
