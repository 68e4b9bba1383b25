// Package budget keeps what guests and owners have used of their budgets, for all GPUs together. A
// budget's rules are package fairshare/quota's. The daemon makes one [Ledger]; schedulers charge it
// each round by [Guest.Charge], which answers what the budgets mean for the guest.
//
// One file has the use by guest and by owner, with each guest's running total when it was saved. A
// guest that joins again with a greater total is charged the difference, so nothing is lost between
// the last save and the end of a daemon that was killed, and nothing is charged twice. A guest's key
// is the same in its next life, so ending a guest and starting it again grants nothing.
//
// All methods may be called from any goroutine. Ledger.mu guards everything but the file, which
// Ledger.saving guards and which is taken first.
package budget

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"vgpud/fairshare/quota"
	"vgpud/mediator/events"
	"vgpud/mediator/statefile"
)

// Options configure a ledger. Path, Log and Now must be set.
type Options struct {
	// Path is the file, in an existing directory.
	Path  string
	Files statefile.Files
	Log   *slog.Logger
	// Now is the wall clock, which may jump, and Zone the calendar's time zone: UTC.
	Now  func() time.Time
	Zone *time.Location
}

// Ledger keeps the accounts.
type Ledger struct {
	o      Options
	saving sync.Mutex

	mu       sync.Mutex
	calendar quota.Calendar
	owners   map[string]quota.Budget
	state    state
	guests   map[string]*Guest // that have joined, by key
	changes  uint64            // counts charges
	saved    uint64            // changes that the file has
}

// state is what is saved.
type state struct {
	Version int                 `json:"version"`
	Guests  map[string]*account `json:"guests"`
	Owners  map[string]*account `json:"owners"`
}

// account is a guest's or an owner's account.
type account struct {
	quota.Account
	// Total and Executed are the guest's running totals when it was last charged.
	Total    time.Duration `json:"total,omitempty"`
	Executed time.Duration `json:"total_executed,omitempty"`
	// Charged orders accounts by their last charge.
	Charged uint64 `json:"charged,omitempty"`

	level quota.Level // as it was last logged
}

const (
	stateVersion = 1
	maxStateFile = 64 << 20
	// maxAccounts bounds the accounts of guests, and those of owners. Beyond it those that were
	// charged longest ago are forgotten. It is not time that decides, since the clock may jump.
	maxAccounts = 10_000
)

// Open returns a ledger with what was saved. A file that can't be read is set aside, and the ledger
// begins anew.
func Open(o Options) *Ledger {
	l := &Ledger{o: o, calendar: quota.Calendar{Zone: o.Zone}, guests: make(map[string]*Guest)}
	b, err := statefile.Read(o.Path, maxStateFile)
	if err == nil {
		err = json.Unmarshal(b, &l.state)
	}
	if err == nil && l.state.Version != stateVersion {
		err = fmt.Errorf("version %d: want %d", l.state.Version, stateVersion)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		aside := o.Path + ".bad"
		rerr := os.Rename(o.Path, aside)
		o.Log.Error("budgets begin anew: what was used of them can't be read", "file", o.Path, "err", err, "kept_as", aside, "rename", rerr)
		l.state = state{}
	}
	l.state.Version = stateVersion
	for _, of := range []*map[string]*account{&l.state.Guests, &l.state.Owners} {
		if *of == nil {
			*of = make(map[string]*account)
		}
		maps.DeleteFunc(*of, func(_ string, a *account) bool { return a == nil })
		for _, a := range *of {
			l.changes = max(l.changes, a.Charged)
		}
	}
	l.saved = l.changes
	return l
}

// SetOwners changes the owners' budgets.
func (l *Ledger) SetOwners(owners map[string]quota.Budget) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owners = maps.Clone(owners)
}

// Guest is a guest that has joined a ledger.
type Guest struct {
	l                *Ledger
	key, name, owner string
	budget           quota.Budget
	total            quota.Measured // when it was last charged
}

// Join adds a guest with a running total of GPU time. If the file knows the guest with less, it is
// charged the difference; if with more, that was an earlier life, and it is charged all of total.
// name is the guest's in events.
func (l *Ledger) Join(key, name, owner string, b quota.Budget, total quota.Measured) *Guest {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := &Guest{l: l, key: key, name: name, owner: owner, budget: b}
	if a := l.state.Guests[key]; a != nil && a.Total <= total.Charged {
		g.total = quota.Measured{Charged: a.Total, Executed: a.Executed}
	}
	if !l.tracked(g) {
		g.total = total // what was used before there was a budget does not count
	}
	l.guests[key] = g
	l.charge(g, total, 0)
	return g
}

// Leave ends a guest's membership, and with it a life: its next total begins at 0.
func (g *Guest) Leave() {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	if g.l.guests[g.key] != g {
		return
	}
	delete(g.l.guests, g.key)
	if a := g.l.state.Guests[g.key]; a != nil {
		a.Total, a.Executed = 0, 0
		g.l.changes++
	}
}

// SetBudget changes the guest's budget. Its use in the present period counts if it had a budget then.
func (g *Guest) SetBudget(b quota.Budget) {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	g.budget = b
}

