package vfiouser

import (
	"fmt"
	"runtime"
	"syscall"
)

// dispatch carries out a request. The reply's body is in s.out and n is its length. fds are sent
// with it and stay open.
func (s *Session) dispatch(m *message) (n int, fds []int, err error) {
	if m.Flags&^uint32(FlagNoReply) != FlagTypeCommand {
		return 0, nil, fmt.Errorf("header flags %#x: %w", m.Flags, syscall.EINVAL)
	}
	if len(m.fds) > 0 && m.Cmd != CmdDMAMap && m.Cmd != CmdDeviceSetIRQs {
		return 0, nil, fmt.Errorf("%d descriptors with a request that takes none: %w", len(m.fds), syscall.EINVAL)
	}
	switch m.Cmd {
	case CmdRegionRead:
		n, err = s.regionRead(m.payload)
	case CmdRegionWrite:
		n, err = s.regionWrite(m.payload)
	case CmdRegionWriteMulti:
		n, err = s.regionWriteMulti(m.payload)
	case CmdDeviceGetInfo:
		n, err = s.deviceInfo(m.payload)
	case CmdDeviceGetRegionInfo:
		return s.regionInfo(m.payload)
	case CmdDeviceGetIRQInfo:
		n, err = s.irqInfo(m.payload)
	case CmdDeviceSetIRQs:
		err = s.setIRQs(m)
	case CmdDMAMap:
		err = s.dmaMap(m)
	case CmdDMAUnmap:
		n, err = s.dmaUnmap(m.payload)
	case CmdDeviceReset:
		if err = noPayload(m.payload); err == nil {
			err = s.dev.Reset()
		}
	case CmdDeviceFeature:
		err = deviceFeature(m.payload)
	case CmdDeviceGetRegionIOFDs, CmdMigDataRead, CmdMigDataWrite:
		err = syscall.ENOTSUP
	default: // VERSION comes only once; DMA_READ and DMA_WRITE go the other way
		err = fmt.Errorf("unexpected %s: %w", commandName(m.Cmd), syscall.EINVAL)
	}
	return n, nil, err
}

func noPayload(p []byte) error {
	if len(p) != 0 {
		return fmt.Errorf("%d bytes of payload, want none: %w", len(p), syscall.EINVAL)
	}
	return nil
}

// payloadSize checks the size of a fixed payload.
func payloadSize(p []byte, want int) error {
	if len(p) != want {
		return fmt.Errorf("%d bytes of payload, want %d: %w", len(p), want, syscall.EINVAL)
	}
	return nil
}

// argsz checks the size that a struct states for itself.
func argsz(got uint32, want int) error {
	if int64(got) < int64(want) {
		return fmt.Errorf("argsz %d, want at least %d: %w", got, want, syscall.EINVAL)
	}
	return nil
}

// fixed decodes a payload that is one struct of the given size, which begins with its argsz.
func fixed(p []byte, size int, v interface{ UnmarshalBytes([]byte) }) error {
	if err := payloadSize(p, size); err != nil {
		return err
	}
	v.UnmarshalBytes(p)
	return argsz(le.Uint32(p), size)
}

func (s *Session) deviceInfo(p []byte) (int, error) {
	var d DeviceInfo
	if err := fixed(p, SizeofDeviceInfo, &d); err != nil {
		return 0, err
	}
	d = DeviceInfo{
		Argsz:      SizeofDeviceInfo,
		Flags:      DeviceFlagReset | DeviceFlagPCI,
		NumRegions: NumRegions,
		NumIRQs:    NumIRQs,
	}
	d.MarshalBytes(s.body(SizeofDeviceInfo))
	return SizeofDeviceInfo, nil
}

// region returns a region that the client may name. An absent region has size 0.
func (s *Session) region(index uint32) (*Region, error) {
	if index >= NumRegions {
		return nil, fmt.Errorf("region %d of %d: %w", index, NumRegions, syscall.EINVAL)
	}
	if int64(index) >= int64(len(s.desc.Regions)) {
		return &absentRegion, nil
	}
	return &s.desc.Regions[index], nil
}

var absentRegion Region

