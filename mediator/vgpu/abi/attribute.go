package abi

import "encoding/binary"

// AttributeID is the kind of a launch attribute. Those below 0x1000 are CUDA's own
// CUlaunchAttributeID, with the layout of CUDA's CUlaunchAttributeValue.
type AttributeID uint32

// The launch attributes.
const (
	AttributeIgnore              AttributeID = 0
	AttributeAccessPolicy        AttributeID = 1  // base u64, bytes u64, hit ratio f32, hit and miss property u32
	AttributeCooperative         AttributeID = 2  // u32, not zero: every block must be resident at once
	AttributeSyncPolicy          AttributeID = 3  // u32
	AttributeCluster             AttributeID = 4  // x, y, z u32: blocks of a cluster
	AttributeClusterPolicy       AttributeID = 5  // u32
	AttributeProgrammaticStream  AttributeID = 6  // u32
	AttributeProgrammaticEvent   AttributeID = 7  // event u64, flags u32, trigger at block start u32
	AttributePriority            AttributeID = 8  // i32
	AttributeMemSyncDomainMap    AttributeID = 9  // u8, u8
	AttributeMemSyncDomain       AttributeID = 10 // u32
	AttributePreferredCluster    AttributeID = 11 // x, y, z u32
	AttributeLaunchCompletion    AttributeID = 12 // event u64, flags u32
	AttributeUpdatableNode       AttributeID = 13
	AttributeSharedCarveout      AttributeID = 14     // u32, percent
	AttributeEventEntries        AttributeID = 0x1000 // u32: entries of an event kernel's queue, of a registration
	AttributeExpectedNanoseconds AttributeID = 0x1001 // u64: the guest's own estimate of the kernel's GPU time
	// AttributePreempt, 0x1002, is with its layout in preempt.go.
)

// Layout of an attribute record, which is as large as a ring entry.
const (
	attributeID    = 0 // u32; u32 zero
	attributeValue = 8
)

// An Attribute is one record of a launch's attributes.
type Attribute struct {
	ID    AttributeID
	Value [EntrySize - attributeValue]byte
}

// Encode writes the record.
func (a *Attribute) Encode(e *Entry) {
	e.putU32(attributeID, uint32(a.ID))
	e.putU32(attributeID+4, 0)
	copy(e[attributeValue:], a.Value[:])
}

// DecodeAttribute reads a record. An unknown id is not an error here: the executor answers it with
// [StatusNotSupported].
func DecodeAttribute(e *Entry) (Attribute, error) {
	a := Attribute{ID: AttributeID(e.u32(attributeID))}
	if e.u32(attributeID+4) != 0 {
		return a, errReserved
	}
	copy(a.Value[:], e[attributeValue:])
	return a, nil
}

// Uint32 returns word i of the value.
func (a *Attribute) Uint32(i int) uint32 { return binary.LittleEndian.Uint32(a.Value[4*i:]) }

// PutUint32 sets word i of the value.
func (a *Attribute) PutUint32(i int, v uint32) { binary.LittleEndian.PutUint32(a.Value[4*i:], v) }
