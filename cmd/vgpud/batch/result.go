package batch

import (
	"errors"
	"fmt"
	"time"

	"vgpud/cmd/vgpud/workload"
)

// Result is what became of a batch. Ratios are from 0 to 1.
type Result struct {
	Way Way `json:"way"`
	// Seconds is the time from the start of the first job to the end of the last.
	Seconds float64 `json:"seconds"`
	// TurnaroundSeconds is the mean of when each job had ended, from when all arrived, and
	// WaitedSeconds that of how long each then waited for a GPU: for one of its own, or until its task
	// had one.
	TurnaroundSeconds float64 `json:"turnaround_seconds"`
	WaitedSeconds     float64 `json:"waited_seconds"`
	// BusyRatio is the part of the time in which each GPU was busy.
	BusyRatio []float64 `json:"gpu_busy_ratio"`
	// Done counts the jobs that ended well, with everything checked, and OutOfMemory those that got
	// no memory.
	Done        int     `json:"done"`
	OutOfMemory int     `json:"out_of_memory"`
	Jobs        []Ended `json:"jobs"`
}

// Ended is a job that has ended.
type Ended struct {
	Name string `json:"name"`
	// MemoryBytes is what the job asked for.
	MemoryBytes uint64 `json:"memory_bytes"`
	// Seconds is when it ended, from when all arrived, and WaitedSeconds how long of that it waited
	// for a GPU.
	Seconds       float64 `json:"seconds"`
	WaitedSeconds float64 `json:"waited_seconds"`
	workload.JobReport
}

// Right reports whether the job ended well and its results were checked.
func (e *Ended) Right() bool {
	return e.Error == "" && e.Wrong == 0 && e.Kernels > 0 && e.BytesChecked > 0
}

// sum computes the result from the reports of jobs that arrived at begin, and from the GPUs' busy
// seconds before and after.
func (r *Result) sum(begin time.Time, before, after []float64) {
	for i := range r.Jobs {
		e := &r.Jobs[i]
		from := func(at int64) float64 { return time.Unix(0, at).Sub(begin).Seconds() }
		e.Seconds = from(e.JobReport.Ended)
		e.WaitedSeconds = time.Duration(max(e.Placed-e.Asked, 0)).Seconds()
		if r.Way == Single {
			e.WaitedSeconds = from(e.Started)
		}
		r.Seconds = max(r.Seconds, e.Seconds)
		r.TurnaroundSeconds += e.Seconds / float64(len(r.Jobs))
		r.WaitedSeconds += e.WaitedSeconds / float64(len(r.Jobs))
		if e.OutOfMemory {
			r.OutOfMemory++
		}
		if e.Right() {
			r.Done++
		}
	}
	for i := range before {
		r.BusyRatio = append(r.BusyRatio, (after[i]-before[i])/r.Seconds)
	}
}

// Err returns an error if jobs failed, or their results are wrong or unchecked.
func (r *Result) Err() error {
	var errs []error
	for i := range r.Jobs {
		if e := &r.Jobs[i]; !e.Right() {
			errs = append(errs, fmt.Errorf("job %s, %s: wrong or not checked: %d kernels and %d bytes checked, %d wrong: %s",
				e.Name, r.Way, e.Kernels, e.BytesChecked, e.Wrong, e.Error))
		}
	}
	return errors.Join(errs...)
}

// Throughput returns how many jobs ended well in a second.
func (r *Result) Throughput() float64 { return float64(r.Done) / r.Seconds }

// Gain returns a batch's throughput over that of another way.
func Gain(r, over *Result) float64 { return r.Throughput() / over.Throughput() }
