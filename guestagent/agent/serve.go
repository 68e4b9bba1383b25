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
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver"
	"vgpud/guestagent/sysfs"
	"vgpud/internal/unixmsg"
)

// maxConnections bounds the connections at a time: one user other than root has at most
// maxUserConnections, and rootConnections are left to root. requestTimeout bounds the time until a
// program has made its request, and answerTimeout that until it has the answer.
const (
	maxConnections     = 256
	maxUserConnections = 64
	rootConnections    = 16
	requestTimeout     = 5 * time.Second
	answerTimeout      = time.Minute
)

// Listen creates the agent's socket, accessible only to root and the agent's group. It replaces the
// socket of an agent that has ended.
func (a *Agent) Listen(path string) (*net.UnixListener, error) {
	if c, err := allot.Dial(path); err == nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: another agent does", path), c.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen: %w", err)
	}
	// No other process may connect before the group is set: the socket has its mode when it is
	// bound, and Linux gives that to its file.
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

// Serve shares devices with the programs that connect, until ctx ends; then it waits until what
// they had is cleared.
func (a *Agent) Serve(ctx context.Context, l *net.UnixListener) error {
	defer a.tenants.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for pause := minAcceptPause; ; {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			return nil
		}
		if err != nil && !temporary(err) {
			return fmt.Errorf("accept a program: %w", err)
		}
		if err != nil {
			a.o.Log.Warn("programs are temporarily not accepted", "again", pause, "err", err)
			_ = clock.Sleep(ctx, clock.Real{}, pause)
			pause = min(2*pause, maxAcceptPause)
			continue
		}
		pause = minAcceptPause
		cred, err := unixmsg.Peer(c)
		if err != nil {
			a.o.Log.Warn("program refused", "err", err)
			_ = c.Close()
			continue
		}
		uid := int(cred.Uid)
		if limit, ok := a.addConnection(uid); !ok {
			a.o.Log.Warn("too many connections", "uid", uid, "limit", limit)
			_ = c.Close()
			continue
		}
		a.tenants.Go(func() {
			defer a.removeConnection(uid)
			a.serve(ctx, allot.Conn{UnixConn: c})
		})
	}
}

// minAcceptPause is how long no program is accepted after a temporary error. It doubles with each
// further one, up to maxAcceptPause.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// temporary reports whether an error of accept is temporary: the program has disconnected, or
// descriptors or memory are short.
func temporary(err error) bool {
	return slices.ContainsFunc([]error{
		unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EINTR,
	}, func(e error) bool { return errors.Is(err, e) })
}

// addConnection counts a connection of a user. It reports false, with the limit, if there are too
// many.
func (a *Agent) addConnection(uid int) (limit int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := 0
	for _, n := range a.connections {
		sum += n
	}
	switch {
	case uid != 0 && a.connections[uid] >= maxUserConnections:
		return maxUserConnections, false
	case uid != 0 && sum-a.connections[0] >= maxConnections-rootConnections:
		return maxConnections - rootConnections, false
	case sum >= maxConnections:
		return maxConnections, false
	}
	a.connections[uid]++
	return 0, true
}

func (a *Agent) removeConnection(uid int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.connections[uid]--; a.connections[uid] == 0 {
		delete(a.connections, uid)
	}
}

