//go:build cgo && libvirt_dlopen

package binding

import (
	"fmt"
	"sync"

	lv "libvirt.org/go/libvirt"
)

// startLoop starts the library's event loop, once: it has one for all of a
// process's connections, which must be there before the first, and no way to end
// it. It ends with the program, whose only task it serves.
var startLoop = sync.OnceValue(func() error {
	if err := lv.EventRegisterDefaultImpl(); err != nil {
		return explain(err)
	}
	go func() {
		for {
			if err := lv.EventRunDefaultImpl(); err != nil {
				// Without it no event comes and no dead daemon is noticed.
				panic(fmt.Sprintf("libvirt's event loop: %v", err))
			}
		}
	}()
	return nil
})
