package demo

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestSpeed(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name          string
		few, many     float64 // seconds of 10 and 110 iterations
		want          time.Duration
		iterations    int
		fixed, within float64
	}{
		{"a line", 2e-3, 12e-3, 51 * ms, 500, 1e-3, 1e-9},
		{"shorter than anything", 2e-3, 12e-3, 0, 1, 1e-3, 1e-9},
		{"more iterations take less", 3e-3, 1.1e-3, 5 * ms, 500, 0, 0},
		{"no iterations take less than nothing", 1e-6, 1.1e-3, 5 * ms, 500, 0, 0},
	} {
		s := speedOf(10, c.few, 110, c.many)
		if got := s.iterations(c.want); got != c.iterations || math.Abs(s.fixed-c.fixed) > c.within {
			t.Errorf("%s: %d iterations and %v s, want %d and %v", c.name, got, s.fixed, c.iterations, c.fixed)
		}
	}
}

// TestLengths checks that heavier guests have shorter kernels on every GPU.
func TestLengths(t *testing.T) {
	for _, o := range []Options{{GPU: Soft}, {GPU: NVIDIA}, {GPU: NVIDIA, VMs: true}} {
		l := o.lengths()
		if l.guests[0] < 2*l.guests[1] || l.guests[1] < 2*l.guests[2] || l.batch < 50*l.urgent || l.few >= l.many {
			t.Errorf("%+v: %+v", o, l)
		}
	}
}

func TestReadProbe(t *testing.T) {
	const one = `{"uuid":"GPU-1","properties":{"Name":"H100"}}`
	for _, c := range []struct{ out, want string }{
		{`{"gpus":[` + one + `],"error":""}`, "H100, GPU-1"},
		{`{"gpus":[],"error":"libcuda.so.1: no such file"}`, "libcuda.so.1"},
		{`{"gpus":[]}`, "lists none"},
		{`{"gpus":[` + one + `,` + one + `]}`, "CUDA_VISIBLE_DEVICES=GPU-1"},
		{`what`, "invalid character"},
	} {
		name, err := readProbe([]byte(c.out))
		if err != nil {
			name = err.Error()
			if !strings.Contains(name, "doctor") {
				t.Errorf("%s: %v does not say what to do", c.out, err)
			}
		}
		if !strings.Contains(name, c.want) {
			t.Errorf("%s: %q, want %q", c.out, name, c.want)
		}
	}
}
