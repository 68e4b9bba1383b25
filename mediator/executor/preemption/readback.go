package preemption

import (
	"encoding/binary"
	"fmt"

	"vgpud/mediator/vgpu/abi"
)

// Control is what a kernel left in its control block.
type Control struct {
	Next, Skipped, Inside uint32
}

// DecodeControl decodes a control block.
func DecodeControl(b *[abi.ControlBytes]byte) Control {
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	return Control{Next: word(abi.ControlNext), Skipped: word(abi.ControlSkipped), Inside: word(abi.ControlInside)}
}

// Readback is what a launch left, after all its blocks have left the GPU.
type Readback struct {
	Control Control
	// Skipped are the first SkippedRead bytes of the record of skipped units.
	Skipped []byte
	// Evicted reports whether the owner wrote another value than 0 to the evict word since it
	// carried the plan out.
	Evicted bool
}

// SkippedRead returns how many bytes of the record of skipped units Next needs, given the control
// block; 0 if nothing was skipped, or if Next will refuse the control block.
func (l *Launch) SkippedRead(c Control) uint64 {
	switch {
	case !l.c.Form.EarlyExit() || c.Skipped > l.piece.count:
		return 0
	case l.piece.capacity > 0:
		return 4 * uint64(c.Skipped)
	case c.Skipped > 0:
		return l.bitmapBytes()
	}
	return 0
}

// Next takes the readback of the last plan and returns the next plan, or done. Its errors wrap
// [ErrReadback] or [ErrUnasked], or [ErrInvalid] if no launch is under way. After an error it
// returns the same error again.
func (l *Launch) Next(r Readback) (p Plan, done bool, err error) {
	if l.err != nil {
		return Plan{}, false, l.err
	}
	if !l.under {
		return Plan{}, false, fmt.Errorf("a readback of a launch that is not under way: %w", ErrInvalid)
	}
	l.under = false
	before := l.finished
	var whole bool // all that the launch was to run has run
	if l.c.Form.EarlyExit() {
		whole, err = l.readUnits(r)
	} else {
		whole, err = l.readTasks(r)
	}
	if err == nil {
		err = l.progress(before, whole, r.Evicted)
	}
	if err != nil {
		l.err = err
		return Plan{}, false, err
	}
	if l.finished == l.tasks {
		return Plan{}, true, nil
	}
	return l.again(), false, nil
}

// Whole reports whether the launch is done without a readback, in the place of [Launch.Next]. The
// launch was the first, of the whole grid, and the caller did not write the evict word, without
// which no block of a transformed kernel leaves.
//
// If a block left all the same its guest has made the kernel so, and only the guest loses.
func (l *Launch) Whole() bool {
	if !l.under || l.err != nil || l.launches != 1 {
		return false
	}
	l.under, l.finished = false, l.tasks
	return true
}

// progress counts launches that got nothing done or left unasked.
func (l *Launch) progress(before uint32, whole, evicted bool) error {
	if l.finished > before {
		l.stalls = 0
	} else {
		l.stalls++
	}
	if !whole && !evicted {
		if l.unasked++; l.unasked > MaxUnasked {
			return fmt.Errorf("blocks left %d times without having been asked: %w", l.unasked, ErrUnasked)
		}
	}
	return nil
}

// readTasks reads a persistent kernel's counters.
func (l *Launch) readTasks(r Readback) (whole bool, err error) {
	c := r.Control
	switch most := uint64(l.tasks) + (l.blocks+1)*uint64(l.c.Group); {
	case c.Inside != 0:
		return false, fmt.Errorf("%d blocks inside after the end: %w", c.Inside, ErrReadback)
	case uint64(c.Next) > most:
		return false, fmt.Errorf("next task %d of %d: %w", c.Next, l.tasks, ErrReadback)
	case c.Next < l.finished:
		return false, fmt.Errorf("%d tasks fetched, %d before: %w", c.Next, l.finished, ErrReadback)
	}
	l.finished = min(c.Next, l.tasks) // a block that leaves has finished all that it fetched
	return l.finished == l.tasks, nil
}

// readUnits reads an early exit's record of skipped units.
func (l *Launch) readUnits(r Readback) (whole bool, err error) {
	n := r.Control.Skipped
	if n > l.piece.count {
		return false, fmt.Errorf("%d units skipped of %d: %w", n, l.piece.count, ErrReadback)
	}
	if want := l.SkippedRead(r.Control); uint64(len(r.Skipped)) < want {
		return false, fmt.Errorf("%d bytes of the record of skipped units, want %d: %w", len(r.Skipped), want, ErrInvalid)
	}
	if l.left == nil {
		if n == 0 {
			l.finished = l.tasks
			return true, nil
		}
		l.left = allUnits(l.units)
	}
	switch {
	case n == 0:
		l.left.clear(l.piece.lo, l.piece.hi)
	case l.piece.capacity > 0:
		err = l.left.keepList(r.Skipped[:4*n], l.piece.lo, l.piece.hi)
	default:
		err = l.left.keepBitmap(r.Skipped[:l.bitmapBytes()], l.piece.lo, l.piece.hi, n)
	}
	if err != nil {
		return false, err
	}
	l.finished = l.tasks - l.left.tasks(l.tasks, l.c.Group)
	return n == 0, nil
}
