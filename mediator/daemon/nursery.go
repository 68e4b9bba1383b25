package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
	"vgpud/mediator/sandbox"
	guestproc "vgpud/mediator/vm"
	"vgpud/vfio/vfiouser"
)

// infant is a guest's process that has begun and waits to be told whose it is.
type infant struct {
	gpu     ipc.GPU
	sandbox *ipc.Sandbox
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	report  *os.File
	dir     string // where its sockets are until they have their places
	ended   chan struct{}
	err     error // once it has ended
}

// The names of an infant's sockets are short, since their paths have to be.
const (
	infantDirs = "n-*"
	infantVMM  = "v"
)

// nurseryWait keeps the next process from beginning while QEMU connects to the
// last one.
const nurseryWait = 100 * time.Millisecond

// begin starts a guest's process for a GPU, in a sandbox, and in a session of its own
// so that it outlives the daemon.
func (s *Service) begin(g ipc.GPU) (_ *infant, err error) {
	i := &infant{gpu: g, cmd: s.o.Command(), ended: make(chan struct{})}
	if i.sandbox, err = s.sandboxes.Create(g); err != nil {
		return nil, fmt.Errorf("confine its process: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.sandboxes.Release(i.sandbox))
		}
	}()
	if i.dir, err = os.MkdirTemp(s.runDir(), infantDirs); err != nil {
		return nil, fmt.Errorf("make a place for its sockets: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(i.dir))
		}
	}()
	sockets, err := guestproc.Listen(filepath.Join(i.dir, infantVMM), nil, i.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sockets.Close()) }()
	files, err := sockets.Files()
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	if i.stdin, err = i.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	said, stderr, err := guestproc.CaptureOutput(s.guestLog(), processSays)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, stderr.Close()); err != nil {
			err = errors.Join(err, said.Close())
		}
	}()
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	i.report = ours
	i.cmd.Stdout, i.cmd.Stderr = stderr, stderr
	i.cmd.ExtraFiles = append([]*os.File{theirs}, files...)
	i.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	err = sandbox.Start(i.cmd, i.sandbox)
	if cerr := theirs.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", i.cmd.Path, err), ours.Close())
	}
	said.With("pid", i.cmd.Process.Pid)
	go func() {
		i.err = i.cmd.Wait()
		if _, err := said.End(); err != nil {
			s.log.Debug("close a process's standard error", "err", err)
		}
		close(i.ended)
	}()
	return i, nil
}

// processSays is the message of what guests' processes write.
const processSays = "guest's process says"

// guestLog is where the words of one guest's process go, at a pace of their own.
func (s *Service) guestLog() *slog.Logger {
	return slog.New(guestproc.LimitLog(s.log.Handler(), s.clock))
}

// hearFrom has a guest's process that an earlier daemon started write its log to this one,
// until the guest is forgotten. Where that is not to be had, its log is not, and nothing else.
func (s *Service) hearFrom(g *guest) {
	said, stderr, err := guestproc.CaptureOutput(s.guestLog().With("pid", g.pid), processSays)
	if err != nil {
		s.log.Warn("a guest's process is not heard", "guest", g.spec.Name, "err", err)
		return
	}
	m, err := ipc.NewMessage(ipc.KindLog, struct{}{}, stderr)
	if err == nil {
		err = g.conn.Send(m)
	}
	if err := errors.Join(err, stderr.Close()); err != nil {
		s.log.Warn("a guest's process is not heard", "guest", g.spec.Name, "err", err)
	}
	g.said = said
}

// become gives the process its guest, and the sockets their places, and waits
// until it is ready.
func (i *infant) become(birth *Birth, dir string) (err error) {
	defer func() { err = errors.Join(err, i.report.Close(), os.RemoveAll(i.dir)) }()
	if err := i.move(infantVMM, birth.Spec.Socket, birth.Owner()); err != nil {
		return err
	}
	if err := i.move(guestproc.ControlSocket, filepath.Join(dir, guestproc.ControlSocket), vfiouser.Owner{UID: -1, GID: -1}); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(i.dir, guestproc.UntilFile), filepath.Join(dir, guestproc.UntilFile)); err != nil {
		return fmt.Errorf("put a guest's suspension in its place: %w", err)
	}
	if birth.UID == nil {
		// Its own user is not the daemon's.
		uid := os.Geteuid()
		birth.UID = &uid
	}
	// What it answers says more of what is wrong than that it can't be told.
	terr := json.NewEncoder(i.stdin).Encode(birth)
	if cerr := i.stdin.Close(); terr == nil {
		terr = cerr
	}
	if err := i.report.SetReadDeadline(time.Now().Add(birthLimit)); err != nil {
		return err
	}
	line, err := io.ReadAll(io.LimitReader(i.report, 4<<10))
	switch got := strings.TrimSpace(string(line)); {
	case err == nil && got == BirthReady:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("its process is not ready after %v; its log says what it is doing", birthLimit)
	case err == nil && got == "":
		return errors.Join(errors.New("its process ended before it was ready; its log says why"), terr)
	case err == nil:
		return errors.New(got)
	}
	return err
}

