package demo

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"vgpud/cmd/vgpud/workload"
)

// member is a guest of the demo.
type member struct {
	workload.Plan
	weight float64
	// alone is what one of its kernels takes of the GPU, where all are alike and that
	// was measured; else 0.
	alone time.Duration
	// ceiling is the highest priority that its launches may have.
	ceiling int
	socket  string // of its virtual GPU
	guest   guest
	ready   chan struct{} // closed when it works

	mu     sync.Mutex
	report workload.Report
	// latencies are what it measured of its launches, in milliseconds, since they
	// were last forgotten.
	latencies []float64
}

// guest is a guest at work: a process of this program, or a VM.
type guest interface {
	// ended is closed when it has come to its end, asked for or not; why then
	// tells of it, with the end of its log.
	ended() <-chan struct{}
	why() error
	// end ends it and waits until it has. An error tells of an end that was not
	// as it should be.
	end() error
}

// members are the demo's guests. The heavier a guest's weight the shorter its
// kernels, so that without a policy the order is the wrong way round (LoGA
// figure 2).
func members() []*member {
	all := []*member{
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

// cases are cases of a kernel, launched that often between two checks.
func cases(kernel, size string, repeat int) workload.Work {
	return workload.Work{Kernel: kernel, Size: size, Repeat: repeat}
}

// describe names what a guest works at.
func (m *member) describe() string {
	var names []string
	for _, w := range m.Work {
		names = append(names, w.String())
	}
	return strings.Join(names, ", ")
}

// take takes in a line of a guest's.
func (m *member) take(line []byte) {
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

// fail notes that the guest's reports end with an error.
func (m *member) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.Error = err.Error()
}

func (m *member) last() workload.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.report
}
