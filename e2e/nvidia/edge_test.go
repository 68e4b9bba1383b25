package main

import (
	"math"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestNoiseIsNothing holds that what is more in some runs and less in others is nothing, and what is
// more in all of them is not.
func TestNoiseIsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		with, without []float64
		want          float64
	}{
		"noise":              {[]float64{3, 1, 2}, []float64{2, 2, 1}, 0},
		"always more":        {[]float64{3, 4, 9}, []float64{2, 2, 1}, 2},
		"always less":        {[]float64{1, 1}, []float64{2, 4}, -2},
		"one run":            {[]float64{3}, []float64{2}, 1},
		"one was not ended":  {[]float64{3, 4}, []float64{2}, 1},
		"nothing was":        {nil, nil, math.NaN()},
		"exactly as without": {[]float64{2, 3}, []float64{2, 2}, 0},
	} {
		if got := beyondNoise(differences(c.with, c.without)); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestOnProcessor starts a program on a processor, and another when that is over.
func TestOnProcessor(t *testing.T) {
	host, card, err := twoProcessors()
	if err != nil {
		t.Fatal(err)
	}
	allowed := func() string {
		out, err := exec.Command("grep", "Cpus_allowed_list", "/proc/self/status").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(strings.TrimPrefix(string(out), "Cpus_allowed_list:"))
	}
	before := allowed()
	if strings.ContainsAny(before, ",-") && host == card {
		t.Errorf("of processors %s both are %d", before, host)
	}
	for _, cpu := range []int{host, card} {
		err := onProcessor(cpu, func() error {
			if got := allowed(); got != strconv.Itoa(cpu) {
				t.Errorf("a program started on processor %d is on %s", cpu, got)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if after := allowed(); after != before {
		t.Errorf("after it programs are on %s, not %s", after, before)
	}
	if err := onProcessor(len(before)+1<<9, func() error { return nil }); err == nil {
		t.Error("there is any processor")
	}
}

// TestWorseIsByRun holds that what makes a run's value is the program that suffers more in it.
func TestWorseIsByRun(t *testing.T) {
	got := worse([len(burnKinds)][]float64{{1.1, 1, 1.3}, {1, 1.2, 1.2}})
	if len(got) != 3 || got[0] != 1.1 || got[1] != 1.2 || got[2] != 1.3 {
		t.Errorf("%v", got)
	}
}
