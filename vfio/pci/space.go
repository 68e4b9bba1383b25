package pci

import "fmt"

// Space is a function's configuration space. It is not safe for concurrent use.
type Space struct {
	function Function

	value     []byte
	writable  []byte // bits that a write sets
	clearable []byte // bits that a write of one clears
	initial   []byte // value after power-on

	// Where the capabilities begin; 0 if absent.
	pm, express, msi, msix int
}

// Change is a set of the registers that a write changed.
type Change uint8

// The registers that a write may change. ChangeFunctionReset asks the owner to reset the device,
// including this space.
const (
	ChangeCommand Change = 1 << iota
	ChangeBARs
	ChangePower
	ChangeMSI
	ChangeMSIX
	ChangeFunctionReset
)

// Len returns the size of the space in bytes.
func (s *Space) Len() int { return len(s.value) }

// Read fills p from offset. Any length and alignment within the space is valid.
func (s *Space) Read(offset uint64, p []byte) error {
	if err := s.check(offset, len(p)); err != nil {
		return err
	}
	copy(p, s.value[offset:])
	return nil
}

// Write writes p to offset. Read-only bits keep their value; the others take the value of p or are
// cleared by its ones. Write returns the registers that changed.
func (s *Space) Write(offset uint64, p []byte) (Change, error) {
	if err := s.check(offset, len(p)); err != nil {
		return 0, err
	}
	var changed Change
	power := s.PowerState()
	for i, b := range p {
		at := int(offset) + i
		old := s.value[at]
		v := old&^s.writable[at] | b&s.writable[at]
		v &^= b & s.clearable[at]
		if v != old {
			s.value[at] = v
			changed |= s.owner(at)
		}
	}
	// A write of a power state that the function lacks is ignored (PCI PM 1.2 §3.2.4).
	if now := s.PowerState(); now == 1 || now == 2 {
		s.setPowerState(power)
		changed &^= ChangePower
	}
	changed |= s.functionReset()
	return changed, nil
}

// Reset brings the space to its state after power-on.
func (s *Space) Reset() { copy(s.value, s.initial) }

func (s *Space) check(offset uint64, n int) error {
	if size := uint64(len(s.value)); offset > size || uint64(n) > size-offset {
		return fmt.Errorf("%d bytes at %#x of a configuration space of %d bytes", n, offset, size)
	}
	return nil
}

// owner returns the register that a byte belongs to.
func (s *Space) owner(at int) Change {
	in := func(start, size int) bool { return start != 0 && at >= start && at < start+size }
	switch {
	case in(Command, 2):
		return ChangeCommand
	case in(BaseAddress0, 4*NumBARs):
		return ChangeBARs
	case in(s.pm, pmBytes):
		return ChangePower
	case in(s.msi, msiMaskingBytes) && at < s.msi+s.msiSize():
		return ChangeMSI
	case in(s.msix, msixBytes):
		return ChangeMSIX
	}
	return 0
}

// functionReset reports whether software requested a function-level reset. The bit always reads as
// zero.
func (s *Space) functionReset() Change {
	if s.express == 0 {
		return 0
	}
	ctl := s.value[s.express+expDevCtl:]
	v := le.Uint16(ctl)
	if v&expDevCtlFLR == 0 {
		return 0
	}
	le.PutUint16(ctl, v&^expDevCtlFLR)
	return ChangeFunctionReset
}
