package eventqueue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"vgpud/mediator/vgpu/abi"
)

// Errors of [Attach].
var (
	// ErrNotRegistered means that there is no event kernel of that number.
	ErrNotRegistered = errors.New("no event kernel is registered there")
	// ErrRinging means that the host has not seen all of a former launcher's rings yet: try again.
	ErrRinging = errors.New("earlier rings are not taken yet")
)

// Launcher is the end of an event kernel's queue of whoever launches its events. There is one at a
// time.
type Launcher struct {
	area     []byte
	doorbell *atomic.Uint64 // rings, and the number of the parameters prepared above
	kickAt   *atomic.Uint32
	state    *atomic.Uint32

	base, entryBytes int
	flags            []int // offset of each entry's flag
	rung             uint32
	prepared         uint32 // see abi.EventPreparedWord
	changed          bool   // some entry's parameters, since the last ring
	head, tail       int
	flying           int
}

// Attach returns the launcher of event kernel n in area, all of BAR4. It goes on where a former
// launcher that has died was: events under way are the new one's to complete, and entries that were
// marked busy and never rung for are free again.
func Attach(area []byte, n int) (*Launcher, error) {
	if len(area) != abi.EventAreaBytes || n < 0 || n >= abi.MaxEventKernels {
		return nil, fmt.Errorf("event kernel %d of %d, in an area of %d bytes: %w", n, abi.MaxEventKernels, len(area), ErrNotRegistered)
	}
	page := area[abi.EventPage(n):][:abi.PageSize]
	l := &Launcher{
		area: area, base: abi.EventQueue(n),
		doorbell: abi.AtomicWord64(page, abi.EventDoorbellWord), kickAt: abi.AtomicWord(page, abi.EventKickAtWord),
		state: abi.AtomicWord(page, abi.EventStateWord),
	}
	if s := l.State(); s != abi.EventRegistered {
		return nil, fmt.Errorf("event kernel %d is %v: %w", n, s, ErrNotRegistered)
	}
	rung := l.doorbell.Load()
	l.rung, l.prepared, l.changed = uint32(rung), uint32(rung>>32), true
	if l.rung != abi.LoadWord(page, abi.EventSeenWord) {
		return nil, fmt.Errorf("event kernel %d: %w", n, ErrRinging)
	}
	row := abi.DecodeEventRow((*[abi.EventRowBytes]byte)(page[abi.EventRowOffset:]))
	entries, ok := row.Entries(n)
	if !ok {
		return nil, fmt.Errorf("event kernel %d has the row %+v: %w", n, row, ErrNotRegistered)
	}
	l.entryBytes, l.flags = int(row.EntrySize), make([]int, entries)
	l.head = int(row.Head-row.Base) / l.entryBytes
	for i := range l.flags {
		e := l.entry(i)
		at := binary.LittleEndian.Uint64(e[len(e)-8:])
		if at < uint64(l.base) || at > uint64(l.base+abi.EventQueueBytes-4) || at%4 != 0 {
			return nil, fmt.Errorf("event kernel %d: entry %d points to a flag at %#x: %w", n, i, at, ErrNotRegistered)
		}
		l.flags[i] = int(at)
	}
	l.resume()
	return l, nil
}

// resume finds the tail: the oldest of the entries before the head that are not free.
func (l *Launcher) resume() {
	n := len(l.flags)
	l.tail = l.head
	for l.flying < n {
		before := (l.tail + n - 1) % n
		if l.flag(before) == abi.EventFree {
			break
		}
		l.tail = before
		l.flying++
	}
	for i := range n - l.flying {
		l.setFlag((l.head+i)%n, abi.EventFree)
	}
}

func (l *Launcher) entry(i int) []byte {
	return l.area[l.base+i*l.entryBytes:][:l.entryBytes:l.entryBytes]
}

func (l *Launcher) flag(i int) abi.EventFlag {
	return abi.EventFlag(abi.LoadWord(l.area, l.flags[i]))
}

func (l *Launcher) setFlag(i int, f abi.EventFlag) {
	abi.StoreWord(l.area, l.flags[i], uint32(f))
}

// State returns the event kernel's state.
func (l *Launcher) State() abi.EventState { return abi.EventState(l.state.Load()) }

// Entries returns how many events can be under way at a time.
func (l *Launcher) Entries() int { return len(l.flags) }

// Flying returns how many events were launched and not completed.
func (l *Launcher) Flying() int { return l.flying }

// Params returns an entry's room for parameters, to be prepared while no event of it is under way. It
// is called before each change: the GPU may keep parameters that have not changed.
func (l *Launcher) Params(entry int) []byte {
	l.changed = true
	e := l.entry(entry)
	return e[: len(e)-8 : len(e)-8]
}

// Spare returns what the queue leaves of its room, and its offset in BAR4: for what goes in and out
// with events.
func (l *Launcher) Spare() (room []byte, offset int) {
	offset = (l.base + len(l.flags)*(l.entryBytes+4) + abi.LineSize - 1) &^ (abi.LineSize - 1)
	end := l.base + abi.EventQueueBytes
	return l.area[min(offset, end):end:end], min(offset, end)
}

// Free returns the entry of the next event, and whether it is free.
func (l *Launcher) Free() (entry int, ok bool) {
	return l.head, l.flying < len(l.flags) && l.flag(l.head) == abi.EventFree
}

// Launch launches an event with the next entry's parameters, which [Launcher.Free] must have found
// free. It reports whether nobody polls, so that the doorbell register must be written, or
// [abi.EventKicksWord] be counted up and woken.
func (l *Launcher) Launch() (kick bool) {
	l.setFlag(l.head, abi.EventBusy)
	if l.head++; l.head == len(l.flags) {
		l.head = 0
	}
	l.flying++
	return l.Ring()
}

// Ring rings once more than there are events, as a broken launcher would, or one that rings again
// because it is not sure of its last ring. It reports what Launch reports.
func (l *Launcher) Ring() (kick bool) {
	l.rung++
	if l.changed {
		l.changed = false
		if l.prepared++; l.prepared == 0 {
			l.prepared = 1
		}
	}
	abi.Show64(l.doorbell, uint64(l.prepared)<<32|uint64(l.rung))
	return abi.NeedWake(l.kickAt.Load(), l.rung, l.rung-1)
}

// Done returns the oldest entry under way, and whether its event has ended.
func (l *Launcher) Done() (entry int, ok bool) {
	return l.tail, l.flying > 0 && l.flag(l.tail) == abi.EventDone
}

// Complete gives back the entry that [Launcher.Done] found to be done. Its results must have been
// read.
func (l *Launcher) Complete() {
	l.setFlag(l.tail, abi.EventFree)
	if l.tail++; l.tail == len(l.flags) {
		l.tail = 0
	}
	l.flying--
}
