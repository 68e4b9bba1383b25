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

// vmProcess is a guest's process that was started and waits to be told which guest is its.
type vmProcess struct {
	gpu     ipc.GPU
	sandbox *ipc.Sandbox
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	report  *os.File
	dir     string // of its sockets until they are moved to their places
	ended   chan struct{}
	err     error // once it has ended
}

// The names of a prestarted process's sockets are short, since paths of sockets have to be.
const (
	prestartDirs = "n-*"
	vmmSocket    = "v"
)

// prestartDelay keeps the next process from starting while QEMU connects to the last one.
const prestartDelay = 100 * time.Millisecond

// spawn starts a guest's process for a GPU, and others if the guest floats, in a sandbox, and in a
// session of its own so that the process outlives the daemon.
func (s *Service) spawn(g ipc.GPU, others ...ipc.GPU) (_ *vmProcess, err error) {
	p := &vmProcess{gpu: g, cmd: s.o.Command(), ended: make(chan struct{})}
	if p.sandbox, err = s.sandboxes.Create(append([]ipc.GPU{g}, others...)...); err != nil {
		return nil, fmt.Errorf("confine its process: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.sandboxes.Release(p.sandbox))
		}
	}()
	if p.dir, err = os.MkdirTemp(s.runDir(), prestartDirs); err != nil {
		return nil, fmt.Errorf("make a place for its sockets: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(p.dir))
		}
	}()
	sockets, err := guestproc.Listen(filepath.Join(p.dir, vmmSocket), nil, p.dir)
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
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	output, stderr, err := guestproc.CaptureOutput(s.guestLog(), outputMessage)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, stderr.Close()); err != nil {
			err = errors.Join(err, output.Close())
		}
	}()
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	p.report = ours
	p.cmd.Stdout, p.cmd.Stderr = stderr, stderr
	p.cmd.ExtraFiles = append([]*os.File{theirs}, files...)
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	err = sandbox.Start(p.cmd, p.sandbox)
	if cerr := theirs.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", p.cmd.Path, err), ours.Close())
	}
	output.With("pid", p.cmd.Process.Pid)
	p.cmd.Env, p.cmd.ExtraFiles = nil, nil // nothing reads them any more, and there may be a thousand
	go func() {
		p.err = waitChild(p.cmd)
		if _, err := output.End(); err != nil {
			s.log.Debug("close a process's standard error", "err", err)
		}
		close(p.ended)
	}()
	return p, nil
}

// outputMessage is the log message for what guests' processes write.
const outputMessage = "output of the guest's process"

// guestLog returns a log for what one guest's processes write, or bring about. It is limited for each
// guest by itself.
func (s *Service) guestLog() *slog.Logger {
	return slog.New(guestproc.LimitLog(s.log.Handler(), s.clock))
}

// captureOutput has a guest's process that an earlier daemon started write its log to this one,
// until the guest is forgotten. If that fails, the process goes on without its log.
func (s *Service) captureOutput(g *guest) {
	output, stderr, err := guestproc.CaptureOutput(s.guestLog().With("pid", g.pid), outputMessage)
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
	g.output = output
}

// assign tells the process which guest is its, moves its sockets to their places, and waits until
// it is ready.
func (p *vmProcess) assign(c *StartupConfig, dir string) (err error) {
	defer func() { err = errors.Join(err, p.report.Close(), os.RemoveAll(p.dir)) }()
	if err := p.move(vmmSocket, c.Spec.Socket, c.Owner()); err != nil {
		return err
	}
	if err := p.move(guestproc.ControlSocket, filepath.Join(dir, guestproc.ControlSocket), vfiouser.Owner{UID: -1, GID: -1}); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(p.dir, guestproc.UntilFile), filepath.Join(dir, guestproc.UntilFile)); err != nil {
		return fmt.Errorf("put a guest's suspension in its place: %w", err)
	}
	if c.UID == nil {
		// Its own user is not the daemon's.
		uid := os.Geteuid()
		c.UID = &uid
	}
	// Its report says more about what is wrong than that it can't be told.
	terr := json.NewEncoder(p.stdin).Encode(c)
	if cerr := p.stdin.Close(); terr == nil {
		terr = cerr
	}
	if err := p.report.SetReadDeadline(time.Now().Add(readyLimit)); err != nil {
		return err
	}
	line, err := io.ReadAll(io.LimitReader(p.report, 4<<10))
	switch got := strings.TrimSpace(string(line)); {
	case err == nil && got == ReadyLine:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("its process is not ready after %v; its log says what it is doing", readyLimit)
	case err == nil && got == "":
		return errors.Join(errors.New("its process ended before it was ready; its log says why"), terr)
	case err == nil:
		return errors.New(got)
	}
	return err
}

