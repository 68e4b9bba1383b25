package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"vgpud/clock"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
	"vgpud/mediator/ipc"
	"vgpud/mediator/suspend"
	guestproc "vgpud/mediator/vm"
)

// silentGuest is a guest of an earlier daemon that this one has not contacted: its process is stopped,
// swapped out, or not the one that was saved. Its part of the host stays reserved for it, and it is
// suspended until it is contacted.
type silentGuest struct {
	name, dir string
	saved     *savedState // nil: nothing that can be relied on
	since     time.Duration

	tried chan struct{} // closed once it was contacted, is gone, or was refused once
	once  sync.Once     // for tried
	gone  chan struct{} // closed when it is contacted or gone
	retry chan struct{} // has it contacted at once
	lives *os.File      // see guest; nil once the guest has it. Only contact and what it calls use it

	mu        sync.Mutex
	why       error // why it was refused last; nil: it has not answered
	suspended bool
	killed    bool // by this daemon
	settled   bool // gone is closed
}

const (
	// contactLimit is how long a daemon that starts waits for the guests of the last one.
	contactLimit = 5 * time.Second
	// silentAfter is how long a guest may not answer until it is suspended.
	silentAfter = time.Second
	// retryEvery is how often a guest is contacted again that was refused.
	retryEvery = time.Second
	// renewEvery is how often a suspension is renewed, which ends by itself without a daemon.
	renewEvery = ipc.SuspensionLimit / 8
)

// register notes a guest that an earlier daemon created as silent, so that what it has stays its
// own.
func (s *Service) register(dir string) *silentGuest {
	t := &silentGuest{
		name: filepath.Base(dir), dir: dir, since: s.clock.Now(),
		tried: make(chan struct{}), gone: make(chan struct{}), retry: make(chan struct{}, 1),
	}
	t.lives = s.showLife(dir)
	saved, err := readState(dir)
	switch {
	case err != nil:
		t.why = err
	case saved == nil:
		t.why = errors.New("no state of it was saved")
	case saved.Spec.Name == "":
		saved.older, saved.Spec.Name = true, t.name
		if saved.Began, err = startTime(saved.PID); err != nil {
			s.log.Debug("guest of an older daemon", "guest", t.name, "err", err) // it is found to be gone
		}
		t.saved = saved
	case saved.Spec.Name != t.name:
		t.why = fmt.Errorf("the state that was saved there is guest %q's", saved.Spec.Name)
	default:
		t.saved = saved
		if err := s.sandboxes.Adopt(saved.Spec.Sandbox); err != nil {
			s.log.Warn("guest's limits stay as they were", "guest", t.name, "err", err)
		}
	}
	s.mu.Lock()
	s.silent[t.name] = t
	s.mu.Unlock()
	return t
}

// adoptAll contacts the guests that an earlier daemon created, all at once. Those that don't answer
// in time are contacted again and again until ctx ends.
func (s *Service) adoptAll(ctx context.Context) error {
	vms := s.guestDir("")
	if err := os.MkdirAll(vms, 0o711); err != nil {
		return fmt.Errorf("make the directory of guests: %w", err)
	}
	entries, err := os.ReadDir(vms)
	if err != nil {
		return fmt.Errorf("look for guests: %w", err)
	}
	if s.intents, err = suspend.NewIntents(s.intentsDir()); err != nil {
		return err
	}
	if s.leftDisabled, err = s.intents.List(); err != nil {
		return err
	}
	s.readAlive()
	var all []*silentGuest
	for _, e := range entries {
		all = append(all, s.register(filepath.Join(vms, e.Name())))
	}
	for _, t := range all {
		s.wg.Go(func() { s.contact(ctx, t) })
		s.wg.Go(func() { s.keepSuspended(ctx, t) })
	}
	limit := time.NewTimer(s.contactLimit)
	defer limit.Stop()
	for late, i := false, 0; i < len(all) && !late; i++ {
		select {
		case <-all[i].tried:
		case <-limit.C:
			late = true
		}
	}
	for _, t := range all {
		if v, silent := t.vm(); silent {
			s.log.Error("guest not adopted", events.Kind(events.GuestSilent), "guest", t.name, "reason", v.Silent)
		}
	}
	s.enableLeft()
	s.mu.Lock()
	s.watching = true // guests that come later are billed when they come
	adopted := slices.Collect(maps.Values(s.guests))
	s.mu.Unlock()
	s.billUnwatched(adopted)
	return s.removeStaleSockets()
}

