package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/api"
)

// change returns the daemon's configuration with a change.
func (d *daemon) change(f func(*Config)) Config {
	c := d.config
	c.GPUs = slices.Clone(c.GPUs)
	f(&c)
	return c
}

func (d *daemon) gpu() api.GPU {
	d.t.Helper()
	gs, err := d.client.GPUs(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return gs[0]
}

func TestReload(t *testing.T) {
	d := startDaemon(t, runDir(t))
	j := newJob(t, attach(t, d.create("a").Socket))
	until(t, "the GPU is watched", func() bool { return d.gpu().Rounds > 0 })

	c := d.change(func(c *Config) {
		c.KernelTimeLimit, c.EvictionDeadline = TimeLimit(time.Minute), TimeLimit(time.Second)
		c.GPUs[0].Policy = "dfq"
		c.GPUs[0].Accounting = AccountingConfig{Poll: ms, Quiet: 20 * ms, Round: 30 * ms}
	})
	fixed, err := d.service.Reload(c)
	if err != nil || len(fixed) > 0 {
		t.Fatalf("Reload = %v, %v", fixed, err)
	}
	if p := d.gpu().Policy; p != "dfq" {
		t.Errorf("policy %s, want dfq", p)
	}
	if deadline := d.service.config.Load().evictionDeadline(); deadline != time.Second {
		t.Errorf("kernels may take %v to leave, want 1s", deadline)
	}
	// Of an idle round a fifth of Poll is watched, which was next to nothing before.
	before := d.gpu()
	until(t, "it is watched in another way", func() bool {
		after := d.gpu()
		rounds, watched := after.Rounds-before.Rounds, after.WatchedSeconds-before.WatchedSeconds
		before = after
		return rounds > 0 && watched > 0.2e-3*float64(rounds)
	})
	rounds := d.gpu().Rounds
	until(t, "rounds go on", func() bool { return d.gpu().Rounds > rounds+2 })
	if g := d.gpu(); !g.Healthy {
		t.Errorf("health: %+v", g)
	}
	j.works()
	if v := d.create("b"); v.KernelTimeLimit != time.Minute {
		t.Errorf("kernels of a guest made later may take %v", v.KernelTimeLimit)
	}

	// Settings that were changed meanwhile stay if the file does not change.
	none := "none"
	if _, err := d.client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{Policy: &none}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.service.Reload(c); err != nil {
		t.Fatal(err)
	}
	if p := d.gpu().Policy; p != none {
		t.Errorf("policy %s after nothing was changed", p)
	}

	// Settings that can't change are named, and the rest changes.
	c = d.change(func(c *Config) {
		c.RunDir, c.Socket, c.Metrics = "/elsewhere", "/elsewhere/s", "127.0.0.1:1"
		c.GPUs = append(c.GPUs, GPUConfig{Name: "gpu1", Kind: "soft", Socket: "unused", Policy: "none"})
		c.GPUs[0].Policy = "loga-cl"
	})
	fixed, err = d.service.Reload(c)
	if diff := cmp.Diff([]string{"gpus", "metrics", "run_dir", "socket"}, fixed); err != nil || diff != "" {
		t.Errorf("%v, fixed (-want +got):\n%s", err, diff)
	}
	if p := d.gpu().Policy; p != "loga-cl" {
		t.Errorf("policy %s, want loga-cl", p)
	}
	for name, change := range map[string]func(*Config){
		"confinement": func(c *Config) { c.Confinement.Processes = 7 },
		"gpus":        func(c *Config) { c.GPUs[0].Connections = 8 },
	} {
		fixed, err := d.service.Reload(d.change(change))
		if diff := cmp.Diff([]string{name}, fixed); err != nil || diff != "" {
			t.Errorf("%v, fixed (-want +got):\n%s", err, diff)
		}
	}
	if !d.service.Alive() {
		t.Error("a daemon that serves is not alive")
	}
}

// TestReloadUnderLoad: the configuration may be read again and again while guests work.
func TestReloadUnderLoad(t *testing.T) {
	d := startDaemon(t, runDir(t))
	j := newJob(t, attach(t, d.create("a").Socket))
	for i := range 20 {
		c := d.change(func(c *Config) {
			c.GPUs[0].Policy = []string{"none", "dfq"}[i%2]
			c.GPUs[0].Accounting = AccountingConfig{Poll: ms, Quiet: time.Duration(4+i) * ms, Full: i%5 == 4}
		})
		if _, err := d.service.Reload(c); err != nil {
			t.Fatal(err)
		}
		j.works()
	}
	rounds := d.gpu().Rounds
	until(t, "rounds go on", func() bool { return d.gpu().Rounds > rounds })
	if g := d.gpu(); !g.Healthy {
		t.Errorf("health: %+v", g)
	}
}

// TestReloadAfterOneThatFailed: what a file has changed before an error is changed back by the file
// before it.
func TestReloadAfterOneThatFailed(t *testing.T) {
	d := startDaemon(t, runDir(t))
	until(t, "the GPU is watched", func() bool { return d.gpu().Rounds > 0 })
	before := d.change(func(*Config) {})
	_, err := d.service.Reload(d.change(func(c *Config) {
		c.EvictionDeadline = TimeLimit(time.Second)
		c.GPUs[0].Policy = "dfq"
		c.GPUs[0].Accounting.Source = api.SourceEvents // which this GPU has none of
	}))
	if err == nil || d.gpu().Policy != "dfq" {
		t.Fatalf("error %v, policy %s, want one and dfq", err, d.gpu().Policy)
	}
	for range 2 {
		if fixed, err := d.service.Reload(before); err != nil || len(fixed) > 0 {
			t.Fatalf("Reload = %v, %v", fixed, err)
		}
		if p, want := d.gpu().Policy, before.GPUs[0].Policy; p != want {
			t.Errorf("policy %s after the file before was read again, want %s", p, want)
		}
	}
	if got, want := d.service.config.Load(), before.evictionDeadline(); got.evictionDeadline() != want {
		t.Errorf("kernels may take %v to leave, want %v", got.evictionDeadline(), want)
	}
}

// TestReloadMaxOverhead: another bound of policy ffs starts that policy again.
func TestReloadMaxOverhead(t *testing.T) {
	s, d, log := newNVIDIA(t)
	if err := d.loop.SetPolicy("ffs"); err != nil {
		t.Fatal(err)
	}
	c := Config{GPUs: []GPUConfig{{Name: "gpu0", Kind: kindNVIDIA, Policy: "ffs"}}}
	s.config.Store(&c)
	for i, bound := range []float64{0.05, 0.05, 0.02} {
		next := Config{GPUs: slices.Clone(c.GPUs)}
		next.GPUs[0].MaxOverhead = bound
		if _, err := s.Reload(next); err != nil {
			t.Fatal(err)
		}
		starts := strings.Count(log.String(), "msg=policy gpu=gpu0 policy=ffs")
		if want := []int{2, 2, 3}[i]; starts != want {
			t.Errorf("max_overhead %v: the policy has started %d times, want %d", bound, starts, want)
		}
	}
}
