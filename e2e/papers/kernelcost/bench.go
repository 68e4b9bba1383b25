package kernelcost

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/gpu/soft/simt"
	"vgpud/ptx"
)

// Bench is a module with the memory of one case of the corpus.
type Bench struct {
	Module *simt.Module

	mem     *simt.Memory
	brk     uint64
	address map[string]uint64
}

// New loads a module, which is the kernel's own or made from it, and sets up the case's buffers.
func New(parsed *ptx.Module, c *corpus.Case, o simt.Options) (*Bench, error) {
	module, err := simt.Load(context.Background(), parsed, o)
	if err != nil {
		return nil, err
	}
	b := &Bench{Module: module, mem: new(simt.Memory), brk: 1 << 28, address: map[string]uint64{}}
	var image uint64
	if n := module.ImageBytes(); n > 0 {
		image = b.reserve(n)
		data := make([]byte, n)
		copy(data, module.Place(image))
		if err := module.MapImage(b.mem, data); err != nil {
			return nil, err
		}
	}
	for i := range c.Buffers {
		buffer := &c.Buffers[i]
		if buffer.Global != "" {
			offset, n, ok := module.Global(buffer.Global)
			data, mapped := b.mem.Bytes(image+offset, n)
			if !ok || !mapped {
				return nil, fmt.Errorf("no variable %s", buffer.Global)
			}
			copy(data, buffer.Init)
			b.address[buffer.Name] = image + offset
			continue
		}
		at, data, err := b.Alloc(buffer.Size)
		if err != nil {
			return nil, err
		}
		copy(data, buffer.Init)
		b.address[buffer.Name] = at
	}
	return b, nil
}

func (b *Bench) reserve(n uint64) (at uint64) {
	at = b.brk
	b.brk += (n + 511) &^ 255
	return at
}

// Alloc maps so many bytes of zeroed memory.
func (b *Bench) Alloc(n int) (at uint64, data []byte, err error) {
	data = make([]byte, n)
	at = b.reserve(uint64(n))
	return at, data, b.mem.Map(at, data)
}

// Params lays out a step's arguments as the entry's parameters are, extra after them as its last.
func (b *Bench) Params(entry string, args []corpus.Arg, extra []byte) ([]byte, error) {
	kernel := b.Module.Kernel(entry)
	if kernel == nil {
		return nil, fmt.Errorf("no kernel %s", entry)
	}
	a := kernel.Attributes()
	want := len(args)
	if extra != nil {
		want++
	}
	if len(a.Params) != want {
		return nil, fmt.Errorf("%s has %d parameters, not %d", entry, len(a.Params), want)
	}
	params := make([]byte, a.ParamBytes)
	for i, arg := range args {
		at := params[a.Params[i].Offset:][:a.Params[i].Size]
		if arg.Buffer == "" {
			copy(at, arg.Bytes)
			continue
		}
		var value [8]byte
		binary.LittleEndian.PutUint64(value[:], b.address[arg.Buffer]+arg.Offset)
		copy(at, value[:])
	}
	if extra != nil {
		copy(params[a.Params[len(args)].Offset:], extra)
	}
	return params, nil
}

// GPU is what executes: so many SMs with room for so many blocks and threads. A simple instruction
// of a warp takes the whole GPU WarpTime.
type GPU struct {
	SMs      int
	Blocks   int // an SM's
	Threads  int
	WarpTime uint64 // nanoseconds
}

// Run executes a launch to its end, and returns what it did and the SM cycles until its last block
// ended: up to as many blocks as fit on each SM, the SM that is furthest behind going next.
func (b *Bench) Run(g GPU, entry string, grid, block gpu.Dim3, shared uint64, params []byte) (simt.Counts, uint64, error) {
	return b.run(g, entry, simt.Launch{Grid: grid, Block: block, SharedBytes: shared, Params: params})
}

// run completes a launch and executes it.
func (b *Bench) run(g GPU, entry string, l simt.Launch) (simt.Counts, uint64, error) {
	l.Kernel = b.Module.Kernel(entry)
	if l.Kernel == nil {
		return simt.Counts{}, 0, fmt.Errorf("no kernel %s", entry)
	}
	l.Memory, l.SMs, l.Print = b.mem, g.SMs, io.Discard
	run, err := simt.NewGrid(l)
	if err != nil {
		return simt.Counts{}, 0, err
	}
	cycles, err := g.execute(run, max(1, min(g.Blocks, g.Threads/int(l.Block.Count()))))
	return run.Counts(), cycles, err
}

// Trace executes a step of the case, and returns what each of its warps executed. The module must
// have been loaded for it ([simt.Options.Traces]).
func (b *Bench) Trace(g GPU, s *corpus.Launch) (*simt.Trace, error) {
	params, err := b.Params(s.Entry, s.Args, nil)
	if err != nil {
		return nil, err
	}
	var t simt.Trace
	_, _, err = b.run(g, s.Entry, simt.Launch{Grid: Dim(s.Grid), Block: Dim(s.Block), SharedBytes: uint64(s.SharedBytes), Params: params, Trace: &t})
	if err == nil && t.Truncated {
		err = fmt.Errorf("%s executes too much to be traced", s.Entry)
	}
	return &t, err
}

// Step executes a step of the case under the entry's own name.
func (b *Bench) Step(g GPU, s *corpus.Launch) (simt.Counts, uint64, error) {
	params, err := b.Params(s.Entry, s.Args, nil)
	if err != nil {
		return simt.Counts{}, 0, err
	}
	return b.Run(g, s.Entry, Dim(s.Grid), Dim(s.Block), uint64(s.SharedBytes), params)
}

// Dim is the corpus' spelling of a size as the GPU's.
func Dim(d [3]uint32) gpu.Dim3 { return gpu.Dim3{X: d[0], Y: d[1], Z: d[2]} }

func (g GPU) execute(grid *simt.Grid, resident int) (uint64, error) {
	type sm struct {
		cycles uint64
		blocks []*simt.Block
		turn   int
	}
	all := make([]sm, g.SMs)
	live := 0
	for range resident {
		for i := range all {
			if b := grid.StartBlock(i); b != nil {
				all[i].blocks = append(all[i].blocks, b)
				live++
			}
		}
	}
	cycle := g.WarpTime * uint64(g.SMs)
	var end uint64
	for live > 0 {
		at := -1
		for i := range all {
			if len(all[i].blocks) > 0 && (at < 0 || all[i].cycles < all[at].cycles) {
				at = i
			}
		}
		s := &all[at]
		s.turn = (s.turn + 1) % len(s.blocks)
		result := s.blocks[s.turn].Step(simt.Now{Cycle: s.cycles, Nanos: s.cycles * cycle}, 200)
		s.cycles += max(result.Cycles, 1)
		switch result.State {
		case simt.Faulted:
			return 0, result.Fault
		case simt.Sleeping:
			// Others go on meanwhile; a block alone sleeps its time out.
			if wake := result.Wake / cycle; len(s.blocks) == 1 && wake > s.cycles {
				s.cycles = wake
			}
		case simt.Finished:
			end = max(end, s.cycles)
			if b := grid.StartBlock(at); b != nil {
				s.blocks[s.turn] = b
			} else {
				s.blocks = slices.Delete(s.blocks, s.turn, s.turn+1)
				live--
			}
		}
	}
	return end, nil
}
