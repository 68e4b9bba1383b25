package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// Birth is what the process of a guest's virtual GPU reads, as JSON, from its
// standard input. When it is ready it writes a line to file descriptor 3:
// "ready", or what is wrong. From 4 on are its sockets: see package guest's Inherit.
type Birth struct {
	Spec ipc.Spec `json:"spec"`
	// UID and GID are the VMM's, whom its socket is for; where they are not set that
	// is the daemon's user.
	UID *int `json:"uid,omitempty"`
	GID *int `json:"gid,omitempty"`
}

// Owner is whom the guest's socket belongs to. What is left open stays as it was
// made: the daemon's.
func (b *Birth) Owner() vfiouser.Owner {
	o := vfiouser.Owner{UID: -1, GID: -1}
	if b.UID != nil {
		o.UID = *b.UID
	}
	if b.GID != nil {
		o.GID = *b.GID
	}
	return o
}

// BirthReady is the line that a guest's process writes when it serves.
const BirthReady = "ready"

// birthLimit is how long a guest's process may take to be ready.
const birthLimit = 10 * time.Second

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
	b, err := s.conceive(spec, socket, uuid)
	if err != nil {
		return api.VM{}, err
	}
	g, err := s.bear(b)
	s.admission.Lock()
	delete(s.unborn, spec.Name)
	if err != nil {
		err = errors.Join(s.notKept(err), s.o.Files.Remove(s.guestDir(spec.Name)), s.clearDomainSocket(socket))
	}
	s.admission.Unlock()
	if err != nil {
		return api.VM{}, fmt.Errorf("guest %q: %w", spec.Name, err)
	}
	b.share.changed(g.id)
	s.log.Info("guest created", "guest", spec.Name, "domain", spec.Domain, "gpu", b.share.config.Name, "weight", g.termsNow().Weight)
	return s.VM(spec.Name)
}

// unborn is a guest that is being made: what it is to have is nobody else's any
// more.
type unborn struct {
	spec   api.VMSpec
	share  *share
	socket string
	uuid   string // of the domain whose directory the socket is in, if it is in one
}

// conceive admits a guest, finds its GPU, and makes its directories.
func (s *Service) conceive(spec api.VMSpec, socket, uuid string) (*unborn, error) {
	s.admission.Lock()
	defer s.admission.Unlock()
	if err := s.vacant(spec.Name, socket); err != nil {
		return nil, err
	}
	sh, err := s.home(&spec)
	if err != nil {
		return nil, fmt.Errorf("guest %q: %w", spec.Name, err)
	}
	dir := s.guestDir(spec.Name)
	if err := s.makeGuestDir(dir, uuid); err != nil {
		return nil, errors.Join(fmt.Errorf("guest %q: %w", spec.Name, s.notKept(err)), os.RemoveAll(dir))
	}
	b := &unborn{spec: spec, share: sh, socket: socket, uuid: uuid}
	s.unborn[spec.Name] = b
	return b, nil
}

// makeGuestDir makes a guest's directory, and its domain's.
func (s *Service) makeGuestDir(dir, uuid string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear its directory: %w", err)
	}
	// Others may pass through to the VMM's socket, if they know its name.
	if err := os.Mkdir(dir, 0o711); err != nil {
		return fmt.Errorf("make its directory: %w", err)
	}
	if err := s.o.Files.SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if uuid == "" {
		return nil
	}
	return s.makeDomainDir(uuid)
}

// checkSpec says what is wrong with what is asked for, as far as that doesn't
// depend on what else there is.
func checkSpec(spec *api.VMSpec) error {
	err := errors.Join(api.CheckName(spec.Name), spec.Terms().Check(), checkBAR2(spec.BAR2Bytes), api.CheckDomain(spec.Domain),
		api.CheckTimeLimit(spec.KernelTimeLimit), api.CheckMemoryLimit(spec.MemoryLimitBytes))
	for what, id := range map[string]*int{"uid": spec.UID, "gid": spec.GID} {
		if id != nil {
			err = errors.Join(err, api.CheckID(what, *id))
		}
	}
	if spec.DomainUUID != "" {
		err = errors.Join(err, api.CheckUUID(spec.DomainUUID))
	}
	if spec.Peer != nil {
		err = errors.Join(err, spec.Peer.Check())
	}
	return err
}

// vacant is whether there is no guest of that name or with that socket, and none
// is being made. The caller holds admission.
func (s *Service) vacant(name, socket string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if _, ok := s.guests[name]; ok {
		return fmt.Errorf("guest %q: %w", name, api.ErrExists)
	}
	if s.unborn[name] != nil {
		return fmt.Errorf("guest %q: %w, or nearly so", name, api.ErrExists)
	}
	if t := s.silent[name]; t != nil {
		return errors.Join(s.errSilent(t), api.ErrExists)
	}
	taken := func(by string) error { return fmt.Errorf("socket %s: guest %q has it: %w", socket, by, api.ErrExists) }
	for _, g := range s.guests {
		if g.spec.Socket == socket {
			return taken(g.spec.Name)
		}
	}
	for _, t := range s.silent {
		if t.noted != nil && t.noted.Spec.Socket == socket {
			return taken(t.name)
		}
	}
	for _, b := range s.unborn {
		if b.socket == socket {
			return taken(b.spec.Name)
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

// bear starts a guest's process, confined, and meets it.
func (s *Service) bear(b *unborn) (g *guest, err error) {
	spec, dir := b.spec, s.guestDir(b.spec.Name)
	birth := Birth{
		Spec: ipc.Spec{
			Name: spec.Name, Domain: spec.Domain, DomainUUID: spec.DomainUUID, Socket: b.socket,
			GPU:       b.share.link(),
			BAR2Bytes: spec.BAR2Bytes, MemoryLimit: spec.MemoryLimitBytes,
			KernelTimeLimit: s.config.Load().kernelTimeLimit(spec.KernelTimeLimit),
		},
		UID: spec.UID, GID: spec.GID,
	}
	if spec.DomainUUID != "" {
		granted := ipc.Terms(spec.Terms())
		birth.Spec.Granted = &granted
	}
	if p := spec.Peer; p != nil {
		birth.Spec.Peer = &ipc.Peer{PID: p.PID, PIDFile: p.PIDFile}
	}
	i := s.nursery.take(birth.Spec.GPU)
	if i == nil {
		if i, err = s.begin(birth.Spec.GPU); err != nil {
			return nil, err
		}
	}
	birth.Spec.Sandbox = i.sandbox
	// Before it is a guest's: a daemon that comes next knows whose it is by this alone.
	noted := &kept{PID: i.cmd.Process.Pid, Spec: birth.Spec, Terms: spec.Terms(), At: s.clock.Now()}
	if noted.Began, err = startOf(noted.PID); err == nil {
		err = noted.write(s.o.Files, dir)
	}
	if err == nil {
		err = i.become(&birth, dir)
	}
	if err != nil {
		return nil, errors.Join(err, s.discard(i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), meetLimit)
	defer cancel()
	g, err = s.adopt(ctx, dir, noted, nil)
	if err != nil {
		return nil, errors.Join(err, s.discard(i))
	}
	s.fill(birth.Spec.GPU)
	s.wg.Go(func() {
		<-g.gone
		select {
		case <-s.quit: // it is the daemon that goes
			return
		default:
		}
		if <-i.ended; i.err != nil {
			s.log.Warn("guest's process", "guest", spec.Name, "err", i.err)
		}
	})
	return g, nil
}

// kill ends a process that may have ended by itself.
func kill(p *os.Process) error {
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
