package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
	"vgpud/mediator/ipc"
	"vgpud/mediator/nova/reservation"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// StartupConfig is what the process of a guest's virtual GPU reads, as JSON, from its standard
// input. When it is ready it writes a line to file descriptor 3: [ReadyLine], or what is wrong.
// From 4 on are its sockets: see package vm's Inherit.
type StartupConfig struct {
	Spec ipc.Spec `json:"spec"`
	// UID and GID are the VMM's, for which the guest's socket is; nil is the daemon's user.
	UID *int `json:"uid,omitempty"`
	GID *int `json:"gid,omitempty"`
}

// Owner returns the owner of the guest's socket; -1 leaves the socket with the daemon's user.
func (c *StartupConfig) Owner() vfiouser.Owner {
	o := vfiouser.Owner{UID: -1, GID: -1}
	if c.UID != nil {
		o.UID = *c.UID
	}
	if c.GID != nil {
		o.GID = *c.GID
	}
	return o
}

// ReadyLine is the line that a guest's process writes when it serves.
const ReadyLine = "ready"

// readyLimit is how long a guest's process may take to be ready, on a host whose processors are all
// busy as well.
const readyLimit = 30 * time.Second

// CreateVM implements [api.Host].
func (s *Service) CreateVM(by access.Caller, spec api.VMSpec) (api.VM, error) {
	return s.createVM(by, spec, ipc.Bill{})
}

// createVM creates a guest that has been charged a bill before.
func (s *Service) createVM(by access.Caller, spec api.VMSpec, bill ipc.Bill) (api.VM, error) {
	if spec.BAR2Bytes == 0 {
		spec.BAR2Bytes = abi.DefaultSharedBytes
	}
	spec.DomainUUID = strings.ToLower(spec.DomainUUID)
	if spec.Float && spec.MemoryLimitBytes == 0 {
		spec.MemoryLimitBytes = s.largestGPU() // all of its contexts need a bound
	}
	if err := checkSpec(&spec); err != nil {
		return api.VM{}, err
	}
	socket, uuid, err := s.socketOf(&spec)
	if err != nil {
		return api.VM{}, err
	}
	p, err := s.admit(spec, socket, uuid)
	if err != nil {
		return api.VM{}, err
	}
	p.bill = bill
	p.bill.Executed = 0 // its executors count anew
	g, err := s.startVM(p)
	if err = s.settle(p, err); err != nil {
		return api.VM{}, err
	}
	if _, err := s.forgetLost(spec.Name); err != nil {
		s.log.Warn("forget a lost guest whose name another has", "guest", spec.Name, "err", err)
	}
	g.changed()
	s.log.Info("guest created", events.Kind(events.GuestCreated), "guest", spec.Name, "domain", spec.Domain, "gpu", p.device.config.Name, "float", spec.Float, "weight", g.terms().Weight, "by", by)
	return s.VM(spec.Name)
}

// admit reserves what a guest is to have, on the host's and on Placement's books. If it may be on any
// GPU, one of which Placement has promised too much is left out.
func (s *Service) admit(spec api.VMSpec, socket, uuid string) (*pendingVM, error) {
	sold := make(map[string]error)
	for {
		p, err := s.reserve(spec, socket, uuid, sold)
		if err != nil {
			return nil, err
		}
		if err = s.claim(&spec, p.device); err == nil {
			return p, nil
		}
		failed := s.settle(p, err)
		if spec.GPU != "" && spec.GPU != api.AnyGPU || !errors.Is(err, reservation.ErrSold) {
			return nil, failed
		}
		sold[p.device.config.Name] = err
	}
}

// settle ends a guest's creation, which may have failed.
func (s *Service) settle(p *pendingVM, err error) error {
	s.admission.Lock()
	defer s.admission.Unlock()
	delete(s.pending, p.spec.Name)
	if err == nil {
		return nil
	}
	err = errors.Join(s.notSaved(err), s.o.Files.Remove(s.guestDir(p.spec.Name)), s.removeDomainSocket(p.socket))
	return fmt.Errorf("guest %q: %w", p.spec.Name, err)
}

// pendingVM is a guest that is being created. Its part of the host is reserved for it.
type pendingVM struct {
	spec   api.VMSpec
	device *device
	socket string
	uuid   string // of the domain whose directory the socket is in; empty if it is in none
	bill   ipc.Bill
}

