package cuda

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// names are strings that programs get from functions and may keep. They are in memory that is not
// Go's, and stay there.
type names struct {
	mu   sync.Mutex
	all  map[string]Pointer
	room []byte
}

// namesRoom is how much memory is taken for names at once.
const namesRoom = 64 << 10

// of returns a string with the zero that ends it, or nil without memory.
func (n *names) of(s string) Pointer {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.all[s]; p != nil {
		return p
	}
	if len(n.room) < len(s)+1 {
		b, err := unix.Mmap(-1, 0, max(namesRoom, len(s)+1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil
		}
		n.room = b
	}
	p := Pointer(unsafe.SliceData(n.room))
	copy(n.room, s)
	n.room = n.room[len(s)+1:]
	if n.all == nil {
		n.all = map[string]Pointer{}
	}
	n.all[s] = p
	return p
}
