package system

import (
	"fmt"
	"testing"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// spinPTX counts down from its parameter in each block.
const spinPTX = ".version 8.0\n.target sm_80\n.address_size 64\n" + `
.visible .entry spin(.param .u64 n)
{
	.reg .pred %p1;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [n];
L:
	add.s64 %rd1, %rd1, -1;
	setp.ne.s64 %p1, %rd1, 0;
	@%p1 bra L;
	ret;
}
`

// endlessKernel has a guest run one preemptible kernel that does not end while a test lasts, however
// slow that is.
func endlessKernel(t *testing.T, h *host.Host, s api.VMSpec) (*driver.Context, *driver.Pending) {
	t.Helper()
	s.KernelTimeLimit = api.NoTimeLimit
	gpu := preemptible(t, h, s, driver.PreemptOptions{Forms: abi.PreemptPersistent})
	m, err := gpu.LoadModule(t.Context(), []byte(spinPTX))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function(t.Context(), "spin")
	if err != nil {
		t.Fatal(err)
	}
	l := driver.Launch{Function: f, Grid: driver.Dim{X: 1 << 30}, Block: driver.Dim{X: 32}, Preempt: &driver.Preempt{Form: abi.PreemptPersistent}}
	if l.Params, err = f.AppendParams(nil, uint64(50)); err != nil {
		t.Fatal(err)
	}
	p := new(driver.Pending)
	if err := gpu.Own().Enqueue(t.Context(), p, &l); err != nil {
		t.Fatal(err)
	}
	onGPU(h, s.Name)
	return gpu, p
}

// onGPU waits until the guest's launch has the GPU, and not only its turn: one that has not begun can
// leave without an eviction.
func onGPU(h *host.Host, name string) {
	own := func(v *api.VM) float64 {
		if v.GPUSecondsOwn == nil {
			return 0
		}
		return *v.GPUSecondsOwn
	}
	before := h.VM(name)
	h.Until("a launch of "+name+" on the GPU", func() error {
		v := h.VM(name)
		if l := v.Preemption.Launches; l.Running != 1 || own(&v) <= own(&before) {
			return fmt.Errorf("%+v, %v s after %v s", l, own(&v), own(&before))
		}
		return nil
	})
}

// parked waits until a guest's event kernels are parked.
func parked(t *testing.T, h *host.Host, name string) {
	t.Helper()
	h.Until("parked event kernels of "+name, func() error {
		all, err := h.Client.EventKernels(t.Context())
		if err != nil {
			return err
		}
		for _, k := range all {
			if k.VM == name && k.Resident {
				return fmt.Errorf("%+v", k)
			}
		}
		return nil
	})
}

// TestEventsTakeTheGPU: a parked event of an urgent guest has another guest's kernel evicted and ends
// long before it, each time. Events of a guest without priority wait for the kernel's end, and so do
// those of one that asks for none.
func TestEventsTakeTheGPU(t *testing.T) {
	h := host.Start(t, "hpf")
	// There is but one batch kernel, and on a busy machine the GPU in software may lack a processor
	// for longer than a kernel may take to leave.
	h.Config.EvictionDeadline = -1
	if err := h.Daemon.End(); err != nil {
		t.Fatal(err)
	}
	h.StartDaemon()
	urgent := newPinger(t, h.NewGuest(api.VMSpec{Name: "urgent", PriorityCeiling: urgentPriority}))
	equal := newPinger(t, h.NewGuest(api.VMSpec{Name: "equal"}))
	asksNone := &pinger{t: t, dev: h.NewGuest(api.VMSpec{Name: "asks-none", PriorityCeiling: urgentPriority})}
	var err error
	if asksNone.gpu, err = asksNone.dev.NewContext(t.Context(), driver.ContextOptions{Priority: 1}); err != nil {
		t.Fatal(err)
	}
	asksNone.register()
	urgent.pings(10) // nothing else wants the GPU
	equal.pings(10)
	asksNone.pings(10)
	batch, kernel := endlessKernel(t, h, api.VMSpec{Name: "batch"})

	evictions := func() uint64 { return h.VM("batch").Preemption.Evictions }
	for i := range 5 {
		parked(t, h, "urgent")
		onGPU(h, "batch")
		before := evictions()
		urgent.pings(1)
		evictedMore(h, "batch", before)
		if kernel.Done() {
			t.Fatalf("the batch guest's kernel has ended with event %d: %v", i, kernel.Wait(t.Context()))
		}
	}
	h.Until("the urgent guest to be charged", func() error {
		if p := h.VM("urgent").Preemption; p.Caused < 5 || p.ChargedSeconds <= 0 {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})

	parked(t, h, "urgent")
	onGPU(h, "batch")
	before := evictions()
	end := make(chan error, 2)
	go func() { end <- equal.card.Run(t.Context(), 1) }()
	go func() { end <- asksNone.card.Run(t.Context(), 1) }()
	for _, name := range []string{"equal", "asks-none"} {
		h.Until("the event of "+name+" waits", func() error {
			if l := h.VM(name).Preemption.Launches; l.Waiting != 1 {
				return fmt.Errorf("%+v", l)
			}
			return nil
		})
	}
	// That they evict nobody shows in what the urgent guest does meanwhile. Once the batch guest's
	// kernel has left for that guest, theirs may be the next turn.
	urgent.pings(1)
	evictedMore(h, "batch", before)
	for _, name := range []string{"equal", "asks-none"} {
		if p := h.VM(name).Preemption; p.Caused != 0 || kernel.Done() {
			t.Errorf("guest %s: %+v; the kernel has ended: %v", name, p, kernel.Done())
		}
	}
	if err := batch.Close(); err != nil {
		t.Fatal(err)
	}
	for range cap(end) {
		if err := <-end; err != nil {
			t.Error(err)
		}
	}
}
