package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"vgpud/guestagent/allot"
	"vgpud/mediator/vgpu/abi"
)

// partialBus is a bus to a part of a device. The agent has negotiated with the device and writes
// its control registers.
type partialBus interface {
	Allotment() allot.Allotment
	Set(offset, value uint32) (abi.ErrorCode, error)
}

// negotiate finds out what the device is and which part of it belongs to this program.
func (d *Device) negotiate() error {
	p, ok := d.bus.(partialBus)
	if !ok {
		var err error
		d.info, d.allotment, err = Negotiate(d.bus)
		return err
	}
	rings, windows, err := d.identify(true)
	if err != nil {
		return err
	}
	d.allotment = p.Allotment()
	if !validPart(d.allotment.Shared, windows) || !validPart(d.allotment.Rings, rings) ||
		slices.ContainsFunc(d.allotment.Contexts, func(i int) bool { return i < 0 || i >= d.info.Contexts }) ||
		slices.ContainsFunc(d.allotment.Channels, func(i int) bool { return i < 0 || i >= d.info.Channels }) ||
		len(d.allotment.Vectors) < d.bus.Vectors() {
		return fmt.Errorf("the agent's allotment is not part of the device: %+v", d.allotment)
	}
	d.info.Contexts, d.info.Channels = len(d.allotment.Contexts), len(d.allotment.Channels)
	return nil
}

// validPart reports whether w, a program's part of an area of BAR2, lies in the area and is not
// empty, or whether both are empty.
func validPart(w, all abi.Window) bool {
	end, ok := w.End()
	most, _ := all.End()
	return w == abi.Window{} && all.Size == 0 || w.Size > 0 && ok && w.Offset >= all.Offset && end <= most
}

// Negotiate agrees with the device behind a bus on a version and features. It returns the device's
// description and an allotment of the whole device. There must be no context.
func Negotiate(bus Bus) (Info, allot.Allotment, error) {
	d := &Device{bus: bus, shared: bus.Shared()}
	rings, windows, err := d.identify(false)
	if err != nil {
		return Info{}, allot.Allotment{}, err
	}
	for _, w := range []struct{ reg, v uint32 }{
		{abi.RegSelectVersion, uint32(d.info.Version)},
		{abi.RegAcceptFeaturesLo, uint32(d.info.Features)},
		{abi.RegAcceptFeaturesHi, uint32(d.info.Features >> 32)},
	} {
		if err := d.set(w.reg, w.v); err != nil {
			return Info{}, allot.Allotment{}, err
		}
	}
	return d.info, allot.Whole(d.info.Contexts, d.info.Channels, bus.Vectors(), rings, windows), nil
}

// identify reads the identity page, with the limits of negotiation or, if negotiated, its result.
// It returns the areas of BAR2 for rings and for windows. rings is empty if rings may lie among
// windows.
func (d *Device) identify(negotiated bool) (rings, windows abi.Window, err error) {
	read := func(reg uint32) uint32 {
		v, e := d.bus.Read(reg)
		err = errors.Join(err, e)
		return v
	}
	if magic := read(abi.RegMagic); err == nil && magic != abi.Magic {
		return rings, windows, fmt.Errorf("not a virtual GPU: magic %#x, want %#x", magic, abi.Magic)
	}
	newest, oldest := abi.Version(read(abi.RegVersion)), abi.Version(read(abi.RegOldestVersion))
	if negotiated {
		newest = abi.Version(read(abi.RegSelectVersion))
		oldest = newest
	}
	if err != nil {
		return rings, windows, err
	}
	version, err := abi.Negotiate(oldest, newest, abi.Oldest, abi.Newest)
	if err != nil {
		return rings, windows, err
	}
	lo, hi := uint32(abi.RegFeaturesLo), uint32(abi.RegFeaturesHi)
	if negotiated {
		lo, hi = abi.RegAcceptFeaturesLo, abi.RegAcceptFeaturesHi
	}
	features := abi.Features(read(lo)) | abi.Features(read(hi))<<32
	features &= abi.AllFeatures
	d.info = Info{
		Version:        version,
		Features:       features,
		Contexts:       int(read(abi.RegContexts)),
		Channels:       int(read(abi.RegChannels)),
		MaxRingEntries: int(read(abi.RegMaxRingEntries)),
		SharedBytes:    len(d.shared),
		MemoryBytes:    uint64(read(abi.RegMemoryBytesLo)) | uint64(read(abi.RegMemoryBytesHi))<<32,
		Vectors:        d.bus.Vectors(),
		PollWindow:     time.Duration(read(abi.RegPollWindowNanos)),
	}
	if version >= abi.Version1_2 {
		for i := 0; i < abi.UUIDBytes; i += 4 {
			binary.LittleEndian.PutUint32(d.info.UUID[i:], read(abi.RegUUID+uint32(i)))
		}
	}
	if b, ok := d.bus.(interface{ Address() string }); ok {
		d.info.Address = b.Address()
	}
	header, forRings := uint64(read(abi.RegHeaderBytes)), uint64(0)
	if version >= abi.Version1_1 {
		forRings = uint64(read(abi.RegRingsBytes))
	}
	size := uint64(read(abi.RegSharedBytesLo)) | uint64(read(abi.RegSharedBytesHi))<<32
	if err != nil {
		return rings, windows, err
	}
	switch {
	case size != uint64(len(d.shared)):
		return rings, windows, fmt.Errorf("BAR2 has %d bytes, the device says %d", len(d.shared), size)
	case d.info.Contexts < 1 || d.info.Contexts > abi.MaxContexts || d.info.Channels < 1 || d.info.Channels > abi.MaxChannels,
		header < uint64(abi.HeaderBytes(d.info.Channels)) || header+forRings > size || forRings%abi.PageSize != 0:
		return rings, windows, fmt.Errorf("impossible limits: %+v, header of %d bytes, rings of %d", d.info, header, forRings)
	}
	if forRings > 0 {
		rings = abi.Window{Offset: header, Size: forRings}
	}
	return rings, abi.Window{Offset: header + forRings, Size: size - header - forRings}, nil
}

// set writes a register and returns the device's refusal as an error.
func (d *Device) set(reg, v uint32) error {
	var code abi.ErrorCode
	var err error
	if p, ok := d.bus.(partialBus); ok {
		code, err = p.Set(reg, v)
	} else {
		code, err = Set(d.bus, reg, v)
	}
	if err == nil && code != abi.ErrorNone {
		err = fmt.Errorf("register %#x := %#x: %w", reg, v, code)
	}
	return err
}

// Set writes a register and returns the device's error code. It makes several accesses, so only one
// goroutine may call it at a time.
func Set(bus Bus, reg, v uint32) (abi.ErrorCode, error) {
	if err := bus.Write(abi.RegError, 0); err != nil {
		return 0, err
	}
	if err := bus.Write(reg, v); err != nil {
		return 0, err
	}
	code, err := bus.Read(abi.RegError)
	return abi.ErrorCode(code), err
}