// move puts a socket in its place, from when on its owner can connect to it. A
// dead one that is there is replaced.
func (i *infant) move(name, to string, owner vfiouser.Owner) error {
	if _, err := os.Lstat(to); err == nil && alive(to) {
		return fmt.Errorf("listen on %s: another server is there", to)
	}
	from := filepath.Join(i.dir, name)
	if err := os.Lchown(from, owner.UID, owner.GID); err != nil {
		return fmt.Errorf("give socket %s to its client: %w", to, err)
	}
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("put a guest's socket in its place: %w", err)
	}
	return nil
}

// discard ends a process that is no guest's after all.
func (s *Service) discard(i *infant) error {
	err := errors.Join(kill(i.cmd.Process), i.report.Close(), os.RemoveAll(i.dir))
	<-i.ended
	if errors.Is(err, os.ErrClosed) {
		err = nil // the report was read
	}
	return errors.Join(err, s.sandboxes.Release(i.sandbox))
}

// nursery keeps one process begun for the next guest: a process takes longer to
// begin than all else takes that a guest needs, and QEMU, or whoever has it plug
// in a device, waits.
type nursery struct {
	mu     sync.Mutex
	spare  *infant
	filler bool // somebody is to begin one
	over   bool
}

// take is the spare process, if there is one for that GPU.
func (n *nursery) take(g ipc.GPU) *infant {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := n.spare
	if !i.serves(g) {
		return nil // which fill sees to
	}
	n.spare = nil
	return i
}

// serves reports whether the process, if there is one, can serve a guest of that GPU: it was
// begun for it and has not ended.
func (i *infant) serves(g ipc.GPU) bool {
	if i == nil || i.gpu != g {
		return false
	}
	select {
	case <-i.ended:
		return false
	default:
		return true
	}
}

// fill begins a process for the next guest of a GPU, a little later: the last one
// has things to do.
func (s *Service) fill(g ipc.GPU) {
	n := &s.nursery
	n.mu.Lock()
	busy := n.filler || n.over
	n.filler = true
	n.mu.Unlock()
	if busy {
		return
	}
	s.wg.Go(func() {
		wait := time.NewTimer(nurseryWait)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-s.quit:
		}
		n.mu.Lock()
		n.filler = false
		over := n.over
		if !over && n.spare.serves(g) {
			n.mu.Unlock()
			return // it was not there yet when the last guest came
		}
		old := n.spare
		n.spare = nil
		n.mu.Unlock()
		if old != nil {
			s.log.Debug("a guest's process that was not needed ends", "err", s.discard(old))
		}
		if over {
			return
		}
		next, err := s.begin(g)
		if err != nil {
			s.log.Debug("no guest's process begins ahead", "err", err)
			return
		}
		n.mu.Lock()
		if over = n.over || n.spare != nil; !over {
			n.spare = next
		}
		n.mu.Unlock()
		if over {
			s.log.Debug("a guest's process that was not needed ends", "err", s.discard(next))
		}
	})
}

// empty ends the spare process, and has no other begin.
func (s *Service) empty() error {
	s.nursery.mu.Lock()
	i := s.nursery.spare
	s.nursery.spare, s.nursery.over = nil, true
	s.nursery.mu.Unlock()
	if i == nil {
		return nil
	}
	return s.discard(i)
}

// sweepNursery removes what processes that were begun ahead by a daemon that was
// killed have left; they ended with it.
func (s *Service) sweepNursery() error {
	left, err := filepath.Glob(filepath.Join(s.runDir(), infantDirs))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return fmt.Errorf("remove what an earlier daemon left: %w", err)
	}
	return nil
}
