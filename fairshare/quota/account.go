package quota

import (
	"slices"
	"time"
)

// historyPeriods is how many periods of each length an account remembers. A clock may jump as
// often, to a new period each time, before it comes back.
const historyPeriods = 8

// Account is what was used of a budget, by period. The zero value is unused.
type Account struct {
	// Spent is what was used in the latest periods that were charged, the latest charge last.
	Spent []Spent `json:"spent,omitempty"`
}

// Spent is GPU time that was used in the period that began at From.
type Spent struct {
	Period Period    `json:"period"`
	From   time.Time `json:"from"`
	Measured
	// Reached is the highest hard limit that the use has reached.
	Reached time.Duration `json:"reached,omitempty"`
	// Told is the level that was last told of: see [Account.Judge].
	Told Level `json:"told,omitempty"`
}

// Charge adds GPU time that was used in the periods that began at s. Periods of all lengths are
// charged, so that a budget's period can change without forgetting.
func (a *Account) Charge(s Starts, m Measured) {
	if m.Charged <= 0 && m.Executed <= 0 {
		return
	}
	for p, from := range s {
		a.charge(Spent{Period: Period(p), From: from}, m)
	}
}

func (a *Account) charge(in Spent, m Measured) {
	if i := a.find(in.Period, in.From); i >= 0 {
		in = a.Spent[i]
		a.Spent = slices.Delete(a.Spent, i, i+1)
	}
	in.Measured = in.Add(m)
	a.Spent = append(a.Spent, in)
	// With one more than are kept, the one that was charged longest ago goes.
	n, oldest := 0, 0
	for i := len(a.Spent) - 1; i >= 0; i-- {
		if a.Spent[i].Period == in.Period {
			n, oldest = n+1, i
		}
	}
	if n > historyPeriods {
		a.Spent = slices.Delete(a.Spent, oldest, oldest+1)
	}
}

// Used returns what may have been used in the period of some length that began at s.
func (a *Account) Used(p Period, s Starts) time.Duration {
	if i := a.find(p, s[p]); i >= 0 {
		return a.Spent[i].Most()
	}
	return 0
}

// Level returns how much of a budget is used in the period of those that began at s. A hard limit
// that was reached in the period stays reached.
func (a *Account) Level(b Budget, s Starts) Level {
	i := a.find(b.Period, s[b.Period])
	switch {
	case i < 0:
		return b.Level(0)
	case b.Hard > 0 && a.Spent[i].Reached >= b.Hard:
		return OverHard
	}
	return b.Level(a.Spent[i].Most())
}

// Judge returns the level of a budget. coming is GPU time that the guest will use whatever is
// decided: a hard limit is reached when that uses up what is left. Judge reports whether the level
// is news: higher than the last one in the period.
func (a *Account) Judge(b Budget, s Starts, coming time.Duration) (l Level, news bool) {
	i := a.find(b.Period, s[b.Period])
	if i < 0 {
		return a.Level(b, s), false
	}
	in := &a.Spent[i]
	if b.Hard > 0 && in.Most() >= b.Hard-max(coming, 0) {
		in.Reached = max(in.Reached, b.Hard)
	}
	l = a.Level(b, s)
	news = l > in.Told
	in.Told = l
	return l, news
}

func (a *Account) find(p Period, from time.Time) int {
	for i := len(a.Spent) - 1; i >= 0; i-- {
		if a.Spent[i].Period == p && a.Spent[i].From.Equal(from) {
			return i
		}
	}
	return -1
}
