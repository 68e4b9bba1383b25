//go:build cgo && libvirt_dlopen

package binding

import (
	"fmt"
	"sync"

	lv "libvirt.org/go/libvirt"
)

// startLoop starts the library's event loop, once. A process has one loop for all its connections,
// which must exist before the first and can't be ended. It ends with the program.
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