// contact contacts a guest until it is adopted or gone, or ctx ends.
func (s *Service) contact(ctx context.Context, t *silentGuest) {
	defer func() {
		if t.lives != nil {
			_ = t.lives.Close() // nothing was written through it
		}
	}()
	defer t.setTried()
	for {
		g, err := s.adopt(ctx, t.dir, t.saved, t)
		t.mu.Lock()
		killed := t.killed
		t.mu.Unlock()
		switch {
		case err == nil:
			if _, err := s.forgetLost(t.name); err != nil { // a daemon that moved it was killed before it ended
				s.log.Warn("forget that a guest was lost which is there", "guest", t.name, "err", err)
			}
			s.log.Info("guest adopted", events.Kind(events.GuestAdopted), "guest", t.name, "pid", g.pid)
			return
		case ctx.Err() != nil:
			return
		case killed, errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
			// A guest without a socket was never created to the end.
			if v, _ := t.vm(); errors.Is(err, syscall.ECONNREFUSED) && !killed && t.saved != nil {
				s.lose(&v, fmt.Sprintf("its process %d ended while no daemon ran", t.saved.PID))
			}
			s.removeSilent(t)
			return
		}
		t.mu.Lock()
		if t.why == nil || t.why.Error() != err.Error() {
			s.log.Warn("guest not adopted", events.Kind(events.GuestSilent), "guest", t.name, "err", err)
			t.why = err
		}
		t.mu.Unlock()
		t.setTried()
		wait := time.NewTimer(retryEvery)
		select {
		case <-wait.C:
		case <-t.retry:
		case <-ctx.Done():
		}
		wait.Stop()
	}
}

// setTried notes that the first attempt to contact the guest is over.
func (t *silentGuest) setTried() { t.once.Do(func() { close(t.tried) }) }

// keepSuspended suspends a guest that does not answer, until it is adopted or gone, or ctx ends.
func (s *Service) keepSuspended(ctx context.Context, t *silentGuest) {
	path := filepath.Join(t.dir, guestproc.UntilFile)
	for wait := silentAfter; clock.Sleep(ctx, s.clock, wait) == nil; wait = renewEvery {
		t.mu.Lock()
		settled := t.settled
		if !settled {
			t.suspended = ipc.SuspendUntil(path, s.clock.Now()+ipc.SuspensionLimit) == nil
		}
		t.mu.Unlock()
		if settled {
			return
		}
	}
	t.resume() // without a daemon no guest is suspended
}

// resume ends the guest's suspension.
func (t *silentGuest) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.suspended {
		t.suspended = false
		// If the file can't be written, the suspension ends by itself.
		_ = ipc.SuspendUntil(filepath.Join(t.dir, guestproc.UntilFile), 0)
	}
}

// settle notes that the guest is silent no more: it was adopted or is gone. The caller has removed
// it from s.silent.
func (t *silentGuest) settle() {
	t.resume()
	t.mu.Lock()
	t.settled = true
	t.mu.Unlock()
	close(t.gone)
}

// removeSilent removes what a guest has left whose process does not listen any more. A process that
// has not ended could not be governed, and is killed.
func (s *Service) removeSilent(t *silentGuest) {
	socket := ""
	if t.saved != nil {
		executors := t.saved.executors() // while its process lives, which is their parent
		if err := t.saved.kill(); err != nil {
			s.log.Error("end a guest that can't be contacted", "guest", t.name, "err", err)
		}
		// Their memory on GPUs is kept for them until then.
		awaitEnds(s.log, t.name, executors)
		if err := s.sandboxes.Release(t.saved.Spec.Sandbox); err != nil {
			s.log.Warn("remove what a guest left", "guest", t.name, "err", err)
		}
		socket = t.saved.Spec.Socket
		s.recordSilentEnd(t.saved)
	}
	_ = s.removeGuest(t.dir, socket) // it logs its error
	s.mu.Lock()
	delete(s.silent, t.name)
	s.mu.Unlock()
	t.settle()
	s.log.Info("guest was gone", events.Kind(events.GuestLeft), "guest", t.name)
}

