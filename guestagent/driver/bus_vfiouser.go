package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// vfioBus is a device behind a vfio-user socket. The guest is a process of the host.
type vfioBus struct {
	client  *vfiouser.Client
	mapping *vfiouser.Mapping
	shared  mapping
	area    mapping // BAR4, if there is one
	events  []*vfiouser.Eventfd
	serving sync.WaitGroup
}

// maxVectors is the limit of MSI.
const maxVectors = 32

// DialVFIOUser connects to the device that a vfio-user server offers at path, maps its memory and
// enables its interrupts.
func DialVFIOUser(ctx context.Context, path string) (Bus, error) {
	client, err := vfiouser.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	bus, err := NewVFIOUserBus(client)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return bus, nil
}

// NewVFIOUserBus is [DialVFIOUser] with a connected client, which belongs to the bus from then on,
// also after an error.
func NewVFIOUserBus(client *vfiouser.Client) (Bus, error) {
	b := &vfioBus{client: client}
	// Serve notices at once when the server is gone.
	b.serving.Go(func() { _ = client.Serve(context.Background()) })
	if err := b.setUp(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *vfioBus) setUp() error {
	for offset, want := range map[uint64]uint32{
		0x00: abi.DeviceID<<16 | abi.VendorID,
		0x08: abi.ClassCode<<8 | abi.RevisionID,
	} {
		got, err := b.client.ReadUint32(vfiouser.RegionConfig, offset)
		if err != nil {
			return fmt.Errorf("read the PCI configuration space: %w", err)
		}
		if got&^0xff != want&^0xff {
			return fmt.Errorf("not a virtual GPU: PCI configuration space has %#x at %#x, want %#x", got, offset, want)
		}
	}
	var err error
	if b.mapping, err = b.client.Map(vfiouser.RegionBAR2); err != nil {
		return fmt.Errorf("map BAR2: %w", err)
	}
	if len(b.mapping.Areas) != 1 || b.mapping.Bytes(0, b.mapping.Size) == nil {
		return errors.New("map BAR2: not mappable as a whole")
	}
	b.shared.b = b.mapping.Areas[0].Bytes
	b.mapping = nil
	b.shared.place()
	info, err := b.client.IRQInfo(vfiouser.IRQMSI)
	if err != nil {
		return fmt.Errorf("ask for MSI: %w", err)
	}
	for range min(info.Count, maxVectors) {
		e, err := vfiouser.NewEventfd()
		if err != nil {
			return err
		}
		b.events = append(b.events, e)
	}
	if err := b.client.EnableIRQs(vfiouser.IRQMSI, 0, b.events...); err != nil {
		return fmt.Errorf("enable MSI: %w", err)
	}
	if info, _, err := b.client.RegionInfo(vfiouser.RegionBAR4); err == nil && info.Size > 0 {
		return b.mapEvents()
	}
	return nil
}

// mapEvents maps BAR4.
func (b *vfioBus) mapEvents() error {
	m, err := b.client.Map(vfiouser.RegionBAR4)
	if err != nil {
		return fmt.Errorf("map BAR4: %w", err)
	}
	if len(m.Areas) != 1 || m.Bytes(0, m.Size) == nil {
		return errors.Join(errors.New("map BAR4: not mappable as a whole"), m.Unmap())
	}
	b.area.b = m.Areas[0].Bytes
	return nil
}

func (b *vfioBus) Events() []byte { return b.area.b }

func (b *vfioBus) Read(offset uint32) (uint32, error) {
	v, err := b.client.ReadUint32(vfiouser.RegionBAR0, uint64(offset))
	return v, gone(err)
}

func (b *vfioBus) Write(offset, value uint32) error {
	return gone(b.client.WriteUint32(vfiouser.RegionBAR0, uint64(offset), value))
}

// gone returns [ErrGone] for the connection's end. An access may notice it before Done is closed;
// the bus's own Close can't be the reason, since the bus is not used after it.
func gone(err error) error {
	if errors.Is(err, vfiouser.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

func (b *vfioBus) Doorbell(offset uint32) error {
	var zero [4]byte
	return gone(b.client.RegionWritePosted(vfiouser.RegionBAR0, uint64(offset), zero[:]))
}

func (b *vfioBus) Shared() []byte { return b.shared.b }

func (b *vfioBus) Vectors() int { return len(b.events) }

func (b *vfioBus) Wait(ctx context.Context, vector int) error {
	_, err := b.events[vector].Wait(ctx)
	return err
}

func (b *vfioBus) Done() <-chan struct{} { return b.client.Done() }

func (b *vfioBus) Close() error {
	err := b.client.Close()
	b.serving.Wait()
	for _, e := range b.events {
		err = errors.Join(err, e.Close())
	}
	if b.mapping != nil {
		err = errors.Join(err, b.mapping.Unmap())
	}
	return errors.Join(err, b.shared.unmap(), b.area.unmap())
}
