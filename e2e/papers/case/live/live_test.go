package live

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"vgpud/cmd/vgpud/batch"
	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := host.Cleanup(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// kernels makes kernels of a microsecond for each iteration.
func kernels(d time.Duration) corpus.ThrottleConfig {
	return corpus.ThrottleConfig{Blocks: 4, Threads: 32, Iterations: max(int(d/time.Microsecond), 1)}
}

// TestScale: what a job takes and does is scaled, kernels are no longer than they may be, and nothing is
// copied back that was not copied in.
func TestScale(t *testing.T) {
	model, err := W1()
	if err != nil {
		t.Fatal(err)
	}
	s := Scale{Memory: 64, Copies: 32, Time: 8, Kernel: kernels, Longest: 5 * time.Millisecond, Other: 1 << 20}
	for i, j := range s.Jobs(model) {
		m, w := model[i], j.Work
		if j.Name != m.Name || w.MemoryBytes != m.Memory/64 || w.OtherBytes != 1<<20 || w.MemoryBytes+w.OtherBytes > ModelGPUMemory/64 {
			t.Errorf("%s of %d bytes became %s of %d and %d", m.Name, m.Memory, j.Name, w.MemoryBytes, w.OtherBytes)
		}
		of := func(micros int64) float64 { return 8 * float64(micros) / 1e6 }
		if d := of(w.BeforeMicros) - m.Before; d > 1e-4 || d < -1e-4 {
			t.Errorf("%s: %v s became %d µs", m.Name, m.Before, w.BeforeMicros)
		}
		in := uint64(0)
		kernels := 0.0
		for k, x := range w.Steps {
			was := m.Steps[k]
			if d := of(x.HostMicros) - was.Host; d > 1e-4 || d < -1e-4 || x.InBytes != was.In/32 {
				t.Errorf("%s, step %d: %+v became %+v", m.Name, k, was, x)
			}
			if in += x.InBytes; x.OutBytes > in || (x.OutBytes == 0) != (was.Out == 0) {
				t.Errorf("%s, step %d: %d bytes come back of %d", m.Name, k, x.OutBytes, in)
			}
			if x.Launches > 0 {
				kernels += float64(x.Launches*x.Throttle.Iterations)/1e6*8 - float64(was.Launches)*was.Seconds
				if x.Throttle.Iterations > 5000 {
					t.Errorf("%s, step %d: a kernel of %d µs", m.Name, k, x.Throttle.Iterations)
				}
			}
		}
		if kernels > 0.01 || kernels < -0.01 {
			t.Errorf("%s: kernels are off by %v s", m.Name, kernels)
		}
	}
}

// TestLive runs W1 at a small part of its time with processes, and measures everything else.
func TestLive(t *testing.T) {
	ctx := t.Context()
	programs, err := host.Programs()
	if err != nil {
		t.Fatal(err)
	}
	h, err := Start(ctx, filepath.Join(programs, "vgpud"), 2, ModelGPUMemory/64, time.Microsecond)
	if h != nil {
		defer func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := Calibrate(ctx, &h.Options, corpus.ThrottleConfig{Blocks: 16, Threads: 64}, 20, 120)
	if err != nil {
		t.Fatal(err)
	}
	if few, many := kernel(5*time.Millisecond), kernel(50*time.Millisecond); few.Iterations < 1 || many.Iterations < 5*few.Iterations {
		t.Errorf("%d iterations for 5 ms, and %d for 50", few.Iterations, many.Iterations)
	}
	model, err := W1()
	if err != nil {
		t.Fatal(err)
	}
	s := Scale{Memory: 64, Copies: 4096, Time: 400, Kernel: kernel, Longest: 100 * time.Millisecond, Other: 2 << 20}
	c, err := Compare(ctx, &h.Options, s.Jobs(model))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Single.Err(), c.Floating.Err()); err != nil || c.Single.Done != 16 || c.Floating.Done != 16 || c.OutOfMemory() != 0 || c.Gain() <= 0 {
		t.Errorf("%d and %d jobs done, %d out of memory, gain %v: %v", c.Single.Done, c.Floating.Done, c.OutOfMemory(), c.Gain(), err)
	}
	b, err := Begin(ctx, &h.Options, 2, 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Floating) != 2 || len(b.Plain) != 2 || len(b.Waited) != 2 || !slices.IsSorted(b.Floating) || b.Waited[0] <= 0 || b.Waited[1] >= b.Floating[1] {
		t.Errorf("contexts begin: %+v", b)
	}
	l, err := Launch(ctx, &h.Options, 2, 2, 5)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Plain) != 20 || len(l.Floating) != 20 || len(l.Pairs) != 2 || Median(l.Plain) <= 0 || l.Added() <= -1 {
		t.Errorf("launches: %+v", l)
	}
	gpus, err := h.Client.GPUs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gpus {
		if g.Cordoned {
			t.Errorf("%s is left cordoned", g.Name)
		}
	}
	if vms, err := h.Client.VMs(ctx); err != nil || len(vms) > 0 {
		t.Errorf("guests are left: %+v, %v", vms, err)
	}
}

// TestCompared: a job that failed for another reason than memory makes the comparison worthless.
func TestCompared(t *testing.T) {
	right := batch.Ended{}
	right.Kernels, right.BytesChecked = 1, 1
	crashed, wrong := right, right
	crashed.OutOfMemory, crashed.Error = true, "no memory"
	wrong.Wrong = 1
	c := Compared{
		Single:   &batch.Result{Seconds: 4, Done: 2, Jobs: []batch.Ended{right, right}},
		Floating: &batch.Result{Seconds: 1, Done: 1, OutOfMemory: 1, Jobs: []batch.Ended{right, crashed}},
	}
	if err := c.err(); err != nil || c.Gain() != 2 || c.OutOfMemory() != 1 {
		t.Errorf("gain %v, %d out of memory: %v", c.Gain(), c.OutOfMemory(), err)
	}
	c.Single.Jobs[1] = wrong
	if c.err() == nil {
		t.Error("wrong results are no error")
	}
}