// serve answers a program's requests.
func (a *Agent) serve(ctx context.Context, c allot.Conn) {
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	for {
		if err := c.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
			return
		}
		var r allot.Request
		files, err := c.Receive(&r)
		allot.CloseAll(files)
		if err == nil {
			// The answer has time of its own: the agent may be busy with its devices.
			err = c.SetDeadline(time.Now().Add(answerTimeout))
		}
		if err != nil {
			return
		}
		switch r.Op {
		case allot.OpStatus:
			err = c.Send(a.status())
		case allot.OpKernels:
			err = c.Send(a.kernels(r.From))
		case allot.OpMissing:
			err = c.Send(a.missing.reply())
		case allot.OpEvents:
			err = a.lendEvents(c, r.Address)
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

// status describes all devices.
func (a *Agent) status() allot.Reply {
	b, err := json.Marshal(a.Devices())
	if err != nil {
		return allot.Reply{Error: err.Error()}
	}
	return allot.Reply{Status: b}
}

// lendEvents gives what stands in for a network card the event area of a device that programs have
// open. It keeps the descriptor for as long as it likes.
func (a *Agent) lendEvents(c allot.Conn, address string) error {
	area, err := a.eventArea(address)
	if err != nil {
		return c.Send(allot.Reply{Error: err.Error()})
	}
	return c.Send(allot.Reply{}, int(area.Fd()))
}

// eventArea returns the event area of a device.
func (a *Agent) eventArea(address string) (*os.File, error) {
	address, err := a.findDevice(address)
	if err != nil {
		return nil, err
	}
	s := a.sharedAt(address)
	if s == nil {
		return nil, fmt.Errorf("virtual GPU %s: no program has it open", address)
	}
	bus, ok := s.bus.(interface{ EventArea() (*os.File, error) })
	if !ok {
		return nil, fmt.Errorf("virtual GPU %s has no event area", address)
	}
	area, err := bus.EventArea()
	if err != nil {
		return nil, fmt.Errorf("virtual GPU %s: %w", address, err)
	}
	return area, nil
}

// lend gives a program its part of a device as long as it is connected.
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
	log := t.device.log
	defer a.removeTenant(ctx, t)
	grant, fds, err := t.device.bus.Lend(t.Allotment, t.event())
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
	// If the device ends, closing the connection tells the program.
	gone := make(chan struct{})
	var watching sync.WaitGroup
	defer watching.Wait()
	defer close(gone)
	watching.Go(func() {
		select {
		case <-t.device.bus.Done():
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

// answer handles a request of a program that has its part.
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
	case allot.OpMissed:
		a.missing.add(t, r.Missed)
	default:
		reply.Error = fmt.Sprintf("unknown request %q of a program that has its part", r.Op)
	}
	return reply
}

// peer returns the process at the other end.
func peer(c allot.Conn) (Tenant, error) {
	cred, err := unixmsg.Peer(c)
	if err != nil {
		return Tenant{}, fmt.Errorf("read the peer's credentials: %w", err)
	}
	return Tenant{PID: int(cred.Pid), UID: int(cred.Uid), Program: programOf(int(cred.Pid)), Since: time.Now()}, nil
}

// programOf returns a process's name, or "" if it has ended.
func programOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// await waits until no device that the program may mean is being prepared or has just appeared.
func (a *Agent) await(ctx context.Context, address string) error {
	limited, cancel := context.WithTimeout(ctx, checkTimeout)
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

// minRetryInterval is how long after its failure a device is tried again for a program that asks
// for it.
const minRetryInterval = time.Second

// preparing reports whether a function found that the program may mean is not ready yet, and
// returns a channel that is closed when that may have changed.
func (a *Agent) preparing(ctx context.Context, found []sysfs.Function, address string) (<-chan struct{}, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range found {
		if address != "" && address != f.Address {
			continue
		}
		d := a.devices[f.Address]
		if d == nil {
			a.requestRescan() // the kernel's event may not have arrived yet
		}
		// The failure's cause may have passed.
		if d != nil && d.State == StateFailed && time.Since(d.Since) > minRetryInterval {
			a.prepareAgain(ctx, d)
		}
		if d == nil || d.State == StatePreparing {
			return a.stateChanged, true
		}
	}
	return nil, false
}

// admit opens the device, if it is not open yet, and allots a part of it.
func (a *Agent) admit(ctx context.Context, who Tenant, r allot.Request) (*tenant, error) {
	address, err := a.findDevice(r.Address)
	if err != nil {
		return nil, err
	}
	// Opening can take long: the kernel waits a minute for a device that does not answer its reset.
	// Only programs that want this device wait for that.
	opening := a.openingOf(address)
	opening.Lock()
	defer opening.Unlock()
	s := a.sharedAt(address)
	if s == nil || s.gone() { // the one that is gone is closed by its last tenant
		if s, err = a.openShared(ctx, address); err != nil {
			a.recordOpenError(address, err)
			return nil, err
		}
		a.mu.Lock()
		a.opened[address] = s
		a.mu.Unlock()
	}
	t, err := s.addTenant(who, r.Ask, a.o.PerUser)
	if err != nil {
		err = fmt.Errorf("share %s: %w", address, err)
		return nil, errors.Join(err, a.closeUnused(s))
	}
	return t, nil
}

// openingOf returns the lock under which a device is opened for tenants and closed.
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

func (a *Agent) sharedAt(address string) *sharedDevice {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opened[address]
}

// recordOpenError records that a device can't be opened, unless it is busy.
func (a *Agent) recordOpenError(address string, err error) {
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
func (a *Agent) openShared(ctx context.Context, address string) (*sharedDevice, error) {
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

// findDevice returns the address of the device that is meant.
func (a *Agent) findDevice(address string) (string, error) {
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

// removeTenant takes a tenant's part back, and closes a device that has no tenant any more.
func (a *Agent) removeTenant(ctx context.Context, t *tenant) {
	t.device.remove(ctx, t)
	opening := a.openingOf(t.device.address)
	opening.Lock()
	defer opening.Unlock()
	if err := a.closeUnused(t.device); err != nil && !errors.Is(err, driver.ErrGone) {
		t.device.log.Error("close the virtual GPU", "err", err)
	}
}

// closeUnused closes a device without tenants; its opening lock is held.
func (a *Agent) closeUnused(s *sharedDevice) error {
	s.mu.Lock()
	used := len(s.tenants) > 0
	s.mu.Unlock()
	if used {
		return nil
	}
	a.mu.Lock()
	maps.DeleteFunc(a.opened, func(_ string, other *sharedDevice) bool { return other == s })
	a.mu.Unlock()
	return s.close()
}
