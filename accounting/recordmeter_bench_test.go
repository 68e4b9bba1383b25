package accounting_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
)

// BenchmarkRecordMeter measures an interval of 10 ms with eight guests, which a Recorder computes
// up to a hundred times a second: with turns of 1 ms and kernels of 100 µs, and with as many
// switches as possible.
func BenchmarkRecordMeter(b *testing.B) {
	for _, c := range []struct {
		name   string
		length time.Duration
		load   float64
	}{{"turns", 100 * us, 0.7}, {"switches", 50 * us, 0.1}} {
		b.Run(c.name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			g := h100()
			var contexts []*accountingtest.RecordedContext
			for i := range 8 {
				c := &accountingtest.RecordedContext{PID: 100 + i, Group: accounting.GroupID(i), Slice: ms, Kernel: accountingtest.Random(r, c.length, c.load)}
				g.Add(c)
				contexts = append(contexts, c)
			}
			m := accounting.NewRecordMeter(accounting.RecordMeterConfig{}, g.Now())
			var p accounting.Phase
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				g.AdvanceTo(g.Now() + 10*ms)
				records := g.Records()
				n += len(records)
				var work []accounting.Work
				for _, c := range contexts {
					work = append(work, c.Work())
				}
				b.StartTimer()
				for _, sw := range records {
					m.Record(sw)
				}
				for i := range work {
					m.Report(&work[i])
				}
				m.Cut(g.Now(), &p)
			}
			b.ReportMetric(float64(n)/float64(b.N), "records/op")
		})
	}
}
