package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
)

// executorsEndLimit is how long a dead guest's executors may take to end, which they do when they
// notice. After that their memory is granted anew, even if they are stuck. Tests have it last.
var executorsEndLimit = 500 * time.Millisecond

// awaitExecutors waits until the executors have ended that the guest's pages name. A page may name any
// process, whose end is waited for in vain.
func (g *guest) awaitExecutors() {
	var pids []int
	for _, p := range g.all() {
		for slot := range ipc.MaxContexts {
			if pid := p.page.Context(slot).PID(); pid != 0 {
				pids = append(pids, pid)
			}
		}
	}
	awaitEnds(g.device.log, g.spec.Name, pids)
}

// awaitEnds waits until processes have ended, or for executorsEndLimit.
func awaitEnds(log *slog.Logger, guest string, pids []int) {
	until := time.Now().Add(executorsEndLimit)
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			left := max(time.Until(until), 0)
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		}
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			log.Debug("wait for a dead guest's executors", "guest", guest, "err", err)
		}
	}
}

// executors returns the processes that a guest's process has started, as far as they can be told: by
// their user, which no other guest has, or by their parent while that lives.
func (k *savedState) executors() (pids []int) {
	user := 0
	if k.Spec.Sandbox != nil {
		user = k.Spec.Sandbox.UID
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == k.PID {
			continue
		}
		uid, parent := owner(pid)
		if user != 0 && uid == user || parent == k.PID {
			pids = append(pids, pid)
		}
	}
	return pids
}

// owner returns a process's user and its parent, or -1 if it has ended.
func owner(pid int) (uid, parent int) {
	uid, parent = -1, -1
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return uid, parent
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		n, err := strconv.Atoi(fields[0])
		switch {
		case err != nil:
		case name == "Uid":
			uid = n
		case name == "PPid":
			parent = n
		}
	}
	return uid, parent
}
