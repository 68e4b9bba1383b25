package place

import "math/bits"

// MaxGPUs is the largest number of GPUs in a [Queue].
const MaxGPUs = 64

// warpSize is the number of threads of a warp.
const warpSize = 32

// Spec is what a GPU has.
type Spec struct {
	Memory      uint64 // bytes
	SMs         int
	WarpsPerSM  int
	BlocksPerSM int
	// SharedPerSM is shared memory in bytes, and RegistersPerSM a number of registers. 0 bounds
	// nothing.
	SharedPerSM    uint64
	RegistersPerSM int
}

// Request is what a task needs of a GPU.
type Request struct {
	Memory uint64 // bytes
	// Own is the part of Memory that the GPU's driver needs for the task. It does not count for the
	// guest's limit.
	Own uint64
	// Blocks and Threads are the largest grid of the task in thread blocks, and the threads of a
	// block.
	Blocks  uint64
	Threads uint32
	// Shared is shared memory in bytes of a block, and Registers the registers of a thread.
	Shared    uint64
	Registers uint32
	// Last is 1 more than the index of the GPU on which the guest's last task was, where it is ready for
	// the next; 0 is none.
	Last int
	// Had reports whether the task has had the memory before. Then a limit that was lowered meanwhile
	// keeps it from none, beside no other task of its guest.
	Had bool
}

// counted returns the memory that counts for the guest's limit.
func (r *Request) counted() uint64 { return r.Memory - min(r.Own, r.Memory) }

// warpsOfBlock returns the warps of one thread block.
func (r *Request) warpsOfBlock() uint64 { return (uint64(r.Threads) + warpSize - 1) / warpSize }

// blocksOfSM returns how many blocks of the request an idle SM holds, at least 1: a block that no
// SM could hold is counted as one that fills it.
func (s *Spec) blocksOfSM(r *Request) uint64 {
	n := uint64(max(s.BlocksPerSM, 1))
	if w := r.warpsOfBlock(); w > 0 {
		n = min(n, uint64(s.WarpsPerSM)/w)
	}
	if r.Shared > 0 && s.SharedPerSM > 0 {
		n = min(n, s.SharedPerSM/r.Shared)
	}
	if regs := uint64(r.Registers) * r.warpsOfBlock() * warpSize; regs > 0 && s.RegistersPerSM > 0 {
		n = min(n, uint64(s.RegistersPerSM)/regs)
	}
	return max(n, 1)
}

// resident returns how many blocks of the request are on an otherwise idle GPU at a time.
func (s *Spec) resident(r *Request) uint64 {
	return min(r.Blocks, uint64(max(s.SMs, 1))*s.blocksOfSM(r))
}

// residentWarps returns the warps of those blocks.
func (s *Spec) residentWarps(r *Request) uint64 {
	return s.resident(r) * min(r.warpsOfBlock(), uint64(max(s.WarpsPerSM, 1)))
}

// mostWarps is the largest number of warps that a grid counts for, so that sums fit.
const mostWarps = 1 << 48

// gridWarps returns the warps of the whole grid, at most mostWarps.
func gridWarps(r *Request) uint64 {
	hi, lo := bits.Mul64(r.Blocks, r.warpsOfBlock())
	if hi != 0 || lo > mostWarps {
		return mostWarps
	}
	return lo
}

// GPU is a GPU with what is taken of it.
type GPU struct {
	Spec
	// Pinned is memory in bytes, and PinnedGuarantee a part of the GPU's time, that guests outside
	// of the queue have.
	Pinned          uint64
	PinnedGuarantee float64
	// Busy is the part of the time, 0 to 1, in which the GPU executed something, by accounting.
	Busy float64

	kind      int    // the first GPU of the same Spec
	granted   uint64 // bytes of the queue's tasks
	guarantee float64
	warps     uint64 // resident warps of the queue's tasks
	gridWarps uint64
	tasks     []*task // with memory here, except those that move away
	lost      bool
	sms       occupancy // only for [Blocks]
}

// Granted returns the bytes that the queue's tasks were granted.
func (g *GPU) Granted() uint64 { return g.granted }

// Free returns the bytes that no task was granted.
func (g *GPU) Free() uint64 {
	if used := g.granted + g.Pinned; used < g.Memory && !g.lost {
		return g.Memory - used
	}
	return 0
}

// Warps returns the warps in use: the most that each task has on the GPU at a time.
func (g *GPU) Warps() uint64 { return g.warps }

// Tasks returns how many of the queue's tasks are on the GPU.
func (g *GPU) Tasks() int { return len(g.tasks) }

// Lost reports whether the GPU fell off.
func (g *GPU) Lost() bool { return g.lost }

// Set is a set of GPUs by their indexes.
type Set uint64

// Has reports whether GPU i is in the set.
func (s Set) Has(i int) bool { return s>>i&1 == 1 }

// With returns the set with GPU i.
func (s Set) With(i int) Set { return s | 1<<i }
