// Package fleet sums up what many hosts' daemons say: of hosts, of projects, and of what guests used.
// It is pure.
package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
)

// Answer is what one host's daemon says, or why it does not.
type Answer struct {
	Host string
	GPUs []api.GPU
	VMs  []api.VM
	Err  error
}

// Host is one host of the fleet.
type Host struct {
	Name string `json:"name"`
	// Problem is why the host does not answer; "" if it does.
	Problem string `json:"problem,omitempty"`
	GPUs    int    `json:"gpus"`
	// Sick and Closed count GPUs that don't work, and those that an operator has taken out of use.
	Sick   int `json:"sick"`
	Closed int `json:"closed"`
	VMs    int `json:"vms"`
	// Shares are hundredths of GPUs: all, those that are given to guests, and those that guests used
	// lately.
	Shares      int     `json:"shares"`
	GivenShares int     `json:"given_shares"`
	UsedShares  float64 `json:"used_shares"`
	// MemoryBytes is the GPUs' memory, and GivenMemoryBytes the guests' limits of it.
	MemoryBytes      uint64 `json:"memory_bytes"`
	GivenMemoryBytes uint64 `json:"given_memory_bytes"`
}

// Hosts returns a line for each host, by name.
func Hosts(answers []Answer) []Host {
	all := make([]Host, 0, len(answers))
	for _, a := range answers {
		all = append(all, host(&a))
	}
	slices.SortFunc(all, func(a, b Host) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func host(a *Answer) Host {
	h := Host{Name: a.Host, GPUs: len(a.GPUs), VMs: len(a.VMs)}
	if a.Err != nil {
		h.Problem = a.Err.Error()
		return h
	}
	given := make(map[string]int)
	for i := range a.VMs {
		v := &a.VMs[i]
		given[v.GPU] += capacity.ShareOf(v)
		h.GivenMemoryBytes += v.MemoryLimitBytes
	}
	for i := range a.GPUs {
		g := &a.GPUs[i]
		switch {
		case !g.Healthy:
			h.Sick++
		case g.Cordoned:
			h.Closed++
		}
		h.Shares += capacity.Shares
		h.GivenShares += min(given[g.Name], capacity.Shares)
		h.UsedShares += g.BusyRatio * capacity.Shares
		h.MemoryBytes += g.MemoryBytes
	}
	return h
}

// Project is what the guests of one project have on all hosts.
type Project struct {
	Name  string `json:"name"` // "" for guests of none
	Hosts int    `json:"hosts"`
	VMs   int    `json:"vms"`
	// GivenShares and GivenMemoryBytes are given to its guests, and UsedShares they used lately.
	GivenShares      int     `json:"given_shares"`
	UsedShares       float64 `json:"used_shares"`
	GivenMemoryBytes uint64  `json:"given_memory_bytes"`
	// Budgets are those of its guests, by period. Budgets of different periods don't add up.
	Budgets []Budget `json:"budgets,omitempty"`
}

// Budget is the sum of budgets of one period.
type Budget struct {
	Period string        `json:"period"`
	Time   time.Duration `json:"time_nanos"`
	Used   time.Duration `json:"used_nanos"`
}

// String formats a budget as used of time a period.
func (b Budget) String() string {
	return fmt.Sprintf("%v of %v/%s", b.Used.Round(time.Second), b.Time, b.Period)
}

// Projects returns a line for each project, by name, of the hosts that answer.
func Projects(answers []Answer) []Project {
	type sum struct {
		Project
		hosts   map[string]bool
		budgets map[string]Budget
	}
	sums := make(map[string]*sum)
	for _, a := range answers {
		for i := range a.VMs {
			v := &a.VMs[i]
			s := sums[v.Project]
			if s == nil {
				s = &sum{Project: Project{Name: v.Project}, hosts: make(map[string]bool), budgets: make(map[string]Budget)}
				sums[v.Project] = s
			}
			s.hosts[a.Host] = true
			s.VMs++
			s.GivenShares += capacity.ShareOf(v)
			s.UsedShares += v.BusyRatio * capacity.Shares
			s.GivenMemoryBytes += v.MemoryLimitBytes
			if b := v.Budget; b != nil {
				period := fmt.Sprint(b.Budget.Period)
				was := s.budgets[period]
				s.budgets[period] = Budget{period, was.Time + cmp.Or(b.Budget.Hard, b.Budget.Soft), was.Used + b.Used}
			}
		}
	}
	all := make([]Project, 0, len(sums))
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s := sums[name]
		s.Hosts = len(s.hosts)
		for _, period := range slices.Sorted(maps.Keys(s.budgets)) {
			s.Budgets = append(s.Budgets, s.budgets[period])
		}
		all = append(all, s.Project)
	}
	return all
}

// Usage sums up what hosts have recorded. An instance that was on several hosts is one row, by its
// UUID; guests without one, and GPUs, are told apart by their hosts.
func Usage(hosts map[string]api.Usage) api.Usage {
	rows := make(map[api.UsageRow]api.UsageSums) // by the texts of a row
	var u api.Usage
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[name]
		if u.From.IsZero() || h.From.Before(u.From) {
			u.From = h.From
		}
		if h.To.After(u.To) {
			u.To = h.To
		}
		u.By = h.By
		for _, r := range h.Rows {
			sums := r.UsageSums
			r.UsageSums = api.UsageSums{}
			if r.GPU != "" {
				r.GPU = name + "/" + r.GPU
			}
			if r.VM != "" && r.DomainUUID == "" {
				r.VM = name + "/" + r.VM
			}
			rows[r] = add(rows[r], sums)
		}
		u.Total = add(u.Total, h.Total)
	}
	u.Rows = make([]api.UsageRow, 0, len(rows))
	for r, sums := range rows {
		r.UsageSums = sums
		u.Rows = append(u.Rows, r)
	}
	slices.SortFunc(u.Rows, func(a, b api.UsageRow) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Domain, b.Domain),
			cmp.Compare(a.VM, b.VM), cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.DomainUUID, b.DomainUUID))
	})
	return u
}

// add returns the sum of two.
func add(a, b api.UsageSums) api.UsageSums {
	a.GPUSeconds += b.GPUSeconds
	a.Kernels += b.Kernels
	a.Evictions += b.Evictions
	a.SuspendedSeconds += b.SuspendedSeconds
	a.UnaccountedSeconds += b.UnaccountedSeconds
	a.MemoryByteSeconds += b.MemoryByteSeconds
	if b.EnergyJoules != nil {
		sum := *b.EnergyJoules
		if a.EnergyJoules != nil {
			sum += *a.EnergyJoules
		}
		a.EnergyJoules = &sum
	}
	return a
}
