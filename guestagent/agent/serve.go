package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver"
	"vgpud/guestagent/sysfs"
)

// maxDialled bounds the connections there can be at once, and hello how long one may
// take to say what it wants.
const (
	maxDialled = 256
	hello      = 5 * time.Second
)

// Listen makes the agent's socket, for root and the agent's group alone. It replaces
// what an agent before left there.
func (a *Agent) Listen(path string) (*net.UnixListener, error) {
	if c, err := allot.Dial(path); err == nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: another agent does", path), c.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen: %w", err)
	}
	// Nobody else may connect before the group is set: the socket has its mode when it
	// is bound, and Linux gives that to its file.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var e error
		err := c.Control(func(fd uintptr) { e = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, e)
	}}
	made, err := private.Listen(context.Background(), "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l := made.(*net.UnixListener)
	if a.o.GID >= 0 {
		if err := errors.Join(os.Chown(path, -1, a.o.GID), os.Chmod(path, 0o660)); err != nil {
			return nil, errors.Join(fmt.Errorf("open %s to group %d: %w", path, a.o.GID, err), l.Close())
		}
	}
	return l, nil
}

// Serve shares devices with the programs that connect, until ctx ends; then it waits
// until what they had is cleared.
func (a *Agent) Serve(ctx context.Context, l *net.UnixListener) error {
	defer a.tenants.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for pause := shortPause; ; {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			return nil
		}
		if err != nil && !passing(err) {
			return fmt.Errorf("accept a program: %w", err)
		}
		if err != nil {
			a.o.Log.Warn("no program is accepted for now", "again", pause, "err", err)
			_ = clock.Sleep(ctx, clock.Real{}, pause)
			pause = min(2*pause, longPause)
			continue
		}
		pause = shortPause
		if !a.enter() {
			a.o.Log.Warn("too many connections", "limit", maxDialled)
			_ = c.Close()
			continue
		}
		a.tenants.Go(func() {
			defer a.leave()
			a.serve(ctx, allot.Conn{UnixConn: c})
		})
	}
}

// shortPause is how long no program is accepted after an error that passes, doubled
// with each that follows up to longPause.
const (
	shortPause = 5 * time.Millisecond
	longPause  = time.Second
)

// passing tells errors of accept that pass: the program has gone again, or descriptors
// or memory are short.
func passing(err error) bool {
	return slices.ContainsFunc([]error{
		unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EINTR,
	}, func(e error) bool { return errors.Is(err, e) })
}

func (a *Agent) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dialled >= maxDialled {
		return false
	}
	a.dialled++
	return true
}

func (a *Agent) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dialled--
}

// serve answers a program.
func (a *Agent) serve(ctx context.Context, c allot.Conn) {
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := c.SetDeadline(time.Now().Add(hello)); err != nil {
		return
	}
	for {
		var r allot.Request
		files, err := c.Receive(&r)
		allot.CloseAll(files)
		if err != nil {
			return
		}
		switch r.Op {
		case allot.OpStatus:
			err = c.Send(a.status())
		case allot.OpKernels:
			err = c.Send(a.kernels(r.From))
		case allot.OpOpen:
			if err = c.SetDeadline(time.Time{}); err == nil {
				a.lend(ctx, c, r)
			}
			return
		default:
			err = c.Send(allot.Reply{Error: fmt.Sprintf("unknown request %q", r.Op)})
		}
		if err != nil {
			return
		}
	}
}

// status is what is known of all devices.
func (a *Agent) status() allot.Reply {
	b, err := json.Marshal(a.Devices())
	if err != nil {
		return allot.Reply{Error: err.Error()}
	}
	return allot.Reply{Status: b}
}

// lend gives a program its part of a device for as long as it is connected.
func (a *Agent) lend(ctx context.Context, c allot.Conn, r allot.Request) {
	who, err := peer(c)
	var t *tenant
	if err == nil {
		err = a.await(ctx, r.Address)
	}
	if err == nil {
		t, err = a.admit(ctx, who, r)
	}
	if err != nil {
		a.o.Log.Warn("program refused", "pid", who.PID, "err", err)
		_ = c.Send(allot.Reply{Error: err.Error()})
		return
	}
	log := t.of.log
	defer a.dismiss(t)
	grant, fds, err := t.of.bus.Lend(t.Allotment, t.state)
	if err != nil {
		_ = c.Send(allot.Reply{Error: err.Error()})
		return
	}
	grant.Preempt = &a.o.Preempt
	if err := c.Send(allot.Reply{Grant: &grant}, fds...); err != nil {
		return
	}
	log.Info("program has a part", "pid", who.PID, "uid", who.UID,
		"contexts", len(t.Allotment.Contexts), "channels", len(t.Allotment.Channels), "shared_bytes", t.Allotment.Shared.Size)
	// The device's end ends the connection, by which the program knows.
	gone := make(chan struct{})
	var watching sync.WaitGroup
	defer watching.Wait()
	defer close(gone)
	watching.Go(func() {
		select {
		case <-t.of.bus.Done():
			_ = c.Close()
		case <-gone:
		}
	})
	for {
		var r allot.Request
		files, err := c.Receive(&r)
		allot.CloseAll(files)
		if err != nil {
			return
		}
		if err := c.Send(a.answer(t, &r)); err != nil {
			return
		}
	}
}

