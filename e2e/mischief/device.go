package mischief

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"

	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/pci"
	"vgpud/vfio/vfiouser"
)

// deviceMischief are the ways that use the device's configuration, its tables and its interrupts.
var deviceMischief = map[string]func(ctx context.Context, f *Foothold) error{
	"rewrites its configuration": func(_ context.Context, f *Foothold) error {
		r := rand.New(rand.NewPCG(5, 6))
		var data [8]byte
		for i := 0; ; i++ {
			at, n := uint64(r.IntN(pci.ExtendedSpaceBytes-8)), 1+r.IntN(8)
			if i%2 == 0 {
				at = []uint64{pci.Command, pci.BaseAddress0, pci.BaseAddress0 + 8, pci.BaseAddress0 + 12}[r.IntN(4)]
			}
			binary.LittleEndian.PutUint64(data[:], r.Uint64())
			if err := f.Client.RegionWrite(vfiouser.RegionConfig, at, data[:n]); err != nil {
				return err
			}
			if i == 10_000 {
				f.begun()
			}
		}
	},
	"accesses registers in every width": func(_ context.Context, f *Foothold) error {
		r := rand.New(rand.NewPCG(7, 8))
		var data [32]byte
		for i := 0; ; i++ {
			at, p := uint64(r.IntN(abi.BAR0Size-len(data))), data[:r.IntN(len(data)+1)]
			binary.LittleEndian.PutUint64(data[:], uint64(garbage(r)))
			if err := errors.Join(f.Client.RegionWrite(vfiouser.RegionBAR0, at, p), f.Client.RegionRead(vfiouser.RegionBAR0, at, p)); err != nil {
				return err
			}
			if i == 10_000 {
				f.begun()
			}
		}
	},
	"lays rings over each other": func(_ context.Context, f *Foothold) error {
		r := rand.New(rand.NewPCG(9, 10))
		header, shared := abi.HeaderBytes(abi.MaxChannels), f.Bus.Shared()
		ends, err := f.Bus.Read(abi.RegHeaderBytes)
		if err != nil {
			return err
		}
		rings, err := f.Bus.Read(abi.RegRingsBytes)
		if err != nil {
			return err
		}
		ends += rings // the rings' part, and windows begin
		for i := 0; ; i++ {
			slot := r.IntN(8)
			at := uint32(header + abi.PageSize*r.IntN(8))
			for reg, v := range map[int]uint32{
				abi.ChannelSubmissionLo: at, abi.ChannelSubmissionEntries: 128 << r.IntN(4),
				abi.ChannelCompletionLo: []uint32{at, at + abi.PageSize, at + 2*abi.PageSize, 0, ends - 2*abi.PageSize, ends - abi.PageSize, ends, uint32(len(shared)) - 2*abi.PageSize}[r.IntN(8)],
				abi.ChannelContext:      0, abi.ChannelCompletionEntries: 128, abi.ChannelVector: uint32(r.IntN(32)), abi.ChannelFlags: 0,
			} {
				if err := f.Bus.Write(uint32(abi.ChannelSlot(slot, reg)), v); err != nil {
					return err
				}
			}
			if err := f.Bus.Write(uint32(abi.ChannelSlot(slot, abi.ChannelControl)), uint32(abi.ControlCreate)); err != nil {
				return err
			}
			// Created channels get random entries and plausible pointers.
			for range 64 {
				abi.StoreWord(shared, int(at)+4*r.IntN(4096), garbage(r))
			}
			abi.StoreWord(shared, abi.ChannelPage(slot)+abi.SubmissionPutWord, uint32(r.IntN(256)))
			if err := f.Bus.Doorbell(uint32(abi.Doorbell(slot))); err != nil {
				return err
			}
			if i%16 == 0 {
				if err := f.Bus.Write(uint32(abi.ChannelSlot(r.IntN(8), abi.ChannelControl)), uint32(abi.ControlDestroy)); err != nil {
					return err
				}
			}
			if i == 2000 {
				f.begun()
			}
		}
	},
	"changes its vectors while interrupts fly": func(ctx context.Context, f *Foothold) error {
		// Its own waits for completions miss their interrupts, but they are short.
		go func() {
			for {
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				if p, err := f.GPU.Alloc(short, 4096); err == nil {
					_ = f.GPU.Free(short, p)
				}
				cancel()
			}
		}()
		var events []*vfiouser.Eventfd
		for range 32 {
			e, err := vfiouser.NewEventfd()
			if err != nil {
				return err
			}
			events = append(events, e)
		}
		for i := 0; ; i++ {
			err := errors.Join(
				f.Client.EnableIRQs(vfiouser.IRQMSI, 0, events[:16]...),
				f.Client.EnableIRQs(vfiouser.IRQMSI, uint32(i%32), events[i*7%32]),
				f.Client.MaskIRQs(vfiouser.IRQMSI, 0, 32),
				f.Client.UnmaskIRQs(vfiouser.IRQMSI, 0, 32),
				f.Client.DisableIRQ(vfiouser.IRQMSI))
			if err != nil {
				return err
			}
			if i == 500 {
				f.begun()
			}
		}
	},
}
