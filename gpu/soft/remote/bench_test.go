package remote

import (
	"context"
	"slices"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft"
)

// BenchmarkEmptyKernel measures the time from the submission to the completion of an empty kernel
// through a remote ring, while the GPU polls for work and while it sleeps. The kernel's own time on
// the GPU is included and reported separately.
func BenchmarkEmptyKernel(b *testing.B) {
	path, _ := serve(b, soft.Options{})
	r := newRig(b, dial(b, path), gpu.ContextOptions{})
	f, err := r.m.Function("empty")
	if err != nil {
		b.Fatal(err)
	}
	l := &gpu.Launch{Function: f, Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}}
	for name, pause := range map[string]time.Duration{"awake": 0, "asleep": time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			var took, gpuTime []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				time.Sleep(pause)
				start := time.Now()
				fence, err := r.ch.Launch(l)
				if err != nil {
					b.Fatal(err)
				}
				if err := r.ch.Wait(context.Background(), fence); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				o := r.ch.Outcome(fence)
				gpuTime = append(gpuTime, o.End-o.Start)
			}
			slices.Sort(took)
			slices.Sort(gpuTime)
			b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-us")
			b.ReportMetric(float64(gpuTime[len(gpuTime)/2])/1e3, "gpu-p50-us")
		})
	}
}
