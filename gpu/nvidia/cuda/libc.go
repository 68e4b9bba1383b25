package cuda

import (
	"fmt"
	"sync"

	"github.com/ebitengine/purego"
)

// fflush is C's function, from the C library that libcuda prints with.
var fflush = sync.OnceValues(func() (uintptr, error) {
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW)
	if err != nil {
		return 0, err
	}
	return purego.Dlsym(libc, "fflush")
})

// FlushOutput flushes C's standard streams, to which kernels' output goes.
func FlushOutput() error {
	f, err := fflush()
	if err != nil {
		return fmt.Errorf("flush C's output: %w", err)
	}
	purego.SyscallN(f, 0)
	return nil
}
