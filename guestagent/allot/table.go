package allot

import (
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

// leastBytes is the least memory that is of use: rings and a window.
const leastBytes = 256 << 10

// Allotment is a program's part of a device.
type Allotment struct {
	// Contexts and Channels are slots.
	Contexts []int `json:"contexts"`
	Channels []int `json:"channels"`
	// Shared is the part of BAR2 for rings and windows.
	Shared abi.Window `json:"shared"`
	// Vectors are the device's interrupt vectors. The first is that of changes of
	// state, which everybody has; the others are this program's alone.
	Vectors []int `json:"vectors"`
}

// Whole is the allotment of a program that has the device for itself.
func Whole(contexts, channels, vectors int, shared abi.Window) Allotment {
	return Allotment{Contexts: count(contexts), Channels: count(channels), Vectors: count(vectors), Shared: shared}
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
	shared   abi.Window
	taken    []abi.Window // in order
}

// NewTable makes the table of a device nothing of which is taken. shared is what of
// BAR2 is the guest's to lay out.
func NewTable(contexts, channels, vectors int, shared abi.Window) *Table {
	return &Table{
		contexts: make([]bool, contexts), channels: make([]bool, channels), vectors: make([]bool, vectors),
		shared: shared,
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
		a.SharedBytes = max(t.shared.Size/usualParts, leastBytes)
	}
	switch {
	case a.Contexts < 0 || a.Contexts > len(t.contexts):
		return Allotment{}, fmt.Errorf("%d contexts: the device has %d", a.Contexts, len(t.contexts))
	case a.Channels < 0 || a.Channels > len(t.channels):
		return Allotment{}, fmt.Errorf("%d channels: the device has %d", a.Channels, len(t.channels))
	case a.SharedBytes < leastBytes || a.SharedBytes > t.shared.Size:
		return Allotment{}, fmt.Errorf("%d bytes of shared memory: want from %d to %d", a.SharedBytes, leastBytes, t.shared.Size)
	}
	contexts, channels := free(t.contexts, a.Contexts), free(t.channels, a.Channels)
	w, at, room := t.room((a.SharedBytes + abi.PageSize - 1) &^ (abi.PageSize - 1))
	switch {
	case contexts == nil:
		return Allotment{}, fmt.Errorf("%w: %d contexts", ErrFull, a.Contexts)
	case channels == nil:
		return Allotment{}, fmt.Errorf("%w: %d channels", ErrFull, a.Channels)
	case !room:
		return Allotment{}, fmt.Errorf("%w: %d bytes of shared memory", ErrFull, a.SharedBytes)
	}
	all := Allotment{Contexts: contexts, Channels: channels, Shared: w}
	if len(t.vectors) > 0 {
		all.Vectors = []int{0}
		if own := free(t.vectors[1:], 1); own != nil {
			all.Vectors = append(all.Vectors, 1+own[0])
		}
	}
	t.mark(all, true)
	t.taken = slices.Insert(t.taken, at, w)
	return all, nil
}

// Give returns an allotment that Take gave.
func (t *Table) Give(a Allotment) {
	t.mark(a, false)
	t.taken = slices.DeleteFunc(t.taken, func(w abi.Window) bool { return w == a.Shared })
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

// room finds the first place for a window, and where in taken it belongs.
func (t *Table) room(size uint64) (w abi.Window, at int, ok bool) {
	from := (t.shared.Offset + abi.PageSize - 1) &^ (abi.PageSize - 1)
	end, _ := t.shared.End()
	for i, other := range t.taken {
		if other.Offset-from >= size {
			return abi.Window{Offset: from, Size: size}, i, true
		}
		from = other.Offset + other.Size
	}
	return abi.Window{Offset: from, Size: size}, len(t.taken), end >= from && end-from >= size
}
