package scheduler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// TestLatencies: kernels are to leave within what the guests want that have a higher ceiling, and
// only where they are told to leave for others.
func TestLatencies(t *testing.T) {
	const us = time.Microsecond
	for name, c := range map[string]struct {
		policy string
		terms  []ipc.Terms
		want   []time.Duration
	}{
		"the default":          {"hpf", []ipc.Terms{{}, {PriorityCeiling: 2}}, []time.Duration{DefaultLatency, equalsLatency}},
		"its own":              {"piv", []ipc.Terms{{}, {PriorityCeiling: 2, Latency: 40 * us}}, []time.Duration{40 * us, 0}},
		"longer than equals'":  {"piv", []ipc.Terms{{}, {PriorityCeiling: 2, Latency: time.Second}}, []time.Duration{time.Second, 0}},
		"the least of two":     {"piv", []ipc.Terms{{}, {PriorityCeiling: 1, Latency: 300 * us}, {PriorityCeiling: 3, Latency: 50 * us}, {PriorityCeiling: 3}}, []time.Duration{50 * us, 50 * us, 0, 0}},
		"the lower one's":      {"piv", []ipc.Terms{{}, {PriorityCeiling: 1, Latency: 30 * us}, {PriorityCeiling: 15}}, []time.Duration{30 * us, DefaultLatency, 0}},
		"nobody above":         {"piv", []ipc.Terms{{Latency: 20 * us}, {}}, []time.Duration{0, 0}},
		"the highest ceilings": {"piv", []ipc.Terms{{PriorityCeiling: 14}, {PriorityCeiling: 15}}, []time.Duration{DefaultLatency, 0}},
		"alone":                {"hpf", []ipc.Terms{{PriorityCeiling: 2}}, []time.Duration{0}},
		"for shorter ones":     {"hpf", []ipc.Terms{{}, {}}, []time.Duration{equalsLatency, equalsLatency}},
		"by turns":             {"ffs", []ipc.Terms{{}, {PriorityCeiling: 2}}, []time.Duration{equalsLatency, equalsLatency}},
		"never told to leave":  {"fifo", []ipc.Terms{{}, {PriorityCeiling: 2}}, []time.Duration{0, 0}},
		"not about kernels":    {"dfq", []ipc.Terms{{}, {PriorityCeiling: 2}}, []time.Duration{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if err := s.sched.SetPolicy(c.policy); err != nil {
				t.Fatal(err)
			}
			for i, terms := range c.terms {
				terms.Weight = 1
				s.joinWith(fairshare.GuestID(i+1), GuestOptions{Terms: terms}, uint16(i+1))
			}
			s.sched.Changed(1)
			got := make([]time.Duration, len(s.guests))
			for i, g := range s.guests {
				got[i], _ = g.o.Page.Leaving()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("latencies (-want +got):\n%s", diff)
			}
			s.sched.Stop()
			for i, g := range s.guests {
				if d, _ := g.o.Page.Leaving(); d != 0 {
					t.Errorf("guest %d has %v from a daemon that left", i, d)
				}
			}
		})
	}
}

// TestSuspension: guests are told whether the hardware takes kernels off the GPU by itself.
func TestSuspension(t *testing.T) {
	s := newScene(t)
	s.joinWith(1, GuestOptions{Terms: ipc.Terms{Weight: 1}}, 1)
	for _, preempts := range []bool{true, false, true} {
		s.sched.gpu.Properties.Preempts = preempts
		s.sched.Changed(1)
		if _, got := s.guests[0].o.Page.Leaving(); (got > 0) != preempts {
			t.Errorf("preempts %v: %v", preempts, got)
		}
	}
}
