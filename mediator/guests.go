package mediator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/mediator/api"
	guestproc "vgpud/mediator/guest"
	"vgpud/mediator/link"
	"vgpud/mediator/vgpu/abi"
)

// Birth is what the process of a guest's virtual GPU reads, as JSON, from its
// standard input. When it is ready it writes a line to file descriptor 3:
// "ready", or what is wrong.
type Birth struct {
	Spec link.Spec `json:"spec"`
	Dir  string    `json:"dir"`
	UID  *int      `json:"uid,omitempty"`
	GID  *int      `json:"gid,omitempty"`
}

// BirthReady is the line that a guest's process writes when it serves.
const BirthReady = "ready"

// birthLimit is how long a guest's process may take to be ready.
const birthLimit = 10 * time.Second

// adopt meets the guest behind a control socket. terms are a new guest's; nil is
// what the last daemon said.
func (s *Service) adopt(dir string, terms *api.Terms) (*guest, error) {
	conn, err := link.Dial(filepath.Join(dir, guestproc.ControlSocket))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.lastID++
	id := s.lastID
	s.mu.Unlock()
	g, err := meet(id, conn, terms)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if _, err := s.share(g.spec.GPU.Name); err != nil {
		return nil, errors.Join(fmt.Errorf("guest %s is on a GPU that is not configured: %w", g.spec.Name, err), g.close())
	}
	if s.pinned {
		g.page.SetWatchCPU(s.cpu)
	}
	// What the last daemon decided no longer holds.
	g.apply(link.Run, s.clock.Now())
	s.mu.Lock()
	s.guests[g.spec.Name] = g
	s.mu.Unlock()
	s.wg.Go(func() {
		defer close(g.gone)
		ended := g.attend(s.log)
		if ended {
			s.clear(dir, g.spec.Socket)
			s.log.Info("guest left", "guest", g.spec.Name)
		}
		s.forget(g)
	})
	return g, nil
}

// clear removes what a guest that is gone has left.
func (s *Service) clear(dir, socket string) {
	s.births.Lock() // of whom one may use the same directory
	defer s.births.Unlock()
	if err := errors.Join(os.RemoveAll(dir), s.clearDomainSocket(socket)); err != nil {
		s.log.Warn("remove what a guest left", "dir", dir, "socket", socket, "err", err)
	}
}

// forget lets go of a guest whose process has ended, or whom a daemon that ends
// leaves to itself. Nobody uses its page after that.
func (s *Service) forget(g *guest) {
	s.mu.Lock()
	delete(s.guests, g.spec.Name)
	err := g.close()
	s.mu.Unlock()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Warn("forget a guest", "guest", g.spec.Name, "err", err)
	}
	if sh, err := s.share(g.spec.GPU.Name); err == nil {
		sh.changed(g.id)
	}
}

// adoptAll finds the guests that an earlier daemon made.
func (s *Service) adoptAll() error {
	vms := s.guestDir("")
	if err := os.MkdirAll(vms, 0o711); err != nil {
		return fmt.Errorf("make the directory of guests: %w", err)
	}
	entries, err := os.ReadDir(vms)
	if err != nil {
		return fmt.Errorf("look for guests: %w", err)
	}
	strays := false
	for _, e := range entries {
		dir := filepath.Join(vms, e.Name())
		switch g, err := s.adopt(dir, nil); {
		case err == nil:
			s.log.Info("guest adopted", "guest", g.spec.Name, "pid", g.pid)
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
			// Its process is gone, and left this behind.
			if err := os.RemoveAll(dir); err != nil {
				s.log.Warn("remove what a guest left", "dir", dir, "err", err)
			}
		default:
			strays = true
			s.log.Warn("guest not adopted", "dir", dir, "err", err)
		}
	}
	return s.clearDomains(strays)
}

// CreateVM implements [api.Host].
func (s *Service) CreateVM(spec api.VMSpec) (api.VM, error) {
	if spec.BAR2Bytes == 0 {
		spec.BAR2Bytes = abi.DefaultSharedBytes
	}
	spec.DomainUUID = strings.ToLower(spec.DomainUUID)
	if err := checkSpec(&spec); err != nil {
		return api.VM{}, err
	}
	socket, uuid, err := s.socketOf(&spec)
	if err != nil {
		return api.VM{}, err
	}
	s.births.Lock()
	defer s.births.Unlock()
	if err := s.vacant(spec.Name, socket); err != nil {
		return api.VM{}, err
	}
	sh, err := s.home(&spec)
	if err != nil {
		return api.VM{}, fmt.Errorf("guest %q: %w", spec.Name, err)
	}
	g, err := s.bear(spec, sh, socket, uuid)
	if err != nil {
		return api.VM{}, fmt.Errorf("guest %q: %w", spec.Name, err)
	}
	sh.changed(g.id)
	s.log.Info("guest created", "guest", spec.Name, "domain", spec.Domain, "gpu", sh.config.Name, "weight", g.termsNow().Weight)
	return s.VM(spec.Name)
}

// checkSpec says what is wrong with what is asked for, as far as that doesn't
// depend on what else there is.
func checkSpec(spec *api.VMSpec) error {
	err := errors.Join(api.CheckName(spec.Name), spec.Terms().Check(), checkBAR2(spec.BAR2Bytes), api.CheckDomain(spec.Domain))
	if spec.DomainUUID != "" {
		err = errors.Join(err, api.CheckUUID(spec.DomainUUID))
	}
	if spec.Peer != nil {
		err = errors.Join(err, spec.Peer.Check())
	}
	return err
}