// reserve admits a guest, chooses its GPU, and makes its directories. sold are GPUs that it can't have,
// with the reasons.
func (s *Service) reserve(spec api.VMSpec, socket, uuid string, sold map[string]error) (*pendingVM, error) {
	s.admission.Lock()
	defer s.admission.Unlock()
	if err := s.checkUnused(spec.Name, socket); err != nil {
		return nil, err
	}
	d, err := s.chooseDevice(&spec, sold)
	if err != nil {
		return nil, fmt.Errorf("guest %q: %w", spec.Name, err)
	}
	dir := s.guestDir(spec.Name)
	if err := s.makeGuestDir(dir, uuid); err != nil {
		return nil, errors.Join(fmt.Errorf("guest %q: %w", spec.Name, s.notSaved(err)), os.RemoveAll(dir))
	}
	p := &pendingVM{spec: spec, device: d, socket: socket, uuid: uuid}
	s.pending[spec.Name] = p
	s.tasks.notify() // spare executors may have to make room
	return p, nil
}

// makeGuestDir makes a guest's directory, and its domain's.
func (s *Service) makeGuestDir(dir, uuid string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear its directory: %w", err)
	}
	// Other users may pass through to the VMM's socket, if they know its name.
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

// checkSpec returns what is wrong with a specification, as far as that doesn't depend on other
// guests.
func checkSpec(spec *api.VMSpec) error {
	err := errors.Join(api.CheckName(spec.Name), spec.Terms().Check(), checkBAR2(spec.BAR2Bytes), api.CheckDomain(spec.Domain), api.CheckAccount(spec.Owner, spec.Project),
		api.CheckMemoryLimit(spec.MemoryLimitBytes))
	for what, id := range map[string]*int{"uid": spec.UID, "gid": spec.GID} {
		if id != nil {
			err = errors.Join(err, api.CheckID(what, *id))
		}
	}
	if spec.DomainUUID != "" {
		err = errors.Join(err, api.CheckUUID(spec.DomainUUID))
	}
	if spec.Engine != "" {
		err = errors.Join(err, api.CheckEngine(spec.Engine))
	}
	if spec.Peer != nil {
		err = errors.Join(err, spec.Peer.Check())
	}
	if spec.Float && spec.GPU != "" && spec.GPU != api.AnyGPU {
		err = errors.Join(err, fmt.Errorf("float: the guest's contexts go to any GPU, so gpu %q can't be asked for: %w", spec.GPU, api.ErrInvalid))
	}
	return err
}

// checkUnused returns an error if there is a guest of that name or with that socket, or one is
// being created.
//
// Preconditions: s.admission is held.
func (s *Service) checkUnused(name, socket string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if _, ok := s.guests[name]; ok {
		return fmt.Errorf("guest %q: %w", name, api.ErrExists)
	}
	if s.pending[name] != nil {
		return fmt.Errorf("guest %q: %w, or nearly so", name, api.ErrExists)
	}
	if t := s.silent[name]; t != nil {
		return errors.Join(s.silentError(t), api.ErrExists)
	}
	taken := func(by string) error { return fmt.Errorf("socket %s: guest %q has it: %w", socket, by, api.ErrExists) }
	for _, g := range s.guests {
		if g.spec.Socket == socket {
			return taken(g.spec.Name)
		}
	}
	for _, t := range s.silent {
		if t.saved != nil && t.saved.Spec.Socket == socket {
			return taken(t.name)
		}
	}
	for _, p := range s.pending {
		if p.socket == socket {
			return taken(p.spec.Name)
		}
	}
	return nil
}

// checkBAR2 returns what is wrong with a size of the memory shared with a guest.
func checkBAR2(n uint64) error {
	if n < abi.MinSharedBytes || n > abi.MaxSharedBytes || n&(n-1) != 0 {
		return fmt.Errorf("shared memory of %d bytes: want a power of two from %d to %d: %w",
			n, uint64(abi.MinSharedBytes), uint64(abi.MaxSharedBytes), api.ErrInvalid)
	}
	return nil
}

