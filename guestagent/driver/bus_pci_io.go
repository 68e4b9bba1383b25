package driver

import (
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

// PCIBus is a virtual GPU that is a PCI function of this machine. It implements
// [Bus].
type PCIBus struct {
	address string
	access  Access
	why     error // why it is not vfio

	mu        sync.RWMutex // keeps Close from registers in use: a late doorbell must not touch what is unmapped
	registers mapping
	shared    mapping
	vfio      *vfio.Device
	known     atomic.Bool // it did answer as a virtual GPU
	files     []*os.File  // of the mappings, without vfio
	closers   []io.Closer // of whoever made the bus; closed at its end, possibly twice
	events    []*vfiouser.Eventfd
	control   []*vfiouser.Eventfd // by which the kernel says that the device goes

	gone    chan struct{}
	cause   error // set before gone is closed
	left    error // what went wrong in letting go, for Close
	going   sync.Once
	life    context.Context
	stop    context.CancelFunc
	workers sync.WaitGroup
}

func (p PCI) newBus(address string, a Access) *PCIBus {
	b := &PCIBus{address: address, access: a, gone: make(chan struct{})}
	b.life, b.stop = context.WithCancel(context.Background())
	return b
}

// Address is the function's PCI address.
func (b *PCIBus) Address() string { return b.address }

// Access is how the function is reached, and where that is by polling, why.
func (b *PCIBus) Access() (Access, error) { return b.access, b.why }

// enableMSI makes an eventfd for each vector that can be had.
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

// watchVFIO waits for the kernel's word that the device is to go or has failed. It
// waits in turn, on unplug for as long as the device is open.
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
		b.control = append(b.control, e)
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

// watchUevents listens for the function's removal where there is no vfio to ask us
// to let go. Without it the heartbeat finds out later.
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

// watchBeat asks now and then whether the device is there. What is not reads as
// ones: the host's process may be gone, of which nobody else tells a guest.
func (b *PCIBus) watchBeat(every time.Duration) {
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

// end is the device's end: it is let go of, so that the kernel can remove it.
func (b *PCIBus) end(cause error) {
	b.going.Do(func() {
		b.cause = cause
		// Who then finds the memory changed also finds why.
		close(b.gone)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.left = errors.Join(b.registers.revoke(), b.shared.revoke(), b.release())
	})
}

// release closes the descriptors that hold the device; mu is held, or nobody else
// is there.
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
		err = errors.Join(err, closed(c.Close()))
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

// Cause says why Done is closed.
func (b *PCIBus) Cause() error { return fmt.Errorf("%w: %s: %w", ErrGone, b.address, b.cause) }

// ones is what a register reads as when the host's process is gone. It can be a
// register's value too, but not that of MAGIC.
const ones = 0xffffffff

// Read implements Bus.
func (b *PCIBus) Read(offset uint32) (uint32, error) {
	v, err := b.load(offset)
	if err != nil || v != ones && offset != abi.RegMagic {
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
		b.known.Store(true)
	case magic == ones:
		b.end(errors.New("its registers read as ones: it was unplugged, or the host's process is gone"))
		return 0, b.Cause()
	case b.known.Load(): // what QEMU has where nothing is reads as zeros
		b.end(fmt.Errorf("its registers do not read as a virtual GPU's any more (%#x): it was unplugged", magic))
		return 0, b.Cause()
	}
	return v, nil
}

func (b *PCIBus) load(offset uint32) (v uint32, err error) {
	err = b.access32(offset, func(r []byte) { v = abi.LoadWord(r, int(offset)) })
	return v, err
}

// Write implements Bus.
func (b *PCIBus) Write(offset, value uint32) error {
	return b.access32(offset, func(r []byte) {
		// A plain store: an exchange, as Go's atomic store is on x86, would be a read
		// and a write to a trapped region, and emulators differ about it.
		binary.LittleEndian.PutUint32(r[offset:offset+4], value)
	})
}

// access32 does one access to a register.
func (b *PCIBus) access32(offset uint32, do func(r []byte)) error {
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

// touch accesses the registers; a fault there comes back as such.
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

// Vectors implements Bus.
func (b *PCIBus) Vectors() int { return len(b.events) }

// Wait implements Bus.
func (b *PCIBus) Wait(ctx context.Context, vector int) error {
	_, err := b.events[vector].Wait(ctx)
	return err
}

// Done implements Bus.
func (b *PCIBus) Done() <-chan struct{} { return b.gone }

// Fault tells the bus that an access to Shared faulted: the kernel has taken the
// device's memory away.
func (b *PCIBus) Fault(fault error) { b.end(fault) }

// Close implements Bus.
func (b *PCIBus) Close() error {
	b.stop()
	b.mu.Lock()
	err := b.release() // ends the workers that read
	b.mu.Unlock()
	b.workers.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	err = errors.Join(err, b.left, b.registers.unmap(), b.shared.unmap())
	for _, e := range append(b.events, b.control...) {
		err = errors.Join(err, e.Close())
	}
	b.events, b.control = nil, nil
	return err
}

func (b *PCIBus) outside() {}
