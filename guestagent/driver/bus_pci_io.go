package driver

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/guestagent/sysfs"
	"vgpud/guestagent/vfio"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// PCIBus is a virtual GPU that is a PCI function of this machine. It implements [Bus].
type PCIBus struct {
	address        string
	access         Access
	fallbackReason error // why vfio is not used

	mu           sync.RWMutex // keeps Close from unmapping registers during an access
	registers    mapping
	shared       mapping
	area         mapping  // BAR4, if there is one
	eventFile    *os.File // it alone, where it is mapped from a file of its own
	vfio         *vfio.Device
	identified   atomic.Bool // the magic register was read correctly
	files        []*os.File  // of the mappings, without vfio
	closers      []io.Closer // closed at the end, possibly twice
	events       []*vfiouser.Eventfd
	kernelEvents []*vfiouser.Eventfd // by which the kernel announces that the device goes away

	gone       chan struct{}
	cause      error // set before gone is closed
	releaseErr error // for Close
	endOnce    sync.Once
	life       context.Context
	stop       context.CancelFunc
	workers    sync.WaitGroup
}

func (p PCI) newBus(address string, a Access) *PCIBus {
	b := &PCIBus{address: address, access: a, gone: make(chan struct{})}
	b.life, b.stop = context.WithCancel(context.Background())
	return b
}

// Address returns the function's PCI address.
func (b *PCIBus) Address() string { return b.address }

// Access returns how the function is reached and, if that is by polling, why.
func (b *PCIBus) Access() (Access, error) { return b.access, b.fallbackReason }

// enableMSI makes an eventfd for each available vector.
func (b *PCIBus) enableMSI(d *vfio.Device) error {
	n, err := d.IRQs(vfio.IRQMSI)
	if err != nil {
		return err
	}
	var fds []int
	for range min(n, maxVectors) {
		e, err := vfiouser.NewEventfd()
		if err != nil {
			return err
		}
		b.events = append(b.events, e)
		fds = append(fds, e.FD())
	}
	got, err := d.SetIRQs(vfio.IRQMSI, fds)
	if err != nil {
		return err
	}
	for _, e := range b.events[got:] {
		err = errors.Join(err, e.Close())
	}
	b.events = b.events[:got]
	return err
}

// watchVFIO starts goroutines that wait for the kernel's announcement that the device has failed or
// is to go away. The kernel waits in turn: unplugging blocks while the device is open.
func (b *PCIBus) watchVFIO(d *vfio.Device) error {
	for _, irq := range []struct {
		index uint32
		why   error
	}{
		{vfio.IRQReq, errors.New("it is being unplugged, or taken by another driver")},
		{vfio.IRQErr, errors.New("PCI Express reported an uncorrectable error")},
	} {
		n, err := d.IRQs(irq.index)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		e, err := vfiouser.NewEventfd()
		if err != nil {
			return err
		}
		b.kernelEvents = append(b.kernelEvents, e)
		if _, err := d.SetIRQs(irq.index, []int{e.FD()}); err != nil {
			return err
		}
		b.workers.Go(func() {
			if _, err := e.Wait(b.life); err == nil {
				b.end(irq.why)
			}
		})
	}
	return nil
}

// watchUevents starts a goroutine that waits for the function's removal, for devices without vfio.
// Without uevents the heartbeat notices later.
func (b *PCIBus) watchUevents() {
	events, err := sysfs.ListenUevents()
	if err != nil {
		return
	}
	b.workers.Go(func() {
		defer func() { _ = events.Close() }()
		for {
			e, err := events.Next(b.life)
			switch {
			case errors.Is(err, sysfs.ErrMissed):
			case err != nil:
				return
			case e.Address == b.address && e.Action == "remove":
				b.end(errUnplugged)
				return
			}
		}
	})
}

var errUnplugged = errors.New("it was unplugged")

// startHeartbeat starts a goroutine that reads a register now and then. A device that is gone reads
// as ones; nothing else tells a guest that the host's process has ended.
func (b *PCIBus) startHeartbeat(every time.Duration) {
	if every == 0 {
		every = time.Second
	}
	b.workers.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if _, err := b.Read(abi.RegMagic); err != nil {
					return
				}
			case <-b.gone:
				return
			case <-b.life.Done():
				return
			}
		}
	})
}

// end marks the device as gone and releases it, so that the kernel can remove it.
func (b *PCIBus) end(cause error) {
	b.endOnce.Do(func() {
		b.cause = cause
		// A goroutine that then finds the memory changed also finds the cause.
		close(b.gone)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.releaseErr = errors.Join(b.registers.revoke(), b.shared.revoke(), b.area.revoke(), b.release())
	})
}

