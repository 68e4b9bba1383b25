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
	Period Period        `json:"period"`
	From   time.Time     `json:"from"`
	Used   time.Duration `json:"used"`
	// Told is the level that was last told of: see [Account.Tell].
	Told Level `json:"told,omitempty"`
}

// Charge adds GPU time that was used in the periods that began at s. Periods of all lengths are
// charged, so that a budget's period can change without forgetting.
func (a *Account) Charge(s Starts, d time.Duration) {
	if d <= 0 {
		return
	}
	for p, from := range s {
		a.charge(Spent{Period: Period(p), From: from}, d)
	}
}

func (a *Account) charge(in Spent, d time.Duration) {
	if i := a.find(in.Period, in.From); i >= 0 {
		in = a.Spent[i]
		a.Spent = slices.Delete(a.Spent, i, i+1)
	}
	in.Used += min(d, maxUsed-in.Used)
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

// maxUsed bounds sums, so that they don't overflow.
const maxUsed = 1 << 62

// Used returns what was used in the period of some length that began at s.
func (a *Account) Used(p Period, s Starts) time.Duration {
	if i := a.find(p, s[p]); i >= 0 {
		return a.Spent[i].Used
	}
	return 0
}

// Tell notes the level of what was used in the period of some length that began at s. It reports
// whether that is news: higher than what it was told last in that period.
func (a *Account) Tell(p Period, s Starts, l Level) (news bool) {
	i := a.find(p, s[p])
	if i < 0 {
		return false
	}
	news = l > a.Spent[i].Told
	a.Spent[i].Told = l
	return news
}

func (a *Account) find(p Period, from time.Time) int {
	for i := len(a.Spent) - 1; i >= 0; i-- {
		if a.Spent[i].Period == p && a.Spent[i].From.Equal(from) {
			return i
		}
	}
	return -1
}
