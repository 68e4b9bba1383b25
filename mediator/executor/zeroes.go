package executor

import (
	"slices"
	"time"

	"vgpud/gpu"
)

// zeroes are the fills of fresh memory on GPUs that zero memory after the call that allocates it:
// see [gpu.Lazy]. While the context has no launch on the GPU the guest's command is answered
// without waiting for them: what is put there later comes behind them. A kernel that is there
// already could use the address as soon as the guest has it, so then the answer waits for them;
// nothing else does.
type zeroes struct {
	gpu    gpu.Channel // nil: no memory was allocated yet
	waiter waiter
	flight []zeroing // oldest first
	onGPU  ongoing
	// refused is the newest allocation for which there was no memory.
	refused refusal
}

// zeroing is the fill of one allocation.
type zeroing struct {
	fence    gpu.Fence
	expected time.Duration
	brief    bool
}

// maxZeroes bounds how many are on the GPU. Alloc would wait if it had [gpu.OutcomesKept], some of
// which are for memory of the guest's preemptible launches.
const maxZeroes = gpu.OutcomesKept / 2

// allocate allocates a guest's memory by alloc. The error is errWaits if it has to wait as fills do,
// for freed memory that the GPU still holds, or for a larger grant.
func (x *Executor) allocate(size uint64, alloc func(size uint64) (gpu.Ptr, error)) (gpu.Ptr, error) {
	if _, ok := x.o.Context.(gpu.Lazy); ok {
		if may, _ := x.fillFits(fillTime(size, 1)); !may || len(x.zeroes.flight) >= maxZeroes {
			return 0, errWaits
		}
	}
	p, err := x.allocateNow(size, alloc)
	return p, x.grows(size, err)
}

// allocateNow allocates memory by alloc, and counts its zeroing. It waits only for freed memory that
// the GPU still holds.
func (x *Executor) allocateNow(size uint64, alloc func(size uint64) (gpu.Ptr, error)) (gpu.Ptr, error) {
	a, err := x.attempt(&x.zeroes.refused, size)
	if err != nil {
		return 0, err
	}
	p, err := alloc(size)
	if err = x.attempted(a, err); err != nil {
		return 0, err
	}
	if lazy, ok := x.o.Context.(gpu.Lazy); ok {
		d := fillTime(size, 1)
		_, brief := x.fillFits(d)
		z := &x.zeroes
		ch, f := lazy.Zeroes()
		if z.gpu == nil {
			z.gpu = ch
			z.waiter.start(ch, x.slot)
		}
		z.flight = append(z.flight, zeroing{f, d, brief})
		x.countFills(1, d, brief)
		x.began(&z.onGPU)
	}
	return p, nil
}

// fence returns the newest fence if a kernel on the GPU could use the memory before that is
// reached, or 0.
func (z *zeroes) fence(x *Executor) gpu.Fence {
	if n := len(z.flight); n > 0 && x.launches > x.fills {
		return z.flight[n-1].fence
	}
	return 0
}

// reached reports whether the zeroing with fence f is done; 0 is none.
func (z *zeroes) reached(f gpu.Fence) bool { return f == 0 || f <= z.gpu.Done() }

// retire accounts for zeroing that is done, and reports whether there was any.
func (z *zeroes) retire(x *Executor) (did bool) {
	if len(z.flight) == 0 {
		return false
	}
	done, n := z.gpu.Done(), 0
	gone := x.poison != nil && x.o.Context.Fault() != nil
	for _, f := range z.flight {
		var out gpu.Outcome
		switch {
		case f.fence <= done:
			out = z.gpu.Outcome(f.fence)
		case !gone:
			z.flight = slices.Delete(z.flight, 0, n)
			return n > 0
		}
		x.accountFill(&z.onGPU, f.expected, f.brief, out)
		n++
	}
	z.flight = z.flight[:0]
	return true
}

// ask has the executor woken when the oldest is done.
func (z *zeroes) ask() {
	if len(z.flight) > 0 {
		z.waiter.ask(z.flight[0].fence)
	}
}

// close stops the waiter. The channel is the context's.
func (z *zeroes) close() {
	if z.gpu != nil {
		z.waiter.stop()
		z.gpu = nil
	}
}
