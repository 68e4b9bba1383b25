package workload

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"vgpud/clock"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// Job is the work of a process that ends by itself, as in CASE's evaluation (§5): host work, a GPU
// task from the first allocation to the last free, and host work. Host work is waited for instead of
// computed, so that jobs don't slow each other down where the machine has fewer processors than jobs.
type Job struct {
	// BeforeMicros and AfterMicros are the host work before and after the task.
	BeforeMicros int64 `json:"before_us,omitempty"`
	AfterMicros  int64 `json:"after_us,omitempty"`
	// MemoryBytes is the GPU memory that the job allocates, in one piece, and OtherBytes what else it
	// takes: for its module and the results of its kernels.
	MemoryBytes uint64 `json:"memory_bytes"`
	OtherBytes  uint64 `json:"other_bytes"`
	// Floats has the host choose the GPU by what the job needs. Otherwise the job has the GPU of its
	// virtual GPU.
	Floats bool      `json:"floats,omitempty"`
	Steps  []JobStep `json:"steps"`
}

// JobStep is a part of a job's task: host work, then copies to the GPU, then launches, then copies
// back, which are compared with what was copied there.
type JobStep struct {
	HostMicros int64  `json:"host_us,omitempty"`
	InBytes    uint64 `json:"in_bytes,omitempty"`
	// Launches is how often Throttle is launched, each after the one before. Results are checked.
	Launches int                    `json:"launches,omitempty"`
	Throttle *corpus.ThrottleConfig `json:"throttle,omitempty"`
	OutBytes uint64                 `json:"out_bytes,omitempty"`
}

// JobReport is what became of a job: a line of JSON. Times are Unix times in nanoseconds, 0 for what
// was not reached.
type JobReport struct {
	Started int64 `json:"started_ns"`
	// Asked is when the job asked for a GPU, Placed when it had one, and Freed when it gave all back.
	Asked  int64 `json:"asked_ns"`
	Placed int64 `json:"placed_ns"`
	Freed  int64 `json:"freed_ns"`
	Ended  int64 `json:"ended_ns"`
	// GPU is the number of the GPU on the host where the job's task was, if it floats.
	GPU int `json:"gpu"`
	// Kernels were completed and BytesChecked bytes compared. Wrong counts kernels with wrong results
	// and copies that came back changed.
	Kernels      uint64 `json:"kernels"`
	BytesChecked uint64 `json:"bytes_checked"`
	Wrong        uint64 `json:"wrong"`
	// OutOfMemory is set if the job ended since it got no memory: it has crashed.
	OutOfMemory bool   `json:"out_of_memory,omitempty"`
	Error       string `json:"error,omitempty"`
}

// task returns what the job asks the host for.
func (j *Job) task() *driver.Task {
	if !j.Floats {
		return nil
	}
	t := &driver.Task{MemoryBytes: j.MemoryBytes + j.OtherBytes}
	for _, s := range j.Steps {
		if s.Throttle != nil {
			t.Blocks, t.Threads = max(t.Blocks, uint32(s.Throttle.Blocks)), max(t.Threads, uint32(s.Throttle.Threads))
		}
	}
	return t
}

