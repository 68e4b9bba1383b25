package demo

import (
	"strings"
	"testing"

	"vgpud/cmd/vgpud/batch"
	"vgpud/cmd/vgpud/workload"
)

// TestJobs: each job fits a GPU, not all jobs fit all GPUs at a time, and what each copies back was
// copied in before.
func TestJobs(t *testing.T) {
	const gpus = 3
	sum := uint64(0)
	names := make(map[string]bool)
	for _, j := range jobs(gpus) {
		names[j.Name] = true
		need := j.Work.MemoryBytes + j.Work.OtherBytes
		sum += need
		if need > jobsGPUMemory {
			t.Errorf("%s needs %d bytes of a GPU's %d", j.Name, need, jobsGPUMemory)
		}
		in := uint64(0)
		for i, s := range j.Work.Steps {
			if in += s.InBytes; s.OutBytes > in {
				t.Errorf("%s, step %d: %d bytes come back of %d", j.Name, i, s.OutBytes, in)
			}
		}
	}
	if len(names) != 4*gpus || sum <= gpus*jobsGPUMemory {
		t.Errorf("%d jobs need %d bytes of %d", len(names), sum, gpus*jobsGPUMemory)
	}
}

// TestBatchPrints what became of each job, and fails for one whose results are wrong.
func TestBatchPrints(t *testing.T) {
	right := workload.JobReport{Kernels: 4, BytesChecked: 1 << 20, GPU: 1}
	wrong := right
	wrong.Wrong = 1
	way := func(w batch.Way, seconds float64, second workload.JobReport) *batch.Result {
		return &batch.Result{Way: w, Seconds: seconds, TurnaroundSeconds: seconds / 2, Done: 2, BusyRatio: []float64{0.25, 0.5}, Jobs: []batch.Ended{
			{Name: "one", MemoryBytes: 5 << 20, Seconds: 1.5, WaitedSeconds: 0.25, JobReport: right}, {Name: "two", JobReport: second},
		}}
	}
	r := Result{Batch: &Batch{GPUs: 2, Ways: []*batch.Result{way(batch.Single, 8, right), way(batch.Floating, 4, right)}, ThroughputGain: 2, TurnaroundGain: 2}}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	r.Batch.Ways[1] = way(batch.Floating, 4, wrong)
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "job two, floating") {
		t.Errorf("wrong results are no error: %v", err)
	}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	want := `
single assignment: a job has a GPU for itself while its process lives, 8.0 s
   JOB   MIB    GPU   WAITED-S   ENDED-S   KERNELS   CHECKED
   one     5   gpu1       0.25      1.50         4     right
   two     0   gpu1       0.00      0.00         4     right
2 jobs done, 0.25 a second; a job ended after 4.00 s on average, of which it waited 0.00 s for a GPU; 0 ran out of memory
GPUs busy: 25.0%, 50.0%

floating: each job's task is placed on a GPU that has room for it, 4.0 s
   JOB   MIB    GPU   WAITED-S   ENDED-S   KERNELS   CHECKED
   one     5   gpu1       0.25      1.50         4     right
   two     0   gpu1       0.00      0.00         4     WRONG
2 jobs done, 0.50 a second; a job ended after 2.00 s on average, of which it waited 0.00 s for a GPU; 0 ran out of memory
GPUs busy: 25.0%, 50.0%

floating over single assignment: 2.00 times the throughput; a job ends in 2.00 times less time on average
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}
