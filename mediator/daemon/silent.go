package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"vgpud/clock"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/suspend"
	guestproc "vgpud/mediator/vm"
)

// silent is a guest of an earlier daemon's that this one has not met: its process is
// stopped, swapped out, or not what was noted of it. What it has stays its own, and it is
// suspended until it is met.
type silent struct {
	name, dir string
	noted     *kept // nil: nothing that can be gone by
	since     time.Duration

	tried chan struct{} // closed when it has been met, is gone, or was once refused
	once  sync.Once     // for tried
	gone  chan struct{} // closed when it is met or gone
	again chan struct{} // has it looked for at once

	mu        sync.Mutex
	why       error // why it was refused last; nil: it has said nothing
	suspended bool
	killed    bool // by this daemon, so that nobody is waited for
	over      bool // gone is closed
}

const (
	// meetLimit is how long a daemon that starts waits for the guests of the last one, and
	// how long the process of a new guest may take to introduce itself.
	meetLimit = 5 * time.Second
	// silentAfter is how long a guest may say nothing until it is suspended.
	silentAfter = time.Second
	// seekEvery is how often a guest is looked for that was refused.
	seekEvery = time.Second
	// hushEvery is how often a suspension is renewed, which ends by itself without a daemon.
	hushEvery = ipc.SuspensionLimit / 8
)

// claim has what a guest that an earlier daemon made stay its own before anybody is
// given anything.
func (s *Service) claim(dir string) *silent {
	t := &silent{
		name: filepath.Base(dir), dir: dir, since: s.clock.Now(),
		tried: make(chan struct{}), gone: make(chan struct{}), again: make(chan struct{}, 1),
	}
	noted, err := readKept(dir)
	switch {
	case err != nil:
		t.why = err
	case noted == nil:
		t.why = errors.New("nothing is noted of it")
	case noted.Spec.Name == "":
		noted.older, noted.Spec.Name = true, t.name
		if noted.Began, err = startOf(noted.PID); err != nil {
			s.log.Debug("guest of an older daemon", "guest", t.name, "err", err) // it is found to be gone
		}
		t.noted = noted
	case noted.Spec.Name != t.name:
		t.why = fmt.Errorf("what is noted there is guest %q's", noted.Spec.Name)
	default:
		t.noted = noted
		if err := s.sandboxes.Adopt(noted.Spec.Sandbox); err != nil {
			s.log.Warn("guest's limits stay as they were", "guest", t.name, "err", err)
		}
	}
	s.mu.Lock()
	s.silent[t.name] = t
	s.mu.Unlock()
	return t
}

// adoptAll finds the guests that an earlier daemon made, all at once. Those that don't
// answer in time are gone on being looked for until ctx ends.
func (s *Service) adoptAll(ctx context.Context) error {
	vms := s.guestDir("")
	if err := os.MkdirAll(vms, 0o711); err != nil {
		return fmt.Errorf("make the directory of guests: %w", err)
	}
	entries, err := os.ReadDir(vms)
	if err != nil {
		return fmt.Errorf("look for guests: %w", err)
	}
	if s.intents, err = suspend.NewIntents(s.holdsDir()); err != nil {
		return err
	}
	if s.left, err = s.intents.List(); err != nil {
		return err
	}
	var all []*silent
	for _, e := range entries {
		all = append(all, s.claim(filepath.Join(vms, e.Name())))
	}
	for _, t := range all {
		s.wg.Go(func() { s.seek(ctx, t) })
		s.wg.Go(func() { s.hush(ctx, t) })
	}
	limit := time.NewTimer(meetLimit)
	defer limit.Stop()
	for late, i := false, 0; i < len(all) && !late; i++ {
		select {
		case <-all[i].tried:
		case <-limit.C:
			late = true
		}
	}
	for _, t := range all {
		if v, is := s.showSilent(t); is {
			s.log.Error("guest not adopted", "guest", t.name, "reason", v.Silent)
		}
	}
	s.enableLeft()
	return s.clearDomains()
}

// seek looks for a guest until it is met or gone, or ctx ends.
func (s *Service) seek(ctx context.Context, t *silent) {
	defer t.attempted()
	for {
		g, err := s.adopt(ctx, t.dir, t.noted, t)
		t.mu.Lock()
		killed := t.killed
		t.mu.Unlock()
		switch {
		case err == nil:
			s.log.Info("guest adopted", "guest", t.name, "pid", g.pid)
			return
		case ctx.Err() != nil:
			return
		case killed, errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
			s.bury(t)
			return
		}
		t.mu.Lock()
		if t.why == nil || t.why.Error() != err.Error() {
			s.log.Warn("guest not adopted", "guest", t.name, "err", err)
			t.why = err
		}
		t.mu.Unlock()
		t.attempted()
		wait := time.NewTimer(seekEvery)
		select {
		case <-wait.C:
		case <-t.again:
		case <-ctx.Done():
		}
		wait.Stop()
	}
}

// attempted says that the first attempt to meet the guest is over.
func (t *silent) attempted() { t.once.Do(func() { close(t.tried) }) }

