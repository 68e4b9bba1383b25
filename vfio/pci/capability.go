package pci

import (
	"fmt"
	"math/bits"
)

// capabilities lays out the list of capabilities, each at the next multiple of 4.
func (s *Space) capabilities() error {
	f := &s.function
	next := headerBytes
	link := CapabilityList
	add := func(id byte, size int) int {
		at := next
		next = (at + size + 3) &^ 3
		s.value[at] = id
		s.value[link] = byte(at)
		link = at + 1
		return at
	}
	if f.PowerManagement {
		s.pm = add(CapPM, pmBytes)
		s.layPM()
	}
	if f.Express != nil {
		s.express = add(CapExpress, expBytes)
		if err := s.layExpress(*f.Express); err != nil {
			return err
		}
	}
	if f.MSI != nil {
		size := msiBytes
		if f.MSI.Masking {
			size = msiMaskingBytes
		}
		s.msi = add(CapMSI, size)
		if err := s.layMSI(*f.MSI); err != nil {
			return err
		}
	}
	if f.MSIX != nil {
		s.msix = add(CapMSIX, msixBytes)
		if err := s.layMSIX(*f.MSIX); err != nil {
			return err
		}
	}
	if link != CapabilityList {
		s.value[Status] |= StatusCapList
	}
	return nil
}

// layPM lays out power management: D0 and D3hot, without a reset on the return to D0.
func (s *Space) layPM() {
	le.PutUint16(s.value[s.pm+pmCapabilities:], pmVersion3)
	le.PutUint16(s.value[s.pm+pmControl:], pmNoSoftReset)
	le.PutUint16(s.writable[s.pm+pmControl:], pmStateMask)
}

func (s *Space) layExpress(e Express) error {
	speed, width := uint32(max(e.LinkSpeed, 1)), uint32(max(e.LinkWidth, 1))
	if speed > 6 || width > 32 || bits.OnesCount32(width) != 1 {
		return fmt.Errorf("PCI Express link of generation %d with %d lanes", speed, width)
	}
	at := s.express
	le.PutUint16(s.value[at+expFlags:], expVersion2) // device type 0 is an endpoint

	const (
		payload256  = 1
		extendedTag = 1 << 5
		roleErrors  = 1 << 15
	)
	devCap := uint32(payload256 | extendedTag | roleErrors)
	devCtl := uint16(0x7fff &^ (1<<9 | 1<<10)) // no phantom functions, no auxiliary power
	if e.FunctionReset {
		devCap |= expDevCapFLR
		devCtl |= expDevCtlFLR
	}
	le.PutUint32(s.value[at+expDevCap:], devCap)
	le.PutUint16(s.value[at+expDevCtl:], 0x2810) // after power-on: relaxed order, no snoop, reads of 512 bytes
	le.PutUint16(s.writable[at+expDevCtl:], devCtl)
	le.PutUint16(s.clearable[at+expDevSta:], expDevStaErrors)

	le.PutUint32(s.value[at+expLnkCap:], speed|width<<4)
	le.PutUint16(s.writable[at+expLnkCtl:], 0x00cb) // power states, read boundary, common clock, extended synch
	le.PutUint16(s.value[at+expLnkSta:], uint16(speed|width<<4))
	le.PutUint32(s.value[at+expLnkCap2:], (1<<(speed+1)-1)&^1) // all generations up to this one
	le.PutUint16(s.value[at+expLnkCtl2:], uint16(speed))
	le.PutUint16(s.writable[at+expLnkCtl2:], 0xf)
	return nil
}

func (s *Space) layMSI(m MSI) error {
	if m.Vectors < 1 || m.Vectors > 32 || bits.OnesCount(uint(m.Vectors)) != 1 {
		return fmt.Errorf("MSI with %d vectors, want a power of two from 1 to 32", m.Vectors)
	}
	at := s.msi
	flags := uint16(msi64 | bits.TrailingZeros(uint(m.Vectors))<<1)
	if m.Masking {
		flags |= msiMaskBit
		le.PutUint32(s.writable[at+msiMask:], uint32(1<<m.Vectors-1))
	}
	le.PutUint16(s.value[at+msiFlags:], flags)
	le.PutUint16(s.writable[at+msiFlags:], msiEnable|msiQueueSize)
	le.PutUint32(s.writable[at+msiAddressLo:], 0xffff_fffc)
	le.PutUint32(s.writable[at+msiAddressHi:], 0xffff_ffff)
	le.PutUint16(s.writable[at+msiData:], 0xffff)
	return nil
}

func (s *Space) layMSIX(m MSIX) error {
	if m.Vectors < 1 || m.Vectors > 2048 {
		return fmt.Errorf("MSI-X with %d vectors, want 1 to 2048", m.Vectors)
	}
	table := uint64(m.Vectors) * msixEntryBytes
	pending := uint64(m.Vectors+63) / 64 * 8
	if err := s.inBAR("MSI-X table", m.TableBAR, m.TableOffset, table); err != nil {
		return err
	}
	if err := s.inBAR("MSI-X pending bits", m.PBABAR, m.PBAOffset, pending); err != nil {
		return err
	}
	t, p := uint64(m.TableOffset), uint64(m.PBAOffset)
	if m.TableBAR == m.PBABAR && t < p+pending && p < t+table {
		return fmt.Errorf("MSI-X table at %#x and pending bits at %#x overlap", t, p)
	}
	at := s.msix
	le.PutUint16(s.value[at+msixFlags:], uint16(m.Vectors-1))
	le.PutUint16(s.writable[at+msixFlags:], msixMaskAll|msixEnable)
	le.PutUint32(s.value[at+msixTable:], m.TableOffset|uint32(m.TableBAR))
	le.PutUint32(s.value[at+msixPBA:], m.PBAOffset|uint32(m.PBABAR))
	return nil
}

func (s *Space) inBAR(what string, bar int, offset uint32, size uint64) error {
	if bar < 0 || bar >= NumBARs || offset%8 != 0 || uint64(offset)+size > s.function.BARs[bar].Size {
		return fmt.Errorf("%s of %d bytes at %#x does not fit BAR %d", what, size, offset, bar)
	}
	return nil
}
