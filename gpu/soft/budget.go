package soft

import "sync/atomic"

// budget is an amount of memory that several users share. It is safe for concurrent use.
type budget struct {
	limit uint64
	used  atomic.Uint64
}

// reserve takes n bytes. It takes nothing and returns false if fewer are left.
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

// release returns n bytes.
func (b *budget) release(n uint64) { b.used.Add(-n) }

// taken returns the reserved amount.
func (b *budget) taken() uint64 { return b.used.Load() }
