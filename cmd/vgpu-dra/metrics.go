package main

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"vgpud/mediator/capacity"
)

// counts is the driver's metrics. Its methods may be called from several goroutines.
type counts struct {
	daemonUp atomic.Bool
	offers   atomic.Pointer[[]capacity.Offer] // as vgpud said last
	changes  prometheus.Counter
	errors   prometheus.Counter
	claims   *prometheus.CounterVec
}

// newCounts registers the driver's metrics.
func newCounts(r prometheus.Registerer) *counts {
	c := &counts{
		changes: prometheus.NewCounter(prometheus.CounterOpts{Name: "vgpud_kubernetes_changes_total", Help: "Changes of what this node offers."}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "vgpud_kubernetes_errors_total", Help: "Errors in publishing what this node offers, and in talking to the kubelet. A call that failed is made again.",
		}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vgpud_kubernetes_claims_total", Help: "Claims that the kubelet asked for, by what it asked for (prepare, unprepare) and what came of it (ok, failed).",
		}, []string{"kind", "result"}),
	}
	for _, kind := range []string{"prepare", "unprepare"} {
		for _, result := range []string{"ok", "failed"} {
			c.claims.WithLabelValues(kind, result)
		}
	}
	r.MustRegister(c, c.changes, c.errors, c.claims)
	return c
}

// claim counts a claim that the kubelet asked for.
func (c *counts) claim(kind string, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	c.claims.WithLabelValues(kind, result).Inc()
}

var (
	daemonUp = prometheus.NewDesc("vgpud_kubernetes_daemon_up", "Whether vgpud answered last.", nil, nil)
	shares   = prometheus.NewDesc("vgpud_kubernetes_shares", "Shares of a GPU: reserved, and offered to claims, used or not.", []string{"gpu", "state"}, nil)
	memory   = prometheus.NewDesc("vgpud_kubernetes_memory_bytes", "Memory of a GPU: reserved, and offered to claims, used or not.", []string{"gpu", "state"}, nil)
)

// Describe implements [prometheus.Collector].
func (c *counts) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{daemonUp, shares, memory} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *counts) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(daemonUp, map[bool]float64{true: 1}[c.daemonUp.Load()])
	offers := c.offers.Load()
	if offers == nil {
		return
	}
	for _, o := range *offers {
		gauge(shares, float64(o.Share.Reserved), o.GPU, "reserved")
		gauge(shares, float64(o.Share.Free()), o.GPU, "offered")
		gauge(memory, float64(o.Memory.Reserved)*mib, o.GPU, "reserved")
		gauge(memory, float64(o.Memory.Free())*mib, o.GPU, "offered")
	}
}
