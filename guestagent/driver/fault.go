package driver

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// The memory of a device that is unplugged goes away with it. Older kernels then raise SIGBUS for
// an access to a mapped BAR, until the mapping is replaced (see [mapping.revoke]). Go ends the
// process unless the goroutine asked for a panic instead. So each access to the device's memory
// runs between SetPanicOnFault and recovered, which cost a few nanoseconds.

// touch runs f, which accesses the device's memory. An error means that the device is gone; f may
// have been cut off at any point.
func (d *Device) touch(f func()) error {
	fault := faultOf(f)
	if fault == nil {
		return nil
	}
	if b, ok := d.bus.(interface{ Fault(error) }); ok {
		b.Fault(fault)
	}
	if err := d.gone(); err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrGone, fault)
}

func faultOf(f func()) (fault error) {
	defer recovered(debug.SetPanicOnFault(true), &fault)
	f()
	return nil
}

// recovered ends the section that began with SetPanicOnFault(true), whose result is old, and
// returns a fault as an error. It must be deferred.
func recovered(old bool, fault *error) {
	debug.SetPanicOnFault(old)
	switch r := recover().(type) {
	case nil:
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		*fault = fmt.Errorf("its memory is gone (fault at %#x)", r.Addr())
	default:
		panic(r)
	}
}
