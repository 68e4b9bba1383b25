package driver

import "context"

// Bus is how the driver reaches a device. All methods but Close may be called from
// several goroutines at once.
type Bus interface {
	// Read and Write access a register of BAR0 by its offset.
	Read(offset uint32) (uint32, error)
	Write(offset, value uint32) error
	// Doorbell writes 0 to a register and may return before the device has it.
	Doorbell(offset uint32) error
	// Shared returns BAR2, mapped; it stays valid until Close.
	Shared() []byte
	// Vectors returns how many interrupt vectors can be waited for. With none the
	// driver polls, with growing pauses.
	Vectors() int
	// Wait blocks until a vector was raised since the last Wait for it, or returns
	// the context's error. One goroutine waits for a vector at a time.
	Wait(ctx context.Context, vector int) error
	// Done is closed when the device is found to be gone; nil if it can't be told.
	Done() <-chan struct{}
	// Close frees the bus. No other method is called during or after it.
	Close() error
}

// outsider is a [Bus] to a device that other processors than the driver's serve:
// it is in a VM. Looking for what the device does is worth while there even with
// one processor.
type outsider interface{ outside() }
