package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"vgpud/clock"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/statefile"
)

// kept is what a daemon notes of a guest for the next one, in the guest's directory,
// where none of the guest's processes may write. The guest's page says the same and is
// newer, but can be written by all of them.
type kept struct {
	// PID is the guest's process, and Began when that did: see startOf.
	PID   int    `json:"pid"`
	Began uint64 `json:"began"`
	// Spec is what the guest was made with, with the domain that it is now.
	Spec  ipc.Spec  `json:"spec"`
	Terms api.Terms `json:"terms"`
	// Bill is as of At, an instant of clock.Real.
	Bill ipc.Bill      `json:"bill"`
	At   time.Duration `json:"at"`

	// older says that the daemon that noted it was of a version that noted no Spec. Once,
	// the guest's process is believed what it was made with.
	older bool
}

// keptName is the file's, in the guest's directory.
const keptName = "account.json"

// maxKept is more than an account has, in bytes.
const maxKept = 64 << 10

// keepEvery is how often bills are noted that have changed. It bounds what can be made
// of a bill on its page while no daemon runs.
const keepEvery = 5 * time.Second

// readKept is what the last daemon noted, nil where there is nothing: a guest that is
// new, or a daemon of an older version.
func readKept(dir string) (*kept, error) {
	b, err := statefile.Read(filepath.Join(dir, keptName), maxKept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var k kept
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err == nil {
		err = k.Terms.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("read what was noted of a guest: %w", err)
	}
	return &k, nil
}

// write puts it in the place of what was noted before. It is safe when write returns nil.
func (k *kept) write(f statefile.Files, dir string) error {
	b, err := json.Marshal(k)
	if err == nil && len(b) > maxKept {
		err = fmt.Errorf("it has %d bytes, and the next daemon reads at most %d: %w", len(b), maxKept, api.ErrInvalid)
	}
	if err == nil {
		err = f.Write(filepath.Join(dir, keptName), b)
	}
	if err != nil {
		return fmt.Errorf("note a guest's account: %w", err)
	}
	return nil
}

// bill is what a page's bill can have come to by now.
func (k *kept) bill(b ipc.Bill, now time.Duration) ipc.Bill {
	since, was := max(now-k.At, 0), &k.Bill
	b.Used = within(b.Used, was.Used, since)
	b.Suspended = within(b.Suspended, was.Suspended, since)
	b.Charged = within(b.Charged, was.Charged, since)
	often := uint64(since / time.Millisecond) // more than there can have been
	b.Suspensions = within(b.Suspensions, was.Suspensions, often)
	b.Caused = within(b.Caused, was.Caused, often)
	return b
}

// within is v where that is least or up to more beyond it, else the nearer of the two.
func within[T time.Duration | uint64](v, least, more T) T {
	return min(max(v, least), least+more)
}

// resume goes on with a guest's account where the last daemon left it: by what that has
// noted, and by the page as far as it may be right. now is an instant of clock.Real.
func (g *guest) resume(k *kept, now time.Duration) {
	b := k.bill(g.page.Bill(), now)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used, g.suspended, g.suspensions = max(b.Used, 0), max(b.Suspended, 0), b.Suspensions
	g.caused, g.charged = b.Caused, max(b.Charged, 0)
	g.terms = k.Terms
}

// keep notes a guest's account where it is not what was noted last, and not after it was
// noted for good.
func (g *guest) keep(now time.Duration) error {
	g.keeping.Lock()
	defer g.keeping.Unlock()
	if g.dir == "" {
		return nil
	}
	return g.keepWith(g.termsNow(), now)
}

// keepWith is keep with the terms that the guest is about to have. The caller holds
// keeping, and dir is set.
func (g *guest) keepWith(t api.Terms, now time.Duration) error {
	g.mu.Lock()
	k := kept{PID: g.pid, Began: g.began, Spec: g.spec, Terms: t, Bill: g.bill(), At: now}
	k.Spec.Domain, k.Spec.Granted = g.domain.Name, g.domain.Granted
	g.mu.Unlock()
	if k.Terms == g.noted.Terms && k.Bill == g.noted.Bill && k.Spec.Domain == g.noted.Spec.Domain && k.Spec.Granted == g.noted.Spec.Granted {
		return nil
	}
	if err := k.write(g.files, g.dir); err != nil {
		g.noted = kept{} // it is not known which of the two is there
		return err
	}
	g.noted = k
	return nil
}

// grant changes what a guest is granted, once the next daemon will know it, and reports
// whether that is a change. After an error the guest has what it had.
func (s *Service) grant(g *guest, u *api.VMUpdate) (changed bool, err error) {
	g.keeping.Lock()
	defer g.keeping.Unlock()
	if g.dir == "" {
		return false, api.ErrNotFound // it has left
	}
	had := g.termsNow()
	t := u.Apply(had)
	if err := t.Check(); err != nil {
		return false, err
	}
	if err := g.keepWith(t, s.clock.Now()); err != nil {
		if berr := g.keepWith(had, s.clock.Now()); berr != nil {
			s.log.Debug("note again what a guest is granted", "guest", g.spec.Name, "err", berr)
		}
		return false, s.notKept(err)
	}
	return s.amend(g, u)
}

// notKept is err, by which nothing was changed, as the API has it where a disk is why.
func (s *Service) notKept(err error) error {
	if _, ok := errors.AsType[*statefile.Error](err); !ok {
		if !statefile.IsDiskError(err) {
			return err
		}
		err = &statefile.Error{Path: s.runDir(), Err: err}
	}
	return fmt.Errorf("nothing was changed: %w: %w", api.ErrNotSaved, err)
}

// note has a guest's account kept for the next daemon.
func (s *Service) note(g *guest) {
	if err := g.keep(s.clock.Now()); err != nil {
		s.log.Warn("the next daemon may not know what a guest is granted, and was charged", "guest", g.spec.Name, "err", err)
	}
}

// noteLast notes it once more, unless the guest's process has ended. The directory may be
// another guest's after that.
func (s *Service) noteLast(g *guest, ended bool) {
	if !ended {
		s.note(g)
	}
	g.keeping.Lock()
	defer g.keeping.Unlock()
	g.dir = ""
}

// keepAccounts notes what guests are charged, until ctx ends.
func (s *Service) keepAccounts(ctx context.Context) {
	var all []*guest
	for clock.Tick(ctx, s.clock, keepEvery) == nil {
		all = all[:0]
		s.mu.RLock()
		for _, g := range s.guests {
			all = append(all, g)
		}
		s.mu.RUnlock()
		for _, g := range all {
			s.note(g)
		}
	}
}
