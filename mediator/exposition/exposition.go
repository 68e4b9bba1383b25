// Package exposition gives Prometheus time series of a host's many guests, cheaply: series that have
// the same labels share them, and Prometheus' text format is written in one pass, without an
// allocation for each series. For 1,000 guests client_golang takes several times as long, which
// makes each series a message, sorts and checks them all.
//
// It is not for a program's own counters: client_golang's are fine for those. The values here are read
// from elsewhere when they are asked for.
//
// A [Source] describes its families and collects their samples into a [Sink]. The sinks are [Text],
// and a Prometheus registry by [Collector], which serves the other formats and checks in tests what
// Text does not: that samples fit their families and none comes twice.
package exposition

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Kind is a type of metrics.
type Kind uint8

// The types of metrics.
const (
	Gauge Kind = iota
	Counter
	Histogram
)

var kindNames = [...]string{Gauge: "gauge", Counter: "counter", Histogram: "histogram"}

// String returns the kind's name in Prometheus' text format.
func (k Kind) String() string { return kindNames[k] }

// Family is all series of one name.
type Family struct {
	name, help string
	kind       Kind
	labels     []string
	order      []int // of labels, by name
	desc       *prometheus.Desc
}

// NewFamily returns a family whose series have these labels.
func NewFamily(kind Kind, name, help string, labels ...string) *Family {
	f := &Family{name: name, help: help, kind: kind, labels: labels, desc: prometheus.NewDesc(name, help, labels, nil)}
	for i := range labels {
		f.order = append(f.order, i)
	}
	slices.SortFunc(f.order, func(a, b int) int { return strings.Compare(labels[a], labels[b]) })
	return f
}

// Name returns the family's name.
func (f *Family) Name() string { return f.name }

// Labels are the values of one series' labels, in the order of its family's. They may be used for
// series of several families with the same labels, by one goroutine at a time.
type Labels struct {
	values []string
	text   []byte           // as in Text, from the first use there
	pairs  []*dto.LabelPair // as in a registry, from the first use there
}

// With returns labels with these values.
func With(values ...string) *Labels { return &Labels{values: values} }

// Sink takes samples. All of a family must follow one another.
type Sink interface {
	// Sample takes the value of a gauge's or counter's series.
	Sample(f *Family, l *Labels, value float64)
	// Distribution takes the value of a histogram's series.
	Distribution(f *Family, l *Labels, d Distribution)
}

// Distribution is the value of a histogram: UpTo holds for each of the ascending Bounds how many of
// Count values were at most that.
type Distribution struct {
	Bounds []float64
	UpTo   []uint64
	Count  uint64
	Sum    float64
}

// Source is a collection of families.
type Source interface {
	// Families returns all families, also those without a sample.
	Families() []*Family
	// Collect gives each family's samples to a sink. It may be called by several goroutines at a time.
	Collect(Sink)
}

// Collector returns a source's series as a registry takes them.
func Collector(s Source) prometheus.Collector { return collector{s} }

type collector struct{ Source }

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.Families() {
		ch <- f.desc
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) { c.Source.Collect(channel(ch)) }

// channel is a Sink that makes each sample a Metric.
type channel chan<- prometheus.Metric

// Sample implements [Sink].
func (c channel) Sample(f *Family, l *Labels, value float64) {
	c <- sample{f, l.labelPairs(f), value}
}

// Distribution implements [Sink].
func (c channel) Distribution(f *Family, l *Labels, d Distribution) {
	buckets := make(map[float64]uint64, len(d.Bounds))
	for i, bound := range d.Bounds {
		buckets[bound] = d.UpTo[i]
	}
	c <- prometheus.MustNewConstHistogram(f.desc, d.Count, d.Sum, buckets, l.values...)
}

func (l *Labels) labelPairs(f *Family) []*dto.LabelPair {
	if l.pairs == nil {
		l.pairs = prometheus.MakeLabelPairs(f.desc, l.values)
	}
	return l.pairs
}

// sample is a [prometheus.Metric] whose labels are also those of others.
type sample struct {
	family *Family
	labels []*dto.LabelPair
	value  float64
}

// Desc implements [prometheus.Metric].
func (s sample) Desc() *prometheus.Desc { return s.family.desc }

// Write implements [prometheus.Metric].
func (s sample) Write(m *dto.Metric) error {
	m.Label = s.labels
	if s.family.kind == Counter {
		m.Counter = &dto.Counter{Value: &s.value}
	} else {
		m.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}