func (s *Session) regionInfo(p []byte) (n int, fds []int, err error) {
	if len(p) < SizeofRegionInfo { // some clients append room for the capabilities
		return 0, nil, payloadSize(p, SizeofRegionInfo)
	}
	var info RegionInfo
	info.UnmarshalBytes(p)
	if err := argsz(info.Argsz, SizeofRegionInfo); err != nil {
		return 0, nil, err
	}
	r, err := s.region(info.Index)
	if err != nil {
		return 0, nil, err
	}
	room := r.infoSize()
	if int64(info.Argsz) < int64(room) {
		room = SizeofRegionInfo
	}
	n, withFile := r.marshalInfo(info.Index, s.body(room))
	if withFile {
		fds = []int{int(r.File.Fd())}
		runtime.KeepAlive(r.File)
	}
	return n, fds, nil
}

// access checks a region access, which needs the region flags in need.
func (s *Session) access(a *RegionAccess, need uint32) error {
	r, err := s.region(a.Region)
	if err != nil {
		return err
	}
	if uint64(a.Count) > MaxDataBytes || a.Offset > r.Size || uint64(a.Count) > r.Size-a.Offset || r.Flags&need == 0 {
		return fmt.Errorf("%d bytes at %#x of region %d, which has %#x: %w", a.Count, a.Offset, a.Region, r.Size, syscall.EINVAL)
	}
	return nil
}

func (s *Session) regionRead(p []byte) (int, error) {
	if err := payloadSize(p, SizeofRegionAccess); err != nil {
		return 0, err
	}
	var a RegionAccess
	a.UnmarshalBytes(p)
	if err := s.access(&a, RegionFlagRead); err != nil {
		return 0, err
	}
	n := SizeofRegionAccess + int(a.Count)
	b := s.body(n)
	a.MarshalBytes(b)
	data := b[SizeofRegionAccess:]
	clear(data) // bytes that the device leaves alone must not expose another request's data
	if a.Count == 0 {
		return n, nil
	}
	return n, s.dev.RegionRead(a.Region, a.Offset, data)
}

func (s *Session) regionWrite(p []byte) (int, error) {
	if len(p) < SizeofRegionAccess {
		return 0, payloadSize(p, SizeofRegionAccess)
	}
	var a RegionAccess
	a.UnmarshalBytes(p)
	data := p[SizeofRegionAccess:]
	if uint64(len(data)) != uint64(a.Count) {
		return 0, fmt.Errorf("write of %d bytes carries %d: %w", a.Count, len(data), syscall.EINVAL)
	}
	if err := s.access(&a, RegionFlagWrite); err != nil {
		return 0, err
	}
	if a.Count > 0 {
		if err := s.dev.RegionWrite(a.Region, a.Offset, data); err != nil {
			return 0, err
		}
	}
	a.MarshalBytes(s.body(SizeofRegionAccess))
	return SizeofRegionAccess, nil
}

// regionWriteMulti carries out writes in order until one fails.
func (s *Session) regionWriteMulti(p []byte) (int, error) {
	if len(p) < SizeofWriteMulti {
		return 0, payloadSize(p, SizeofWriteMulti)
	}
	count := le.Uint64(p)
	writes := p[SizeofWriteMulti:]
	if count > uint64(len(writes))/SizeofWriteMultiEntry || uint64(len(writes)) != count*SizeofWriteMultiEntry {
		return 0, fmt.Errorf("%d writes in %d bytes: %w", count, len(writes), syscall.EINVAL)
	}
	for ; len(writes) > 0; writes = writes[SizeofWriteMultiEntry:] {
		// The fields are decoded in place: a WriteMultiEntry whose data goes to the device would be
		// allocated.
		a := RegionAccess{Offset: le.Uint64(writes), Region: le.Uint32(writes[8:]), Count: le.Uint32(writes[12:])}
		if a.Count > 8 {
			return 0, fmt.Errorf("%d bytes in one of many writes, at most 8 fit: %w", a.Count, syscall.EINVAL)
		}
		if err := s.access(&a, RegionFlagWrite); err != nil {
			return 0, err
		}
		if a.Count == 0 {
			continue
		}
		if err := s.dev.RegionWrite(a.Region, a.Offset, writes[16:16+a.Count]); err != nil {
			return 0, err
		}
	}
	le.PutUint64(s.body(SizeofWriteMulti), count)
	return SizeofWriteMulti, nil
}

