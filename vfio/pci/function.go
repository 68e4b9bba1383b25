package pci

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Function describes a PCI function. Zero fields are absent.
type Function struct {
	VendorID          uint16
	DeviceID          uint16
	SubsystemVendorID uint16
	SubsystemID       uint16
	Revision          uint8
	// Class is the 24-bit class code: class, subclass and programming interface, from the highest
	// byte to the lowest.
	Class uint32

	// BARs are the memory BARs. A 64-bit BAR occupies the next number too, which must be empty.
	BARs [NumBARs]BAR

	// InterruptPin is 1 to 4 for INTA to INTD, 0 for a function without INTx.
	InterruptPin uint8

	// Extended makes the space 4096 bytes long instead of 256.
	Extended bool

	// The capabilities are listed in this order.
	PowerManagement bool
	Express         *Express
	MSI             *MSI
	MSIX            *MSIX
}

// BAR is a memory BAR. Size is a power of two, at least 16 bytes, and at most 2 GiB unless the BAR
// is 64-bit; 0 means absent.
type BAR struct {
	Size         uint64
	Is64         bool
	Prefetchable bool
}

// Express is the capability of a PCI Express endpoint, version 2.
type Express struct {
	// LinkSpeed is a generation from 1 (2.5 GT/s) to 6. LinkWidth is the number of lanes. 0 means
	// 1.
	LinkSpeed, LinkWidth uint8
	// FunctionReset offers function-level reset. Write reports [ChangeFunctionReset] if software
	// requests one.
	FunctionReset bool
}

// MSI is the MSI capability with a 64-bit address. Vectors is a power of two from 1 to 32. Masking
// adds a mask bit and a pending bit for each vector.
type MSI struct {
	Vectors int
	Masking bool
}

// MSIX is the MSI-X capability, with the positions of its table of 16-byte entries and of its
// pending bits. Offsets are multiples of 8.
type MSIX struct {
	Vectors     int // 1 to 2048
	TableBAR    int
	TableOffset uint32
	PBABAR      int
	PBAOffset   uint32
}

var le = binary.LittleEndian

// New lays out a function's configuration space in its state after power-on.
func New(f Function) (*Space, error) {
	s := &Space{function: f, value: make([]byte, SpaceBytes)}
	if f.Extended {
		s.value = make([]byte, ExtendedSpaceBytes)
	}
	s.writable = make([]byte, len(s.value))
	s.clearable = make([]byte, len(s.value))
	if f.Class>>24 != 0 {
		return nil, fmt.Errorf("class code %#x has more than 24 bits", f.Class)
	}
	if f.InterruptPin > 4 {
		return nil, fmt.Errorf("interrupt pin %d, want 0 to 4", f.InterruptPin)
	}
	s.header()
	if err := s.bars(); err != nil {
		return nil, err
	}
	if err := s.capabilities(); err != nil {
		return nil, err
	}
	s.initial = append([]byte(nil), s.value...)
	return s, nil
}

func (s *Space) header() {
	f := &s.function
	le.PutUint16(s.value[VendorID:], f.VendorID)
	le.PutUint16(s.value[DeviceID:], f.DeviceID)
	le.PutUint16(s.writable[Command:], commandWritable)
	le.PutUint16(s.clearable[Status:], statusClearable)
	le.PutUint32(s.value[RevisionID:], f.Class<<8|uint32(f.Revision))
	s.writable[CacheLineSize] = 0xff // has no effect in PCI Express, but is writable
	le.PutUint16(s.value[SubsystemVendorID:], f.SubsystemVendorID)
	le.PutUint16(s.value[SubsystemID:], f.SubsystemID)
	s.value[InterruptPin] = f.InterruptPin
	s.writable[InterruptLine] = 0xff
}

// bars lays out the base address registers. The sizing protocol (write ones, read back) needs no
// code: the bits below the size are not writable and read as zero, except for the type bits.
func (s *Space) bars() error {
	for i := 0; i < NumBARs; i++ {
		b := s.function.BARs[i]
		if b.Size == 0 {
			continue
		}
		if b.Size < 16 || bits.OnesCount64(b.Size) != 1 {
			return fmt.Errorf("BAR %d: size %#x is no power of two from 16 up", i, b.Size)
		}
		reg, mask := BaseAddress0+4*i, ^(b.Size - 1)
		flags := uint32(0)
		if b.Prefetchable {
			flags |= barPrefetch
		}
		if b.Is64 {
			if i == NumBARs-1 || s.function.BARs[i+1] != (BAR{}) {
				return fmt.Errorf("BAR %d: a 64-bit BAR needs the next number empty", i)
			}
			flags |= barMem64
			le.PutUint32(s.writable[reg+4:], uint32(mask>>32))
		} else if b.Size > 1<<31 {
			return fmt.Errorf("BAR %d: size %#x needs a 64-bit BAR", i, b.Size)
		}
		le.PutUint32(s.value[reg:], flags)
		le.PutUint32(s.writable[reg:], uint32(mask))
		if b.Is64 {
			i++
		}
	}
	return nil
}
