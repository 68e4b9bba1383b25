package driver

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// A device that is unplugged takes its memory along: older kernels answer an access
// to a mapped BAR with SIGBUS then, until the mapping is replaced (see
// [mapping.revoke]). For Go that ends the process unless the goroutine has said
// that it will have a panic instead. So whatever touches the device's memory does
// so between SetPanicOnFault and recovered, which cost a few nanoseconds.

// touch runs f, which uses the device's memory. Its error is the device's end, which
// f may have run into at any point.
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

// recovered ends a stretch that began with SetPanicOnFault(true), whose result is
// old, and makes an error of a fault. It must be deferred.
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