// SetOwner changes whose guest it is. Earlier use stays the former owner's.
func (g *Guest) SetOwner(owner string) {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	g.owner = owner
}

// Charge charges the guest, and its owner, up to a running total, and returns what their budgets
// mean for the guest. coming is GPU time that the guest will use whatever is decided.
func (g *Guest) Charge(total quota.Measured, coming time.Duration) quota.Sanction {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	return g.l.charge(g, total, coming)
}

// tracked reports whether anything is to be kept for a guest.
func (l *Ledger) tracked(g *Guest) bool { return g.budget != (quota.Budget{}) || l.ownerOf(g) }

func (l *Ledger) ownerOf(g *Guest) bool {
	_, ok := l.owners[g.owner]
	return ok && g.owner != ""
}

// charge is Charge. Preconditions: l.mu is held.
func (l *Ledger) charge(g *Guest, total quota.Measured, coming time.Duration) (s quota.Sanction) {
	d := total.Since(g.total)
	g.total = g.total.Max(total)
	if !l.tracked(g) {
		return quota.None
	}
	starts := l.calendar.Starts(l.o.Now())
	a := open(l.state.Guests, g.key)
	used := d.Charged > 0 || d.Executed > 0
	if used {
		l.changes++
		a.Charge(starts, d)
		a.Charged = l.changes
	}
	a.Total, a.Executed = g.total.Charged, g.total.Executed
	s = l.judge("guest", g.name, a, g.budget, starts, coming)
	if l.ownerOf(g) {
		o := open(l.state.Owners, g.owner)
		if used {
			o.Charge(starts, d)
			o.Charged = l.changes
		}
		s = max(s, l.judge("owner", g.owner, o, l.owners[g.owner], starts, coming))
	}
	return s
}

// judge returns what an account means. The first time in a period that a limit is reached is an
// event, also over restarts.
func (l *Ledger) judge(of, name string, a *account, b quota.Budget, starts quota.Starts, coming time.Duration) quota.Sanction {
	level, news := a.Judge(b, starts, coming)
	used := a.Used(b.Period, starts)
	if news {
		l.changes++
		l.o.Log.Warn(of+"'s budget has reached a limit", events.Kind(events.BudgetLimit), of, name, "level", level.String(), "used", used, "budget", b.String())
	} else if level < a.level {
		l.o.Log.Info("budget is within its limits again", of, name, "level", level.String(), "used", used, "budget", b.String())
	}
	a.level = level
	return b.Sanction(level)
}

// open returns the account with a name, which it opens if there is none.
func open(accounts map[string]*account, name string) *account {
	a := accounts[name]
	if a == nil {
		a = new(account)
		accounts[name] = a
	}
	return a
}

// Status is what there is to report of a budget.
type Status struct {
	Budget quota.Budget  `json:"budget"`
	Used   time.Duration `json:"used_nanos"`
	Level  quota.Level   `json:"level"`
	// Ends is when the present period ends.
	Ends time.Time `json:"ends"`
}

// Status returns the guest's budget and its owner's; nil is none.
func (g *Guest) Status() (own, owner *Status) {
	l := g.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.budget != (quota.Budget{}) {
		own = l.status(open(l.state.Guests, g.key), g.budget)
	}
	if l.ownerOf(g) {
		owner = l.status(open(l.state.Owners, g.owner), l.owners[g.owner])
	}
	return own, owner
}

// Owners returns the budgets of all owners that have one.
func (l *Ledger) Owners() map[string]Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]Status, len(l.owners))
	for name, b := range l.owners {
		all[name] = *l.status(open(l.state.Owners, name), b)
	}
	return all
}

// status returns what there is to report of an account.
func (l *Ledger) status(a *account, b quota.Budget) *Status {
	now := l.o.Now()
	starts := l.calendar.Starts(now)
	return &Status{Budget: b, Used: a.Used(b.Period, starts), Level: a.Level(b, starts), Ends: l.calendar.End(b.Period, now)}
}

// Save saves what was used since the last time. After an error the next call tries again.
func (l *Ledger) Save() error {
	l.saving.Lock()
	defer l.saving.Unlock()
	l.mu.Lock()
	changes := l.changes
	if changes == l.saved {
		l.mu.Unlock()
		return nil
	}
	l.prune(l.state.Guests)
	l.prune(l.state.Owners)
	b, err := json.Marshal(&l.state)
	l.mu.Unlock()
	if err == nil {
		err = l.o.Files.Write(l.o.Path, b)
	}
	if err != nil {
		return fmt.Errorf("save what was used of budgets: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved = changes
	return nil
}

// prune forgets the accounts beyond maxAccounts that were charged longest ago.
func (l *Ledger) prune(accounts map[string]*account) {
	if len(accounts) <= maxAccounts {
		return
	}
	names := slices.SortedFunc(maps.Keys(accounts), func(a, b string) int { return cmp.Compare(accounts[a].Charged, accounts[b].Charged) })
	for _, name := range names[:len(names)-maxAccounts] {
		delete(accounts, name)
	}
}