// release closes the descriptors that hold the device. mu is held, or no other goroutine runs.
func (b *PCIBus) release() error {
	var err error
	if b.vfio != nil {
		err = b.vfio.Close()
		b.vfio = nil
	}
	for _, f := range b.files {
		err = errors.Join(err, f.Close())
	}
	b.files = nil
	for _, c := range b.closers {
		err = errors.Join(err, ignoreClosed(c.Close()))
	}
	b.closers = nil
	return err
}

// ended returns why the bus can't be used any more, or nil.
func (b *PCIBus) ended() error {
	select {
	case <-b.gone:
		return b.Cause()
	default:
		return nil
	}
}

// Cause returns why Done is closed.
func (b *PCIBus) Cause() error { return fmt.Errorf("%w: %s: %w", ErrGone, b.address, b.cause) }

// allOnes is what a register reads as if the host's process is gone. Other registers than the magic
// one can also have this value.
const allOnes = 0xffffffff

// Read implements Bus.
func (b *PCIBus) Read(offset uint32) (uint32, error) {
	v, err := b.load(offset)
	if err != nil || v != allOnes && offset != abi.RegMagic {
		return v, err
	}
	magic := v
	if offset != abi.RegMagic {
		if magic, err = b.load(abi.RegMagic); err != nil {
			return 0, err
		}
	}
	switch {
	case magic == abi.Magic:
		b.identified.Store(true)
	case magic == allOnes:
		b.end(errors.New("its registers read as ones: it was unplugged, or the host's process is gone"))
		return 0, b.Cause()
	case b.identified.Load(): // QEMU reads addresses without a device as zeros
		b.end(fmt.Errorf("its registers do not read as a virtual GPU's any more (%#x): it was unplugged", magic))
		return 0, b.Cause()
	}
	return v, nil
}

func (b *PCIBus) load(offset uint32) (v uint32, err error) {
	err = b.accessRegister(offset, func(r []byte) { v = abi.LoadWord(r, int(offset)) })
	return v, err
}

// Write implements Bus.
func (b *PCIBus) Write(offset, value uint32) error {
	return b.accessRegister(offset, func(r []byte) {
		// A plain store: Go's atomic store is an exchange on x86, which reads and writes the
		// trapped region, and emulators differ in how they handle it.
		binary.LittleEndian.PutUint32(r[offset:offset+4], value)
	})
}

// accessRegister does one access to a register.
func (b *PCIBus) accessRegister(offset uint32, do func(r []byte)) error {
	if err := b.ended(); err != nil {
		return err
	}
	fault, err := b.touch(offset, do)
	if fault != nil {
		b.end(fault)
		return b.Cause()
	}
	return err
}

// touch accesses the registers and returns a memory fault as fault.
func (b *PCIBus) touch(offset uint32, do func(r []byte)) (fault, err error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if uint64(offset)+4 > uint64(len(b.registers.b)) {
		return nil, ErrClosed
	}
	defer recovered(debug.SetPanicOnFault(true), &fault)
	do(b.registers.b)
	return nil, nil
}

// Doorbell implements Bus.
func (b *PCIBus) Doorbell(offset uint32) error { return b.Write(offset, 0) }

// Shared implements Bus.
func (b *PCIBus) Shared() []byte { return b.shared.b }

// Events returns BAR4, mapped, or nil if the device has none.
func (b *PCIBus) Events() []byte { return b.area.b }

// Vectors implements Bus.
func (b *PCIBus) Vectors() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.events)
}

// Wait implements Bus.
func (b *PCIBus) Wait(ctx context.Context, vector int) error {
	b.mu.RLock()
	events := b.events
	b.mu.RUnlock()
	if vector >= len(events) {
		return cmp.Or(b.ended(), os.ErrClosed) // the bus is closed, and its device is not
	}
	_, err := events[vector].Wait(ctx)
	return err
}

// Done implements Bus.
func (b *PCIBus) Done() <-chan struct{} { return b.gone }

// Fault ends the bus because an access to Shared faulted: the kernel has removed the device's
// memory.
func (b *PCIBus) Fault(fault error) { b.end(fault) }

// Close implements Bus.
func (b *PCIBus) Close() error {
	b.stop()
	b.mu.Lock()
	err := b.release() // ends the goroutines that read
	b.mu.Unlock()
	b.workers.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	err = errors.Join(err, b.releaseErr, b.registers.unmap(), b.shared.unmap(), b.area.unmap())
	for _, e := range append(b.events, b.kernelEvents...) {
		err = errors.Join(err, e.Close())
	}
	b.events, b.kernelEvents = nil, nil
	return err
}

func (b *PCIBus) outside() {}
