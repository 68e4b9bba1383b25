package live

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"vgpud/cmd/vgpud/batch"
	"vgpud/cmd/vgpud/workload"
	"vgpud/gpu/corpus"
)

// Modelled is a job as the simulation has it.
type Modelled struct {
	Name   string `json:"name"`
	Memory uint64 `json:"memory_bytes"`
	// Before and After are host work before the first allocation and after the last free.
	Before float64 `json:"before_seconds"`
	After  float64 `json:"after_seconds"`
	Steps  []Step  `json:"steps"`
}

// Step is a part of a job's task. One of Host, In, Launches and Out is set.
type Step struct {
	Host float64 `json:"host_seconds,omitempty"`
	In   uint64  `json:"in_bytes,omitempty"`
	// Launches are kernels of Seconds each.
	Launches int     `json:"launches,omitempty"`
	Seconds  float64 `json:"launch_seconds,omitempty"`
	Out      uint64  `json:"out_bytes,omitempty"`
}

// w1 is what `go run ./e2e/papers/case -jobs e2e/papers/case/live/w1.json` writes.
//
//go:embed w1.json
var w1 []byte

// ModelGPUMemory is the memory in bytes of each of the GPUs that the jobs were modelled for.
const ModelGPUMemory = 16 << 30

// W1 returns the jobs of W1, of the authors' own mix, on four V100s.
func W1() ([]Modelled, error) {
	var all []Modelled
	if err := json.Unmarshal(w1, &all); err != nil {
		return nil, fmt.Errorf("the jobs of W1: %w", err)
	}
	return all, nil
}

// Scale is how jobs run that are modelled for larger GPUs, or for a longer time.
type Scale struct {
	// Memory, Copies and Time divide footprints, bytes that are copied, and the times of host work and
	// kernels.
	Memory, Copies, Time float64
	// Kernel returns a kernel of a length, and Longest is the longest there is: a longer one is several.
	Kernel  func(time.Duration) corpus.ThrottleConfig
	Longest time.Duration
	// Other is what a job takes beside what it allocates, in bytes.
	Other uint64
}

// Jobs returns the jobs as they run.
func (s *Scale) Jobs(all []Modelled) []batch.Job {
	jobs := make([]batch.Job, len(all))
	for i, m := range all {
		j := batch.Job{Name: m.Name, Work: workload.Job{
			BeforeMicros: s.micros(m.Before), AfterMicros: s.micros(m.After),
			MemoryBytes: max(uint64(float64(m.Memory)/s.Memory), 1), OtherBytes: s.Other,
		}}
		in := uint64(0)
		for _, x := range m.Steps {
			step := workload.JobStep{HostMicros: s.micros(x.Host)}
			if x.In > 0 {
				step.InBytes = max(uint64(float64(x.In)/s.Copies), 1)
				in += step.InBytes
			}
			if x.Out > 0 { // no more than there is to compare with
				step.OutBytes = min(max(uint64(float64(x.Out)/s.Copies), 1), in)
			}
			if x.Launches > 0 {
				length := x.Seconds / s.Time
				parts := max(int(math.Ceil(length/s.Longest.Seconds())), 1)
				kernel := s.Kernel(time.Duration(length / float64(parts) * float64(time.Second)))
				step.Launches, step.Throttle = x.Launches*parts, &kernel
			}
			j.Work.Steps = append(j.Work.Steps, step)
		}
		jobs[i] = j
	}
	return jobs
}

func (s *Scale) micros(seconds float64) int64 { return int64(math.Round(seconds / s.Time * 1e6)) }
