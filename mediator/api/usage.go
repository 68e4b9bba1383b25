package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// UsageQuery asks for what guests used. Fields that are empty ask for the default.
type UsageQuery struct {
	// From and To are times as people write them: a date or a time (in UTC without a zone), an age
	// such as 7d, or now. The default is the last 30 days.
	From, To string
	// By is what the rows stand for: vm, domain, owner, project, gpu or day. The default is vm.
	By string
	// VM, Domain (a name or UUID), Owner, Project and GPU restrict what is summed up.
	VM, Domain, Owner, Project, GPU string
	// GPUHourPrice, Currency and Resolution (day or hour) are for costs alone.
	GPUHourPrice float64
	Currency     string
	Resolution   string
}

// Usage is what guests used from From to To: what was asked for, extended to whole intervals, or to
// whole hours or days of UTC where nothing finer is kept any more.
type Usage struct {
	From  time.Time  `json:"from"`
	To    time.Time  `json:"to"`
	By    string     `json:"by"`
	Rows  []UsageRow `json:"rows"`
	Total UsageSums  `json:"total"`
}

// UsageRow is one line of a usage. It has the texts of what the rows stand for.
type UsageRow struct {
	Day        string `json:"day,omitempty"` // 2026-11-24, in UTC
	VM         string `json:"vm,omitempty"`
	Domain     string `json:"domain,omitempty"`
	DomainUUID string `json:"domain_uuid,omitempty"`
	Owner      string `json:"owner,omitempty"`
	Project    string `json:"project,omitempty"`
	GPU        string `json:"gpu,omitempty"`
	UsageSums
}

// UsageSums are what was used.
type UsageSums struct {
	GPUSeconds       float64 `json:"gpu_seconds"`
	Kernels          uint64  `json:"kernels"`
	Evictions        uint64  `json:"evictions"`
	SuspendedSeconds float64 `json:"suspended_seconds"`
	// UnaccountedSeconds is the most compute time beyond GPUSeconds that there can have been while no
	// daemon ran.
	UnaccountedSeconds float64 `json:"unaccounted_seconds"`
	// MemoryByteSeconds is GPU memory times how long it was taken.
	MemoryByteSeconds float64 `json:"memory_byte_seconds"`
	// EnergyJoules is the GPU's power times the compute time; nil if the GPU never told its power.
	EnergyJoules *float64 `json:"energy_joules,omitempty"`
}

// usageParameters are the parameters of a query, by name.
func usageParameters(q *UsageQuery) map[string]*string {
	return map[string]*string{
		"from": &q.From, "to": &q.To, "by": &q.By, "vm": &q.VM, "domain": &q.Domain, "owner": &q.Owner, "project": &q.Project, "gpu": &q.GPU,
		"currency": &q.Currency, "resolution": &q.Resolution,
	}
}

// priceParameter is the parameter that is a number.
const priceParameter = "gpu_hour_price"

// parseUsageQuery reads a query from a request's parameters.
func parseUsageQuery(v url.Values) (q UsageQuery, err error) {
	texts := usageParameters(&q)
	for name, values := range v {
		switch field, ok := texts[name]; {
		case len(values) != 1:
			return q, fmt.Errorf("%s: given %d times: %w", name, len(values), ErrInvalid)
		case ok:
			*field = values[0]
		case name == priceParameter:
			if q.GPUHourPrice, err = strconv.ParseFloat(values[0], 64); err != nil {
				return q, fmt.Errorf("%s=%q: want a number such as 1.5: %w", name, values[0], ErrInvalid)
			}
		default:
			return q, fmt.Errorf("parameter %q is not known: want from, to, by, vm, domain, owner, project or gpu, and for costs %s, currency or resolution: %w", name, priceParameter, ErrInvalid)
		}
	}
	return q, nil
}

// values returns a query's parameters.
func (q UsageQuery) values() url.Values {
	v := make(url.Values)
	for name, field := range usageParameters(&q) {
		if *field != "" {
			v.Set(name, *field)
		}
	}
	if q.GPUHourPrice != 0 {
		v.Set(priceParameter, strconv.FormatFloat(q.GPUHourPrice, 'g', -1, 64))
	}
	return v
}

func serveUsage(h Host, r *http.Request) (any, error) {
	q, err := parseUsageQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return h.Usage(r.Context(), q)
}

func serveUsageCosts(h Host, r *http.Request) (any, error) {
	q, err := parseUsageQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return h.UsageCosts(r.Context(), q)
}

// Usage returns what guests used.
func (c *Client) Usage(ctx context.Context, q UsageQuery) (Usage, error) {
	return ask[Usage](ctx, c, "GET", "/v1/usage?"+q.values().Encode(), nil)
}

// UsageCosts returns what guests' usage costs, as OpenCost's custom cost plugins do.
func (c *Client) UsageCosts(ctx context.Context, q UsageQuery) (json.RawMessage, error) {
	return ask[json.RawMessage](ctx, c, "GET", "/v1/usage/opencost?"+q.values().Encode(), nil)
}
