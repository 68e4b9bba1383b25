package executor

import (
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// BenchmarkNops fetches, decodes, carries out and answers no-ops. The guest's end is in the same
// goroutine.
func BenchmarkNops(b *testing.B) {
	r := newRig(b, gpu.ContextOptions{})
	g := r.open()
	done := make([]abi.Completion, ringEntries)
	const batch = ringEntries / 2
	b.ReportAllocs()
	for n := 0; n < b.N; n += batch {
		for range batch {
			e := g.sub.Next()
			abi.Empty{}.Encode(e)
			abi.Header{Op: abi.OpNop}.Encode(e)
		}
		g.sub.Publish()
		for got := 0; got < batch; {
			r.x.Step(false)
			k, _, err := g.com.Fetch(done)
			if err != nil {
				b.Fatal(err)
			}
			got += k
		}
	}
}

// BenchmarkIdleStep polls a channel without work.
func BenchmarkIdleStep(b *testing.B) {
	r := newRig(b, gpu.ContextOptions{})
	r.open()
	b.ReportAllocs()
	for b.Loop() {
		r.x.Step(false)
	}
}
