package system

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"vgpud/cmd/vgpud/workload"
	"vgpud/gpu/corpus"
	"vgpud/mediator/api"
)

// do runs a plan in a guest that floats, and reads its report.
func (h *taskHost) do(s api.VMSpec, p workload.Plan, report any) {
	h.t.Helper()
	s.Float = true
	p.Name, p.Socket = s.Name, h.NewVM(s).Socket
	var out bytes.Buffer
	if err := workload.Run(h.t.Context(), p, &out); err != nil {
		h.t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), report); err != nil {
		h.t.Fatalf("report %q: %v", out.Bytes(), err)
	}
}

// TestTaskJobs: jobs that end well say where they were and what they checked. One that gets no memory
// has crashed, and says so.
func TestTaskJobs(t *testing.T) {
	h := newTaskHost(t, 2)
	kernel := &corpus.ThrottleConfig{Blocks: 8, Threads: 64, Iterations: 50}
	job := workload.Job{
		Floats: true, MemoryBytes: 3*mib + 5, OtherBytes: 3 * mib, BeforeMicros: 1000, AfterMicros: 1000,
		Steps: []workload.JobStep{{InBytes: 7 * mib, Launches: 3, Throttle: kernel, OutBytes: 2*mib + 3}, {HostMicros: 1000, Launches: 1, Throttle: kernel}},
	}
	var r workload.JobReport
	h.do(api.VMSpec{Name: "well"}, workload.Plan{Job: &job, Seed: 1}, &r)
	times := []int64{r.Started, r.Asked, r.Placed, r.Freed, r.Ended}
	if r.Error != "" || r.Kernels != 4 || r.BytesChecked != 2*mib+3 || r.Wrong != 0 || r.GPU < 0 || r.GPU > 1 {
		t.Errorf("%+v", r)
	}
	for i := range times[1:] {
		if times[i] == 0 || times[i+1] < times[i] {
			t.Errorf("times %v", times)
		}
	}
	large := job
	large.MemoryBytes = 200 * mib
	var crashed workload.JobReport
	h.do(api.VMSpec{Name: "crashes", MemoryLimitBytes: 100 * mib}, workload.Plan{Job: &large}, &crashed)
	if !crashed.OutOfMemory || crashed.Error == "" || crashed.Placed != 0 || crashed.Ended == 0 {
		t.Errorf("over its limit: %+v", crashed)
	}
	more := job // than its guest may have
	more.OtherBytes, more.Steps = 0, []workload.JobStep{{Launches: 1, Throttle: &corpus.ThrottleConfig{Blocks: 8 << 10, Threads: 1024, Iterations: 1}}}
	var grown workload.JobReport
	h.do(api.VMSpec{Name: "grows", MemoryLimitBytes: 12 * mib}, workload.Plan{Job: &more}, &grown)
	if !grown.OutOfMemory || grown.Placed == 0 {
		t.Errorf("it grows over its guest's limit: %+v", grown)
	}
	none := job
	none.Steps = []workload.JobStep{{Launches: 1}}
	var wrong workload.JobReport
	h.do(api.VMSpec{Name: "none"}, workload.Plan{Job: &none}, &wrong)
	if wrong.OutOfMemory || !strings.Contains(wrong.Error, "no kernel") {
		t.Errorf("a launch of nothing: %+v", wrong)
	}
}

// TestTaskBegins: how long contexts take to be there is measured from the request.
func TestTaskBegins(t *testing.T) {
	h := newTaskHost(t, 1)
	var r workload.BeginReport
	h.do(api.VMSpec{Name: "a"}, workload.Plan{Begin: &workload.Begin{Times: 3, MemoryBytes: 32 * mib, PauseMicros: 1000}}, &r)
	if len(r.Seconds) != 3 || len(r.FirstSeconds) != 3 || len(r.WaitedSeconds) != 3 {
		t.Fatalf("%+v", r)
	}
	for i := range r.Seconds {
		if r.Seconds[i] <= 0 || r.FirstSeconds[i] < r.Seconds[i] || r.WaitedSeconds[i] <= 0 || r.WaitedSeconds[i] > r.Seconds[i] {
			t.Errorf("context %d: %+v", i, r)
		}
	}
}
