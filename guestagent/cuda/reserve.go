package cuda

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// reservation keeps GPU addresses free of anything else in the process, so that no pointer of the
// program's own memory equals one of GPU memory. It reserves address space, not memory.
type reservation struct {
	mu     sync.Mutex
	pieces map[uint64]int // allocations in each piece of reservedPiece bytes
}

// reservedPiece is the size of what is reserved at once.
const reservedPiece = 2 << 20

// reserve reserves n bytes of addresses. It reports false if the process has something there.
func (r *reservation) reserve(base, n uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pieces == nil {
		r.pieces = map[uint64]int{}
	}
	first, end := base/reservedPiece, (base+n+reservedPiece-1)/reservedPiece
	for k := first; k < end; k++ {
		if r.pieces[k] == 0 && !hold(k*reservedPiece) {
			r.drop(first, k)
			return false
		}
		r.pieces[k]++
	}
	return true
}

func (r *reservation) release(base, n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(base/reservedPiece, (base+n+reservedPiece-1)/reservedPiece)
}

// drop takes back one reservation of each piece; r.mu is held.
func (r *reservation) drop(first, end uint64) {
	for k := first; k < end; k++ {
		if r.pieces[k]--; r.pieces[k] == 0 {
			delete(r.pieces, k)
			_ = unix.MunmapPtr(pointerTo(k*reservedPiece), reservedPiece)
		}
	}
}

// hold maps nothing at a piece, so that nothing else is mapped there. Addresses that a process can't
// have need no holding.
func hold(at uint64) bool {
	p, err := unix.MmapPtr(-1, 0, pointerTo(at), reservedPiece, unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED_NOREPLACE)
	if err == nil && addressOf(p) != at { // a kernel that does not know the flag
		_ = unix.MunmapPtr(p, reservedPiece)
		return false
	}
	return err == nil || errors.Is(err, unix.ENOMEM) && at >= 1<<47
}
