//go:build !cgo

package binding

import (
	"fmt"

	"vgpud/gpu/nvidia/inventory"
)

// Open returns an error: there is no library without cgo.
func Open() (inventory.Library, error) {
	return nil, fmt.Errorf("%s is built without cgo: build it where there is a C compiler: %w", inventory.ProgramName, inventory.ErrUnavailable)
}