// hush suspends a guest that says nothing, until it is met or gone, or ctx ends.
func (s *Service) hush(ctx context.Context, t *silent) {
	path := filepath.Join(t.dir, guestproc.UntilFile)
	for wait := silentAfter; clock.Sleep(ctx, s.clock, wait) == nil; wait = hushEvery {
		t.mu.Lock()
		over := t.over
		if !over {
			t.suspended = ipc.SuspendUntil(path, s.clock.Now()+ipc.SuspensionLimit) == nil
		}
		t.mu.Unlock()
		if over {
			return
		}
	}
	t.release() // without a daemon nobody is suspended
}

// release ends the guest's suspension.
func (t *silent) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.suspended {
		t.suspended = false
		// Where it can't be written, it ends by itself.
		_ = ipc.SuspendUntil(filepath.Join(t.dir, guestproc.UntilFile), 0)
	}
}

// settle has the guest not be silent any more. The caller has taken it from the service's
// silent ones, and put another in its place where it was met.
func (t *silent) settle() {
	t.release()
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	close(t.gone)
}

// bury removes what a guest has left whose process does not listen any more. Such a process
// that has not ended could not be governed, and is ended.
func (s *Service) bury(t *silent) {
	if t.noted != nil {
		err := t.noted.kill()
		if err != nil {
			s.log.Error("end a guest that can't be met", "guest", t.name, "err", err)
		}
		if err := s.sandboxes.Release(t.noted.Spec.Sandbox); err != nil {
			s.log.Warn("remove what a guest left", "guest", t.name, "err", err)
		}
		s.clear(t.dir, t.noted.Spec.Socket)
	} else {
		s.clear(t.dir, "")
	}
	s.mu.Lock()
	delete(s.silent, t.name)
	s.mu.Unlock()
	t.settle()
	s.log.Info("guest was gone", "guest", t.name)
}

// endSilent ends a guest that does not answer.
func (s *Service) endSilent(t *silent) error {
	noted := t.noted
	if noted == nil {
		var err error
		if noted, err = answers(t.dir); err != nil {
			v, _ := s.showSilent(t)
			return fmt.Errorf("guest %q: which process it is is not known: end that yourself, and remove %s: %s (%w)", t.name, t.dir, v.Silent, err)
		}
	}
	if err := noted.kill(); err != nil {
		return fmt.Errorf("kill guest %q: %w", t.name, err)
	}
	t.mu.Lock()
	t.killed = true
	t.mu.Unlock()
	select {
	case t.again <- struct{}{}:
	default:
	}
	limit := time.NewTimer(endLimit)
	defer limit.Stop()
	select {
	case <-t.gone:
		return nil
	case <-limit.C:
		return fmt.Errorf("guest %q, process %d, does not end even though it was killed", t.name, noted.PID)
	}
}

// answers notes which process introduces itself at the control socket in a guest's
// directory, as the kernel says; none of a guest's processes can put another socket there.
func answers(dir string) (_ *kept, err error) {
	conn, err := ipc.Dial(filepath.Join(dir, guestproc.ControlSocket))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	m, err := conn.ReceiveWithin(endLimit)
	if err != nil {
		return nil, err
	}
	k := &kept{PID: m.Sender}
	k.Began, err = startOf(k.PID)
	return k, errors.Join(err, m.CloseFiles())
}

// showSilent is the guest as the API shows it, unless it is silent no more.
func (s *Service) showSilent(t *silent) (v api.VM, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return v, false
	}
	v.Name, v.Suspended = t.name, t.suspended
	v.Silent = "its process says nothing"
	if t.why != nil {
		v.Silent = t.why.Error()
	}
	if k := t.noted; k != nil {
		v.GPU, v.Domain, v.DomainUUID, v.Socket, v.PID = k.Spec.GPU.Name, k.Spec.Domain, k.Spec.DomainUUID, k.Spec.Socket, k.PID
		v.Weight, v.Cap, v.Guarantee, v.PriorityCeiling = k.Terms.Weight, k.Terms.Cap, k.Terms.Guarantee, k.Terms.PriorityCeiling
		v.GPUSeconds, v.SuspendedSeconds, v.Suspensions = k.Bill.Used.Seconds(), k.Bill.Suspended.Seconds(), k.Bill.Suspensions
		v.Preemption.Caused, v.Preemption.ChargedSeconds = k.Bill.Caused, k.Bill.Charged.Seconds()
		v.MemoryLimitBytes, v.KernelTimeLimit = k.Spec.MemoryLimit, k.Spec.KernelTimeLimit
		v.Peer, v.Confinement = showPeer(k.Spec.Peer), showSandbox(k.Spec.Sandbox)
		v.Silent += fmt.Sprintf("; it is met as soon as process %d answers (is it stopped, or short of memory?), or end it: vgpuctl delete vm %s --force", k.PID, t.name)
	}
	return v, true
}

// errSilent says that a guest can't be changed, nor another of its name be made.
func (s *Service) errSilent(t *silent) error {
	v, _ := s.showSilent(t)
	return fmt.Errorf("guest %q does not answer: %s: %w", t.name, v.Silent, api.ErrInUse)
}

// silents are the guests that are not met yet.
func (s *Service) silents() []*silent {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*silent, 0, len(s.silent))
	for _, t := range s.silent {
		all = append(all, t)
	}
	return all
}

// silentOne is the guest of that name, if it is not met yet.
func (s *Service) silentOne(name string) (t *silent, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok = s.silent[name]
	return t, ok
}
