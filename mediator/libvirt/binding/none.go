//go:build !cgo || !libvirt_dlopen

package binding

import (
	"fmt"

	"vgpud/mediator/libvirt"
)

// Open says that this build has no libvirt.
func Open(string) (libvirt.Hypervisor, error) {
	return nil, fmt.Errorf("this %s was built without libvirt; build it with a C compiler, CGO_ENABLED=1 and -tags libvirt_dlopen (`make build` does): %w",
		libvirt.ProgramName, libvirt.ErrUnavailable)
}
