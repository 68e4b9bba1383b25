package nvreg

// PMCBoot0 is the offset of NV_PMC_BOOT_0, which tells the chip.
const PMCBoot0 = 0x000000

// Architecture is the chip's generation, NV_PMC_BOOT_0_ARCHITECTURE.
type Architecture uint8

// Generations. Only Ampere and later have the registers of this package.
const (
	Turing    Architecture = 0x16
	Ampere    Architecture = 0x17
	Hopper    Architecture = 0x18
	Ada       Architecture = 0x19
	Blackwell Architecture = 0x1a
)

// Boot0 is the contents of NV_PMC_BOOT_0.
type Boot0 struct {
	Architecture   Architecture // 28:24
	Implementation uint8        // 23:20
	Major, Minor   uint8        // 7:4 and 3:0, the revision
}

// DecodeBoot0 decodes the register.
func DecodeBoot0(v uint32) Boot0 {
	return Boot0{
		Architecture:   Architecture(v >> 24 & 0x1f),
		Implementation: uint8(v >> 20 & 0xf),
		Major:          uint8(v >> 4 & 0xf),
		Minor:          uint8(v & 0xf),
	}
}

// Encode returns the register's contents.
func (b Boot0) Encode() uint32 {
	return uint32(b.Architecture&0x1f)<<24 | uint32(b.Implementation&0xf)<<20 |
		uint32(b.Major&0xf)<<4 | uint32(b.Minor&0xf)
}

// refused reports whether a value is not a register's contents: all ones from a bus without the
// device, or one of the codes 0xbad… by which the GPU's own register bus answers for registers that
// it lacks or doesn't show.
func refused(v uint32) bool {
	return v == AllOnes || v&0xfff00000 == 0xbad00000
}
