package pci

// Command returns the command register's value.
func (s *Space) Command() uint16 { return le.Uint16(s.value[Command:]) }

// RaiseStatus sets bits of the status register, with which the device reports an error. Software
// clears them.
func (s *Space) RaiseStatus(bits uint16) {
	v := le.Uint16(s.value[Status:])
	le.PutUint16(s.value[Status:], v|bits&statusClearable)
}

// BARAddress returns the address that software assigned to a BAR. ok is false if the BAR is absent
// or memory accesses are off.
func (s *Space) BARAddress(bar int) (addr uint64, ok bool) {
	if bar < 0 || bar >= NumBARs || s.function.BARs[bar].Size == 0 {
		return 0, false
	}
	reg := s.value[BaseAddress0+4*bar:]
	addr = uint64(le.Uint32(reg)) &^ 0xf
	if s.function.BARs[bar].Is64 {
		addr |= uint64(le.Uint32(reg[4:])) << 32
	}
	return addr, s.Command()&CommandMemory != 0
}

// PowerState returns 0 for D0 and 3 for D3hot.
func (s *Space) PowerState() uint8 {
	if s.pm == 0 {
		return 0
	}
	return s.value[s.pm+pmControl] & pmStateMask
}

func (s *Space) setPowerState(d uint8) {
	at := s.pm + pmControl
	s.value[at] = s.value[at]&^pmStateMask | d
}

// MSIState is software's configuration of the MSI capability.
type MSIState struct {
	Enabled bool
	// Vectors is how many of the function's vectors are allocated.
	Vectors int
	Address uint64
	Data    uint16
	// Mask has a bit for each vector that must not be sent.
	Mask uint32
}

// MSI returns the state of the MSI capability, or the zero value if there is none.
func (s *Space) MSI() MSIState {
	if s.msi == 0 {
		return MSIState{}
	}
	cap := s.value[s.msi:]
	flags := le.Uint16(cap[msiFlags:])
	st := MSIState{
		Enabled: flags&msiEnable != 0,
		Vectors: min(1<<(flags&msiQueueSize>>4), s.function.MSI.Vectors),
		Address: uint64(le.Uint32(cap[msiAddressLo:])) | uint64(le.Uint32(cap[msiAddressHi:]))<<32,
		Data:    le.Uint16(cap[msiData:]),
	}
	if s.function.MSI.Masking {
		st.Mask = le.Uint32(cap[msiMask:])
	}
	return st
}

// SetMSIPending sets the pending bits: vectors that were triggered while masked. They exist only
// with masking.
func (s *Space) SetMSIPending(vectors uint32) {
	if s.msi == 0 || !s.function.MSI.Masking {
		return
	}
	le.PutUint32(s.value[s.msi+msiPending:], vectors&uint32(1<<s.function.MSI.Vectors-1))
}

func (s *Space) msiSize() int {
	if s.function.MSI.Masking {
		return msiMaskingBytes
	}
	return msiBytes
}

// MSIXState is software's configuration of the MSI-X capability. The table is in a BAR.
type MSIXState struct {
	Enabled bool
	Masked  bool // all vectors at once
}

// MSIX returns the state of the MSI-X capability, or the zero value if there is none.
func (s *Space) MSIX() MSIXState {
	if s.msix == 0 {
		return MSIXState{}
	}
	flags := le.Uint16(s.value[s.msix+msixFlags:])
	return MSIXState{Enabled: flags&msixEnable != 0, Masked: flags&msixMaskAll != 0}
}

// Capability returns the offset of the first capability with the given ID, or 0 if there is none.
func (s *Space) Capability(id byte) int {
	if le.Uint16(s.value[Status:])&StatusCapList == 0 {
		return 0
	}
	for at := int(s.value[CapabilityList]); at != 0; at = int(s.value[at+1]) {
		if s.value[at] == id {
			return at
		}
	}
	return 0
}
