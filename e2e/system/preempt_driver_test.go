package system

import (
	"context"
	"errors"
	"flag"
	"sync"
	"testing"

	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/guestagent/preempt/tune"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

var preemptForms = []abi.PreemptForm{abi.PreemptSingle, abi.PreemptCoarse, abi.PreemptPersistent}

// preemptible creates a guest whose kernels are loaded in all forms.
func preemptible(t *testing.T, h *host.Host, s api.VMSpec, o driver.PreemptOptions) *driver.Context {
	t.Helper()
	gpu, err := h.NewGuest(s).NewContext(t.Context(), driver.ContextOptions{Preempt: &o})
	if err != nil {
		t.Fatal(err)
	}
	return gpu
}

var everyForm = flag.Bool("every-form", false, "run the corpus in every form, not each kernel in one")

// TestCorpusPreemptible runs every kernel of the corpus in one of its forms, or with -every-form in
// each, through a guest, and checks every result.
func TestCorpusPreemptible(t *testing.T) {
	h := host.Start(t, "dfq")
	gpu := preemptible(t, h, api.VMSpec{Name: "preemptible"}, driver.PreemptOptions{Forms: preemptForms[0] | preemptForms[1] | preemptForms[2]})
	ran := map[abi.PreemptForm]int{}
	for i, k := range corpus.All() {
		for j, form := range preemptForms {
			if !*everyForm && i%len(preemptForms) != j {
				continue
			}
			n, err := runForm(t.Context(), gpu, k, form)
			if err != nil {
				t.Errorf("%s as %v: %v", k.Name, form, err)
			}
			ran[form] += n
		}
	}
	for _, form := range preemptForms {
		if least := len(corpus.All()) / 5; ran[form] < least {
			t.Errorf("%d kernels have run as %v, want at least %d", ran[form], form, least)
		}
	}
	t.Logf("kernels by form: %v", ran)
}

// runForm runs a kernel's case in a form and returns how many of its kernels have that form.
func runForm(ctx context.Context, gpu *driver.Context, k corpus.Kernel, form abi.PreemptForm) (n int, err error) {
	l, err := workload.NewLoad(ctx, gpu, k.PTX(corpus.SM80), k.Case(corpus.Trivial, 42))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close(ctx)) }()
	l.Force(form)
	seen := map[*driver.Function]bool{}
	for i := range l.Steps {
		if f := l.Steps[i].Function; l.Steps[i].Preempt != nil && !seen[f] {
			seen[f] = true
			n++
		}
	}
	if n == 0 {
		return 0, nil
	}
	if err := l.Run(ctx, gpu.Own()); err != nil {
		return n, err
	}
	printed, err := gpu.Printed(ctx)
	if err != nil {
		return n, err
	}
	return n, l.Case.CheckPrinted(printed)
}

// TestUrgentTakesTheGPU runs an urgent guest beside one with kernels of 30 ms, which are evicted
// for it. The results of both are right.
func TestUrgentTakesTheGPU(t *testing.T) {
	h := host.Start(t, "hpf")
	batch := workload.Batch()
	long := preemptible(t, h, api.VMSpec{Name: "batch"}, driver.PreemptOptions{Forms: abi.PreemptSingle})
	k, c, err := batch.Work[0].Case(1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := workload.NewLoad(t.Context(), long, k.PTX(corpus.SM80), c)
	if err != nil {
		t.Fatal(err)
	}
	l.Force(abi.PreemptSingle)
	urgent := preemptible(t, h, api.VMSpec{Name: "urgent", PriorityCeiling: api.MaxPriority}, driver.PreemptOptions{Off: true})
	short := newLoad(t, urgent, "scan", corpus.Trivial)

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := short.Run(ctx, urgent.Own()); err != nil && ctx.Err() == nil {
				t.Errorf("urgent: %v", err)
				return
			}
		}
	})
	evictions := uint64(0)
	var p driver.Pending
	for range 200 {
		err := long.Own().Enqueue(t.Context(), &p, &l.Steps[0])
		if err == nil {
			err = p.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if evictions += p.Evictions(); evictions >= 5 {
			break
		}
	}
	cancel()
	wg.Wait()
	if evictions == 0 {
		t.Error("no kernel was ever taken off the GPU")
	}
	if err := l.Run(t.Context(), long.Own()); err != nil {
		t.Errorf("batch: %v", err)
	}
}

