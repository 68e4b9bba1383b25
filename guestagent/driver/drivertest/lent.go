package drivertest

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/allot"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// Shareable is a [Host] that an agent can share: its BARs are files. Tenants' writes to BAR0 are not
// trapped. So their slots' registers are taken from the file when the agent writes a control register,
// and every channel is rung periodically in place of doorbells.
type Shareable struct {
	*Host
	registers *os.File
	bar0      []byte
	events    []*vfiouser.Eventfd
	stop      context.CancelFunc
	ringing   sync.WaitGroup
}

// ringInterval is how often channels are rung.
const ringInterval = 200 * time.Microsecond

// NewShareable makes a host shareable. Closing the result closes the host.
func NewShareable(h *Host) (*Shareable, error) {
	l := &Shareable{Host: h}
	var err error
	if l.registers, l.bar0, err = memory("BAR0", abi.BAR0Size); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for off := uint32(0); off < abi.ContextTable; off += 4 {
		if err := l.mirror(off); err != nil {
			return nil, err
		}
	}
	for v := range h.events {
		e, err := vfiouser.NewEventfd()
		if err != nil {
			return nil, err
		}
		l.events = append(l.events, e)
		l.ringing.Go(func() {
			for h.Wait(ctx, v) == nil {
				_ = e.Signal()
			}
		})
	}
	l.ringing.Go(func() {
		t := time.NewTicker(ringInterval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				for slot := range hostChannels {
					_ = h.Doorbell(uint32(abi.Doorbell(slot)))
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return l, nil
}

// mirror copies a register to the file.
func (l *Shareable) mirror(off uint32) error {
	v, err := l.Host.Read(off)
	binary.LittleEndian.PutUint32(l.bar0[off:], v)
	return err
}

// Read implements driver.Bus.
func (l *Shareable) Read(off uint32) (uint32, error) {
	for slot := range hostContexts {
		if off == uint32(abi.ContextSlot(slot, abi.ContextStatus)) {
			state, _ := abi.UnpackState[abi.ContextState](abi.LoadWord(l.Shared(), abi.ContextWord(slot)))
			return uint32(state), nil
		}
	}
	return l.Host.Read(off)
}

// Write implements driver.Bus.
func (l *Shareable) Write(off, v uint32) error {
	const table, size = abi.ChannelTable, abi.ChannelSlotSize
	if off >= table && off < table+hostChannels*size && (off-table)%size == abi.ChannelControl {
		for reg := off + 4; reg < off+size; reg += 4 {
			if err := l.Host.Write(reg, binary.LittleEndian.Uint32(l.bar0[reg:])); err != nil {
				return err
			}
		}
	}
	if err := l.Host.Write(off, v); err != nil {
		return err
	}
	return l.mirror(off)
}

// Wait implements driver.Bus.
func (l *Shareable) Wait(ctx context.Context, vector int) error {
	_, err := l.events[vector].Wait(ctx)
	return err
}

// Lend describes a part of the device, as driver.PCIBus does.
func (l *Shareable) Lend(a allot.Allotment, state *vfiouser.Eventfd) (allot.Grant, []int, error) {
	g := allot.Grant{
		Address: "0000:00:10.0", Access: "vfio", Allotment: a,
		BARs: [2]allot.Region{{Bytes: len(l.bar0)}, {Bytes: len(l.Shared())}},
	}
	fds := []int{int(l.registers.Fd()), int(l.file.Fd())}
	for _, v := range a.Vectors {
		e := l.events[v]
		if v == 0 {
			e = state
		}
		fds = append(fds, e.FD())
	}
	return g, fds, nil
}

// Close implements driver.Bus.
func (l *Shareable) Close() error {
	l.stop()
	l.ringing.Wait()
	err := errors.Join(l.Host.Close(), unix.Munmap(l.bar0), l.registers.Close())
	for _, e := range l.events {
		err = errors.Join(err, e.Close())
	}
	return err
}
