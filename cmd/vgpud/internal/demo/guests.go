package demo

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"vgpud/cmd/vgpud/workload"
)

// guest is a guest of the demo.
type guest struct {
	workload.Plan
	weight float64
	// alone is the GPU time of one of its kernels, if they are all alike and that was measured;
	// otherwise 0.
	alone time.Duration
	// ceiling is the highest priority that its launches may have.
	ceiling int
	// program is the arguments of a guest that is a CUDA program; Plan then has its name alone.
	program  []string
	socket   string // of its virtual GPU
	instance instance
	ready    chan struct{} // closed when it works

	mu     sync.Mutex
	report workload.Report
	// latencies are its measured launch latencies in milliseconds since resetLatencies.
	latencies []float64
}

// instance is a running guest: a process of this program, or a VM.
type instance interface {
	// ended is closed when the guest has ended, whether asked to or not. endError then returns an
	// error about it, with the end of its log.
	ended() <-chan struct{}
	endError() error
	// end ends the guest and waits for that. It returns an error if the guest did not end well.
	end() error
}

// newGuests returns the guests of the first phases. The heavier a guest's weight, the shorter its
// kernels, so without a policy the order of their parts is reversed (LoGA figure 2).
func newGuests() []*guest {
	all := []*guest{
		{weight: 1, Plan: workload.Plan{Name: "long", Workers: 6, Channels: 6, Work: []workload.Work{
			cases("matmul", "small", 2), cases("spmv", "small", 1), cases("triad", "small", 2),
		}}},
		{weight: 2, Plan: workload.Plan{Name: "medium", Workers: 6, Channels: 6, Work: []workload.Work{
			cases("reduce", "small", 2), cases("warp", "small", 2), cases("scan", "small", 1),
		}}},
		{weight: 4, Plan: workload.Plan{Name: "short", Workers: 6, Channels: 6, Work: []workload.Work{
			cases("vecadd", "trivial", 8), cases("nnlayer", "trivial", 4), cases("blackscholes", "trivial", 8),
		}}},
	}
	for _, m := range all {
		m.ready = make(chan struct{})
	}
	return all
}

// cases returns the case of a kernel, launched repeat times between two checks.
func cases(kernel, size string, repeat int) workload.Work {
	return workload.Work{Kernel: kernel, Size: size, Repeat: repeat}
}

// describe names the guest's kernels.
func (m *guest) describe() string {
	if m.program != nil {
		return "CUDA program " + strings.Join(m.program, " ")
	}
	var names []string
	for _, w := range m.Work {
		names = append(names, w.String())
	}
	return strings.Join(names, ", ")
}

// addReport stores a line of the guest's output.
func (m *guest) addReport(line []byte) {
	var r workload.Report
	if err := json.Unmarshal(line, &r); err != nil {
		m.fail(fmt.Errorf("unreadable report %q", line))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report = r
	m.latencies = append(m.latencies, r.LatenciesMillis...)
	if r.Ready {
		close(m.ready)
	}
}

// fail records that the guest's reports ended with an error.
func (m *guest) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.Error = err.Error()
}

func (m *guest) last() workload.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.report
}