// TestFormByCost lets the cost of launches decide: a kernel of long tasks, for which a check per
// task costs next to nothing, ends up in the form with that, and computes the same.
func TestFormByCost(t *testing.T) {
	gpu := preemptible(t, host.Start(t, "dfq"), api.VMSpec{Name: "tuned"}, driver.PreemptOptions{
		Wanted: tune.Parameters{Overhead: 0.25}, // on a busy machine measurements are off by several percent
	})
	k, c, err := workload.Work{
		Kernel: "throttle", SharedBytes: 48 << 10, Throttle: &corpus.ThrottleConfig{Blocks: 48, Threads: 32, Iterations: 1500},
	}.Case(1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := workload.NewLoad(t.Context(), gpu, k.PTX(corpus.SM80), c)
	if err != nil {
		t.Fatal(err)
	}
	f := l.Steps[0].Function
	var p driver.Pending
	for range 60 {
		err := gpu.Own().Enqueue(t.Context(), &p, &l.Steps[0])
		if err == nil {
			err = p.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := f.Preemption(); len(r.Classes) > 0 && r.Classes[0].Choice.Form != 0 && p.Form() == r.Classes[0].Choice.Form {
			break
		}
	}
	if r := f.Preemption(); p.Form() != abi.PreemptSingle && p.Form() != abi.PreemptPersistent || r.Classes[0].Choice.Group != 1 {
		t.Errorf("the last launch went as %v: %+v", p.Form(), r)
	}
	if err := l.Run(t.Context(), gpu.Own()); err != nil {
		t.Error(err)
	}
}

// TestFirstLaunchLeaves launches a kernel once for each of several sizes of its shared memory, which
// the tuner knows nothing of. An urgent guest need not wait until they end.
func TestFirstLaunchLeaves(t *testing.T) {
	h := host.Start(t, "hpf")
	urgent := preemptible(t, h, api.VMSpec{Name: "urgent", PriorityCeiling: api.MaxPriority}, driver.PreemptOptions{Off: true})
	short := newLoad(t, urgent, "scan", corpus.Trivial)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var beside sync.WaitGroup
	defer beside.Wait()
	began := make(chan struct{})
	beside.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := short.Run(ctx, urgent.Own()); err != nil && ctx.Err() == nil {
				t.Errorf("urgent: %v", err)
				return
			}
			if i == 0 {
				close(began)
			}
		}
	})
	select {
	case <-began: // the daemon knows that somebody is urgent
	case <-t.Context().Done():
	}
	long := preemptible(t, h, api.VMSpec{Name: "batch"}, driver.PreemptOptions{})
	k, c, err := workload.Batch().Work[0].Case(1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := workload.NewLoad(t.Context(), long, k.PTX(corpus.SM80), c)
	if err != nil {
		t.Fatal(err)
	}
	left := false
	for i := uint32(0); i < 100 && !left; i++ {
		step := l.Steps[0]
		step.SharedBytes += 16 * i
		var p driver.Pending
		err := long.Own().Enqueue(t.Context(), &p, &step)
		if err = errors.Join(err, p.Wait(t.Context())); err != nil {
			t.Fatal(err)
		}
		left = p.Evictions() > 0
	}
	if !left {
		t.Errorf("no first launch ever left the GPU: %+v", l.Steps[0].Function.Preemption())
	}
	cancel()
	if err := l.Run(t.Context(), long.Own()); err != nil {
		t.Errorf("batch: %v", err)
	}
}
