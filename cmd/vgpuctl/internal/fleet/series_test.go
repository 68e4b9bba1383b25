package fleet

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"vgpud/mediator/api"
)

// scraped returns a host's series as Prometheus has them: what the daemon's test shows of metrics.
func scraped(t *testing.T, host string) (all model.Vector) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "mediator", "daemon", "testdata", "metrics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, samples...)
	}
	for _, s := range all {
		s.Metric[model.InstanceLabel] = model.LabelValue(host)
	}
	return append(all, up(host, 1))
}

func up(host string, value float64) *model.Sample {
	return &model.Sample{Metric: model.Metric{model.MetricNameLabel: "up", model.InstanceLabel: model.LabelValue(host)}, Value: model.SampleValue(value)}
}

// TestFromSeries: the daemon's metrics say of hosts and projects what its API does.
func TestFromSeries(t *testing.T) {
	gone := scraped(t, "c") // whose series Prometheus has from a moment ago
	gone[len(gone)-1] = up("c", 0)
	got := FromSeries(slices.Concat(scraped(t, "b"), gone, scraped(t, "a")))
	if len(got) != 3 || got[2].Host != "c" || got[2].Err == nil || len(got[2].GPUs)+len(got[2].VMs) != 0 {
		t.Fatalf("of two hosts that answer and one that does not: %+v", got)
	}
	for i, want := range []string{"a", "b"} {
		got := got[i]
		if got.Host != want || got.Err != nil {
			t.Errorf("host %d is %q: %v", i, got.Host, got.Err)
		}
		gpus := []api.GPU{{Name: "gpu0", Healthy: true, BusyRatio: 0.75}, {Name: "gpu1", Healthy: true}}
		byName := cmpopts.SortSlices(func(a, b api.GPU) bool { return a.Name < b.Name })
		if diff := cmp.Diff(gpus, got.GPUs, byName); diff != "" {
			t.Errorf("GPUs of %s (-want +got):\n%s", want, diff)
		}
		vms := []api.VM{
			{Name: "floats", GPU: "gpu1", Weight: 1, BusyRatio: 0.375},
			{Name: "web1", GPU: "gpu0", Owner: "research", Weight: 2, Cap: 0.5, Guarantee: 0.125, Budget: day(time.Hour, time.Minute)},
			{Name: "web2", GPU: "gpu0", Weight: 1},
		}
		if diff := cmp.Diff(vms, got.VMs, cmpopts.SortSlices(func(a, b api.VM) bool { return a.Name < b.Name })); diff != "" {
			t.Errorf("guests of %s (-want +got):\n%s", want, diff)
		}
	}
	p := Projects(got)
	if len(p) != 1 || p[0].Hosts != 2 || p[0].VMs != 6 || len(p[0].Budgets) != 1 || p[0].Budgets[0] != (Budget{"day", 2 * time.Hour, 2 * time.Minute}) {
		t.Errorf("the projects are %+v", p)
	}
}

// TestFromStrangeSeries: what no daemon exports does no harm.
func TestFromStrangeSeries(t *testing.T) {
	var all model.Vector
	for _, value := range []float64{math.NaN(), math.Inf(1), -1} {
		for name := range ofVM {
			all = append(all, &model.Sample{Metric: model.Metric{model.MetricNameLabel: model.LabelValue(name)}, Value: model.SampleValue(value)})
		}
		for name := range ofGPU {
			all = append(all, &model.Sample{Metric: model.Metric{model.MetricNameLabel: model.LabelValue(name)}, Value: model.SampleValue(value)})
		}
	}
	answers := FromSeries(all)
	if len(answers) != 1 || len(answers[0].GPUs) != 1 || len(answers[0].VMs) != 0 {
		t.Errorf("FromSeries(%v) = %+v", all, answers)
	}
	for _, h := range Hosts(answers) {
		if h.GPUs != 1 {
			t.Errorf("the host is %+v", h)
		}
	}
}
