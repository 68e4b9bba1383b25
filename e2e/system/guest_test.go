package system

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// newContext creates a guest and a context of it.
func newContext(t *testing.T, h *host.Host, s api.VMSpec) *driver.Context {
	t.Helper()
	return contextOf(t, h.NewGuest(s))
}

// contextOf creates a context, which ends with its device.
func contextOf(t *testing.T, dev *driver.Device) *driver.Context {
	t.Helper()
	c, err := dev.NewContext(t.Context(), driver.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newLoad prepares a case of the corpus in a context.
func newLoad(t *testing.T, gpu *driver.Context, kernel string, size corpus.Size) *workload.Load {
	t.Helper()
	k, ok := corpus.ByName(kernel)
	if !ok {
		t.Fatalf("the corpus has no kernel %q", kernel)
	}
	l, err := workload.NewLoad(t.Context(), gpu, k.PTX(corpus.SM80), k.Case(size, 1))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// works runs a kernel in a context and checks its result.
func works(t *testing.T, gpu *driver.Context) {
	t.Helper()
	l := newLoad(t, gpu, "scan", corpus.Trivial)
	if err := l.Run(t.Context(), gpu.Own()); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// bystander is a guest that works all the time, and checks its results, while something happens to
// another guest.
type bystander struct {
	t    *testing.T
	h    *host.Host
	gpu  *driver.Context
	runs atomic.Uint64
	done chan struct{}
	err  error // once done is closed
}

// newBystander creates a guest that works until the end of the test. An error or a wrong result
// fails the test.
func newBystander(t *testing.T, h *host.Host) *bystander {
	t.Helper()
	b := &bystander{t: t, h: h, gpu: newContext(t, h, api.VMSpec{Name: "bystander"}), done: make(chan struct{})}
	var loads []*workload.Load
	for _, name := range []string{"scan", "matmul", "reduce"} {
		loads = append(loads, newLoad(t, b.gpu, name, corpus.Trivial))
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(b.done)
		for i := 0; ctx.Err() == nil && b.err == nil; i++ {
			b.err = loads[i%len(loads)].Run(ctx, b.gpu.Own())
			b.runs.Add(1)
		}
		if ctx.Err() != nil && errors.Is(b.err, context.Canceled) {
			b.err = nil
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-b.done
		if b.err != nil {
			t.Errorf("the bystander was disturbed: %v", b.err)
		}
	})
	b.goesOn()
	return b
}

// goesOn waits until the bystander has begun and ended more work.
func (b *bystander) goesOn() {
	b.t.Helper()
	// One run may have been under way before.
	goal := b.runs.Load() + 2
	b.h.Until("more work of the bystander", func() error {
		select {
		case <-b.done:
			b.t.Fatalf("the bystander has stopped: %v", b.err)
		default:
		}
		if n := b.runs.Load(); n < goal {
			return fmt.Errorf("%d of %d cases", n, goal)
		}
		return nil
	})
}

// wantError fails the test unless err is target.
func wantError(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got %v, want %v", what, err, target)
	}
}

// function loads PTX and looks up a kernel in it.
func function(t *testing.T, gpu *driver.Context, ptx, name string) *driver.Function {
	t.Helper()
	m, err := gpu.LoadModule(t.Context(), []byte(ptx))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var one = driver.Dim{X: 1}

// badKernels are kernels that misbehave.
const badKernels = `.version 8.0
.target sm_80
.address_size 64
.visible .entry poke(.param .u64 at)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<2>;
	ld.param.u64 %rd1, [at];
	mov.u32 %r1, %tid.x;
	st.global.u32 [%rd1], %r1;
	ret;
}
.visible .entry endless()
{
L:
	bra L;
}
`

// pokeLine is where the kernel poke writes.
const pokeLine = 10