// vacant is whether there is no guest of that name or with that socket.
func (s *Service) vacant(name, socket string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if _, ok := s.guests[name]; ok {
		return fmt.Errorf("guest %q: %w", name, api.ErrExists)
	}
	for _, g := range s.guests {
		if g.spec.Socket == socket {
			return fmt.Errorf("socket %s: guest %q has it: %w", socket, g.spec.Name, api.ErrExists)
		}
	}
	return nil
}

// checkBAR2 says what is wrong with a size of the memory shared with a guest.
func checkBAR2(n uint64) error {
	if n < abi.MinSharedBytes || n > abi.MaxSharedBytes || n&(n-1) != 0 {
		return fmt.Errorf("shared memory of %d bytes: want a power of two from %d to %d: %w",
			n, uint64(abi.MinSharedBytes), uint64(abi.MaxSharedBytes), api.ErrInvalid)
	}
	return nil
}

// bear starts a guest's process and meets it. The VMM's socket is in the
// directory of the domain uuid, if that is not empty.
func (s *Service) bear(spec api.VMSpec, sh *share, socket, uuid string) (_ *guest, err error) {
	dir := s.guestDir(spec.Name)
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("clear its directory: %w", err)
	}
	// Others may pass through to the VMM's socket, if they know its name.
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make its directory: %w", err)
	}
	if uuid != "" {
		if err := s.makeDomainDir(uuid); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	birth := Birth{
		Spec: link.Spec{
			Name: spec.Name, Domain: spec.Domain, DomainUUID: spec.DomainUUID, Socket: socket,
			GPU:       link.GPU{Name: sh.config.Name, Kind: sh.config.Kind, Socket: sh.config.Socket},
			BAR2Bytes: spec.BAR2Bytes, MemoryLimit: spec.MemoryLimitBytes,
			KernelTimeLimit: s.config.Load().kernelTimeLimit(spec.KernelTimeLimit),
		},
		Dir: dir, UID: spec.UID, GID: spec.GID,
	}
	if p := spec.Peer; p != nil {
		birth.Spec.Peer = &link.Peer{PID: p.PID, PIDFile: p.PIDFile}
	}
	remove := func() error { return errors.Join(os.RemoveAll(dir), s.clearDomainSocket(socket)) }
	cmd := s.o.Command()
	if err := start(cmd, birth); err != nil {
		return nil, errors.Join(err, remove())
	}
	terms := spec.Terms()
	g, err := s.adopt(dir, &terms)
	if err != nil {
		return nil, errors.Join(err, kill(cmd.Process), ignoreKilled(cmd.Wait()), remove())
	}
	s.wg.Go(func() {
		<-g.gone
		select {
		case <-s.quit: // it is the daemon that goes
			return
		default:
		}
		if err := cmd.Wait(); err != nil {
			s.log.Warn("guest's process", "guest", spec.Name, "err", err)
		}
	})
	return g, nil
}

// start runs a guest's process, in a session of its own so that it outlives the
// daemon, and waits until it is ready.
func start(cmd *exec.Cmd, birth Birth) (err error) {
	text, err := json.Marshal(birth)
	if err != nil {
		return fmt.Errorf("encode its description: %w", err)
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { err = errors.Join(err, ours.Close()) }()
	cmd.Stdin = strings.NewReader(string(text))
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	err = cmd.Start()
	if cerr := theirs.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	if err := ours.SetReadDeadline(time.Now().Add(birthLimit)); err != nil {
		return errors.Join(err, kill(cmd.Process), ignoreKilled(cmd.Wait()))
	}
	line, err := io.ReadAll(io.LimitReader(ours, 4<<10))
	if got := strings.TrimSpace(string(line)); err != nil || got != BirthReady {
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = fmt.Errorf("its process is not ready after %v; its log says what it is doing", birthLimit)
		case err == nil && got == "":
			err = errors.New("its process ended before it was ready; its log says why")
		case err == nil:
			err = errors.New(got)
		}
		return errors.Join(err, kill(cmd.Process), ignoreKilled(cmd.Wait()))
	}
	return nil
}

// kill ends a process that may have ended by itself.
func kill(p *os.Process) error {
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// ignoreKilled drops the exit status of a process that has said what was wrong.
func ignoreKilled(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

// DeleteVM implements [api.Host].
func (s *Service) DeleteVM(name string) error {
	ended, err := s.end(name, func(*guest) bool { return true })
	if !ended && err == nil {
		return noGuest(name)
	}
	return err
}

// end ends the guest of that name, if it is the one that is meant, and reports
// whether it is.
func (s *Service) end(name string, meant func(*guest) bool) (bool, error) {
	s.mu.RLock()
	g, ok := s.guests[name]
	ok = ok && meant(g)
	var err error
	if ok {
		err = g.conn.Send(link.Message{Kind: link.KindQuit})
	}
	s.mu.RUnlock()
	if !ok {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("tell guest %q to end: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), birthLimit)
	defer cancel()
	select {
	case <-g.gone:
	case <-ctx.Done():
		return true, fmt.Errorf("guest %q, process %d, does not end; kill it", name, g.pid)
	}
	return true, nil
}

func noGuest(name string) error {
	return fmt.Errorf("guest %q: %w (`vgpuctl get vms` lists them)", name, api.ErrNotFound)
}
