package driver

import "context"

// Bus gives the driver access to a device. All methods but Close may be called from several
// goroutines at once.
type Bus interface {
	// Read and Write access a register of BAR0 by its offset.
	Read(offset uint32) (uint32, error)
	Write(offset, value uint32) error
	// Doorbell writes 0 to a register. It may return before the device has received it.
	Doorbell(offset uint32) error
	// Shared returns BAR2, mapped. It stays valid until Close.
	Shared() []byte
	// Vectors returns how many interrupt vectors can be waited for. Without any, the driver polls
	// with growing pauses.
	Vectors() int
	// Wait waits until a vector was raised since the last Wait for it, or returns the context's
	// error. One goroutine at a time waits for a vector.
	Wait(ctx context.Context, vector int) error
	// Done is closed when the device is found to be gone. It is nil if the bus can't tell.
	Done() <-chan struct{}
	// Close frees the bus. No other method may be called during or after it.
	Close() error
}

// remoteServed is a [Bus] to a device that is served by processors outside this machine, because
// the driver runs in a VM. Polling is worthwhile there even with a single processor.
type remoteServed interface{ outside() }
