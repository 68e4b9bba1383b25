package allot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"vgpud/mediator/vgpu/abi"
)

// Ask is how much of a device a program asks for. Zeros mean the defaults.
type Ask struct {
	Contexts    int    `json:"contexts"`
	Channels    int    `json:"channels"`
	SharedBytes uint64 `json:"shared_bytes"`
}

// Defaults of Ask: one context with a few channels, and an eighth of BAR2.
const (
	defaultContexts = 1
	defaultChannels = 8
	defaultParts    = 8
)

// minBytes is the least useful memory for windows, and minRingBytes the least for the rings of a
// channel.
const minBytes = 256 << 10

var minRingBytes = uint64(2 * abi.RingBytes(abi.MinRingEntries))

// Limits bound what the programs of one user have together; 0 is no bound.
type Limits struct {
	Programs    int
	Contexts    int
	Channels    int
	SharedBytes uint64
}

// Check returns an error that wraps [ErrUserLimit] if a user whose programs have these parts may not
// have another one.
func (l Limits) Check(have []Allotment, next Allotment) error {
	var contexts, channels int
	var shared uint64
	for _, a := range append(have[:len(have):len(have)], next) {
		contexts += len(a.Contexts)
		channels += len(a.Channels)
		shared += a.Shared.Size
	}
	switch {
	case l.Programs > 0 && len(have)+1 > l.Programs:
		return fmt.Errorf("%w: %d programs", ErrUserLimit, l.Programs)
	case l.Contexts > 0 && contexts > l.Contexts:
		return fmt.Errorf("%w: %d contexts", ErrUserLimit, l.Contexts)
	case l.Channels > 0 && channels > l.Channels:
		return fmt.Errorf("%w: %d channels", ErrUserLimit, l.Channels)
	case l.SharedBytes > 0 && shared > l.SharedBytes:
		return fmt.Errorf("%w: %d bytes of shared memory", ErrUserLimit, l.SharedBytes)
	}
	return nil
}

// ErrUserLimit means that the programs of one user have as much as they may.
var ErrUserLimit = errors.New("the user's programs have all that they may have of the virtual GPU")

// Allotment is a program's part of a device.
type Allotment struct {
	// Contexts and Channels are slots.
	Contexts []int `json:"contexts"`
	Channels []int `json:"channels"`
	// Rings is the area of BAR2 for rings. It is empty if the device has none for rings alone; then
	// they are in Shared, the area for windows.
	Rings  abi.Window `json:"rings,omitzero"`
	Shared abi.Window `json:"shared"`
	// Vectors are the device's interrupt vectors. The first signals changes of state and is shared
	// by all programs; the others belong to this program.
	Vectors []int `json:"vectors"`
}

// Whole is the allotment of a program that has the device for itself. rings and shared are the
// areas of BAR2 for rings, which may be empty, and for windows.
func Whole(contexts, channels, vectors int, rings, shared abi.Window) Allotment {
	return Allotment{Contexts: upTo(contexts), Channels: upTo(channels), Vectors: upTo(vectors), Rings: rings, Shared: shared}
}

// upTo returns the numbers from 0 to n-1.
func upTo(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// ErrFull means that other programs have what was asked for.
var ErrFull = errors.New("the virtual GPU has no more to give")

// Table records which parts of a device are allotted. Its methods are called by one goroutine at a
// time.
type Table struct {
	contexts []bool // true if allotted
	channels []bool
	vectors  []bool
	rings    area
	shared   area
}

// NewTable returns the table of a device without allotments. rings and shared are as in [Whole].
func NewTable(contexts, channels, vectors int, rings, shared abi.Window) *Table {
	return &Table{
		contexts: make([]bool, contexts), channels: make([]bool, channels), vectors: make([]bool, vectors),
		rings: area{whole: rings}, shared: area{whole: shared},
	}
}

// Allot allots what is asked for, or nothing: the error is [ErrFull], or says what is wrong with
// the request.
func (t *Table) Allot(a Ask) (Allotment, error) {
	if a.Contexts == 0 {
		a.Contexts = defaultContexts
	}
	if a.Channels == 0 {
		a.Channels = min(defaultChannels, len(t.channels))
	}
	if a.SharedBytes == 0 {
		a.SharedBytes = max(t.shared.whole.Size/defaultParts, minBytes)
	}
	switch {
	case a.Contexts < 0 || a.Contexts > len(t.contexts):
		return Allotment{}, fmt.Errorf("%d contexts: the device has %d", a.Contexts, len(t.contexts))
	case a.Channels < 0 || a.Channels > len(t.channels):
		return Allotment{}, fmt.Errorf("%d channels: the device has %d", a.Channels, len(t.channels))
	case a.SharedBytes < minBytes || a.SharedBytes > t.shared.whole.Size:
		return Allotment{}, fmt.Errorf("%d bytes of shared memory: want from %d to %d", a.SharedBytes, minBytes, t.shared.whole.Size)
	}
	contexts, channels := firstFree(t.contexts, a.Contexts), firstFree(t.channels, a.Channels)
	shared, room := t.shared.find((a.SharedBytes + abi.PageSize - 1) &^ (abi.PageSize - 1))
	rings, ringRoom := t.findRings(a.Channels)
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
		if own := firstFree(t.vectors[1:], 1); own != nil {
			all.Vectors = append(all.Vectors, 1+own[0])
		}
	}
	t.mark(all, true)
	t.rings.add(rings)
	t.shared.add(shared)
	return all, nil
}

// Release frees an allotment.
func (t *Table) Release(a Allotment) {
	t.mark(a, false)
	t.rings.remove(a.Rings)
	t.shared.remove(a.Shared)
}

// findRings finds room for the rings of that many channels: the share that they have if all
// channels get the same, or less if that is not free in one piece.
func (t *Table) findRings(channels int) (w abi.Window, ok bool) {
	if t.rings.whole.Size == 0 {
		return w, true
	}
	size := t.rings.whole.Size * uint64(channels) / uint64(len(t.channels)) &^ (abi.PageSize - 1)
	for least := min(size, minRingBytes*uint64(channels)); size >= least && size > 0; size = size / 2 &^ (abi.PageSize - 1) {
		if w, ok = t.rings.find(size); ok {
			return w, true
		}
	}
	return abi.Window{}, false
}

// mark marks slots and vectors as allotted or free.
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

// firstFree returns the first n free numbers, or nil.
func firstFree(taken []bool, n int) []int {
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

// area is an area of BAR2 of which pieces are allotted.
type area struct {
	whole abi.Window
	taken []abi.Window // ordered
}

// find finds the first free place for a piece.
func (a *area) find(size uint64) (w abi.Window, ok bool) {
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

// add marks a piece that find returned as allotted, and remove as free again. An empty piece is
// ignored.
func (a *area) add(w abi.Window) {
	if w.Size == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(a.taken, w, func(x, y abi.Window) int { return cmp.Compare(x.Offset, y.Offset) })
	a.taken = slices.Insert(a.taken, at, w)
}

func (a *area) remove(w abi.Window) {
	a.taken = slices.DeleteFunc(a.taken, func(x abi.Window) bool { return x == w })
}
