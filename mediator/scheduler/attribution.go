package scheduler

import (
	"bytes"
	"log/slog"
	"os"
	"strconv"
	"time"

	"vgpud/accounting"
	"vgpud/mediator/ipc"
)

// Process attribution finds out which guest a process on the GPU belongs to. A guest's executors
// are children of its process; the kernel says so, not they, and none of them can become another
// guest's child.

// processes remembers processes that no context claims. The watcher's goroutine alone uses it.
type processes struct {
	proc    string // where /proc is; empty is /proc
	unknown map[int]unknownProcess
}

// unknownProcess is a process that was on a GPU though no context claims it.
type unknownProcess struct {
	since time.Duration // when it was first seen
	// asked is when its parent was last looked up, and guest the number of the guest that it
	// belongs to; 0 is none.
	asked time.Duration
	guest int
}

const (
	// startupGrace is how long an executor may take to make its context before its GPU time is
	// charged.
	startupGrace = time.Second
	// ignoreFor is how long it is remembered that a process is no guest's: programs of the host use
	// its GPUs too. A process that is a guest's is looked up again after recheckAfter, since its
	// number may become another's.
	ignoreFor    = time.Second
	recheckAfter = 5 * time.Second
	// mostUnknown bounds how many processes are remembered.
	mostUnknown = 1024
)

// parent returns the process that started another, 0 if that has ended.
func (p *processes) parent(pid int) int {
	proc := p.proc
	if proc == "" {
		proc = "/proc"
	}
	b, err := os.ReadFile(proc + "/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The program's name, in parentheses, may contain anything.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 || len(fields[0]) != 1 || bytes.IndexByte([]byte("ZXx"), fields[0][0]) >= 0 {
		return 0
	}
	ppid, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return ppid
}

// claimedPID is the process that a control page claims for a context. own reports whether it is a
// child of the guest's process, as looked up at an instant.
type claimedPID struct {
	pid int
	own bool
	at  time.Duration
}

// contextProcess returns pid, which the control page claims at now for a context, or 0 if that
// process does not belong to the guest.
func (s *Scheduler) contextProcess(now time.Duration, g *Guest, context, pid int) int {
	return s.ownProcess(now, g, &g.work.pids[context], pid)
}

// ownProcess returns pid, which a guest's process claims at now, or 0 if that process is not the
// guest's. p has what was found out about the last one.
func (s *Scheduler) ownProcess(now time.Duration, g *Guest, p *claimedPID, pid int) int {
	if g.o.PID == 0 || pid == 0 {
		return pid
	}
	if pid != p.pid || now-p.at > recheckAfter {
		parent := s.processes.parent(pid)
		if parent != 0 && parent != g.o.PID && pid != p.pid {
			s.logFor(g).Warn("guest's context claims a process that is not the guest's", "guest", g.o.Name, "pid", pid)
		}
		*p = claimedPID{pid: pid, own: parent == g.o.PID, at: now}
	}
	if !p.own {
		return 0
	}
	return pid
}

// logFor returns the log for what a guest's own processes bring about.
func (s *Scheduler) logFor(g *Guest) *slog.Logger {
	if g.o.Log != nil {
		return g.o.Log
	}
	return s.o.Log
}

// lastProcess is contextProcess for a process that has ended: what was found out before it had.
func (g *Guest) lastProcess(context, pid int) int {
	if p := &g.work.pids[context]; g.o.PID == 0 || p.pid == pid && p.own {
		return pid
	}
	return 0
}

// GroupOf implements [accounting.Attributor]: a guest is charged for all that a process of its has
// of the GPU if none of its contexts claims that process.
func (s *Scheduler) GroupOf(now time.Duration, pid int) (id accounting.GroupID, ok bool) {
	p := &s.processes
	u, seen := p.unknown[pid]
	if !seen || now-u.asked > recheckAfter {
		u = unknownProcess{since: now} // another process, or after a long time
	} else if u.guest == 0 && now-u.asked < ignoreFor {
		return 0, false
	}
	u.asked, u.guest = now, 0
	parent := p.parent(pid)
	s.roster.RLock()
	defer s.roster.RUnlock()
	for _, g := range s.guests {
		if g.o.PID == 0 || g.o.PID != parent {
			continue
		}
		u.guest = g.number
		if id, ok = g.contextGroup(0), now-u.since > startupGrace || !g.starts(pid); ok && now-u.since > startupGrace && !g.work.unattributed {
			g.work.unattributed = true
			s.o.Log.Warn("guest's process is on the GPU and no context claims it: the guest is charged all of its time", "guest", g.o.Name, "pid", pid)
		}
	}
	if p.unknown == nil || len(p.unknown) >= mostUnknown {
		p.unknown = make(map[int]unknownProcess)
	}
	p.unknown[pid] = u
	return id, ok
}

// starts reports whether the control page says that a process makes a context of the guest's.
func (g *Guest) starts(pid int) bool {
	if g.o.Page == nil {
		return false
	}
	for i := range ipc.MaxContexts {
		if c := g.o.Page.Context(i); c.State() == ipc.ContextStarting && c.PID() == pid {
			return true
		}
	}
	return false
}
