package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/cmd/internal/output"
	"vgpud/cmd/vgpud/workload"
	"vgpud/mediator/api"
)

// testInterval returns an interval of 10 s with the urgent guest's latencies and the batch guest's
// number of kernels.
func testInterval(t *testing.T, kernels uint64, latencies ...float64) interval {
	t.Helper()
	batch, urgent := urgencyPair()
	at := time.Unix(1000, 0)
	begin := snapshot{
		at: at, gpu: api.GPU{Evictions: api.Evictions{Count: 5}},
		vms:     map[string]api.VM{"batch": {Kernels: 100}},
		reports: map[string]workload.Report{"batch": {Cases: 1}, "urgent": {Cases: 1}},
	}
	urgent.addReport([]byte(`{"latencies_ms":[1000,2000]}`)) // before
	urgent.resetLatencies()
	for _, l := range latencies {
		text, err := json.Marshal(workload.Report{LatenciesMillis: []float64{l}})
		if err != nil {
			t.Fatal(err)
		}
		urgent.addReport(text)
	}
	return intervalOf(batch, urgent, begin, snapshot{
		at: at.Add(10 * time.Second), gpu: api.GPU{Evictions: api.Evictions{Count: 45, P50: 0.001, P99: 0.004}},
		vms:     map[string]api.VM{"batch": {Kernels: 100 + kernels}},
		reports: map[string]workload.Report{"batch": {Cases: 3}, "urgent": {Cases: 9}},
	})
}

func TestContrast(t *testing.T) {
	none, evict := testInterval(t, 200, 30, 10, 20), testInterval(t, 190, 2, 9, 1)
	want := Preemption{
		UrgentLatency: Contrast{20, 4}, UrgentLatency50: Contrast{20, 2}, UrgentLatencyMax: Contrast{30, 9}, UrgentKernels: Contrast{3, 3},
		BatchThroughputRatio: 0.95, BatchKernelsPerSec: Contrast{20, 19}, Eviction: Quantiles{1, 4}, Evictions: 40,
		Verified: true, Policy: preemptive,
	}
	got := compare(none, evict)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := got.err(); err != nil {
		t.Error(err)
	}
	evict.verified = false
	got = compare(none, evict)
	if err := got.err(); got.Verified || err == nil || !strings.Contains(err.Error(), "not checked") {
		t.Errorf("results that were not checked: %v", err)
	}
	evict.evictions = 0
	got = compare(none, evict)
	if err := got.err(); err == nil || !strings.Contains(err.Error(), "nothing was evicted") {
		t.Errorf("no eviction: %v", err)
	}
	if p := compare(interval{seconds: 1}, interval{seconds: 1}); p.Verified || p.BatchThroughputRatio != 0 || p.UrgentLatency != (Contrast{}) {
		t.Errorf("of nothing: %+v", p)
	}
}

// TestTurns: turns under a policy are summed up; a 99th percentile is said of enough launches only,
// and otherwise the worst one; and a turn without checked results spoils the whole.
func TestTurns(t *testing.T) {
	var sum interval
	for turn := range 3 {
		latencies := make([]float64, 100)
		for i := range latencies {
			latencies[i] = float64(1 + i + 100*turn)
		}
		sum.add(testInterval(t, 200, latencies...))
		p := compare(sum, sum)
		if want := turn >= 1; (p.UrgentLatency99 != nil) != want || p.Turns != turn+1 || !p.Verified || p.UrgentLatencyMax.None != float64(100*(turn+1)) {
			t.Errorf("after turn %d: %+v, want a percentile: %v", turn, p, want)
		}
		var out bytes.Buffer
		if err := p.print(&out); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("worst %d.00 ms of %d launches", 100*(turn+1), 100*(turn+1))
		if turn >= 1 {
			want = fmt.Sprintf("99%% %d.00 ms, ", 99*(turn+1)) + want
		} else {
			want = " ms, " + want
		}
		if strings.Count(out.String(), want) != 2 {
			t.Errorf("after turn %d, want twice %q:\n%s", turn, want, &out)
		}
	}
	if sum.kernels != 600 || sum.seconds != 30 || sum.evictions != 120 {
		t.Errorf("sums of three turns: %+v", sum)
	}
	for _, first := range []bool{true, false} {
		spoiled := interval{}
		for _, good := range []bool{first, !first} {
			b := testInterval(t, 200, 1)
			b.verified = good
			spoiled.add(b)
		}
		if spoiled.verified {
			t.Errorf("one of two turns is not verified (the first is: %v), and the sum is", first)
		}
	}
}

// TestVerified checks that a guest without a new result, or with a wrong one, is not verified.
func TestVerified(t *testing.T) {
	batch, urgent := urgencyPair()
	urgent.addReport([]byte(`{"latencies_ms":[1]}`))
	begin := snapshot{reports: map[string]workload.Report{"batch": {Cases: 1}, "urgent": {Cases: 1}}}
	for name, c := range map[string]struct {
		batch workload.Report
		want  bool
	}{
		"checked": {workload.Report{Cases: 2}, true},
		"nothing": {workload.Report{Cases: 1}, false},
		"wrong":   {workload.Report{Cases: 2, Wrong: 1}, false},
		"failed":  {workload.Report{Cases: 2, Error: "lost"}, false},
	} {
		now := snapshot{reports: map[string]workload.Report{"batch": c.batch, "urgent": {Cases: 2}}}
		if got := intervalOf(batch, urgent, begin, now).verified; got != c.want {
			t.Errorf("%s: verified %v", name, got)
		}
	}
	urgent.resetLatencies()
	now := snapshot{reports: map[string]workload.Report{"batch": {Cases: 2}, "urgent": {Cases: 2}}}
	if intervalOf(batch, urgent, begin, now).verified {
		t.Error("verified without a measured launch")
	}
}

// TestPreemptionJSON checks the names that programs read.
func TestPreemptionJSON(t *testing.T) {
	p := compare(testInterval(t, 200, 20), testInterval(t, 190, 2))
	var out bytes.Buffer
	if err := output.JSON(&out, &Result{Preemption: &p}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Preemption struct {
			UrgentLatency        map[string]float64 `json:"urgent_latency_ms"`
			BatchThroughputRatio float64            `json:"batch_throughput_ratio"`
			Eviction             map[string]float64 `json:"eviction_ms"`
			Evictions            uint64             `json:"evictions"`
			Verified             bool               `json:"verified"`
		} `json:"preemption"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	g := &got.Preemption
	if diff := cmp.Diff(map[string]float64{"none": 20, "evict": 2}, g.UrgentLatency); diff != "" {
		t.Errorf("latency (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"p50": 1, "p99": 4}, g.Eviction); diff != "" {
		t.Errorf("eviction (-want +got):\n%s", diff)
	}
	if g.BatchThroughputRatio != 0.95 || g.Evictions != 40 || !g.Verified {
		t.Errorf("%+v", g)
	}
}
