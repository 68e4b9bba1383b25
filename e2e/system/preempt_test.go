package system

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// urgentPriority is the priority of urgent guests, and their ceiling.
const urgentPriority = 10

// worker is a guest that computes one case again and again, on two channels of a context, and
// checks each result.
type worker struct {
	t    *testing.T
	h    *host.Host
	name string
	gpu  *driver.Context
	runs [2]atomic.Uint64
	done chan struct{}
	err  error // once done is closed
}

// newWorker creates a guest with preemptible kernels in the given form, which works until the end
// of the test, with a pause after each case.
func newWorker(t *testing.T, h *host.Host, s api.VMSpec, form abi.PreemptForm, w workload.Work, pause time.Duration) *worker {
	t.Helper()
	k := &worker{t: t, h: h, name: s.Name, done: make(chan struct{})}
	var err error
	k.gpu, err = h.NewGuest(s).NewContext(t.Context(), driver.ContextOptions{
		Priority: -int32(s.PriorityCeiling), Preempt: &driver.PreemptOptions{Forms: form},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ends := make(chan error, len(k.runs))
	for i := range k.runs {
		kernel, c, err := w.Case(uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		l, err := workload.NewLoad(t.Context(), k.gpu, kernel.PTX(corpus.SM80), c)
		if err != nil {
			t.Fatal(err)
		}
		l.Force(form)
		if l.Steps[0].Preempt == nil {
			t.Fatalf("%v has no form %v", w, form)
		}
		ch, err := k.gpu.NewChannel(t.Context(), driver.ChannelOptions{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				err := l.Run(ctx, ch)
				k.runs[i].Add(1)
				if err == nil {
					// An urgent guest without pauses would leave nothing to others.
					err = clock.Sleep(ctx, clock.Real{}, pause)
				}
				if err != nil {
					ends <- err
					return
				}
			}
		}()
	}
	go func() {
		defer close(k.done)
		for range k.runs {
			if err := <-ends; k.err == nil && !(ctx.Err() != nil && errors.Is(err, context.Canceled)) {
				k.err = err
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-k.done
		if k.err != nil {
			t.Errorf("guest %s was disturbed: %v", k.name, k.err)
		}
	})
	return k
}

// goesOn waits until each of the guest's channels has begun and ended more cases.
func (k *worker) goesOn() {
	k.t.Helper()
	var goals [len(k.runs)]uint64
	for i := range goals {
		goals[i] = k.runs[i].Load() + 2
	}
	k.h.Until("more work of guest "+k.name, func() error {
		select {
		case <-k.done:
			k.t.Fatalf("guest %s has stopped: %v", k.name, k.err)
		default:
		}
		for i, goal := range goals {
			if n := k.runs[i].Load(); n < goal {
				return fmt.Errorf("%d of %d cases", n, goal)
			}
		}
		return nil
	})
}

// newBatch creates a guest with long kernels.
func newBatch(t *testing.T, h *host.Host) *worker {
	t.Helper()
	return newWorker(t, h, api.VMSpec{Name: "batch"}, abi.PreemptSingle, workload.Batch().Work[0], 0)
}

// newUrgent creates a guest with short and urgent kernels now and then.
func newUrgent(t *testing.T, h *host.Host) *worker {
	t.Helper()
	return newWorker(t, h, api.VMSpec{Name: "urgent", PriorityCeiling: urgentPriority, Weight: 2}, abi.PreemptSingle, workload.Urgent().Work[0], 10*time.Millisecond)
}

// evictedMore waits until kernels of a guest were evicted again.
func evictedMore(h *host.Host, name string, than uint64) (v api.VM) {
	h.Until("another eviction of guest "+name, func() error {
		if v = h.VM(name); v.Preemption.Evictions <= than {
			return fmt.Errorf("%d as before, %+v", than, v.Preemption)
		}
		return nil
	})
	return v
}

// TestUrgentKernelTakesTheGPU runs an urgent guest beside a batch guest: the batch guest's kernels
// are evicted for it, and compute the same results.
func TestUrgentKernelTakesTheGPU(t *testing.T) {
	h := host.Start(t, "hpf")
	batch := newBatch(t, h)
	batch.goesOn()
	// Among its own launches, too, the one with the least remaining work comes first, by
	// predictions that vary on a busy machine.
	var alone api.Preemption
	h.Until("no evictions but for its own launches", func() error {
		if alone = h.VM("batch").Preemption; alone.Evictions > alone.Caused {
			return fmt.Errorf("%+v", alone)
		}
		return nil
	})
	urgent := newUrgent(t, h)
	urgent.goesOn()
	v := evictedMore(h, "batch", alone.Evictions+2)
	batch.goesOn()
	if v.Preemption.EvictionSeconds <= 0 {
		t.Errorf("the batch guest: %+v", v.Preemption)
	}
	h.Until("the urgent guest to be charged", func() error {
		if p := h.VM("urgent").Preemption; p.Caused == 0 || p.ChargedSeconds <= 0 || p.IgnoredPriorities != 0 {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	gpus, err := h.Client.GPUs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if g := gpus[0]; !g.ByKernel || g.Evictions.Count == 0 || g.Evictions.P50 <= 0 || g.Evictions.P99 < g.Evictions.P50 {
		t.Errorf("the GPU: %+v", g)
	}
}

// TestFairQueueTakesTheGPU has two guests with long kernels share by weight: one that is ahead
// loses the GPU at once, in the middle of a kernel, and computes the same results.
func TestFairQueueTakesTheGPU(t *testing.T) {
	h := host.Start(t, "dfq")
	light := newBatch(t, h)
	heavy := newWorker(t, h, api.VMSpec{Name: "heavy", Weight: 4}, abi.PreemptSingle, workload.Batch().Work[0], 0)
	v := evictedMore(h, "batch", 2)
	light.goesOn()
	heavy.goesOn()
	if v.Suspensions == 0 || v.Preemption.EvictionSeconds <= 0 {
		t.Errorf("the guest that was ahead: %+v", v)
	}
}

// TestSomeSMsAreEnough runs kernels of two guests at the same time: the batch guest's leave as many
// SMs as the urgent one's need, and take them back.
func TestSomeSMsAreEnough(t *testing.T) {
	h := host.Start(t, "hpf", "--mode", "co-run")
	batch := newWorker(t, h, api.VMSpec{Name: "batch"}, abi.PreemptPersistent, workload.Batch().Work[0], 0)
	urgent := newUrgent(t, h)
	h.Until("an eviction from some SMs", func() error {
		gpus, err := h.Client.GPUs(t.Context())
		if err == nil && gpus[0].Evictions.Asked.SomeSMs == 0 {
			err = fmt.Errorf("%+v", gpus[0].Evictions)
		}
		return err
	})
	urgent.goesOn()
	batch.goesOn()
}

// TestPreemptionOutlivesTheDaemon kills the daemon while launches wait, run and are evicted. They
// go on without it, and the next daemon finds them.
func TestPreemptionOutlivesTheDaemon(t *testing.T) {
	h := host.Start(t, "hpf")
	batch := newBatch(t, h)
	urgent := newUrgent(t, h)
	for range 2 {
		before := evictedMore(h, "batch", h.VM("batch").Preemption.Evictions)
		caused := h.VM("urgent").Preemption
		if err := h.Daemon.Kill(); err != nil {
			t.Fatal(err)
		}
		urgent.goesOn()
		batch.goesOn()
		h.StartDaemon()
		after := h.VM("batch")
		if after.Preemption.Evictions < before.Preemption.Evictions || after.PriorityCeiling != 0 || h.VM("urgent").PriorityCeiling != urgentPriority {
			t.Errorf("before the daemon's end %+v\nafter it %+v", before, after)
		}
		if p := h.VM("urgent").Preemption; p.Caused < caused.Caused || p.ChargedSeconds < caused.ChargedSeconds || p.ChargedSeconds == 0 {
			t.Errorf("before the daemon's end the urgent guest was charged %+v\nafter it %+v", caused, p)
		}
		evictedMore(h, "batch", after.Preemption.Evictions)
		urgent.goesOn()
		batch.goesOn()
	}
}

// TestNextDaemonHasAnotherPolicy starts daemons in turn whose policies decide about launches and
// about guests.
func TestNextDaemonHasAnotherPolicy(t *testing.T) {
	h := host.Start(t, "hpf")
	batch, urgent := newBatch(t, h), newUrgent(t, h)
	evictedMore(h, "batch", 0)
	if err := h.Daemon.Kill(); err != nil { // while launches wait
		t.Fatal(err)
	}
	h.Config.GPUs[0].Policy = "none"
	h.StartDaemon()
	urgent.goesOn()
	batch.goesOn()
	if err := h.Daemon.End(); err != nil { // while no launch waits
		t.Fatal(err)
	}
	h.Config.GPUs[0].Policy = "hpf"
	h.StartDaemon()
	evictedMore(h, "batch", h.VM("batch").Preemption.Evictions)
	urgent.goesOn()
	batch.goesOn()
}

// TestPoliciesChangeUnderLoad changes between policies of both kinds while kernels wait and run.
func TestPoliciesChangeUnderLoad(t *testing.T) {
	h := host.Start(t, "hpf")
	batch := newBatch(t, h)
	urgent := newUrgent(t, h)
	for _, policy := range []string{"none", "ffs", "dfq", "piv", "dprr", "hpf"} {
		if _, err := h.Client.UpdateGPU(t.Context(), host.GPUName, api.GPUUpdate{Policy: &policy}); err != nil {
			t.Fatal(err)
		}
		urgent.goesOn()
		batch.goesOn()
	}
}

// TestPriorityCeiling has a guest ask for a higher priority than its operator allows.
func TestPriorityCeiling(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "hpf")
	gpu, err := h.NewGuest(api.VMSpec{Name: "guest", PriorityCeiling: 3}).NewContext(ctx, driver.ContextOptions{Priority: -4})
	if err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
	ignored := h.VM("guest").Preemption.IgnoredPriorities
	if ignored == 0 {
		t.Error("nothing was ignored")
	}
	ceiling := 4
	if _, err := h.Client.UpdateVM(ctx, "guest", api.VMUpdate{PriorityCeiling: &ceiling}); err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
	if n := h.VM("guest").Preemption.IgnoredPriorities; n != ignored {
		t.Errorf("%d priorities ignored, of which %d are below the ceiling", n, n-ignored)
	}
}

// neverLeaves is a kernel with the parameters of a preemptible one that never checks the evict
// word.
const neverLeaves = `.version 8.0
.target sm_80
.address_size 64
.visible .entry lie(.param .align 8 .b8 lie_vgpud_launch[96])
{
L:
	bra L;
}
`

// TestLiarIsFoundOut has a guest claim that its endless kernel is preemptible.
func TestLiarIsFoundOut(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "hpf")
	gpu := newContext(t, h, api.VMSpec{Name: "liar"})
	l := driver.Launch{
		Function: function(t, gpu, neverLeaves, "lie"), Grid: driver.Dim{X: 4}, Block: one,
		Attributes: []abi.Attribute{abi.Preempt{Form: abi.PreemptSingle, Group: 1, Every: 1}.Attribute()},
	}
	var p driver.Pending
	if err := gpu.Own().Enqueue(ctx, &p, &l); err != nil {
		t.Fatal(err)
	}
	h.Until("the lie to run", func() error {
		if got := h.VM("liar").Preemption.Launches; got.Running == 0 {
			return fmt.Errorf("launches: %+v", got)
		}
		return nil
	})
	urgent := newUrgent(t, h)
	urgent.goesOn()
	v := h.VM("liar")
	if v.Preemption.Unresponsive != 1 {
		t.Errorf("the liar: %+v", v.Preemption)
	}
	h.Until("the liar to be charged", func() error {
		if v := h.VM("liar"); v.Preemption.ChargedSeconds <= 0 {
			return fmt.Errorf("%+v", v.Preemption)
		}
		return nil
	})
	if err := gpu.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
}
