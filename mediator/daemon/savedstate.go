package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vgpud/clock"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/statefile"
)

// savedState is what a daemon saves about a guest for the next one, in the guest's directory, where
// none of the guest's processes may write. The guest's control page has the same and is newer, but
// all of them can write it.
type savedState struct {
	// PID is the guest's process, and Began when that started: see startTime.
	PID   int    `json:"pid"`
	Began uint64 `json:"began"`
	// Spec is what the guest was created with, with the domain that it has now.
	Spec  ipc.Spec  `json:"spec"`
	Terms api.Terms `json:"terms"`
	// Bill is as of At, an instant of clock.Real.
	Bill ipc.Bill      `json:"bill"`
	At   time.Duration `json:"at"`
	// Own is the GPU's own count of what the guest used, at At; nil if the GPU keeps none.
	Own *time.Duration `json:"own,omitempty"`
	// OwnBefore is that count when the guest was created: it goes by names, of earlier guests too.
	OwnBefore time.Duration `json:"own_before,omitempty"`
	// Before is what of Bill a guest was charged that was moved here, in its lives before: it is
	// recorded, and counts for budgets, as theirs.
	Before ipc.Bill `json:"before,omitzero"`
	// Unaccounted is GPU time of the guest that could not be billed; see api.VM.
	Unaccounted time.Duration `json:"unaccounted,omitempty"`
	// Away is what Bill to Unaccounted are for the other GPUs of a guest that floats, which are for
	// its own.
	Away []savedPresence `json:"away,omitempty"`
	// Tasks are the contexts that float and have a GPU, and AwayTasks those that have left theirs.
	Tasks     []savedTask `json:"tasks,omitempty"`
	AwayTasks []savedTask `json:"away_tasks,omitempty"`

	// older reports whether the daemon that saved the state was of a version that saved no Spec.
	// Then the guest's process is believed, once, what the guest was created with.
	older bool
}

// savedPresence is what a guest was charged on one GPU.
type savedPresence struct {
	GPU         string         `json:"gpu"`
	Bill        ipc.Bill       `json:"bill"`
	Own         *time.Duration `json:"own,omitempty"`
	OwnBefore   time.Duration  `json:"own_before,omitempty"`
	Unaccounted time.Duration  `json:"unaccounted,omitempty"`
}

// savedTask is a context that floats and has memory on a GPU, or had it when it left.
type savedTask struct {
	ipc.Task
	GPU    string        `json:"gpu,omitempty"` // empty: it has left
	Waited time.Duration `json:"waited,omitempty"`
	// Granted is what it has or had there, in bytes, if that is not what it asked for first.
	Granted uint64 `json:"granted,omitempty"`
	// Left is how often it had left a GPU before.
	Left uint32 `json:"left,omitempty"`
}

// granted returns what the context has or had on its GPU, in bytes.
func (k *savedTask) granted() uint64 { return cmp.Or(k.Granted, k.Memory) }

// is reports whether a context that a guest's process introduces is the one that was saved. One that
// asks for its guest's whole limit may have got less.
func (k *savedTask) is(t ipc.Task) bool {
	if t.Whole {
		t.Memory = k.Memory
	}
	return t == k.Task
}

// away returns what was saved of contexts that may have left their GPUs: others left while no daemon ran.
func (k *savedState) away() []savedTask { return slices.Concat(k.AwayTasks, k.Tasks) }

// on returns what was saved for a GPU.
func (k *savedState) on(gpu string) savedPresence {
	if gpu == k.Spec.GPU.Name {
		return savedPresence{GPU: gpu, Bill: k.Bill, Own: k.Own, OwnBefore: k.OwnBefore, Unaccounted: k.Unaccounted}
	}
	for _, p := range k.Away {
		if p.GPU == gpu {
			return p
		}
	}
	return savedPresence{GPU: gpu, Bill: ipc.Bill{Executed: -1}}
}

// onGPUs returns what a guest that floats used of each of its GPUs, and the sum in seconds.
func (k *savedState) onGPUs() (all []api.OnGPU, sum float64) {
	for _, f := range k.Spec.Floats {
		used := k.on(f.Name).Bill.Used.Seconds()
		all = append(all, api.OnGPU{GPU: f.Name, GPUSeconds: used})
		sum += used
	}
	slices.SortFunc(all, func(a, b api.OnGPU) int { return strings.Compare(a.GPU, b.GPU) })
	return all, sum
}

// stateFile is the name of the file in a guest's directory.
const stateFile = "account.json"

// maxStateBytes is more than a saved state has.
const maxStateBytes = 64 << 10

// saveEvery is how often bills are saved that have changed. It bounds what a guest can make of the
// bill on its page while no daemon runs.
const saveEvery = 5 * time.Second