// runJob does the plan's job and reports about it. A job that fails is reported, and is no error.
func (p *Plan) runJob(ctx context.Context, bus driver.Bus, out io.Writer) error {
	r := JobReport{Started: time.Now().UnixNano()}
	if err := p.job(ctx, bus, &r); err != nil {
		r.Error = err.Error()
		r.OutOfMemory = errors.Is(err, abi.StatusOutOfMemory) || errors.Is(err, abi.StatusMemoryLimit) ||
			errors.Is(err, abi.ErrorLimit) || errors.Is(err, abi.ErrorNoRoom)
	}
	r.Ended = time.Now().UnixNano()
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func (p *Plan) job(ctx context.Context, bus driver.Bus, r *JobReport) (err error) {
	dev, err := driver.Open(ctx, bus)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	o, err := p.contextOptions()
	if err != nil {
		return err
	}
	o.Task = p.Job.task()
	if err := micros(ctx, p.Job.BeforeMicros); err != nil {
		return err
	}
	r.Asked = time.Now().UnixNano()
	gpu, err := dev.NewContext(ctx, o)
	if err != nil {
		return err
	}
	r.Placed = time.Now().UnixNano()
	if o.Task != nil {
		at, err := gpu.Placement()
		if err != nil {
			return err
		}
		r.GPU = at.GPU
	}
	if err := errors.Join(p.jobSteps(ctx, gpu, r), gpu.Close()); err != nil {
		return err
	}
	r.Freed = time.Now().UnixNano()
	return micros(ctx, p.Job.AfterMicros)
}

// jobSteps does the job's task.
func (p *Plan) jobSteps(ctx context.Context, gpu *driver.Context, r *JobReport) error {
	ch, err := gpu.NewChannel(ctx, driver.ChannelOptions{})
	if err != nil {
		return err
	}
	m := newJobMemory(ch, p.Job.MemoryBytes, p.Seed)
	if m.at, err = gpu.Alloc(ctx, p.Job.MemoryBytes); err != nil {
		return fmt.Errorf("allocate %d bytes: %w", p.Job.MemoryBytes, err)
	}
	loads := make(map[corpus.ThrottleConfig]*Load)
	for i, s := range p.Job.Steps {
		if err := micros(ctx, s.HostMicros); err != nil {
			return err
		}
		if err := m.in(ctx, s.InBytes); err != nil {
			return fmt.Errorf("step %d: copy in: %w", i, err)
		}
		for range s.Launches {
			if err := p.launchJob(ctx, gpu, ch, loads, s.Throttle, r); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
		}
		if err := m.out(ctx, s.OutBytes, r); err != nil {
			return fmt.Errorf("step %d: copy out: %w", i, err)
		}
	}
	return gpu.Free(ctx, m.at)
}

// launchJob launches a kernel of the job and checks its results. loads has those that are loaded.
func (p *Plan) launchJob(ctx context.Context, gpu *driver.Context, ch *driver.Channel, loads map[corpus.ThrottleConfig]*Load, t *corpus.ThrottleConfig, r *JobReport) error {
	if t == nil {
		return errors.New("launches of no kernel")
	}
	l := loads[*t]
	if l == nil {
		k, c, err := Work{Kernel: "throttle", Throttle: t}.Case(p.Seed)
		if err != nil {
			return err
		}
		if l, err = NewLoad(ctx, gpu, k.PTX(corpus.SM80), c); err != nil {
			return err
		}
		loads[*t] = l
	}
	err := l.rounds(ctx, ch, 1, noObserver{})
	if _, ok := errors.AsType[*corpus.Mismatch](err); ok {
		r.Wrong++
	}
	if err != nil {
		return err
	}
	r.Kernels++
	return nil
}

// jobChunk is how much a job copies at a time.
const jobChunk = 1 << 20

// jobMemory is the memory of a job. Each chunk of it has bytes of its own once it was copied.
type jobMemory struct {
	ch    *driver.Channel
	at    driver.Ptr
	size  uint64
	chunk []byte
	got   []byte
}

func newJobMemory(ch *driver.Channel, size, seed uint64) *jobMemory {
	m := &jobMemory{ch: ch, size: size, chunk: make([]byte, min(jobChunk, size)), got: make([]byte, min(jobChunk, size))}
	random := rand.New(rand.NewPCG(seed, 1))
	for at := 0; at+8 <= len(m.chunk); at += 8 {
		binary.LittleEndian.PutUint64(m.chunk[at:], random.Uint64())
	}
	return m
}

// each calls do for the chunks of the first n bytes that are copied, which begin anew where the memory
// ends.
func (m *jobMemory) each(n uint64, do func(at driver.Ptr, want []byte) error) error {
	offset := uint64(0)
	var number [8]byte
	for n > 0 {
		size := min(n, uint64(len(m.chunk)), m.size-offset)
		want := m.chunk[:size]
		binary.LittleEndian.PutUint64(number[:], offset)
		copy(want, number[:])
		if err := do(m.at+driver.Ptr(offset), want); err != nil {
			return err
		}
		n -= size
		if offset += size; offset == m.size {
			offset = 0
		}
	}
	return nil
}

// in copies n bytes to the GPU.
func (m *jobMemory) in(ctx context.Context, n uint64) error {
	last := new(driver.Pending)
	err := m.each(n, func(at driver.Ptr, want []byte) (err error) {
		last, err = m.ch.CopyIn(ctx, at, want)
		return err
	})
	if err != nil || n == 0 {
		return err
	}
	return last.Wait(ctx)
}

// out copies n bytes back, of which as many must have been copied in, and compares them.
func (m *jobMemory) out(ctx context.Context, n uint64, r *JobReport) error {
	return m.each(n, func(at driver.Ptr, want []byte) error {
		got := m.got[:len(want)]
		if err := m.ch.CopyOut(ctx, got, at); err != nil {
			return err
		}
		r.BytesChecked += uint64(len(got))
		if !bytes.Equal(got, want) {
			r.Wrong++
			return fmt.Errorf("%d bytes at %#x came back changed", len(got), at)
		}
		return nil
	})
}

// micros waits for that many microseconds.
func micros(ctx context.Context, n int64) error {
	if n <= 0 {
		return nil
	}
	return clock.Sleep(ctx, clock.Real{}, time.Duration(n)*time.Microsecond)
}
