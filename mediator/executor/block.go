package executor

import (
	"encoding/binary"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// controlBlock is the place of a preemptible launch's control block. It is in the context's window,
// where the executor loads and stores words itself, or at the beginning of the launch's own memory,
// which the executor reaches by copies.
type controlBlock struct {
	at     gpu.Ptr
	window gpu.Window // nil: by copies
	offset uint64     // in the window
}

// store stores one of the block's words, some time before a later load returns. The block is in the
// window.
func (b *controlBlock) store(word int, v uint32) { b.window.Store32(b.offset+uint64(word), v) }

// Each load crosses the bus, so only the words are loaded that say what a kernel of a form left
// undone.
var (
	persistentWords = []uint64{abi.ControlNext, abi.ControlInside}
	earlyExitWords  = []uint64{abi.ControlSkipped}
)

// read reads what a kernel of a form left in the block into an image of it, whose other words are
// zero. The block is in the window, and the kernel has left.
func (b *controlBlock) read(image *[abi.ControlBytes]byte, form abi.PreemptForm) {
	words := persistentWords
	if form.EarlyExit() {
		words = earlyExitWords
	}
	*image = zeros
	for _, at := range words {
		binary.LittleEndian.PutUint32(image[at:], b.window.Load32(b.offset+at))
	}
}

// controlBlocks allocates control blocks in the context's window. Each is zero, and stays zero until
// it is used: stores are posted, and on their way to the GPU a launch that comes behind them may
// overtake them. So a block that was zeroed is used again only after a later load, which pushes the
// stores before it ahead. Those that read what a kernel left do that by the way.
type controlBlocks struct {
	window gpu.Window // nil: none
	base   gpu.Ptr
	bytes  uint64
	next   uint64   // offset of the first that was never allocated
	free   []uint64 // offsets of those that were released, and zeroed before the newest load
	zeroed []uint64 // and after it
}

// newBlocks returns the control blocks of the context's window, if it has one.
func newBlocks(c gpu.Context) (b controlBlocks) {
	if w, ok := c.(gpu.Windowed); ok {
		b.base, b.bytes, b.window = w.Window()
	}
	return b
}

// allocate returns a block, unless none is left.
func (b *controlBlocks) allocate() (c controlBlock, ok bool) {
	if b.window == nil {
		return c, false
	}
	full := b.bytes-b.next < abi.ControlBytes
	if full && len(b.free) == 0 && len(b.zeroed) > 0 {
		b.window.Load32(b.zeroed[0])
		b.loaded()
	}
	offset := b.next
	switch n := len(b.free); {
	case n > 0:
		offset, b.free = b.free[n-1], b.free[:n-1]
	case full:
		return c, false
	default:
		b.next += abi.ControlBytes
	}
	return controlBlock{at: b.base + gpu.Ptr(offset), window: b.window, offset: offset}, true
}

// release zeroes a block, and takes it back.
func (b *controlBlocks) release(c controlBlock) {
	for _, w := range abi.ControlWords {
		c.store(w.Offset, 0)
	}
	b.zeroed = append(b.zeroed, c.offset)
}

// loaded says that a word of the window was loaded after all stores so far.
func (b *controlBlocks) loaded() {
	b.free = append(b.free, b.zeroed...)
	b.zeroed = b.zeroed[:0]
}

// another returns a block in exchange for one that a launch may have used.
func (b *controlBlocks) another(c controlBlock) controlBlock {
	b.release(c)
	c, ok := b.allocate()
	if !ok {
		panic("executor: no control block is left, after one was released")
	}
	return c
}
