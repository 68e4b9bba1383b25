package mediator

import (
	"testing"
	"time"

	"vgpud/mediator/link"
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
					if got := g.page.Spins(); got != want {
						t.Errorf("%s: guest %d is told to spin: %v", when, i, got)
					}
				}
			}
			wants("before", c.how == spinAlways)
			long := s.submit(batch, link.Stub{Evictable: true, Form: 1})
			s.next(run(1))
			s.share.rang()
			long.Start(s.clock.Now())
			s.submit(urgent, link.Stub{})
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
