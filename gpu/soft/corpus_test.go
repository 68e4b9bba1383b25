package soft

import (
	"slices"
	"strings"
	"testing"
	"time"

	"vgpud/e2e/kernels"
	"vgpud/gpu"
)

// corpusRun carries one case of the corpus out on a device, with copies, launches and all, and checks its results. It
// returns the GPU time of its launches.
func corpusRun(t testing.TB, ctx gpu.Context, k kernels.Kernel, c *kernels.Case) time.Duration {
	t.Helper()
	m, err := ctx.LoadModule([]byte(k.PTX(kernels.SM80)))
	if err != nil {
		t.Fatal(err)
	}
	ch, err := ctx.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]gpu.Ptr{}
	var owned []gpu.Ptr
	for _, b := range c.Buffers {
		var p gpu.Ptr
		if b.Global != "" {
			p, _, err = m.Global(b.Global)
		} else if p, err = ctx.Alloc(uint64(b.Size)); err == nil {
			owned = append(owned, p)
		}
		if err != nil {
			t.Fatalf("buffer %s: %v", b.Name, err)
		}
		at[b.Name] = p
		if len(b.Init) > 0 {
			if _, err := ch.CopyIn(p, b.Init); err != nil {
				t.Fatal(err)
			}
		}
	}
	var busy time.Duration
	for i := range c.Steps {
		s := &c.Steps[i]
		f, err := m.Function(s.Entry)
		if err != nil {
			t.Fatal(err)
		}
		a := f.Attributes()
		buf := make([]byte, a.ParamBytes)
		for j, arg := range s.Args {
			v := arg.Bytes
			if arg.Buffer != "" {
				v = params(at[arg.Buffer] + gpu.Ptr(arg.Offset))
			}
			copy(buf[a.Params[j].Offset:][:a.Params[j].Size], v)
		}
		fence, err := ch.Launch(&gpu.Launch{Function: f, SharedBytes: uint64(s.SharedBytes), Params: buf,
			Grid: gpu.Dim3{X: uint32(s.Grid[0]), Y: uint32(s.Grid[1]), Z: uint32(s.Grid[2])}, Block: gpu.Dim3{X: uint32(s.Block[0]), Y: uint32(s.Block[1]), Z: uint32(s.Block[2])}})
		if err != nil {
			t.Fatal(err)
		}
		if err := ch.Wait(t.Context(), fence); err != nil {
			t.Fatal(err)
		}
		o := ch.Outcome(fence)
		if o.Err != nil {
			t.Fatalf("%s, launch %d: %v", k.Name, i, o.Err)
		}
		busy += o.End - o.Start
	}
	err = c.CheckAll(func(b *kernels.Buffer) ([]byte, error) {
		got := make([]byte, b.Size)
		f, err := ch.CopyOut(got, at[b.Name])
		if err != nil {
			return nil, err
		}
		return got, ch.Wait(t.Context(), f)
	})
	if err != nil {
		t.Error(err)
	}
	if len(c.Printed) > 0 {
		text, err := ctx.Printf(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
		slices.Sort(got)
		if !slices.Equal(got, c.Printed) {
			t.Errorf("printed %q, want %q", got, c.Printed)
		}
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range owned {
		if err := ctx.Free(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Unload(); err != nil {
		t.Fatal(err)
	}
	return busy
}

// Every kernel of the corpus runs on the live device with its reference's results.
func TestCorpusLive(t *testing.T) {
	d := newDevice(t, Options{MemoryBytes: 256 << 20})
	ctx, err := d.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kernels.All() {
		t.Run(k.Name, func(t *testing.T) { corpusRun(t, ctx, k, k.Case(kernels.Trivial, 1)) })
	}
}

// BenchmarkCorpus says for each kernel how much CPU a second of its GPU time costs: at most a half is what the cost
// model is set for.
func BenchmarkCorpus(b *testing.B) {
	for _, k := range kernels.All() {
		b.Run(k.Name, func(b *testing.B) {
			d := newDevice(b, Options{MemoryBytes: 256 << 20})
			ctx, err := d.NewContext(b.Context(), gpu.ContextOptions{})
			if err != nil {
				b.Fatal(err)
			}
			c := k.Case(kernels.Small, 1)
			before, err := d.Usage()
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				corpusRun(b, ctx, k, c)
			}
			u, err := d.Usage()
			if err != nil {
				b.Fatal(err)
			}
			cpu := u.Pacing.CPU - before.Pacing.CPU
			launches := max(u.Machine.Launches, 1)
			b.ReportMetric(float64(cpu)/float64(max(u.Machine.Busy, 1)), "cpu/gpu")
			b.ReportMetric(float64(u.Machine.Overrun)/float64(max(u.Machine.Busy, 1)), "overrun/gpu")
			b.ReportMetric(float64(u.Machine.Busy.Microseconds())/float64(launches), "gpu-us/launch")
		})
	}
}
