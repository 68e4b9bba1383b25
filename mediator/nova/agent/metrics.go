package agent

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vgpud/clock"
	"vgpud/mediator/nova"
	"vgpud/mediator/nova/placement"
)

// Counted counts an agent's requests to Placement.
type Counted struct {
	Placement
	requests *prometheus.CounterVec
}

// Count returns p with its requests counted, and registers the counter.
func Count(p Placement, r prometheus.Registerer) *Counted {
	c := &Counted{p, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "vgpud_placement_requests_total", Help: "Requests to Placement, by what they do and what came of it: ok, conflict (the provider had changed), refused, failed (no answer).",
	}, []string{"kind", "result"})}
	r.MustRegister(c.requests)
	return c
}

func (c *Counted) count(kind string, err error) {
	result := "ok"
	switch {
	case err == nil:
	case errors.Is(err, placement.ErrConflict):
		result = "conflict"
	case errors.Is(err, placement.ErrRefused), errors.Is(err, placement.ErrExists), errors.Is(err, placement.ErrInUse), errors.Is(err, placement.ErrNotFound), errors.Is(err, placement.ErrDenied):
		result = "refused"
	default:
		result = "failed"
	}
	c.requests.WithLabelValues(kind, result).Inc()
}

// Named implements [Placement].
func (c *Counted) Named(ctx context.Context, name string) (nova.Provider, error) {
	p, err := c.Placement.Named(ctx, name)
	c.count("read", err)
	return p, err
}

// Tree implements [Placement].
func (c *Counted) Tree(ctx context.Context, root string) ([]nova.Provider, error) {
	all, err := c.Placement.Tree(ctx, root)
	c.count("read", err)
	return all, err
}

// Read implements [Placement].
func (c *Counted) Read(ctx context.Context, p nova.Provider) (nova.Provider, error) {
	p, err := c.Placement.Read(ctx, p)
	c.count("read", err)
	return p, err
}

// Usages implements [Placement].
func (c *Counted) Usages(ctx context.Context, provider string) (map[string]int, int, error) {
	used, generation, err := c.Placement.Usages(ctx, provider)
	c.count("read", err)
	return used, generation, err
}

// Do implements [Placement].
func (c *Counted) Do(ctx context.Context, r nova.Request) (int, error) {
	generation, err := c.Placement.Do(ctx, r)
	c.count(r.Kind.String(), err)
	return generation, err
}

// DeclareClass implements [Placement].
func (c *Counted) DeclareClass(ctx context.Context, class string) error {
	err := c.Placement.DeclareClass(ctx, class)
	c.count("declare", err)
	return err
}

// DeclareTrait implements [Placement].
func (c *Counted) DeclareTrait(ctx context.Context, trait string) error {
	err := c.Placement.DeclareTrait(ctx, trait)
	c.count("declare", err)
	return err
}

// Collector returns the metrics of an agent's status.
func Collector(status func() Status, c clock.Clock) prometheus.Collector {
	return collector{status, c}
}

type collector struct {
	status func() Status
	clock  clock.Clock
}

var (
	daemonUp = prometheus.NewDesc("vgpud_placement_daemon_up", "Whether vgpud answered last.", nil, nil)
	inSync   = prometheus.NewDesc("vgpud_placement_in_sync", "Whether Placement has what this host offers.", nil, nil)
	age      = prometheus.NewDesc("vgpud_placement_confirmed_age_seconds", "Time since Placement was last known to have what this host offers.", nil, nil)
	shares   = prometheus.NewDesc("vgpud_placement_shares", "Shares of a GPU in Placement: reserved, and offered to instances, used or not.", []string{"gpu", "state"}, nil)
	memory   = prometheus.NewDesc("vgpud_placement_memory_bytes", "Memory of a GPU in Placement: reserved, and offered to instances, used or not.", []string{"gpu", "state"}, nil)
)

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{daemonUp, inSync, age, shares, memory} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	yes := map[bool]float64{true: 1}
	st := c.status()
	gauge(daemonUp, yes[st.DaemonUp])
	gauge(inSync, yes[st.InSync])
	gauge(age, max(c.clock.Now()-st.Confirmed, time.Duration(0)).Seconds())
	const mib = 1 << 20
	for _, o := range st.Offers {
		gauge(shares, float64(o.Share.Reserved), o.GPU, "reserved")
		gauge(shares, float64(o.Share.Total-o.Share.Reserved), o.GPU, "offered")
		gauge(memory, float64(o.Memory.Reserved)*mib, o.GPU, "reserved")
		gauge(memory, float64(o.Memory.Total-o.Memory.Reserved)*mib, o.GPU, "offered")
	}
}
