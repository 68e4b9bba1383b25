package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"vgpud/mediator/vgpu/abi"
)

// stagingAlign is the alignment and granularity of windows. It suits GPUs' copy engines and keeps
// the free list short.
const stagingAlign = 256

// errStagingFull means that BAR2 has no room now.
var errStagingFull = errors.New("no room in shared memory")

// staging allocates windows or rings in BAR2, by first fit over an ordered list of free spans. The
// list stays short because what is allocated is short-lived or large.
type staging struct {
	mu        sync.Mutex
	free      []span // ordered by offset, never adjacent
	size      uint64 // of the whole area
	roomFreed notifier
}

type span struct{ from, to uint64 }

func newStaging(of abi.Window) *staging {
	s := span{(of.Offset + stagingAlign - 1) &^ (stagingAlign - 1), (of.Offset + of.Size) &^ (stagingAlign - 1)}
	return &staging{free: []span{s}, size: s.to - s.from}
}

// alloc returns a window of at least n bytes, aligned to align, which is a power of two. Without
// room it returns errStagingFull.
func (s *staging) alloc(n, align uint64) (abi.Window, error) {
	if n > s.size {
		return abi.Window{}, fmt.Errorf("%d bytes of shared memory, it has %d: %w", n, s.size, errStagingFull)
	}
	n = max(n+stagingAlign-1, stagingAlign) &^ (stagingAlign - 1)
	align = max(align, stagingAlign)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.free {
		at := (f.from + align - 1) &^ (align - 1)
		if at > f.to || f.to-at < n {
			continue
		}
		before, after := span{f.from, at}, span{at + n, f.to}
		switch {
		case before.from < before.to && after.from < after.to:
			s.free[i] = before
			s.free = slices.Insert(s.free, i+1, after)
		case before.from < before.to:
			s.free[i] = before
		case after.from < after.to:
			s.free[i] = after
		default:
			s.free = slices.Delete(s.free, i, i+1)
		}
		return abi.Window{Offset: at, Size: n}, nil
	}
	return abi.Window{}, errStagingFull
}

// allocWait is alloc, but waits for room.
func (s *staging) allocWait(ctx context.Context, n, align uint64) (abi.Window, error) {
	for {
		freed := s.roomFreed.wait()
		w, err := s.alloc(n, align)
		if err == nil || n > s.size {
			return w, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return w, fmt.Errorf("%w: %w", errStagingFull, context.Cause(ctx))
		}
	}
}

// release frees a window.
func (s *staging) release(w abi.Window) {
	if w.Size == 0 {
		return
	}
	s.mu.Lock()
	f := span{w.Offset, w.Offset + w.Size}
	i, _ := slices.BinarySearchFunc(s.free, f.from, func(a span, from uint64) int { return cmp.Compare(a.from, from) })
	s.free = slices.Insert(s.free, i, f)
	if i+1 < len(s.free) && s.free[i+1].from == f.to {
		s.free[i].to = s.free[i+1].to
		s.free = slices.Delete(s.free, i+1, i+2)
	}
	if i > 0 && s.free[i-1].to == s.free[i].from {
		s.free[i-1].to = s.free[i].to
		s.free = slices.Delete(s.free, i, i+1)
	}
	s.mu.Unlock()
	s.roomFreed.notify()
}
