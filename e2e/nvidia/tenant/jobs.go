package tenant

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"vgpud/gpu/corpus"
)

//go:embed fixed.ptx
var fixedPTX string

// Name names the job.
func (j *Job) Name() string {
	if j.Spin != nil {
		return fmt.Sprintf("spin of %d", j.Spin.Iterations)
	}
	if j.Tally != nil {
		return fmt.Sprintf("tally of %d", j.Tally.Iterations)
	}
	if j.Work != nil {
		return fmt.Sprintf("%s of %d", j.Work.Kernel, j.Work.Size)
	}
	if j.Polls != nil {
		return fmt.Sprintf("%d blocks that poll", j.Polls.Blocks)
	}
	if j.Image != nil {
		return fmt.Sprintf("an image of %d bytes", len(j.Image))
	}
	return j.Fixed + j.Case + j.Scaled
}

// job is a sequence of launches in GPU memory, ready to be repeated.
type job struct {
	name     string
	steps    []command
	restores []restore // applied before each round
	stamps   uint64    // of a spin
	tally    *tally
	program  *corpus.Case // a case whose results can be checked
	buffers  map[string]uint64
	results  []result  // of a scaled kernel
	fresh    []restore // applied when the job is cleared
	outputs  []result  // of a case; their contents before its launches don't matter
}

// result is memory that a kernel writes.
type result struct{ at, bytes uint64 }

// restore is the contents that a buffer must have before the steps run again.
type restore struct {
	at    uint64
	bytes []byte
}

// loadJob loads a job's module and fills its memory. fixed is the module of fixed.ptx.
func loadJob(ctx context.Context, m machine, fixed module, j *Job) (made *job, err error) {
	switch {
	case j.Spin != nil:
		made, err = loadSpin(ctx, m, fixed, j.Spin)
	case j.Tally != nil:
		made, err = loadTally(ctx, m, fixed, j.Tally)
	case j.Fixed != "":
		made, err = loadFixed(ctx, m, fixed, j.Fixed)
	case j.Case != "":
		made, err = loadCase(ctx, m, j.Case)
	case j.Scaled != "":
		made, err = loadScaled(ctx, m, j.Scaled)
	case j.Work != nil:
		made, err = loadWork(ctx, m, j.Work)
	case j.Polls != nil:
		made, err = loadPolls(ctx, m, fixed, j.Polls)
	case j.Image != nil:
		made = &job{}
		_, err = m.load(ctx, string(j.Image))
	default:
		err = fmt.Errorf("a job of nothing")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", j.Name(), err)
	}
	made.name = j.Name()
	return made, nil
}

const stampBytes = 40

func loadSpin(ctx context.Context, m machine, fixed module, s *Spin) (*job, error) {
	f, err := fixed.function(ctx, "spin")
	if err != nil {
		return nil, err
	}
	j := &job{}
	if j.stamps, err = m.alloc(ctx, stampBytes); err != nil {
		return nil, err
	}
	params, err := f.params(u64(j.stamps), u32(uint32(s.Iterations)), u32(1))
	if err != nil {
		return nil, err
	}
	j.steps = []command{{function: f, grid: [3]uint32{uint32(s.Blocks), 1, 1}, block: [3]uint32{uint32(s.Threads), 1, 1}, params: params}}
	return j, nil
}

func loadFixed(ctx context.Context, m machine, fixed module, name string) (*job, error) {
	f, err := fixed.function(ctx, name)
	if err != nil {
		return nil, err
	}
	var args [][]byte
	if name == "endless" {
		word, err := m.alloc(ctx, 4)
		if err != nil {
			return nil, err
		}
		args = append(args, u64(word))
	}
	params, err := f.params(args...)
	if err != nil {
		return nil, err
	}
	return &job{steps: []command{{function: f, grid: [3]uint32{1, 1, 1}, block: [3]uint32{32, 1, 1}, params: params}}}, nil
}

func loadPolls(ctx context.Context, m machine, fixed module, p *Polls) (*job, error) {
	f, err := fixed.function(ctx, "polls")
	if err != nil {
		return nil, err
	}
	word, err := m.alloc(ctx, 4)
	if err != nil {
		return nil, err
	}
	params, err := f.params(u64(word), u64(uint64(p.For)))
	if err != nil {
		return nil, err
	}
	return &job{steps: []command{{function: f, grid: [3]uint32{uint32(p.Blocks), 1, 1}, block: [3]uint32{uint32(p.Threads), 1, 1}, params: params}}}, nil
}