// move moves a socket to its place, where its owner can connect to it from then on. A dead socket
// that is there is replaced.
func (p *vmProcess) move(name, to string, owner vfiouser.Owner) error {
	if _, err := os.Lstat(to); err == nil && listening(to) {
		return fmt.Errorf("listen on %s: another server is there", to)
	}
	from := filepath.Join(p.dir, name)
	if err := os.Lchown(from, owner.UID, owner.GID); err != nil {
		return fmt.Errorf("give socket %s to its client: %w", to, err)
	}
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("put a guest's socket in its place: %w", err)
	}
	return nil
}

// discard ends a process that becomes no guest's.
func (s *Service) discard(p *vmProcess) error {
	err := errors.Join(kill(p.cmd.Process), p.report.Close(), os.RemoveAll(p.dir))
	<-p.ended
	if errors.Is(err, os.ErrClosed) {
		err = nil // the report was read
	}
	return errors.Join(err, s.sandboxes.Release(p.sandbox))
}

// serves reports whether there is a process that can serve a guest of a GPU: it was started for
// that GPU and has not ended.
func (p *vmProcess) serves(g ipc.GPU) bool {
	if p == nil || p.gpu != g {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// prestartPool keeps one process started for the next guest. A process takes longer to start than
// everything else that a guest needs, and QEMU, or a user who plugs in a device, waits.
type prestartPool struct {
	mu       sync.Mutex
	spare    *vmProcess
	starting bool // a goroutine is to start one
	closed   bool
}

// take takes the spare process, or returns nil if there is none for that GPU.
func (n *prestartPool) take(g ipc.GPU) *vmProcess {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.spare
	if !p.serves(g) {
		return nil // prestartNext replaces it
	}
	n.spare = nil
	return p
}

// prestartNext starts a process for the next guest of a GPU, a little later, since the last one has
// things to do.
func (s *Service) prestartNext(g ipc.GPU) {
	n := &s.prestart
	n.mu.Lock()
	busy := n.starting || n.closed
	n.starting = true
	n.mu.Unlock()
	if busy {
		return
	}
	s.wg.Go(func() {
		wait := time.NewTimer(prestartDelay)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-s.quit:
		}
		n.mu.Lock()
		n.starting = false
		closed := n.closed
		if !closed && n.spare.serves(g) {
			n.mu.Unlock()
			return // it was not there yet when the last guest came
		}
		old := n.spare
		n.spare = nil
		n.mu.Unlock()
		if old != nil {
			s.log.Debug("a prestarted process that was not needed ends", "err", s.discard(old))
		}
		if closed {
			return
		}
		next, err := s.spawn(g)
		if err != nil {
			s.log.Debug("no process is prestarted", "err", err)
			return
		}
		n.mu.Lock()
		if closed = n.closed || n.spare != nil; !closed {
			n.spare = next
		}
		n.mu.Unlock()
		if closed {
			s.log.Debug("a prestarted process that was not needed ends", "err", s.discard(next))
		}
	})
}

// closePrestart ends the spare process, and starts no other.
func (s *Service) closePrestart() error {
	s.prestart.mu.Lock()
	p := s.prestart.spare
	s.prestart.spare, s.prestart.closed = nil, true
	s.prestart.mu.Unlock()
	if p == nil {
		return nil
	}
	return s.discard(p)
}

// removeStalePrestarts removes what processes that were prestarted by a daemon that was killed have
// left. They ended with it.
func (s *Service) removeStalePrestarts() error {
	left, err := filepath.Glob(filepath.Join(s.runDir(), prestartDirs))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return fmt.Errorf("remove what an earlier daemon left: %w", err)
	}
	return nil
}
