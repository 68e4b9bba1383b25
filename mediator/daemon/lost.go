package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vgpud/mediator/api"
	"vgpud/mediator/events"
	"vgpud/mediator/statefile"
)

// lostVM is a guest whose process ended although nobody asked for that, as it was last. It is shown
// until it is deleted, its domain ends, or another of its name is created: its VM may go on without
// the device. So it is after a reboot of the host, which ends the VM: nobody may have seen why.
type lostVM struct {
	api.VM
	// Boot names the run of the host's kernel in which the guest was lost.
	Boot string `json:"boot"`
}

// vmEnded reports whether the guest's VM is known to have ended since.
func (v *lostVM) vmEnded() bool { return v.Boot != bootID() }

// lostDir returns the directory of what is saved of lost guests.
func (s *Service) lostDir() string { return filepath.Join(s.stateDir(), "lost") }

func (s *Service) lostFile(name string) string { return filepath.Join(s.lostDir(), name+".json") }

// exitLimit is how long a process that closed its connection may take to end.
const exitLimit = time.Second

// exitOf describes how a guest's process ended, as far as that is known: only the daemon that
// started a process learns it.
func (s *Service) exitOf(pid int) string {
	what := fmt.Sprintf("its process %d ended", pid)
	s.mu.RLock()
	p := s.processes[pid]
	s.mu.RUnlock()
	if p == nil {
		return what
	}
	limit := time.NewTimer(exitLimit)
	defer limit.Stop()
	select {
	case <-p.ended:
		if p.err != nil {
			what += " (" + p.err.Error() + ")"
		}
	case <-limit.C:
	}
	return what
}

// Texts about a lost guest in addition to the reason: at first, and after a reboot of the host.
const (
	mayGoOn = "; its VM may go on without the device: restart the VM, or forget the guest: vgpuctl delete vm %s"
	hasGone = "; the host was booted since, which ended its VM: forget the guest: vgpuctl delete vm %s"
)

// lose notes that a guest is lost, for a reason. v shows its last state.
func (s *Service) lose(v *api.VM, reason string) {
	lost := lostAs(v, reason)
	s.mu.Lock()
	s.lost[v.Name] = lost
	s.mu.Unlock()
	if d, err := s.device(v.GPU); err == nil {
		d.lost.Add(1)
	}
	s.log.Error("guest lost", events.Kind(events.GuestLost), "guest", v.Name, "domain", v.Domain, "gpu", v.GPU, "reason", reason)
	if err := s.saveLost(lost); err != nil {
		s.log.Warn("the next daemon will not show a guest that was lost", "guest", v.Name, "err", err)
	}
}

// lostAs returns a guest as it is shown once it is lost, for a reason. v shows its last state, and is
// changed.
func lostAs(v *api.VM, reason string) *lostVM {
	now := time.Now().Truncate(time.Second)
	v.Attached, v.Active, v.Suspended, v.Silent = false, false, false, ""
	v.Contexts, v.Groups, v.PID, v.BusyRatio, v.Share, v.Entitled = 0, nil, 0, 0, 0, 0
	v.Lost, v.LostAt = reason, &now
	v.Lost += fmt.Sprintf(mayGoOn, v.Name)
	v.HeldBack = &api.HeldBack{Reason: "lost", Text: v.Lost}
	return &lostVM{VM: *v, Boot: bootID()}
}

// loseGuest notes that a guest is lost whose process has ended by itself.
func (s *Service) loseGuest(g *guest) {
	counts := g.ownCounts()
	s.mu.RLock() // so that its page stays open
	v := g.vm(s.clock.Now(), counts)
	s.mu.RUnlock()
	s.lose(&v, s.exitOf(g.pid))
}

func (s *Service) saveLost(v *lostVM) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("save a lost guest: %w", err)
	}
	return s.writeNew(s.lostFile(v.Name), b)
}

// forgetLost forgets a lost guest, and reports whether there was one of that name.
func (s *Service) forgetLost(name string) (bool, error) {
	s.mu.Lock()
	_, ok := s.lost[name]
	delete(s.lost, name)
	s.mu.Unlock()
	if !ok {
		return false, nil
	}
	return true, s.notSaved(s.o.Files.Remove(s.lostFile(name)))
}

// lostGuest returns the lost guest with a name, unless there is another of that name since.
//
// Preconditions: s.mu is held.
func (s *Service) lostGuest(name string) *lostVM {
	if s.guests[name] != nil || s.silent[name] != nil {
		return nil
	}
	return s.lost[name]
}

// isLost reports whether the guest with that name is lost.
func (s *Service) isLost(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lostGuest(name) != nil
}

// restoreLost shows the guests that an earlier daemon noted as lost.
func (s *Service) restoreLost() {
	entries, err := os.ReadDir(s.lostDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("guests that were lost are not shown", "err", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue // an unfinished file
		}
		var v lostVM
		b, err := statefile.Read(filepath.Join(s.lostDir(), e.Name()), maxStateBytes)
		if err == nil {
			err = json.Unmarshal(b, &v)
		}
		if err == nil && v.Name != name {
			err = fmt.Errorf("it is guest %q's", v.Name)
		}
		if err != nil {
			s.log.Warn("a guest that was lost is not shown", "guest", name, "err", err)
			continue
		}
		if v.vmEnded() {
			v.Lost = strings.TrimSuffix(v.Lost, fmt.Sprintf(mayGoOn, name)) + fmt.Sprintf(hasGone, name)
		}
		v.HeldBack = &api.HeldBack{Reason: "lost", Text: v.Lost}
		s.mu.Lock()
		s.lost[name] = &v
		s.mu.Unlock()
	}
}
