package dashboards

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/e2e/operators"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// waitLimit bounds waits for what takes seconds on an idle machine.
const waitLimit = 10 * time.Minute

// startHost starts vgpud, which serves metrics at the returned address, with two guests that work
// until the end of the test.
func startHost(t *testing.T, policy string) (*host.Host, string) {
	t.Helper()
	operators.Require(t)
	h := host.Start(t, policy)
	if err := h.Daemon.End(); err != nil {
		t.Fatal(err)
	}
	h.Config.Metrics = unusedAddress(t)
	h.StartDaemon()
	// The first guest's kernels are long and leave the GPU when told to. The second's are short and
	// more urgent, with pauses that leave the GPU to the first.
	work(t, h, api.VMSpec{Name: "light", Weight: 1}, workload.Work{Kernel: "matmul", Size: "small", Repeat: 1}, 0)
	work(t, h, api.VMSpec{Name: "heavy", Weight: 3, PriorityCeiling: 1}, workload.Work{Kernel: "vecadd", Size: "trivial", Repeat: 1}, 5*time.Millisecond)
	return h, h.Config.Metrics
}

// work creates a guest that runs kernels, with pauses, until the end of the test.
func work(t *testing.T, h *host.Host, s api.VMSpec, w workload.Work, pause time.Duration) {
	t.Helper()
	const form = abi.PreemptSingle
	c, err := h.NewGuest(s).NewContext(t.Context(), driver.ContextOptions{
		Priority: -int32(s.PriorityCeiling), Preempt: &driver.PreemptOptions{Forms: form},
	})
	if err != nil {
		t.Fatal(err)
	}
	kernel, data, err := w.Case(1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := workload.NewLoad(t.Context(), c, kernel.PTX(corpus.SM80), data)
	if err != nil {
		t.Fatal(err)
	}
	l.Force(form)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			err := l.Run(ctx, c.Own())
			if err == nil {
				err = clock.Sleep(ctx, clock.Real{}, pause)
			}
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("guest %s: %v", s.Name, err)
				}
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func TestPrometheusScrapes(t *testing.T) {
	h, address := startHost(t, "dfq")
	p := startPrometheus(t, address, "")
	for _, vm := range []string{"light", "heavy"} {
		p.until("GPU seconds of "+vm, func() error {
			got, err := p.query(fmt.Sprintf(`vgpud_vm_gpu_seconds_total{vm=%q, gpu=%q} > 0`, vm, host.GPUName))
			if err == nil && len(got) != 1 {
				err = fmt.Errorf("%v", got)
			}
			return err
		})
	}
	if v := h.VM("heavy"); v.Kernels == 0 {
		t.Errorf("heavy has run no kernel: %+v", v)
	}
}
