package daemon

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"vgpud/accounting"
	"vgpud/mediator/ipc"
)

// kin finds whose a process is. A guest's executors are children of its process, which
// is no word of theirs: none of them can become another's child.
type kin struct {
	proc    string // where /proc is, if it is not there
	strange map[int]strange
}

// strange is what is known of a process that was on a GPU though no context is said to
// be its.
type strange struct {
	since time.Duration // when it was first seen so
	// asked is when it was last looked for, and guest whose it was then; 0 is nobody's.
	asked time.Duration
	guest int
}

const (
	// birthPains is for how long an executor may have its context made before what that
	// has of the GPU is charged.
	birthPains = time.Second
	// strangeFor is how long it is remembered that a process is no guest's: programs of
	// the host use its GPUs too. Processes that are a guest's are looked for again after
	// lookAgain, since their numbers may become others'.
	strangeFor = time.Second
	lookAgain  = 5 * time.Second
	// strangers bounds how many are remembered.
	strangers = 1024
)

// parent is the process that made another, 0 where that has ended.
func (k *kin) parent(pid int) int {
	proc := k.proc
	if proc == "" {
		proc = "/proc"
	}
	b, err := os.ReadFile(proc + "/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The program's name, in parentheses, may have anything in it.
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

// said is which process a context was said to be of, and whether it is the guest's own,
// which was looked for last at an instant.
type said struct {
	pid int
	own bool
	at  time.Duration
}

// own is the process of a guest's context where the guest's page says at now that it is
// pid: 0, nobody knows, where that is not one of the guest's.
func (s *share) own(now time.Duration, g *guest, slot, pid int) int {
	p := &g.accounts.pids[slot]
	if g.pid == 0 || pid == 0 {
		return pid
	}
	if pid != p.pid || now-p.at > lookAgain {
		parent := s.kin.parent(pid)
		if parent != 0 && parent != g.pid && pid != p.pid {
			s.log.Warn("guest's context is said to be of a process that is not the guest's", "guest", g.spec.Name, "context", slot, "pid", pid)
		}
		*p = said{pid: pid, own: parent == g.pid, at: now}
	}
	if !p.own {
		return 0
	}
	return pid
}

// was is own of a process that has ended: what was found out when it had not.
func (s *share) was(g *guest, slot, pid int) int {
	if p := &g.accounts.pids[slot]; g.pid == 0 || p.pid == pid && p.own {
		return pid
	}
	return 0
}

// GroupOf implements [accounting.Attributor]: a guest is charged for all that a process of its has
// of the GPU where none of its contexts is said to be of that process.
func (s *share) GroupOf(now time.Duration, pid int) (id accounting.GroupID, ok bool) {
	k := &s.kin
	o, seen := k.strange[pid]
	if !seen || now-o.asked > lookAgain {
		o = strange{since: now} // another, or after a long time
	} else if o.guest == 0 && now-o.asked < strangeFor {
		return 0, false
	}
	o.asked, o.guest = now, 0
	parent := k.parent(pid)
	s.guests(func(guests []*guest) {
		for _, g := range guests {
			if g.pid == 0 || g.pid != parent {
				continue
			}
			o.guest = g.number
			if id, ok = g.context(0), now-o.since > birthPains || !g.starts(pid); ok && !g.accounts.strange {
				g.accounts.strange = true
				s.log.Warn("guest's process is on the GPU and says nothing of a context: it is charged all of its time", "guest", g.spec.Name, "pid", pid)
			}
		}
	})
	if k.strange == nil || len(k.strange) >= strangers {
		k.strange = make(map[int]strange)
	}
	k.strange[pid] = o
	return id, ok
}

// starts is whether a process of the guest's makes its context, as it says.
func (g *guest) starts(pid int) bool {
	for i := range ipc.MaxContexts {
		if c := g.page.Context(i); c.State() == ipc.ContextStarting && c.PID() == pid {
			return true
		}
	}
	return false
}