// answer answers a program that has its part.
func (a *Agent) answer(t *tenant, r *allot.Request) (reply allot.Reply) {
	switch r.Op {
	case allot.OpSet:
		code, err := t.set(r.Offset, r.Value)
		if reply.Code = uint32(code); err != nil {
			reply.Error = err.Error()
		}
	case allot.OpRecall:
		return a.recall(r.Keys)
	case allot.OpLearn:
		a.learn(r.Learned)
	default:
		reply.Error = fmt.Sprintf("unknown request %q of a program that has its part", r.Op)
	}
	return reply
}

// peer tells who is at the other end.
func peer(c allot.Conn) (Tenant, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Tenant{}, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil || err != nil {
		return Tenant{}, fmt.Errorf("ask who connected: %w", errors.Join(e, err))
	}
	return Tenant{PID: int(cred.Pid), UID: int(cred.Uid), Since: time.Now()}, nil
}

// await waits until no device that can be meant is being prepared, or has come just
// now.
func (a *Agent) await(ctx context.Context, address string) error {
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	for {
		found, err := a.o.PCI.Functions()
		if err != nil {
			return err
		}
		settled, preparing := a.preparing(ctx, found, address)
		if !preparing {
			return nil
		}
		select {
		case <-settled:
		case <-limited.Done():
			return fmt.Errorf("virtual GPU %s is still being prepared", address)
		}
	}
}

// retryAsked is how long after its failure a device that a program asks for is tried
// again.
const retryAsked = time.Second

// preparing tells whether one of the functions found that can be meant is not ready
// yet, and returns what is closed when that may have changed.
func (a *Agent) preparing(ctx context.Context, found []sysfs.Function, address string) (<-chan struct{}, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range found {
		if address != "" && address != f.Address {
			continue
		}
		d := a.devices[f.Address]
		if d == nil {
			a.look() // the kernel's word of it is under way
		}
		// What failed a while ago may be well again.
		if d != nil && d.State == StateFailed && time.Since(d.Since) > retryAsked {
			a.again(ctx, d)
		}
		if d == nil || d.State == StatePreparing {
			return a.settled, true
		}
	}
	return nil, false
}

// admit opens the device, if no other program has it, and allots a part of it.
func (a *Agent) admit(ctx context.Context, who Tenant, r allot.Request) (*tenant, error) {
	address, err := a.choose(r.Address)
	if err != nil {
		return nil, err
	}
	// Opening can take long: the kernel waits a minute for a device that does not
	// answer its reset. Nobody but who wants this device waits along.
	opening := a.openingOf(address)
	opening.Lock()
	defer opening.Unlock()
	s := a.sharedAt(address)
	if s == nil || s.gone() { // the one that is gone is closed by its last tenant
		if s, err = a.openShared(ctx, address); err != nil {
			a.failOpen(address, err)
			return nil, err
		}
		a.mu.Lock()
		a.opened[address] = s
		a.mu.Unlock()
	}
	t, err := s.add(who, r.Ask)
	if err != nil {
		err = fmt.Errorf("share %s: %w", address, err)
		return nil, errors.Join(err, a.closeUnused(s))
	}
	return t, nil
}

// openingOf is the lock under which a device is opened for tenants and closed.
func (a *Agent) openingOf(address string) *sync.Mutex {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.opening[address]
	if l == nil {
		l = new(sync.Mutex)
		a.opening[address] = l
	}
	return l
}

func (a *Agent) sharedAt(address string) *shared {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opened[address]
}

// failOpen notes that a device can't be opened, unless another process has it.
func (a *Agent) failOpen(address string, err error) {
	if errors.Is(err, driver.ErrBusy) {
		return
	}
	a.o.Log.Error("virtual GPU does not open", "device", address, "err", err)
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.devices[address]; d != nil && d.State != StatePreparing {
		d.State, d.Since, d.Problem = StateFailed, time.Now(), err.Error()
	}
}

// openShared opens a device for tenants.
func (a *Agent) openShared(ctx context.Context, address string) (*shared, error) {
	bus, err := a.o.Open(ctx, address)
	if err != nil {
		return nil, err
	}
	s, err := share(address, bus, a.o.Log.With("device", address))
	if err != nil {
		return nil, fmt.Errorf("share %s: %w", address, err)
	}
	return s, nil
}

// choose finds the device that is meant.
func (a *Agent) choose(address string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if address == "" {
		if len(a.devices) > 1 {
			return "", fmt.Errorf("%w: name one", driver.ErrSeveral)
		}
		for only := range a.devices {
			address = only
		}
	}
	d := a.devices[address]
	switch {
	case d == nil:
		return "", fmt.Errorf("%w: the agent knows none %s", driver.ErrNoDevice, address)
	case d.State == StateFailed:
		return "", fmt.Errorf("virtual GPU %s is not usable: %s", address, d.Problem)
	}
	return address, nil
}

// dismiss takes a tenant's part back, and closes a device that nobody has any more.
func (a *Agent) dismiss(t *tenant) {
	t.of.remove(t)
	opening := a.openingOf(t.of.address)
	opening.Lock()
	defer opening.Unlock()
	if err := a.closeUnused(t.of); err != nil && !errors.Is(err, driver.ErrGone) {
		t.of.log.Error("close the virtual GPU", "err", err)
	}
}

// closeUnused closes a device without tenants; its opening lock is held.
func (a *Agent) closeUnused(s *shared) error {
	if len(s.tenantsOf()) > 0 {
		return nil
	}
	a.mu.Lock()
	maps.DeleteFunc(a.opened, func(_ string, other *shared) bool { return other == s })
	a.mu.Unlock()
	return s.close()
}
