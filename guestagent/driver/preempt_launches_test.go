package driver_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
)

// TestFormsOfLateOccupancy has a program launch its kernel often before the host has said how many
// blocks of its forms the GPU holds. They are measured as soon as it has.
func TestFormsOfLateOccupancy(t *testing.T) {
	said := make(chan struct{})
	say := sync.OnceFunc(func() { close(said) })
	t.Cleanup(say)
	var queries atomic.Int32
	s := newScene(t, drivertest.Options{Occupancy: func() {
		if queries.Add(1) > 1 { // the first is of the original
			<-said
		}
	}}, driver.ContextOptions{Preempt: &driver.PreemptOptions{}})
	ch := must[*driver.Channel](t)(s.gpu.NewChannel(t.Context(), driver.ChannelOptions{}))
	why := func() tune.Why {
		if all := s.work.Preemption().Classes; len(all) > 0 {
			return all[0].Why
		}
		return tune.WhyMeasuring
	}
	var p driver.Pending
	launch := func() {
		l := driver.Launch{Function: s.work, Grid: driver.Dim{X: blocks}, Block: driver.Dim{X: 64}, Params: make([]byte, 8)}
		check(t, ch.Enqueue(t.Context(), &p, &l))
		check(t, p.Wait(t.Context()))
	}
	for queries.Load() < 2 {
		launch()
	}
	for range 300 {
		launch()
	}
	if got := s.work.Preemption(); why() != tune.WhyMeasuring || got.Preemptible > 0 {
		t.Errorf("before the host has said: %+v", got)
	}
	say()
	for why() == tune.WhyMeasuring {
		launch()
	}
	if why() != tune.WhyCheapest {
		t.Errorf("then: %+v", s.work.Preemption())
	}
}

// TestFirstLaunchCanLeave launches a kernel for the first time: in a form, unless the hardware takes
// it off the GPU, or the host wants no kernel to leave, or does not say how many blocks the GPU holds.
func TestFirstLaunchCanLeave(t *testing.T) {
	for _, c := range []struct {
		name                string
		latency, suspension uint32
		want                abi.PreemptForm
	}{
		{"told to leave", 100_000, 0, abi.PreemptPersistent},
		{"suspended by the hardware", 100_000, 360_000, 0},
		{"alone", 0, 0, 0},
	} {
		s := newScene(t, drivertest.Options{}, driver.ContextOptions{})
		check(t, s.host.Write(abi.RegLatencyNanos, c.latency))
		check(t, s.host.Write(abi.RegSuspensionNanos, c.suspension))
		s.gpu = must[*driver.Context](t)(s.gpu.Device().NewContext(t.Context(), driver.ContextOptions{Preempt: &driver.PreemptOptions{}}))
		s.mod = must[*driver.Module](t)(s.gpu.LoadModule(t.Context(), []byte(workPTX)))
		s.work = must[*driver.Function](t)(s.mod.Function(t.Context(), "work"))
		l := driver.Launch{Function: s.work, Grid: driver.Dim{X: blocks}, Block: driver.Dim{X: 64}, Params: make([]byte, 8)}
		var p driver.Pending
		check(t, s.gpu.Own().Enqueue(t.Context(), &p, &l))
		check(t, p.Wait(t.Context()))
		if got := s.work.Preemption(); got.Launches != 1 || got.Preemptible > 0 != (c.want != 0) {
			t.Errorf("%s: %+v, want form %v", c.name, got, c.want)
		}
	}
}

// TestFirstLaunchDoesNotWaitForEver has a host that does not say how many blocks the GPU holds.
func TestFirstLaunchDoesNotWaitForEver(t *testing.T) {
	said := make(chan struct{})
	defer close(said)
	s := newScene(t, drivertest.Options{Occupancy: func() { <-said }}, driver.ContextOptions{Preempt: &driver.PreemptOptions{}})
	ch := must[*driver.Channel](t)(s.gpu.NewChannel(t.Context(), driver.ChannelOptions{}))
	l := driver.Launch{Function: s.work, Grid: driver.Dim{X: blocks}, Block: driver.Dim{X: 64}, Params: make([]byte, 8)}
	var p driver.Pending
	for range 3 {
		check(t, ch.Enqueue(t.Context(), &p, &l))
		check(t, p.Wait(t.Context()))
	}
	if got := s.work.Preemption(); got.Launches != 3 || got.Preemptible != 0 {
		t.Errorf("%+v", got)
	}
}

// TestSeveralLaunchers has goroutines launch the same kernel on channels of their own, from before
// the host has said how many of its blocks the GPU holds until the form is chosen.
func TestSeveralLaunchers(t *testing.T) {
	s := newScene(t, drivertest.Options{}, driver.ContextOptions{Preempt: &driver.PreemptOptions{Memory: cache.New()}})
	chosen := func() bool {
		all := s.work.Preemption().Classes
		return len(all) > 0 && all[0].Why != tune.WhyMeasuring
	}
	var launches atomic.Uint64
	var wg sync.WaitGroup
	for range 3 {
		ch := must[*driver.Channel](t)(s.gpu.NewChannel(t.Context(), driver.ChannelOptions{}))
		wg.Go(func() {
			var pending [8]driver.Pending
			l := driver.Launch{Function: s.work, Grid: driver.Dim{X: blocks}, Params: make([]byte, 8)}
			for i := 0; i < 500 || !chosen(); i++ {
				p := &pending[i%len(pending)]
				launches.Add(1)
				if err := errors.Join(p.Wait(t.Context()), ch.Enqueue(t.Context(), p, &l)); err != nil {
					t.Error(err)
					return
				}
			}
			if err := ch.Sync(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if p := s.work.Preemption(); p.Launches != launches.Load() || len(p.Classes) != 1 || p.Classes[0].Why != tune.WhyCheapest {
		t.Errorf("%+v", p)
	}
}
