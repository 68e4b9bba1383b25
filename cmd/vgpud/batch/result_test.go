package batch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/cmd/vgpud/workload"
)

// TestResultOfReports: three jobs arrive at once. One ends well, one ran out of memory, and one's
// results are wrong.
func TestResultOfReports(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(seconds float64) int64 { return begin.Add(time.Duration(seconds * 1e9)).UnixNano() }
	reports := []workload.JobReport{
		{Started: at(0), Asked: at(1), Placed: at(1.5), Ended: at(3), Kernels: 2, BytesChecked: 8},
		{Started: at(1), Asked: at(2), Ended: at(2), OutOfMemory: true, Error: "no room"},
		{Started: at(2), Asked: at(2.5), Placed: at(3.5), Ended: at(4), Kernels: 2, BytesChecked: 8, Wrong: 1},
	}
	for _, c := range []struct {
		way     Way
		waited  [3]float64
		average float64
	}{{Floating, [3]float64{0.5, 0, 1}, 0.5}, {Single, [3]float64{0, 1, 2}, 1}} {
		r := Result{Way: c.way, Jobs: make([]Ended, 3)}
		want := Result{Way: c.way, Seconds: 4, TurnaroundSeconds: 3, WaitedSeconds: c.average, BusyRatio: []float64{0.5, 0.25}, Done: 1, OutOfMemory: 1}
		for i, seconds := range []float64{3, 2, 4} {
			r.Jobs[i].JobReport = reports[i]
			want.Jobs = append(want.Jobs, Ended{Seconds: seconds, WaitedSeconds: c.waited[i], JobReport: reports[i]})
		}
		r.sum(begin, []float64{1, 0}, []float64{3, 1})
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.way, diff)
		}
		if r.Throughput() != 0.25 || Gain(&r, &Result{Done: 1, Seconds: 8}) != 2 {
			t.Errorf("throughput %v", r.Throughput())
		}
		if err := r.Err(); err == nil || strings.Count(err.Error(), "wrong or not checked") != 2 || !strings.Contains(err.Error(), "no room") {
			t.Errorf("%v", err)
		}
	}
}
