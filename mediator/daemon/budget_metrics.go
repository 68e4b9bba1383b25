package daemon

import (
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
	"vgpud/mediator/exposition"
)

// budgetOf returns a budget's status, or that of no budget.
func budgetOf(s *budget.Status) budget.Status {
	if s == nil {
		return budget.Status{}
	}
	return *s
}

func ownerMetric(name, help string, value func(*budget.Status) float64) metric[budget.Status] {
	return metric[budget.Status]{exposition.NewFamily(gauge, "vgpud_owner_budget_"+name, help, "owner"), value}
}

// ownerMetrics are about the budgets of owners that have guests. Guests without an owner have the
// owner "", so that the series' shape does not depend on guests' settings.
var ownerMetrics = []metric[budget.Status]{
	ownerMetric("used_seconds", "GPU time that counts for the owner's budget in the present period.", func(s *budget.Status) float64 { return s.Used.Seconds() }),
	ownerMetric("soft_seconds", "The soft limit of the owner's budget; 0 without one.", func(s *budget.Status) float64 { return s.Budget.Soft.Seconds() }),
	ownerMetric("hard_seconds", "The hard limit of the owner's budget; 0 without one.", func(s *budget.Status) float64 { return s.Budget.Hard.Seconds() }),
	ownerMetric("level", "How much of the owner's budget is used: 0 within its limits, 1 over the soft one, 2 over the hard one.", func(s *budget.Status) float64 { return float64(s.Level) }),
}

// collectOwners collects ownerMetrics, once for each owner.
func collectOwners(to exposition.Sink, vms []api.VM) {
	type owner struct {
		status budget.Status
		labels *exposition.Labels
	}
	var owners []owner
	seen := make(map[string]bool)
	for i := range vms {
		if v := &vms[i]; !seen[v.Owner] {
			seen[v.Owner] = true
			owners = append(owners, owner{budgetOf(v.OwnerBudget), exposition.With(v.Owner)})
		}
	}
	for _, m := range ownerMetrics {
		for i := range owners {
			to.Sample(m.Family, owners[i].labels, m.value(&owners[i].status))
		}
	}
}
