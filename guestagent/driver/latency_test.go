package driver_test

import (
	"testing"
	"time"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
)

// TestHostsLatency: the cheapest form is one that leaves late. Launches go in the one that leaves in
// time as soon as the host wants that, and at once in a program that begins then. They go as the
// original where the host wants nothing, since both cost more than what counts as free.
func TestHostsLatency(t *testing.T) {
	took := func(c drivertest.Call) time.Duration {
		switch c.Preempt.Form {
		case abi.PreemptSingle:
			return 11 * time.Millisecond
		case abi.PreemptCoarse:
			return 10_080 * time.Microsecond
		case abi.PreemptPersistent:
			return 10_150 * time.Microsecond
		}
		return 10 * time.Millisecond
	}
	o := driver.ContextOptions{Preempt: &driver.PreemptOptions{Memory: cache.New()}}
	s := newScene(t, drivertest.Options{Kernels: workKernels(took)}, o)
	class := func() tune.Report {
		if all := s.work.Preemption().Classes; len(all) > 0 {
			return all[0]
		}
		return tune.Report{} // the host has not said yet how many blocks the GPU holds
	}
	// eventually launches until a form is used that is wanted. The host is asked meanwhile.
	eventually := func(why string, want abi.PreemptForm) {
		t.Helper()
		for range 5000 {
			if s.launch(1, nil); class().Why != tune.WhyMeasuring && class().Choice.Form == want {
				return
			}
		}
		t.Fatalf("%s: launches go as %+v, want %v", why, class(), want)
	}
	eventually("at first", abi.PreemptCoarse)
	late, task := class().Leaves, class().Task
	if late < task+task/2 {
		t.Fatalf("the cheapest form leaves within %v, its tasks take %v", late, task)
	}
	check(t, s.host.Write(abi.RegLatencyNanos, uint32(late-task/4)))
	eventually("the host wants it sooner", abi.PreemptPersistent)
	if r := class(); r.Leaves >= late-task/4 {
		t.Errorf("that leaves within %v: %+v", r.Leaves, r)
	}

	dev := s.gpu.Device()
	check(t, s.gpu.Close())
	s.gpu = must[*driver.Context](t)(dev.NewContext(t.Context(), o))
	s.mod = must[*driver.Module](t)(s.gpu.LoadModule(t.Context(), []byte(workPTX)))
	s.work = must[*driver.Function](t)(s.mod.Function(t.Context(), "work"))
	if got := s.launch(1, nil); got.Preempt.Form != abi.PreemptPersistent {
		t.Errorf("the next program's first launch: %+v", got)
	}
	check(t, s.host.Write(abi.RegLatencyNanos, 0))
	eventually("the host wants nothing, and no form is free", 0)
}

// TestOlderHost: kernels are not made preemptible for a host that would read what they no longer count.
func TestOlderHost(t *testing.T) {
	s := newScene(t, drivertest.Options{Version1_1: true, Features: abi.AllFeatures}, driver.ContextOptions{Preempt: &driver.PreemptOptions{}})
	if p := s.work.Preemption(); p.Reason != "host" || p.Forms != 0 {
		t.Errorf("%+v", p)
	}
	if c := s.launch(1, nil); c.Preempt.Form != 0 {
		t.Errorf("launched %+v", c)
	}
}
