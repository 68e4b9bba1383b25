package main

import (
	"fmt"
	"math"
	"slices"

	"vgpud/e2e/papers/kernelcost"
	"vgpud/e2e/papers/parallel"
	"vgpud/gpu/corpus"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/machine/blocks"
	"vgpud/gpu/soft/simt"
	"vgpud/ptx"
)

// The GPU that the corpus' kernels run on here is an H100 SXM. Each of its SMs issues four warp
// instructions a cycle and has these limits.
const (
	issuePerNano = 4 * 1.755 // warp instructions an SM issues in 1 ns at the boost clock
	loadNanos    = 270       // latency of one load from memory that is otherwise idle
	loadsAhead   = 4         // loads that a warp has in flight at a time
)

var h100SM = machine.Config{SMs: blocks.H100.SMs, SM: machine.Resources{Blocks: 32, Threads: 2048, Registers: 65536, Shared: 227 << 10}}

// issueCosts is the soft GPU's cost model without the costs that package blocks models itself:
// memory traffic beyond the instruction, and the start of blocks. It also counts memory
// instructions, in the bits from access up.
func issueCosts() simt.CostModel {
	c := simt.DefaultCosts
	c.Sector, c.Block, c.Warp = 0, 0, 0
	c.Memory |= 1 << access
	return c
}

const (
	access = 30
	sector = 32 // bytes
)

// subject is a kernel of the corpus, represented by the launch of its case that does the most work.
type subject struct {
	name string
	k    corpus.Kernel
	c    *corpus.Case
	step *corpus.Launch

	tasks   uint64  // of that launch
	cycles  float64 // of one SM that a task issues
	model   blocks.Kernel
	threads uint32
	shared  uint32

	added  additions // cost of each form that the transformation offers
	reason string    // why it does not offer the other forms
}

// enough is the number of tasks that a launch must have for the added cost of a task to be
// measurable.
const enough = 8

// studies interprets the kernels of the corpus, or only the named ones. It runs each at the
// smallest size at which it has enough tasks, and never at the largest size.
func studies(only ...string) (map[string]subject, error) {
	all := slices.DeleteFunc(corpus.WithoutEDGE(), func(k corpus.Kernel) bool {
		return len(only) > 0 && !slices.Contains(only, k.Name)
	})
	made, err := parallel.Map(len(all), func(i int) (s subject, err error) {
		for _, size := range []corpus.Size{corpus.Trivial, corpus.Small} {
			if s, err = study(all[i], size, 1); err != nil {
				return s, fmt.Errorf("study %s: %w", all[i].Name, err)
			}
			if s.tasks >= enough {
				break
			}
		}
		if err := s.addCost(); err != nil {
			return s, fmt.Errorf("study %s transformed: %w", all[i].Name, err)
		}
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	byName := make(map[string]subject, len(made))
	for _, s := range made {
		byName[s.name] = s
	}
	return byName, nil
}

// study interprets one kernel's case.
func study(k corpus.Kernel, size corpus.Size, seed uint64) (subject, error) {
	s := subject{name: k.Name, k: k, c: k.Case(size, seed)}
	parsed, err := ptx.Parse(k.PTX(corpus.SM90))
	if err != nil {
		return s, err
	}
	costs := issueCosts()
	bench, err := kernelcost.New(parsed, s.c, simt.Options{Costs: &costs})
	if err != nil {
		return s, err
	}
	var most uint64
	for i := range s.c.Steps {
		step := &s.c.Steps[i]
		counts, _, err := bench.Step(interpreter, step)
		if err != nil {
			return s, fmt.Errorf("launch %d: %w", i, err)
		}
		if issued := counts.Cycles & (1<<access - 1); issued > most {
			most = issued
			s.step = step
			s.weigh(issued, counts.Cycles>>access, counts.GlobalBytes, bench.Module.Kernel(step.Entry).Attributes().SharedBytes)
		}
	}
	return s, nil
}

// weigh derives the model's kernel from the work that the step did.
func (s *subject) weigh(issued, accesses, bytes, shared uint64) {
	grid, block := kernelcost.Dim(s.step.Grid), kernelcost.Dim(s.step.Block)
	s.tasks, s.threads, s.shared = grid.Count(), uint32(block.Count()), s.step.SharedBytes
	warps := (int(s.threads) + 31) / 32
	tasks := float64(s.tasks)
	s.cycles = float64(issued) / tasks
	s.model = blocks.Kernel{
		Tasks: s.tasks, PerSM: s.perSM(shared), Warps: warps,
		Issue: s.cycles / issuePerNano,
		Bytes: float64(bytes) / tasks,
	}
	if bytes > 0 {
		// A warp makes at most as many accesses to global memory as it makes accesses, and at most
		// as many as the sectors that it touches.
		loads := float64(min(accesses, bytes/sector)) / (tasks * float64(warps))
		s.model.Latency = loadNanos * math.Max(1, loads/loadsAhead)
	}
}

// interpreter is the GPU on which kernels are interpreted to count instructions. Its number of SMs
// matters only to kernels whose blocks wait for others.
var interpreter = kernelcost.GPU{SMs: 8, Blocks: 32, Threads: 2048, WarpTime: 100}

// perSM returns how many of the kernel's blocks fit on an SM of the H100. It ignores registers,
// because the assembler allocates them.
func (s *subject) perSM(static uint64) int {
	return max(1, h100SM.Occupancy(machine.Resources{Threads: int(s.threads), Shared: static + uint64(s.shared)}))
}

// lasting returns the kernel with as many tasks as make its original form run for about nanos
// nanoseconds when alone.
func lasting(k blocks.Kernel, nanos float64) blocks.Kernel {
	k.Tasks = uint64(8 * blocks.H100.Slots(k))
	for range 4 {
		work := blocks.Duration(blocks.H100, k, blocks.Form{}) - blocks.H100.Launch
		k.Tasks = uint64(math.Max(1, math.Min(1<<31-1, math.Round(float64(k.Tasks)*(nanos-blocks.H100.Launch)/work))))
	}
	return k
}