// readState returns what the last daemon saved, or nil if there is nothing: the guest is new, or
// the daemon was of an older version.
func readState(dir string) (*savedState, error) {
	b, err := statefile.Read(filepath.Join(dir, stateFile), maxStateBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var k savedState
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err == nil {
		err = k.Terms.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("read a guest's saved state: %w", err)
	}
	return &k, nil
}

// write replaces what was saved before. The state is on disk when write returns nil.
func (k *savedState) write(f statefile.Files, dir string) error {
	b, err := json.Marshal(k)
	if err == nil && len(b) > maxStateBytes {
		err = fmt.Errorf("it has %d bytes, and the next daemon reads at most %d: %w", len(b), maxStateBytes, api.ErrInvalid)
	}
	if err == nil {
		err = f.Write(filepath.Join(dir, stateFile), b)
	}
	if err != nil {
		return fmt.Errorf("save a guest's state: %w", err)
	}
	return nil
}

// limitBill limits a bill from the control page of the guest's own GPU to what the saved one can have
// come to at now, an instant of clock.Real.
func (k *savedState) limitBill(b ipc.Bill, now time.Duration) ipc.Bill {
	return limitBill(k.Bill, b, now-k.At)
}

// limitBill limits a bill from a control page to what another one can have come to since.
func limitBill(was, b ipc.Bill, since time.Duration) ipc.Bill {
	since = max(since, 0)
	often := uint64(since / time.Millisecond) // more than there can have been
	executed := b.Executed
	if executed >= 0 {
		executed = max(executed, was.Executed)
	}
	return ipc.Bill{
		Used:        max(within(b.Used, was.Used, since), 0),
		Suspended:   max(within(b.Suspended, was.Suspended, since), 0),
		Charged:     max(within(b.Charged, was.Charged, since), 0),
		Executed:    executed,
		Suspensions: within(b.Suspensions, was.Suspensions, often),
		Caused:      within(b.Caused, was.Caused, often),
	}
}

// within returns v if that is least or up to more beyond it, else the nearer of the two.
func within[T time.Duration | uint64](v, least, more T) T {
	return min(max(v, least), least+more)
}

// save saves a guest's state if that is not what was saved last. It does nothing after saveLast.
func (g *guest) save(now time.Duration) error {
	g.saving.Lock()
	defer g.saving.Unlock()
	if g.dir == "" {
		return nil
	}
	return g.saveWith(g.terms(), g.domainNow(), g.sched.TimeLimit(), now)
}

// saveTasks saves which GPUs the guest's contexts have or had. The rest stays as it was saved last, which is no
// less true than it was: a bill goes with what the GPU had counted then, and to ask the GPU again takes
// longer than all else that a context waits for.
func (g *guest) saveTasks(now time.Duration) error {
	g.saving.Lock()
	defer g.saving.Unlock()
	if g.dir == "" {
		return nil
	}
	if g.saved.PID == 0 {
		return g.saveWith(g.terms(), g.domainNow(), g.sched.TimeLimit(), now)
	}
	k := g.saved
	k.Tasks, k.AwayTasks = g.savedTasks()
	if slices.Equal(k.Tasks, g.saved.Tasks) && slices.Equal(k.AwayTasks, g.saved.AwayTasks) {
		return nil
	}
	if err := k.write(g.files, g.dir); err != nil {
		g.saved = savedState{} // it is not known which of the two is there
		return err
	}
	g.saved = k
	return nil
}

// saveWith is save with the terms, the domain and the time limit of kernels that the guest is about to have.
//
// Preconditions: g.saving is held, and g.dir is set.
func (g *guest) saveWith(t api.Terms, domain ipc.Domain, limit, now time.Duration) error {
	k := savedState{PID: g.pid, Began: g.started, Spec: g.spec, Terms: t, Bill: g.sched.Bill(), At: now}
	k.Spec.Domain, k.Spec.Granted, k.Spec.KernelTimeLimit = domain.Name, domain.Granted, limit
	k.Spec.Owner, k.Spec.Project = domain.Owner, domain.Project
	k.Spec.MemoryLimit = t.MemoryLimitBytes
	k.Unaccounted, k.OwnBefore, k.Before = g.unaccountedOf(&g.presence), g.ownBefore, g.before
	for _, p := range g.away {
		k.Away = append(k.Away, savedPresence{
			GPU: p.device.config.Name, Bill: p.sched.Bill(), OwnBefore: p.ownBefore, Unaccounted: g.unaccountedOf(p),
		})
	}
	k.Tasks, k.AwayTasks = g.savedTasks()
	if k.same(&g.saved) {
		return nil
	}
	// The GPU's count comes after the bill: what it grows by in between is lost, not billed twice.
	k.Own = g.device.ownCount(g.spec.Name)
	for i, p := range g.away {
		k.Away[i].Own = p.device.ownCount(g.spec.Name)
	}
	if err := k.write(g.files, g.dir); err != nil {
		g.saved = savedState{} // it is not known which of the two is there
		return err
	}
	g.saved = k
	return nil
}

// same reports whether two states differ in nothing that changes in a guest's life.
func (k *savedState) same(o *savedState) bool {
	a, b := &k.Spec, &o.Spec
	charged := func(a, b savedPresence) bool {
		return a.GPU == b.GPU && a.Bill == b.Bill && a.Unaccounted == b.Unaccounted
	}
	return slices.EqualFunc(k.Away, o.Away, charged) && slices.Equal(k.Tasks, o.Tasks) && slices.Equal(k.AwayTasks, o.AwayTasks) && k.Terms == o.Terms && k.Bill == o.Bill && k.Unaccounted == o.Unaccounted && a.Domain == b.Domain && a.Granted == b.Granted && a.KernelTimeLimit == b.KernelTimeLimit &&
		a.Owner == b.Owner && a.Project == b.Project
}

// grant changes what a guest is granted, once the next daemon will know it, and returns what is
// different now, as slog's attributes. After an error the guest has what it had.
func (s *Service) grant(g *guest, u *api.VMUpdate) (changed []any, err error) {
	g.saving.Lock()
	defer g.saving.Unlock()
	if g.dir == "" {
		return nil, api.ErrNotFound // it has left
	}
	had, was := g.terms(), g.domainNow()
	t, domain := u.Apply(had), renamed(was, u)
	if err := errors.Join(t.Check(), api.CheckDomain(domain.Name), api.CheckAccount(domain.Owner, domain.Project)); err != nil {
		return nil, err
	}
	limited := g.sched.TimeLimit()
	limit := limited
	if t.KernelTimeLimit != had.KernelTimeLimit {
		limit = s.config.Load().kernelTimeLimit(t.KernelTimeLimit)
	}
	if err := g.saveWith(t, domain, limit, s.clock.Now()); err != nil {
		if rerr := g.saveWith(had, was, limited, s.clock.Now()); rerr != nil {
			s.log.Debug("save again what a guest is granted", "guest", g.spec.Name, "err", rerr)
		}
		return nil, s.notSaved(err)
	}
	s.mu.RLock() // so that its page stays open
	defer s.mu.RUnlock()
	if s.guests[g.spec.Name] != g {
		return nil, api.ErrNotFound
	}
	for _, p := range g.all() {
		p.sched.SetTerms(ipc.Terms(t))
		p.sched.SetTimeLimit(limit)
	}
	g.setDomain(func(d *ipc.Domain) { d.Name, d.Owner, d.Project = domain.Name, domain.Owner, domain.Project })
	g.budget.SetOwner(domain.Owner)
	g.budget.SetBudget(t.Budget)
	if t.MemoryLimitBytes != had.MemoryLimitBytes {
		g.allowMemory(t.MemoryLimitBytes)
	}
	return changedTerms(had, t, limit), nil
}

// renamed returns a domain with an update's names.
func renamed(d ipc.Domain, u *api.VMUpdate) ipc.Domain {
	for field, value := range map[*string]*string{&d.Name: u.Domain, &d.Owner: u.Owner, &d.Project: u.Project} {
		if value != nil {
			*field = *value
		}
	}
	return d
}

// changedTerms lists the settings that differ as slog's attributes: their keys, and what they are
// now. limit is the kernel time limit that follows from them.
func changedTerms(had, has api.Terms, limit time.Duration) (attrs []any) {
	for _, s := range []struct {
		key     string
		differs bool
		now     any
	}{
		{"weight", had.Weight != has.Weight, has.Weight},
		{"cap", had.Cap != has.Cap, has.Cap},
		{"guarantee", had.Guarantee != has.Guarantee, has.Guarantee},
		{"priority_ceiling", had.PriorityCeiling != has.PriorityCeiling, has.PriorityCeiling},
		{"latency", had.Latency != has.Latency, has.Latency},
		{"kernel_time_limit", had.KernelTimeLimit != has.KernelTimeLimit, limit},
		{"budget", had.Budget != has.Budget, has.Budget},
		{"memory_limit_bytes", had.MemoryLimitBytes != has.MemoryLimitBytes, has.MemoryLimitBytes},
	} {
		if s.differs {
			attrs = append(attrs, s.key, s.now)
		}
	}
	return attrs
}

// notSaved returns err, because of which nothing was changed, as the API reports it if a disk is
// the reason.
func (s *Service) notSaved(err error) error {
	if _, ok := errors.AsType[*statefile.Error](err); !ok {
		if !statefile.IsDiskError(err) {
			return err
		}
		err = &statefile.Error{Path: s.runDir(), Err: err}
	}
	return fmt.Errorf("nothing was changed: %w: %w", api.ErrNotSaved, err)
}

// save saves a guest's state for the next daemon.
func (s *Service) save(g *guest) {
	if err := g.save(s.clock.Now()); err != nil {
		s.log.Warn("the next daemon may not know what a guest is granted, and was charged", "guest", g.spec.Name, "err", err)
	}
}

// saveLast saves a guest's state for the last time, unless the guest's process has ended. After
// that the directory may be another guest's.
func (s *Service) saveLast(g *guest, ended bool) {
	if !ended {
		s.save(g)
	}
	g.saving.Lock()
	defer g.saving.Unlock()
	g.dir = ""
}

// saveBills saves what guests are charged, until ctx ends.
func (s *Service) saveBills(ctx context.Context) {
	var all []*guest
	for clock.Tick(ctx, s.clock, saveEvery) == nil {
		all = all[:0]
		s.mu.RLock()
		for _, g := range s.guests {
			all = append(all, g)
		}
		s.mu.RUnlock()
		for _, g := range all {
			s.save(g)
		}
		s.saveBudgets()
	}
}
