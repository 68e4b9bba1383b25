package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"vgpud/e2e/kernels"
	"vgpud/gpu"
	"vgpud/gpu/soft/sim"
	"vgpud/gpu/soft/simt"
	"vgpud/ptx"
)

// application is a program of the corpus: the modelled lengths of its launches,
// in order, which it repeats.
type application struct {
	name    string
	lengths []time.Duration
}

// load is the application as a guest that keeps depth launches submitted.
func (a application) load(depth int) func() sim.Load {
	return func() sim.Load { return sim.Trace(a.name, depth, a.lengths) }
}

// longest is the length of the application's longest kernel.
func (a application) longest() time.Duration { return slices.Max(a.lengths) }

// iteration is the GPU time of all its launches.
func (a application) iteration() (sum time.Duration) {
	for _, d := range a.lengths {
		sum += d
	}
	return sum
}

// The soft GPU whose time is modelled: its defaults.
const (
	sms      = 8
	warpTime = 100 * time.Nanosecond // the whole GPU, for a simple instruction of a warp
	perSM    = 32                    // blocks
	threads  = 2048                  // an SM's
)

// interpret runs each kernel of the corpus once and returns how long its
// launches last on the soft GPU, by its cost model.
func interpret(size kernels.Size) ([]application, error) {
	all := kernels.All()
	apps, errs := make([]application, len(all)), make([]error, len(all))
	var group sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i, k := range all {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			apps[i].name = k.Name
			apps[i].lengths, errs[i] = measure(k, size)
		})
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", all[i].Name, err)
		}
	}
	return apps, nil
}

// measure interprets one kernel's case.
func measure(k kernels.Kernel, size kernels.Size) ([]time.Duration, error) {
	parsed, err := ptx.Parse(k.PTX(kernels.SM90))
	if err != nil {
		return nil, err
	}
	costs := simt.DefaultCosts
	costs.Block, costs.Warp = 8, 2 // as the soft GPU has them
	module, err := simt.Load(context.Background(), parsed, simt.Options{Costs: &costs})
	if err != nil {
		return nil, err
	}
	c := k.Case(size, 1)
	mem, brk := new(simt.Memory), uint64(1<<28)
	reserve := func(n uint64) (at uint64) {
		at = brk
		brk += (n + 511) &^ 255
		return at
	}
	var image uint64
	if n := module.ImageBytes(); n > 0 {
		image = reserve(n)
		data := make([]byte, n)
		copy(data, module.Place(image))
		if err := module.MapImage(mem, data); err != nil {
			return nil, err
		}
	}
	address := make(map[string]uint64)
	for i := range c.Buffers {
		b := &c.Buffers[i]
		if b.Global != "" {
			offset, n, ok := module.Global(b.Global)
			data, mapped := mem.Bytes(image+offset, n)
			if !ok || !mapped {
				return nil, fmt.Errorf("no variable %s", b.Global)
			}
			copy(data, b.Init)
			address[b.Name] = image + offset
			continue
		}
		data := make([]byte, b.Size)
		copy(data, b.Init)
		address[b.Name] = reserve(uint64(b.Size))
		if err := mem.Map(address[b.Name], data); err != nil {
			return nil, err
		}
	}
	var lengths []time.Duration
	for i := range c.Steps {
		cycles, err := launch(module, mem, &c.Steps[i], address)
		if err != nil {
			return nil, fmt.Errorf("launch %d: %w", i, err)
		}
		lengths = append(lengths, time.Duration(cycles)*warpTime*sms)
	}
	return lengths, nil
}

// launch interprets one launch and returns its length in SM cycles.
func launch(module *simt.Module, mem *simt.Memory, s *kernels.Launch, address map[string]uint64) (uint64, error) {
	kernel := module.Kernel(s.Entry)
	if kernel == nil {
		return 0, fmt.Errorf("no kernel %s", s.Entry)
	}
	attributes := kernel.Attributes()
	params := make([]byte, attributes.ParamBytes)
	for i, arg := range s.Args {
		at := params[attributes.Params[i].Offset:][:attributes.Params[i].Size]
		if arg.Buffer == "" {
			copy(at, arg.Bytes)
			continue
		}
		value := address[arg.Buffer] + arg.Offset
		for j := range at {
			at[j] = byte(value >> (8 * j))
		}
	}
	grid, err := simt.NewGrid(simt.Launch{
		Kernel: kernel, Grid: dim(s.Grid), Block: dim(s.Block), SharedBytes: uint64(s.SharedBytes),
		Params: params, Memory: mem, SMs: sms, Print: io.Discard,
	})
	if err != nil {
		return 0, err
	}
	return execute(grid, max(1, min(perSM, threads/int(dim(s.Block).Count()))))
}

func dim(d [3]uint32) gpu.Dim3 { return gpu.Dim3{X: d[0], Y: d[1], Z: d[2]} }

// execute interprets a grid, up to resident blocks on each SM, the SM that is
// furthest behind going next, and returns when the last block ended.
func execute(grid *simt.Grid, resident int) (uint64, error) {
	type sm struct {
		cycles uint64
		blocks []*simt.Block
		turn   int
	}
	var all [sms]sm
	live := 0
	for range resident {
		for i := range all {
			if b := grid.StartBlock(i); b != nil {
				all[i].blocks = append(all[i].blocks, b)
				live++
			}
		}
	}
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
		nanos := s.cycles * uint64(warpTime) * sms
		result := s.blocks[s.turn].Step(simt.Now{Cycle: s.cycles, Nanos: nanos}, 200)
		s.cycles += max(result.Cycles, 1)
		switch result.State {
		case simt.Faulted:
			return 0, result.Fault
		case simt.Sleeping:
			// Others go on meanwhile; a block alone sleeps its time out.
			if wake := result.Wake / (uint64(warpTime) * sms); len(s.blocks) == 1 && wake > s.cycles {
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
