package daemon

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// TestSpinsWhileKernelsLeave: without a word about it in the configuration, guests are told
// to look for launches from when a kernel is told to leave until a while after the last one.
func TestSpinsWhileKernelsLeave(t *testing.T) {
	for name, c := range map[string]struct {
		how         string
		processors  int
		told, after bool // to look, once a kernel was told to leave, and a second later
	}{
		"not configured":    {"", spinProcessors, true, false},
		"auto":              {spinAuto, spinProcessors, true, false},
		"few processors":    {spinAuto, spinProcessors - 1, false, false},
		"configured":        {spinAlways, 1, true, true},
		"configured not to": {spinNever, 64, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.share.launching.spin = spinner{how: c.how, processors: c.processors}
			batch, urgent := s.join(1, 1, 1), s.join(2, 1, 2)
			s.byKernel()
			wants := func(when string, want bool) {
				t.Helper()
				s.share.rang()
				for i, g := range s.guests {
					if got := g.page.BusyWait(); got != want {
						t.Errorf("%s: guest %d is told to spin: %v", when, i, got)
					}
				}
			}
			wants("before", c.how == spinAlways)
			long := s.submit(batch, ipc.Launch{Evictable: true, Form: 1})
			s.next(run(1))
			s.share.rang()
			long.Start(s.clock.Now())
			s.submit(urgent, ipc.Launch{})
			s.next(evict(1, 1, 2))
			s.share.rang()
			wants("a kernel is told to leave", c.told)
			s.clock.Advance(spinFor - time.Nanosecond)
			wants("shortly after", c.told)
			s.clock.Advance(time.Nanosecond)
			wants("long after", c.after)
		})
	}
}

// TestConfiguredSpin: YAML's booleans are among the values, as they were when these were all.
func TestConfiguredSpin(t *testing.T) {
	for text, want := range map[string]string{"true": spinAlways, "false": spinNever, "auto": spinAuto, `""`: ""} {
		c, err := ParseConfig([]byte("gpus: [{name: gpu0, socket: /gpu.sock, spin: " + text + "}]"))
		if err != nil || c.GPUs[0].Spin != want {
			t.Errorf("spin: %s is %q, %v", text, c.GPUs[0].Spin, err)
		}
	}
	if _, err := ParseConfig([]byte("gpus: [{name: gpu0, socket: /gpu.sock, spin: sometimes}]")); err == nil {
		t.Error("spin: sometimes passes")
	}
}

// TestWhoPolls: by priority, the executors of guests whose launches go before another's may
// poll for these, without a word about it in the configuration.
func TestWhoPolls(t *testing.T) {
	const most = DefaultUrgentPoll
	for name, c := range map[string]struct {
		config     GPUConfig
		processors int
		policy     string
		ceilings   []int
		want       []time.Duration
	}{
		"by priority":           {GPUConfig{}, spinProcessors, "hpf", []int{0, 2, 1}, []time.Duration{0, most, most}},
		"all as urgent":         {GPUConfig{}, spinProcessors, "hpf", []int{2, 2}, []time.Duration{0, 0}},
		"alone":                 {GPUConfig{}, spinProcessors, "hpf", []int{2}, []time.Duration{0}},
		"not by priority":       {GPUConfig{}, spinProcessors, "ffs", []int{0, 2}, []time.Duration{0, 0}},
		"not about launches":    {GPUConfig{}, spinProcessors, "dfq", []int{0, 2}, []time.Duration{0, 0}},
		"few processors":        {GPUConfig{}, spinProcessors - 1, "hpf", []int{0, 2}, []time.Duration{0, 0}},
		"few, configured":       {GPUConfig{Spin: spinAlways}, 1, "hpf", []int{0, 2}, []time.Duration{0, most}},
		"configured not to":     {GPUConfig{Spin: spinNever}, spinProcessors, "hpf", []int{0, 2}, []time.Duration{0, 0}},
		"configured otherwise":  {GPUConfig{UrgentPoll: TimeLimit(ms)}, spinProcessors, "hpf", []int{0, 2}, []time.Duration{0, ms}},
		"configured without it": {GPUConfig{UrgentPoll: -1}, spinProcessors, "hpf", []int{0, 2}, []time.Duration{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.share.launching.spin = newSpinner(&c.config)
			s.share.launching.spin.processors = c.processors
			if err := s.share.setPolicy(c.policy); err != nil {
				t.Fatal(err)
			}
			for i, ceiling := range c.ceilings {
				s.join(fairshare.GuestID(i+1), 1, uint16(i+1)).terms.PriorityCeiling = ceiling
			}
			s.share.changed(1)
			told := func() (all []time.Duration) {
				for _, g := range s.guests {
					all = append(all, g.page.PollLimit())
				}
				return all
			}
			if diff := cmp.Diff(c.want, told()); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			s.guests[0].page.SetPollLimit(ipc.MaxPollLimit) // its processes may write what they like
			s.share.changed(1)
			if diff := cmp.Diff(c.want, told()); diff != "" {
				t.Errorf("limits, after a guest's process wrote another (-want +got):\n%s", diff)
			}
			s.share.leave()
			if diff := cmp.Diff(make([]time.Duration, len(c.want)), told()); diff != "" {
				t.Errorf("limits, after the daemon left (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConfiguredPoll: the limit can be none, and no more than executors obey.
func TestConfiguredPoll(t *testing.T) {
	for text, want := range map[string]time.Duration{"": DefaultUrgentPoll, "urgent_poll: 2ms": 2 * ms, "urgent_poll: none": 0, "urgent_poll: 20ms": ipc.MaxPollLimit} {
		c, err := ParseConfig([]byte("gpus: [{name: gpu0, socket: /gpu.sock, " + text + "}]"))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := c.GPUs[0].urgentPoll(); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
	if _, err := ParseConfig([]byte("gpus: [{name: gpu0, socket: /gpu.sock, urgent_poll: 21ms}]")); err == nil {
		t.Error("urgent_poll: 21ms passes")
	}
}
