package soft

import "sync/atomic"

// budget is an amount of memory that several share. It is safe for concurrent use.
type budget struct {
	limit uint64
	used  atomic.Uint64
}

// reserve takes n bytes, or nothing if there are not as many.
func (b *budget) reserve(n uint64) bool {
	for {
		used := b.used.Load()
		if n > b.limit-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// release gives n bytes back.
func (b *budget) release(n uint64) { b.used.Add(-n) }

// taken is how much is reserved.
func (b *budget) taken() uint64 { return b.used.Load() }
