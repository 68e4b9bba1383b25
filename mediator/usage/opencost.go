package usage

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// CostResponse is what a custom cost plugin of OpenCost returns for one window: the message
// CustomCostResponse of OpenCost's protos/customcost/messages.proto as JSON, with that file's names
// of fields.
type CostResponse struct {
	Metadata   map[string]string `json:"metadata"`
	CostSource string            `json:"cost_source"`
	Domain     string            `json:"domain"`
	Version    string            `json:"version"`
	Currency   string            `json:"currency"`
	Start      time.Time         `json:"start"`
	End        time.Time         `json:"end"`
	Costs      []Cost            `json:"costs"`
	Errors     []string          `json:"errors"`
}

// Cost is OpenCost's message CustomCost: what one guest used on one GPU in a window.
type Cost struct {
	Metadata       map[string]string `json:"metadata,omitempty"`
	Zone           string            `json:"zone,omitempty"`
	AccountName    string            `json:"account_name,omitempty"`
	ChargeCategory string            `json:"charge_category"`
	Description    string            `json:"description"`
	ResourceName   string            `json:"resource_name"`
	ResourceType   string            `json:"resource_type"`
	ID             string            `json:"id"`
	ProviderID     string            `json:"provider_id,omitempty"`
	BilledCost     float64           `json:"billed_cost"`
	ListCost       float64           `json:"list_cost"`
	ListUnitPrice  float64           `json:"list_unit_price"`
	UsageQuantity  float64           `json:"usage_quantity"`
	UsageUnit      string            `json:"usage_unit"`
	Labels         map[string]string `json:"labels,omitempty"`
}

// Price is what an hour of a GPU's compute time costs.
type Price struct {
	GPUHour  float64
	Currency string
}

// export returns the costs of parts, one response for each window of step seconds. Each part is one
// subject's sum in one window.
func export(parts []part, step int64, host string, p Price) []CostResponse {
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.start, b.start) })
	responses := []CostResponse{}
	for _, x := range parts {
		n := len(responses)
		if n == 0 || responses[n-1].Start.Unix() != x.start {
			responses = append(responses, CostResponse{
				Metadata: map[string]string{"host": host}, CostSource: "gpu", Domain: "vgpud", Version: "v1", Currency: p.Currency,
				Start: time.Unix(x.start, 0).UTC(), End: time.Unix(x.start+step, 0).UTC(), Costs: []Cost{}, Errors: []string{},
			})
			n++
		}
		r := &responses[n-1]
		r.Costs = append(r.Costs, costOf(&x, host, p))
	}
	return responses
}

func costOf(x *part, host string, p Price) Cost {
	s := &x.subject
	hours := float64(x.sums.GPUMicros) / 1e6 / 3600
	c := Cost{
		Zone: host, AccountName: cmp.Or(s.Project, s.Owner), ChargeCategory: "Usage", Description: "GPU compute time",
		ResourceName: s.VM, ResourceType: "vgpu", ProviderID: s.DomainUUID,
		ID:         fmt.Sprintf("%s/%s/%s/%s/%s/%s/%d", host, s.GPU, s.VM, s.DomainUUID, s.Owner, s.Project, x.start),
		BilledCost: hours * p.GPUHour, ListCost: hours * p.GPUHour, ListUnitPrice: p.GPUHour, UsageQuantity: hours, UsageUnit: "GPU-hours",
		Labels: map[string]string{"gpu": s.GPU, "vm": s.VM},
	}
	for name, value := range map[string]string{"domain": s.Domain, "owner": s.Owner, "project": s.Project} {
		if value != "" {
			c.Labels[name] = value
		}
	}
	return c
}
