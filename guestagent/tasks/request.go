package tasks

import (
	"vgpud/guestagent/driver"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
)

// Request returns what a task asks for: the most that an earlier run of the same program had at a
// time, if that is known, but at least what is recorded now. first is the launch that begins the task,
// without memory. The answer is nil, all that the guest may have, if no run is known, or if one had
// close to all: a record can't show what the program allocates later.
func Request(r *Record, known cache.Peak, first driver.Task) *driver.Task {
	if known.MemoryBytes == 0 || known.MemoryBytes >= r.o.Limit {
		return nil
	}
	q := driver.Task{MemoryBytes: max(known.MemoryBytes, r.Bytes()), Blocks: first.Blocks, Threads: first.Threads}
	if q.MemoryBytes >= r.o.Limit {
		return nil
	}
	// Both are known or neither is.
	if known.Blocks > 0 && known.Threads > 0 {
		// Known values come from any program of the guest.
		q.Blocks, q.Threads = max(q.Blocks, known.Blocks), max(q.Threads, min(known.Threads, abi.MaxTaskThreads))
	}
	return &q
}
