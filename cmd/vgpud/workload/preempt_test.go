package workload

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

func TestContextOptions(t *testing.T) {
	on := &driver.PreemptOptions{}
	off := &driver.PreemptOptions{Off: true}
	for name, c := range map[string]struct {
		plan Plan
		env  string
		want driver.ContextOptions
	}{
		"a device of one's own":      {Plan{}, "", driver.ContextOptions{Preempt: on}},
		"a part of one":              {Plan{Agent: true}, "", driver.ContextOptions{}},
		"not wanted":                 {Plan{Preempt: "off", Agent: true}, "", driver.ContextOptions{Preempt: off}},
		"not by the environment":     {Plan{Priority: -3}, "off", driver.ContextOptions{Priority: -3, Preempt: off}},
		"a form, whatever is wanted": {Plan{Preempt: "coarse"}, "off", driver.ContextOptions{Preempt: &driver.PreemptOptions{Forms: abi.PreemptCoarse}}},
	} {
		t.Setenv(driver.PreemptVariable, c.env)
		got, err := c.plan.contextOptions()
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if err := Run(context.Background(), Plan{Preempt: "soon", Socket: "/nowhere"}, nil); err == nil {
		t.Error("a form that there is not")
	}
}

// TestPlansTravel checks that the plans for preemption survive JSON, and that their cases exist.
func TestPlansTravel(t *testing.T) {
	for _, p := range []Plan{Batch(), Urgent()} {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadPlan(strings.NewReader(string(b)))
		if diff := cmp.Diff(p, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		for _, w := range got.Work {
			if _, c, err := w.Case(1); err != nil || c.Steps[0].SharedBytes != w.SharedBytes {
				t.Errorf("%v: %v", w, err)
			}
		}
	}
	for _, w := range []Work{
		{Kernel: "throttle", Throttle: &corpus.ThrottleConfig{Blocks: 1 << 30, Threads: 1, Iterations: 1}},
		{Kernel: "matmul", Throttle: &corpus.ThrottleConfig{Blocks: 1, Threads: 1, Iterations: 1}},
	} {
		if _, _, err := w.Case(1); err == nil {
			t.Errorf("%+v is accepted", w.Throttle)
		}
	}
}

func TestLatenciesAreBounded(t *testing.T) {
	r := &run{pause: 1}
	var p driver.Pending
	for range MaxLatencies + 10 {
		r.started()
		r.finished(&p, 1e6)
	}
	if got := r.takeLatencies(); len(got) != MaxLatencies || got[0] != 1 || r.takeLatencies() != nil {
		t.Errorf("%d latencies, the first %v", len(got), got[0])
	}
}