// startupConfig returns what a pending guest's process is told.
func (s *Service) startupConfig(p *pendingVM) StartupConfig {
	spec := &p.spec
	c := StartupConfig{
		Spec: ipc.Spec{
			Name: spec.Name, Domain: spec.Domain, DomainUUID: spec.DomainUUID, Owner: spec.Owner, Project: spec.Project, Engine: spec.Engine, Socket: p.socket,
			GPU:       p.device.ipcGPU(),
			BAR2Bytes: spec.BAR2Bytes, MemoryLimit: spec.MemoryLimitBytes,
			KernelTimeLimit: s.config.Load().kernelTimeLimit(spec.KernelTimeLimit),
		},
		UID: spec.UID, GID: spec.GID,
	}
	if spec.DomainUUID != "" {
		granted := ipc.Terms(spec.Terms())
		c.Spec.Granted = &granted
	}
	if spec.Float {
		c.Spec.Floats = s.floatsOver(p.device)
		c.Spec.Alike = s.alike(c.Spec.Floats)
	}
	if p := spec.Peer; p != nil {
		c.Spec.Peer = &ipc.Peer{PID: p.PID, PIDFile: p.PIDFile}
	}
	return c
}

// startVM starts a guest's process, in a sandbox, and adopts it.
func (s *Service) startVM(p *pendingVM) (g *guest, err error) {
	dir := s.guestDir(p.spec.Name)
	c := s.startupConfig(p)
	var proc *vmProcess
	if len(c.Spec.Floats) == 0 {
		proc = s.prestart.take(c.Spec.GPU)
	}
	if proc == nil {
		if proc, err = s.spawn(c.Spec.GPU, c.Spec.Floats...); err != nil {
			return nil, err
		}
	}
	c.Spec.Sandbox = proc.sandbox
	// This comes before the process is told its guest: the next daemon knows which guest it is by
	// this alone.
	saved := &savedState{PID: proc.cmd.Process.Pid, Spec: c.Spec, Terms: p.spec.Terms(), Bill: p.bill, Before: p.bill, At: s.clock.Now(), Own: p.device.ownCount(p.spec.Name)}
	if saved.Own != nil {
		saved.OwnBefore = *saved.Own
	}
	for _, f := range c.Spec.Floats {
		if d, err := s.device(f.Name); err == nil && d != p.device {
			away := savedPresence{GPU: f.Name, Own: d.ownCount(p.spec.Name)}
			if away.Own != nil {
				away.OwnBefore = *away.Own
			}
			saved.Away = append(saved.Away, away)
		}
	}
	if saved.Began, err = startTime(saved.PID); err == nil {
		err = saved.write(s.o.Files, dir)
	}
	if err == nil {
		err = proc.assign(&c, dir)
	}
	if err != nil {
		return nil, errors.Join(err, s.discard(proc))
	}
	s.mu.Lock()
	s.processes[saved.PID] = proc
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	g, err = s.adopt(ctx, dir, saved, nil)
	if err != nil {
		s.forgetProcess(saved.PID)
		return nil, errors.Join(err, s.discard(proc))
	}
	if len(c.Spec.Floats) == 0 {
		s.prestartNext(c.Spec.GPU)
	}
	return g, nil
}

// noteEnd waits for the end of the process of a guest that is gone, if this daemon started it, and says
// if it did not end as it should.
func (s *Service) noteEnd(g *guest) {
	proc := s.forgetProcess(g.pid)
	select {
	case <-s.quit: // the daemon ends, and the process goes on
		return
	default:
	}
	if proc == nil {
		return
	}
	select {
	case <-proc.ended:
	case <-s.quit: // the kernel keeps it, for example in a call of a driver that hangs
		return
	}
	if proc.err != nil && !(g.ending.Load() && wasKilled(proc.err)) {
		s.log.Warn("guest's process", events.Kind(events.GuestProcess), "guest", g.spec.Name, "err", proc.err)
	}
}

// wasKilled reports whether a process's end was SIGKILL, as for one that was told to end and has closed
// its connection: see cleanUp.
func wasKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// forgetProcess forgets a guest's process that this daemon started, and returns it; nil if it is another.
func (s *Service) forgetProcess(pid int) *vmProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	proc := s.processes[pid]
	delete(s.processes, pid)
	return proc
}

// kill ends a process that may have ended by itself.
func kill(p *os.Process) error {
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
