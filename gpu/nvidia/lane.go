package nvidia

import (
	"errors"
	"slices"
	"sync/atomic"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

const (
	// slotCount is the number of commands that a channel remembers: those whose outcomes are kept,
	// and one before each.
	slotCount = 2 * gpu.OutcomesKept
	// cellBytes is the longest copy to or from unregistered memory that goes through the channel's
	// own page-locked memory, so that it waits only for its own stream. Control blocks and their
	// words are shorter.
	cellBytes = 1024
	// bounceBytes is the same limit for copies out of the GPU. Only one copy uses this buffer at a
	// time.
	bounceBytes = 1 << 20
	// wordBytes keeps the word that the GPU writes on a cache line of its own.
	wordBytes = 128
)

// lane holds the driver's resources of a channel. It outlives the channel while commands are under
// way.
type lane struct {
	stream cuda.Stream
	mem    []byte // the word, and a cell for each slot
	word   *atomic.Uint64
	last   atomic.Uint64  // the word's value after the newest command
	tail   atomic.Uintptr // the event behind the newest command
	// fetched is the word's value when the output of kernels was last fetched.
	fetched uint64
	args    *cuda.Args
	starts  [slotCount]cuda.Event // created on first use
	ends    [slotCount]cuda.Event
	wakers  [slotCount]cuda.Event // these raise an interrupt
	// bounce is created on first use. It is free once the word has reached bounced and that copy
	// has been finished.
	bounce  []byte
	bounced uint64
}

func newLane(d Driver) (*lane, error) {
	l := &lane{args: cuda.NewArgs()}
	var err error
	// The stream comes first: the memory stays until the process ends, and the caller may try again
	// after an error.
	if l.stream, err = d.StreamCreate(cuda.StreamNonBlocking, 0); err != nil {
		return nil, err
	}
	if l.mem, err = pinned(d, wordBytes+slotCount*cellBytes); err != nil {
		return nil, errors.Join(err, d.StreamDestroy(l.stream))
	}
	l.word = word(l.mem, 0)
	return l, nil
}

// idleLane returns a lane on which nothing is under way, or nil.
func (c *Context) idleLane() *lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range c.idle {
		if l.word.Load() == l.last.Load() {
			c.idle = slices.Delete(c.idle, i, i+1)
			return l
		}
	}
	return nil
}

// lanes returns all lanes of the context. The caller holds mu.
func (c *Context) lanes() []*lane {
	all := slices.Clone(c.idle)
	for _, ch := range c.channels {
		all = append(all, ch.lane)
	}
	return all
}

// cell returns n bytes of a slot's page-locked memory.
func (l *lane) cell(i uint64, n int) []byte {
	at := wordBytes + int(i)*cellBytes
	return l.mem[at : at+n : at+n]
}

// bounceFor returns page-locked memory for a copy of n bytes out of the GPU to memory that is not
// page-locked, or nil if none is free. The context is current.
func (ch *Channel) bounceFor(i uint64, n int) []byte {
	switch {
	case n <= cellBytes:
		return ch.cell(i, n)
	case n > bounceBytes || ch.bounced > ch.base+ch.seen.Load():
		return nil
	}
	if ch.bounce == nil {
		mem, err := pinned(ch.c.drv, bounceBytes)
		if err != nil {
			return nil // the copy does without
		}
		ch.bounce = mem
	}
	ch.bounced = ch.base + ch.sent.Load() + 1
	return ch.bounce[:n]
}
