package ring

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/internal/futex"
)

// Consumer is the GPU's side. One goroutine uses it.
type Consumer struct {
	mem       []byte
	l         *layout
	fetched   uint64
	completed uint64
	kick      bool // wantKick as last written
}

// NewConsumer maps f, which remains the caller's. Close unmaps it.
func NewConsumer(f *os.File) (*Consumer, error) {
	mem, l, err := mapFile(f)
	if err != nil {
		return nil, err
	}
	return &Consumer{mem: mem, l: l}, nil
}

// Waiting returns how many launches are put and not fetched. It returns an error if the producer's
// count is impossible: more than the ring holds, or less than before.
func (c *Consumer) Waiting() (int, error) {
	put := c.l.put.Load()
	if put-c.completed > Entries || put < c.fetched {
		return 0, fmt.Errorf("channel's ring: %d put, %d fetched, %d completed: not possible", put, c.fetched, c.completed)
	}
	return int(put - c.fetched), nil
}

// Fetch copies out the next launch, with its parameters in e.Params' memory. Waiting must have
// reported one.
func (c *Consumer) Fetch(e *Entry) (seq uint64) {
	slot := &c.l.entries[c.fetched%Entries]
	e.Kernel = slot.kernel
	e.Grid = gpu.Dim3{X: slot.grid[0], Y: slot.grid[1], Z: slot.grid[2]}
	e.Block = gpu.Dim3{X: slot.block[0], Y: slot.block[1], Z: slot.block[2]}
	e.Shared = slot.shared
	e.Params = append(e.Params[:0], slot.params[:min(slot.paramBytes, ParamBytes)]...)
	c.fetched++
	return c.fetched
}

// Complete reports the end of the oldest fetched launch, and wakes waiters.
func (c *Consumer) Complete(o Outcome) {
	c.completed++
	r := &c.l.outcomes[c.completed%Entries]
	r.seq.Store(0) // a reader of the previous launch in this slot finds nothing
	r.start.Store(o.Start)
	r.end.Store(o.End)
	r.code.Store(uint32(o.Code))
	r.seq.Store(c.completed)
	c.l.completed.Swap(c.completed) // see layout
	if c.l.waiting.Load() != 0 {
		futex.Wake(futexWord(c.l))
	}
}

// WantKick tells the producer whether to kick after it puts a launch. After setting it, check
// Waiting again before sleeping.
func (c *Consumer) WantKick(want bool) {
	if c.kick == want {
		return
	}
	c.kick = want
	var w uint32
	if want {
		w = 1
	}
	c.l.wantKick.Swap(w) // see layout
}

// Kill reports that nothing more will complete, and wakes waiters.
func (c *Consumer) Kill() {
	c.l.dead.Store(1)
	futex.Wake(futexWord(c.l))
}

// Close unmaps the ring. No method may be called afterwards.
func (c *Consumer) Close() error {
	if err := unix.Munmap(c.mem); err != nil {
		return fmt.Errorf("unmap a channel's ring: %w", err)
	}
	return nil
}
