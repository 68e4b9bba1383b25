package soft

import (
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/gpu/gputest"
)

// Every kernel of the corpus runs on the live device and gives its reference's results.
func TestCorpusLive(t *testing.T) {
	d := newDevice(t, Options{MemoryBytes: 256 << 20})
	ctx, err := d.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range corpus.All() {
		t.Run(k.Name, func(t *testing.T) { gputest.RunCase(t, ctx, k, k.Case(corpus.Trivial, 1)) })
	}
}

// BenchmarkCorpus reports the CPU time for each second of GPU time, for each kernel. The cost model
// is set so that it is at most a half.
func BenchmarkCorpus(b *testing.B) {
	for _, k := range corpus.All() {
		b.Run(k.Name, func(b *testing.B) {
			d := newDevice(b, Options{MemoryBytes: 256 << 20})
			ctx, err := d.NewContext(b.Context(), gpu.ContextOptions{})
			if err != nil {
				b.Fatal(err)
			}
			c := k.Case(corpus.Small, 1)
			before, err := d.Usage()
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				gputest.RunCase(b, ctx, k, c)
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
