package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"vgpud/accounting"
	"vgpud/fairshare/quota"
	"vgpud/mediator/budget"
	"vgpud/mediator/scheduler"
)

const (
	// warmUp is how long a run goes on before it counts: at first the scheduler knows nothing.
	warmUp = time.Second
	// window is the time over which quotas have to hold. A window begins every step.
	window = 5 * time.Second
	step   = 100 * time.Millisecond
)

// trial is one run: guests under a policy.
type trial struct {
	policy, quota, load string
	guests              int
	draw                uint64
	programs            []*program
	length              time.Duration // after warmUp
}

// mark is what a guest's sums were at an instant.
type mark struct{ used, working, available, stuck, held time.Duration }

// outcome is what a run came to. marks has an instant's sums of each program, every step.
type outcome struct {
	marks [][]mark
	// spent is what each program had used when its budget was spent.
	spent []spent
	// round is the planned length of a round while all guests have work.
	round time.Duration
	// idle is the part of the time in which the GPU executed nothing.
	idle float64
}

// run carries the run out.
func (t *trial) run() (out *outcome, err error) {
	w, err := newWorld(t.policy, t.draw)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "quotas-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ledger := budget.Open(budget.Options{
		Path: filepath.Join(dir, "budgets"), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Unix(0, 0).UTC().Add(12*time.Hour + w.m.Now()) },
	})
	for _, p := range t.programs {
		if p.budget > 0 {
			p.joins = func() scheduler.Budget {
				if p.account != nil {
					p.account.Leave()
				}
				p.account = &account{Guest: ledger.Join(p.name, p.name, "", quota.Budget{Period: quota.Day, Hard: p.budget}, quota.Measured{}), p: p}
				return p.account
			}
		}
		if err := w.begin(p); err != nil {
			return nil, err
		}
	}
	defer func() {
		for _, g := range w.guests {
			if g.page != nil {
				err = errors.Join(err, g.page.Close())
			}
		}
	}()
	out = new(outcome)
	var note func()
	note = func() {
		marks := make([]mark, len(t.programs))
		for i, p := range t.programs {
			marks[i] = mark{p.guest.used, p.guest.working, p.guest.available, p.guest.stuck, p.guest.held}
		}
		out.marks = append(out.marks, marks)
		w.at(w.m.Now()+step, note)
	}
	w.at(warmUp, note)
	w.sampler.Notify(0) // the guests have just come
	if err := w.sampler.RunUntil(warmUp + t.length); err != nil {
		return nil, err
	}
	poll, quiet := accounting.NewPlanner(accounting.Config{}).Mean(accounting.Load{Active: t.guests})
	out.round = poll + quiet
	for _, p := range t.programs {
		out.spent = append(out.spent, p.spent)
	}
	out.idle = w.m.Totals().Idle.Seconds() / w.m.Now().Seconds()
	return out, nil
}

// spent is what a guest has used when its budget is spent, by the budget's account and by the GPU's
// own count. It is zero if the budget lasts.
type spent struct{ charged, used time.Duration }

// account is a guest's budget, which notes when it is spent.
type account struct {
	*budget.Guest
	p *program
}

// Charge implements [scheduler.Budget].
func (a *account) Charge(total quota.Measured, coming time.Duration) quota.Sanction {
	s := a.Guest.Charge(total, coming)
	if p := a.p; s == quota.Held && p.spent == (spent{}) && p.guest != nil {
		own, _ := a.Status()
		p.spent = spent{own.Used, p.guest.used}
	}
	return s
}