// endSilent ends a guest that does not answer.
func (s *Service) endSilent(t *silentGuest) error {
	saved := t.saved
	if saved == nil {
		var err error
		if saved, err = identify(t.dir); err != nil {
			v, _ := t.vm()
			return fmt.Errorf("guest %q: which process it is is not known: end that yourself, and remove %s: %s (%w)", t.name, t.dir, v.Silent, err)
		}
	}
	if err := saved.kill(); err != nil {
		return fmt.Errorf("kill guest %q: %w", t.name, err)
	}
	t.mu.Lock()
	t.killed = true
	t.mu.Unlock()
	select {
	case t.retry <- struct{}{}:
	default:
	}
	limit := time.NewTimer(endLimit)
	defer limit.Stop()
	select {
	case <-t.gone:
		return nil
	case <-limit.C:
		return fmt.Errorf("guest %q, process %d, does not end even though it was killed", t.name, saved.PID)
	}
}

// identify returns which process introduces itself at the control socket in a guest's directory, as
// the kernel says. No process of a guest can put another socket there.
func identify(dir string) (_ *savedState, err error) {
	conn, err := ipc.Dial(filepath.Join(dir, guestproc.ControlSocket))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	m, err := conn.ReceiveWithin(endLimit)
	if err != nil {
		return nil, err
	}
	k := &savedState{PID: m.Sender}
	k.Began, err = startTime(k.PID)
	return k, errors.Join(err, m.CloseFiles())
}

// vm returns the guest as the API shows it. It reports false if the guest is silent no more.
func (t *silentGuest) vm() (v api.VM, silent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.settled {
		return v, false
	}
	v.Name, v.Suspended = t.name, t.suspended
	v.Silent = "its process does not answer"
	if t.why != nil {
		v.Silent = t.why.Error()
	}
	if k := t.saved; k != nil {
		v.Owner, v.Project, v.Engine = k.Spec.Owner, k.Spec.Project, k.Spec.Engine
		v.GPU, v.Domain, v.DomainUUID, v.Socket, v.PID = k.Spec.GPU.Name, k.Spec.Domain, k.Spec.DomainUUID, k.Spec.Socket, k.PID
		v.Weight, v.Cap, v.Guarantee, v.PriorityCeiling, v.Latency = k.Terms.Weight, k.Terms.Cap, k.Terms.Guarantee, k.Terms.PriorityCeiling, k.Terms.Latency
		v.GPUSeconds, v.SuspendedSeconds, v.Suspensions = k.Bill.Used.Seconds(), k.Bill.Suspended.Seconds(), k.Bill.Suspensions
		v.Preemption.Caused, v.Preemption.ChargedSeconds = k.Bill.Caused, k.Bill.Charged.Seconds()
		if v.Float = len(k.Spec.Floats) > 0; v.Float {
			v.OnGPUs, v.GPUSeconds = k.onGPUs()
		}
		v.MemoryLimitBytes, v.KernelTimeLimit = k.Spec.MemoryLimit, k.Spec.KernelTimeLimit
		v.Peer, v.Confinement = apiPeer(k.Spec.Peer), apiConfinement(k.Spec.Sandbox)
		v.Silent += fmt.Sprintf("; it is adopted as soon as process %d answers (is it stopped, or short of memory?), or end it: vgpuctl delete vm %s --force", k.PID, t.name)
	}
	v.HeldBack = &api.HeldBack{Reason: "silent", Text: v.Silent}
	return v, true
}

// silentError says that a guest can't be changed, nor another guest of its name be created.
func (s *Service) silentError(t *silentGuest) error {
	v, _ := t.vm()
	return fmt.Errorf("guest %q does not answer: %s: %w", t.name, v.Silent, api.ErrInUse)
}

// silentGuests returns the guests that were not contacted yet.
func (s *Service) silentGuests() []*silentGuest {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*silentGuest, 0, len(s.silent))
	for _, t := range s.silent {
		all = append(all, t)
	}
	return all
}

// silentGuest returns the guest with a name if it was not contacted yet.
func (s *Service) silentGuest(name string) (t *silentGuest, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok = s.silent[name]
	return t, ok
}