func (s *Session) irqInfo(p []byte) (int, error) {
	var i IRQInfo
	if err := fixed(p, SizeofIRQInfo, &i); err != nil {
		return 0, err
	}
	info, err := s.irqs.info(i.Index)
	if err != nil {
		return 0, err
	}
	info.MarshalBytes(s.body(SizeofIRQInfo))
	return SizeofIRQInfo, nil
}

func (s *Session) setIRQs(m *message) error {
	if len(m.payload) < SizeofIRQSet {
		return payloadSize(m.payload, SizeofIRQSet)
	}
	var set IRQSet
	set.UnmarshalBytes(m.payload)
	data := m.payload[SizeofIRQSet:]
	if err := argsz(set.Argsz, len(m.payload)); err != nil {
		return err
	}
	if err := s.irqs.set(&set, data, m); err != nil {
		return fmt.Errorf("interrupt %d, vectors %d+%d, flags %#x, %d descriptors: %w",
			set.Index, set.Start, set.Count, set.Flags, len(m.fds), err)
	}
	if d, ok := s.dev.(IRQStater); ok {
		if set.Count == 0 { // all vectors are disabled
			info, err := s.irqs.info(set.Index)
			if err != nil {
				return err
			}
			set.Start, set.Count = 0, info.Count
		}
		d.IRQsChanged(set.Index, set.Start, set.Count)
	}
	return nil
}

func (s *Session) dmaMap(m *message) error {
	var d DMAMap
	if err := fixed(m.payload, SizeofDMAMap, &d); err != nil {
		return err
	}
	wrong := d.Flags&^uint32(dmaMapFlagMask) != 0 || len(m.fds) > 1
	switch d.Flags & (DMAMapFlagMmap | DMAMapFlagFileIO) {
	case DMAMapFlagMmap, DMAMapFlagFileIO:
		wrong = wrong || len(m.fds) == 0
	case DMAMapFlagMmap | DMAMapFlagFileIO:
		wrong = true
	}
	if wrong || d.Size == 0 || d.Addr+d.Size-1 < d.Addr || d.Offset+d.Size-1 < d.Offset {
		return fmt.Errorf("mapping of %#x+%#x, flags %#x, %d descriptors: %w", d.Addr, d.Size, d.Flags, len(m.fds), syscall.EINVAL)
	}
	dev, ok := s.dev.(DMAMapper)
	if !ok {
		return nil // the descriptor is closed with the message
	}
	return dev.DMAMap(d, m.takeFile("vfio-user DMA"))
}

func (s *Session) dmaUnmap(p []byte) (int, error) {
	var d DMAUnmap
	if err := fixed(p, SizeofDMAUnmap, &d); err != nil {
		return 0, err
	}
	all := d.Flags == DMAUnmapFlagAll
	switch {
	case d.Flags == DMAUnmapFlagGetDirty:
		return 0, fmt.Errorf("unmapping with a bitmap of dirty pages: %w", syscall.ENOTSUP)
	case d.Flags != 0 && !all, d.Argsz > MaxDataBytes, all && (d.Addr != 0 || d.Size != 0), !all && (d.Size == 0 || d.Addr+d.Size-1 < d.Addr):
		return 0, fmt.Errorf("unmapping of %#x+%#x, flags %#x: %w", d.Addr, d.Size, d.Flags, syscall.EINVAL)
	}
	if dev, ok := s.dev.(DMAMapper); ok {
		if err := dev.DMAUnmap(d.Addr, d.Size, all); err != nil {
			return 0, err
		}
	}
	d.MarshalBytes(s.body(SizeofDMAUnmap))
	return SizeofDMAUnmap, nil
}

// deviceFeature refuses every feature: no device has any, and in particular none can migrate.
func deviceFeature(p []byte) error {
	if len(p) < SizeofDeviceFeature {
		return payloadSize(p, SizeofDeviceFeature)
	}
	if err := argsz(le.Uint32(p), SizeofDeviceFeature); err != nil {
		return err
	}
	return syscall.ENOTTY // as Linux answers for an unknown feature
}