// loadCase loads a case of the corpus, "matmul/large".
func loadCase(ctx context.Context, m machine, name string) (*job, error) {
	kernel, size, _ := strings.Cut(name, "/")
	k, ok := corpus.ByName(kernel)
	if !ok {
		return nil, fmt.Errorf("the corpus has no kernel %q", kernel)
	}
	sz, err := corpus.ParseSize(size)
	if err != nil {
		return nil, err
	}
	c := k.Case(sz, 1)
	mod, err := m.load(ctx, k.PTX(corpus.SM80))
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", name, err)
	}
	j := &job{program: c, buffers: make(map[string]uint64)}
	for i := range c.Buffers {
		b := &c.Buffers[i]
		var p uint64
		if b.Global != "" {
			p, err = mod.global(ctx, b.Global)
		} else {
			p, err = m.alloc(ctx, uint64(b.Size))
		}
		if err == nil && b.Init != nil {
			err = m.copyIn(ctx, p, b.Init)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: buffer %s: %w", name, b.Name, err)
		}
		j.buffers[b.Name] = p
		if b.Mode == corpus.Out {
			j.outputs = append(j.outputs, result{p, uint64(b.Size)})
		}
	}
	for _, b := range c.Restore() {
		j.restores = append(j.restores, restore{j.buffers[b.Name], b.Init})
	}
	for i := range c.Steps {
		s := &c.Steps[i]
		f, err := mod.function(ctx, s.Entry)
		if err != nil {
			return nil, err
		}
		var args [][]byte
		for _, a := range s.Args {
			if a.Buffer != "" {
				args = append(args, u64(j.buffers[a.Buffer]+a.Offset))
			} else {
				args = append(args, a.Bytes)
			}
		}
		params, err := f.params(args...)
		if err != nil {
			return nil, err
		}
		j.steps = append(j.steps, command{function: f, grid: s.Grid, block: s.Block, shared: s.SharedBytes, params: params})
	}
	return j, nil
}

// form returns the tuner's information about one of the job's kernels: the first that is not
// settled, else the first that has a form, else the first.
func (j *job) form() (chosen *Form) {
	for i := range j.steps {
		switch f := j.steps[i].function.form(); {
		case f == nil:
			return nil
		case !f.Settled():
			return f
		case chosen == nil || chosen.Form == 0 && f.Form != 0:
			chosen = f
		}
	}
	return chosen
}

// sliced cuts each launch into n. Only the number of blocks matters for the cost, so each slice
// runs the first blocks of the grid.
func sliced(launches []command, n int) (steps []command) {
	for _, s := range launches {
		// Rows of blocks are divided if the grid has several.
		d := 0
		if s.grid[1] > 1 {
			d = 1
		}
		left := s.grid[d]
		for i := range n {
			part := s
			part.grid[d] = left / uint32(n-i)
			left -= part.grid[d]
			if part.grid[d] > 0 {
				steps = append(steps, part)
			}
		}
	}
	return steps
}

// check compares the results of the last round with the correct ones.
func (j *job) check(ctx context.Context, m machine) error {
	if j.program == nil {
		return nil
	}
	return j.program.CheckAll(func(b *corpus.Buffer) ([]byte, error) {
		got := make([]byte, b.Size)
		return got, m.copyOut(ctx, got, j.buffers[b.Name])
	})
}

// clear zeroes the memory that sum and check read. Otherwise results of an earlier launch would
// hide that a later one did not compute them.
func (j *job) clear(ctx context.Context, m machine) error {
	for _, r := range j.results { // these were zero at first
		if err := m.copyIn(ctx, r.at, make([]byte, min(r.bytes, SumBytes))); err != nil {
			return err
		}
	}
	for _, r := range j.fresh {
		if err := m.copyIn(ctx, r.at, r.bytes); err != nil {
			return err
		}
	}
	for _, r := range j.outputs {
		if err := m.copyIn(ctx, r.at, make([]byte, r.bytes)); err != nil {
			return err
		}
	}
	return nil
}

// sum returns a checksum of a scaled kernel's results.
func (j *job) sum(ctx context.Context, m machine) (uint64, error) {
	h := fnv.New64a()
	for _, r := range j.results {
		b := make([]byte, min(r.bytes, SumBytes))
		if err := m.copyOut(ctx, b, r.at); err != nil {
			return 0, err
		}
		h.Write(b) //nolint:errcheck // writing to a hash never fails
	}
	return h.Sum64(), nil
}

// clearStamps resets a spin's stamps for the next launches.
func (j *job) clearStamps(ctx context.Context, m machine) error {
	return m.copyIn(ctx, j.stamps, make([]byte, stampBytes))
}

// stamped returns the time from the first block's start to the last one's end since clearStamps,
// and the mean duration of a block.
func (j *job) stamped(ctx context.Context, m machine) (all, block time.Duration, err error) {
	b := make([]byte, stampBytes)
	if err := m.copyOut(ctx, b, j.stamps); err != nil {
		return 0, 0, err
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	start, end, sum, blocks := ^word(0), word(1), word(3), word(4)
	return time.Duration(end - start), time.Duration(sum / max(blocks, 1)), nil
}
