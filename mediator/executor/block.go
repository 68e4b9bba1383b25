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

// store stores one of the block's words. The block is in the window.
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

// zero zeroes all words that a launch uses. The block is in the window.
func (b *controlBlock) zero() {
	for _, w := range abi.ControlWords {
		b.store(w.Offset, 0)
	}
}

// controlBlocks allocates control blocks in the context's window. Each is zero.
type controlBlocks struct {
	window gpu.Window // nil: none
	base   gpu.Ptr
	bytes  uint64
	next   uint64   // offset of the first that was never allocated
	free   []uint64 // offsets of those that were released
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
	offset := b.next
	switch n := len(b.free); {
	case b.window == nil:
		return c, false
	case n > 0:
		offset, b.free = b.free[n-1], b.free[:n-1]
	case b.bytes-b.next < abi.ControlBytes:
		return c, false
	default:
		b.next += abi.ControlBytes
	}
	return controlBlock{at: b.base + gpu.Ptr(offset), window: b.window, offset: offset}, true
}

// release takes back a block, which is zero.
func (b *controlBlocks) release(c controlBlock) { b.free = append(b.free, c.offset) }
