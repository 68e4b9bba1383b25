package agent_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vgpud/guestagent/agent"
	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
)

const workPTX = `.version 7.0
.target sm_80
.address_size 64
.visible .entry work(.param .u64 out) { ret; }
`

// workKernels returns a kernel of 10 ms, in all forms.
func workKernels() map[string]drivertest.Kernel {
	return map[string]drivertest.Kernel{"work": {Params: []int{8}, Duration: func(drivertest.Call) time.Duration { return 10 * time.Millisecond }}}
}

// useKernel is a program that launches the kernel n times on a part of a device. It returns what it
// then knows and how the second launch went, which is the first whose form is chosen by what is known.
func (g *guest) useKernel(t *testing.T, n int) (p driver.Preemption, second abi.PreemptForm) {
	t.Helper()
	_, dev := g.dial(t, allot.Ask{})
	defer func() { check(t, dev.Close()) }()
	ctx := t.Context()
	gpu, err := dev.NewContext(ctx, driver.ContextOptions{})
	check(t, err)
	mod, err := gpu.LoadModule(ctx, []byte(workPTX))
	check(t, err)
	f, err := mod.Function(ctx, "work")
	check(t, err)
	var pending driver.Pending
	for i := range n {
		check(t, gpu.Own().Enqueue(ctx, &pending, &driver.Launch{Function: f, Grid: driver.Dim{X: 4096}, Params: make([]byte, 8)}))
		check(t, pending.Wait(ctx))
		if i == 1 {
			second = pending.Form()
		}
	}
	return f.Preemption(), second
}

// TestKernelsAreRemembered has one program learn, and another, under another agent, start with
// that.
func TestKernelsAreRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kernels")
	for i := range 2 {
		file, err := cache.Open(path, slog.New(slog.DiscardHandler))
		check(t, err)
		t.Run(fmt.Sprintf("agent %d", i), func(t *testing.T) {
			g := start(t, workKernels(), agent.Options{NoCheck: true, Kernels: file, Preempt: allot.Preempt{Latency: time.Millisecond}}, address)
			p, second := g.useKernel(t, 60)
			if (second != 0) != (i == 1) || p.Forms == 0 || p.Classes[0].Why != tune.WhyCheapest {
				t.Errorf("the second launch went as %v; %+v", second, p)
			}
			g.log.await(t, `msg="program gone"`)
			conn, err := allot.Dial(g.socket)
			check(t, err)
			defer func() { check(t, conn.Close()) }()
			r, _, err := conn.Question(allot.Request{Op: allot.OpKernels}, time.Minute)
			if err != nil || len(r.Kernels) != 1 || r.Kernels[0].Name != "work" || len(r.Kernels[0].Record.Classes) != 1 || r.Next != 0 {
				t.Errorf("%v: %+v", err, r)
			}
		})
		check(t, file.Save())
	}
}

// TestPreemptOff checks that kernels stay as they are if the agent or the environment says so.
func TestPreemptOff(t *testing.T) {
	for name, c := range map[string]struct {
		o   allot.Preempt
		env string
	}{"by the agent": {o: allot.Preempt{Off: true}}, "by the environment": {env: "off"}} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(driver.PreemptVariable, c.env)
			g := start(t, workKernels(), agent.Options{NoCheck: true, Preempt: c.o}, address)
			if p, _ := g.useKernel(t, 40); p.Forms != 0 || p.Reason != "off" {
				t.Errorf("%+v", p)
			}
		})
	}
}

// TestManyKernels asks about and reports more kernels than fit a message.
func TestManyKernels(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	bus, dev := g.dial(t, allot.Ask{})
	defer func() { check(t, dev.Close()) }()
	const n = 700
	entries, keys := make([]cache.Entry, n), make([]cache.Key, n)
	for i := range entries {
		keys[i] = cache.Key{Kernel: cache.Hash{byte(i), byte(i >> 8)}, GPU: "a GPU"}
		entries[i] = cache.Entry{Key: keys[i], Name: strings.Repeat("k", 200), Reason: strings.Repeat("r", 200)}
	}
	check(t, bus.Learn(t.Context(), entries))
	got, err := bus.Recall(t.Context(), keys)
	if err != nil || len(got) != n {
		t.Errorf("%d of %d kernels are recalled: %v", len(got), n, err)
	}
	conn, err := allot.Dial(g.socket)
	check(t, err)
	defer func() { check(t, conn.Close()) }()
	seen := 0
	for from := 0; ; {
		r, _, err := conn.Question(allot.Request{Op: allot.OpKernels, From: from}, time.Minute)
		check(t, err)
		if seen += len(r.Kernels); r.Next <= from {
			break
		}
		from = r.Next
	}
	if seen != n {
		t.Errorf("%d of %d kernels in the pages", seen, n)
	}
}
