package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"vgpud/mediator/vgpu/abi"
)

// stagingAlign is the alignment and granularity of windows: a GPU's copy engine
// likes it, and it keeps the free list short.
const stagingAlign = 256

// errStagingFull says that BAR2 has no room now.
var errStagingFull = errors.New("no room in shared memory")

// staging hands out parts of BAR2: windows, or rings. First fit over a list of
// free spans in order of their offsets, which stays short because what is handed
// out is short-lived or large.
type staging struct {
	mu    sync.Mutex
	free  []span // in order, never adjacent
	size  uint64 // of everything
	freed gate
}

type span struct{ from, to uint64 }

func newStaging(of abi.Window) *staging {
	s := span{(of.Offset + stagingAlign - 1) &^ (stagingAlign - 1), (of.Offset + of.Size) &^ (stagingAlign - 1)}
	return &staging{free: []span{s}, size: s.to - s.from}
}

// take returns a window of at least n bytes aligned by align, a power of two, or
// errStagingFull.
func (s *staging) take(n, align uint64) (abi.Window, error) {
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

// wait is take that waits for room.
func (s *staging) wait(ctx context.Context, n, align uint64) (abi.Window, error) {
	for {
		freed := s.freed.wait()
		w, err := s.take(n, align)
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

// give returns a window to where it came from.
func (s *staging) give(w abi.Window) {
	if w.Size == 0 {
		return
	}
	s.mu.Lock()
	f := span{w.Offset, w.Offset + w.Size}
	i, _ := slices.BinarySearchFunc(s.free, f.from, func(a span, from uint64) int {
		switch {
		case a.from < from:
			return -1
		case a.from > from:
			return 1
		}
		return 0
	})
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
	s.freed.open()
}
