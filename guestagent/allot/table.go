package allot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"vgpud/mediator/vgpu/abi"
)

// Ask is how much of a device a program wants. Zeros stand for the usual.
type Ask struct {
	Contexts    int    `json:"contexts"`
	Channels    int    `json:"channels"`
	SharedBytes uint64 `json:"shared_bytes"`
}

// What is usual: a context with a few channels, and an eighth of BAR2.
const (
	usualContexts = 1
	usualChannels = 8
	usualParts    = 8
)

// leastBytes is the least memory that is of use for windows, and leastRings the least
// that is for the rings of a channel.
const leastBytes = 256 << 10

var leastRings = uint64(2 * abi.RingBytes(abi.MinRingEntries))

// Allotment is a program's part of a device.
type Allotment struct {
	// Contexts and Channels are slots.
	Contexts []int `json:"contexts"`
	Channels []int `json:"channels"`
	// Rings is the part of BAR2 for rings, empty where the device has none for rings
	// alone. Then they lie in Shared, the part for windows.
	Rings  abi.Window `json:"rings,omitzero"`
	Shared abi.Window `json:"shared"`
	// Vectors are the device's interrupt vectors. The first is that of changes of
	// state, which everybody has; the others are this program's alone.
	Vectors []int `json:"vectors"`
}

// Whole is the allotment of a program that has the device for itself. rings and shared
// are what of BAR2 is for rings, if there is a part for these, and for windows.
func Whole(contexts, channels, vectors int, rings, shared abi.Window) Allotment {
	return Allotment{Contexts: count(contexts), Channels: count(channels), Vectors: count(vectors), Rings: rings, Shared: shared}
}

// count is 0 to n-1.
func count(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// ErrFull says that others have what was asked for.
var ErrFull = errors.New("the virtual GPU has no more to give")

// Table is who has what of a device. Its methods are called by one goroutine at a
// time.
type Table struct {
	contexts []bool // taken
	channels []bool
	vectors  []bool
	rings    area
	shared   area
}

// NewTable makes the table of a device nothing of which is taken. rings and shared are
// as of [Whole].
func NewTable(contexts, channels, vectors int, rings, shared abi.Window) *Table {
	return &Table{
		contexts: make([]bool, contexts), channels: make([]bool, channels), vectors: make([]bool, vectors),
		rings: area{whole: rings}, shared: area{whole: shared},
	}
}

// Take allots what is asked for, or nothing: the error is [ErrFull], or says what of
// the question makes no sense.
func (t *Table) Take(a Ask) (Allotment, error) {
	if a.Contexts == 0 {
		a.Contexts = usualContexts
	}
	if a.Channels == 0 {
		a.Channels = min(usualChannels, len(t.channels))
	}
	if a.SharedBytes == 0 {
		a.SharedBytes = max(t.shared.whole.Size/usualParts, leastBytes)
	}
	switch {
	case a.Contexts < 0 || a.Contexts > len(t.contexts):
		return Allotment{}, fmt.Errorf("%d contexts: the device has %d", a.Contexts, len(t.contexts))
	case a.Channels < 0 || a.Channels > len(t.channels):
		return Allotment{}, fmt.Errorf("%d channels: the device has %d", a.Channels, len(t.channels))
	case a.SharedBytes < leastBytes || a.SharedBytes > t.shared.whole.Size:
		return Allotment{}, fmt.Errorf("%d bytes of shared memory: want from %d to %d", a.SharedBytes, leastBytes, t.shared.whole.Size)
	}
	contexts, channels := free(t.contexts, a.Contexts), free(t.channels, a.Channels)
	shared, room := t.shared.room((a.SharedBytes + abi.PageSize - 1) &^ (abi.PageSize - 1))
	rings, ringRoom := t.ringRoom(a.Channels)
	switch {
	case contexts == nil:
		return Allotment{}, fmt.Errorf("%w: %d contexts", ErrFull, a.Contexts)
	case channels == nil:
		return Allotment{}, fmt.Errorf("%w: %d channels", ErrFull, a.Channels)
	case !room:
		return Allotment{}, fmt.Errorf("%w: %d bytes of shared memory", ErrFull, a.SharedBytes)
	case !ringRoom:
		return Allotment{}, fmt.Errorf("%w: rings of %d channels", ErrFull, a.Channels)
	}
	all := Allotment{Contexts: contexts, Channels: channels, Rings: rings, Shared: shared}
	if len(t.vectors) > 0 {
		all.Vectors = []int{0}
		if own := free(t.vectors[1:], 1); own != nil {
			all.Vectors = append(all.Vectors, 1+own[0])
		}
	}
	t.mark(all, true)
	t.rings.take(rings)
	t.shared.take(shared)
	return all, nil
}

// Give returns an allotment that Take gave.
func (t *Table) Give(a Allotment) {
	t.mark(a, false)
	t.rings.give(a.Rings)
	t.shared.give(a.Shared)
}

// ringRoom finds room for the rings of so many channels: as much as goes with them when
// every channel gets the same, or less where others lie in between.
func (t *Table) ringRoom(channels int) (w abi.Window, ok bool) {
	if t.rings.whole.Size == 0 {
		return w, true
	}
	size := t.rings.whole.Size * uint64(channels) / uint64(len(t.channels)) &^ (abi.PageSize - 1)
	for least := min(size, leastRings*uint64(channels)); size >= least && size > 0; size = size / 2 &^ (abi.PageSize - 1) {
		if w, ok = t.rings.room(size); ok {
			return w, true
		}
	}
	return abi.Window{}, false
}

// mark notes slots and vectors as taken or free.
func (t *Table) mark(a Allotment, taken bool) {
	for _, s := range []struct {
		all []bool
		of  []int
	}{{t.contexts, a.Contexts}, {t.channels, a.Channels}} {
		for _, i := range s.of {
			s.all[i] = taken
		}
	}
	for _, v := range a.Vectors {
		if v != 0 {
			t.vectors[v] = taken
		}
	}
}

// free finds n numbers that are not taken, or returns nil.
func free(taken []bool, n int) []int {
	found := make([]int, 0, n)
	for i, t := range taken {
		if len(found) == n {
			break
		}
		if !t {
			found = append(found, i)
		}
	}
	if len(found) < n {
		return nil
	}
	return found
}

// area is a part of BAR2 of which pieces are taken.
type area struct {
	whole abi.Window
	taken []abi.Window // in order
}

// room finds the first place for a piece.
func (a *area) room(size uint64) (w abi.Window, ok bool) {
	from := (a.whole.Offset + abi.PageSize - 1) &^ (abi.PageSize - 1)
	end, _ := a.whole.End()
	for _, other := range a.taken {
		if other.Offset-from >= size {
			return abi.Window{Offset: from, Size: size}, true
		}
		from = other.Offset + other.Size
	}
	return abi.Window{Offset: from, Size: size}, end >= from && end-from >= size
}

// take notes a piece that room found as taken, and give one that was as free. One of
// no bytes is neither.
func (a *area) take(w abi.Window) {
	if w.Size == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(a.taken, w, func(x, y abi.Window) int { return cmp.Compare(x.Offset, y.Offset) })
	a.taken = slices.Insert(a.taken, at, w)
}

func (a *area) give(w abi.Window) {
	a.taken = slices.DeleteFunc(a.taken, func(x abi.Window) bool { return x == w })
}
