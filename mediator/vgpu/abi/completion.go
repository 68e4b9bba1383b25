package abi

import "fmt"

// Layout of a completion entry.
const (
	completionStatus  = 0  // u16
	completionVersion = 2  // u8
	completionZero    = 3  // u8, zero
	completionOp      = 4  // u16; u16 zero
	completionCookie  = 8  // u64
	completionSeq     = 16 // u64
	completionStart   = 24 // u64
	completionEnd     = 32 // u64
	completionValues  = 40 // 3 u64
)

// A Completion answers one command. Commands of a channel complete in the order of their
// submission.
type Completion struct {
	Status Status
	Op     Opcode // as submitted
	Cookie uint64 // as submitted
	// Seq counts the commands of the channel from 1, including quiet ones and excluding
	// continuation entries: it tells which quiet commands have ended.
	Seq uint64
	// Start and End are nanoseconds on the GPU's clock: when a launch, copy or set began and ended.
	// Zero without FeatureGPUTime and for commands that do nothing on the GPU.
	Start, End uint64
	// Value is the command's answer; see docs/device.md.
	Value [3]uint64
}

// Encode writes the completion into an entry.
func (c *Completion) Encode(e *Entry) {
	e.putU16(completionStatus, uint16(c.Status))
	e[completionVersion] = EntryVersion
	e[completionZero] = 0
	e.putU16(completionOp, uint16(c.Op))
	e.putU16(completionOp+2, 0)
	e.putU64(completionCookie, c.Cookie)
	e.putU64(completionSeq, c.Seq)
	e.putU64(completionStart, c.Start)
	e.putU64(completionEnd, c.End)
	e.putU64(completionValues, c.Value[0])
	e.putU64(completionValues+8, c.Value[1])
	e.putU64(completionValues+16, c.Value[2])
}

// DecodeCompletion reads a completion. It fails only for an entry of another version.
func DecodeCompletion(e *Entry) (Completion, error) {
	c := Completion{
		Status: Status(e.u16(completionStatus)),
		Op:     Opcode(e.u16(completionOp)),
		Cookie: e.u64(completionCookie),
		Seq:    e.u64(completionSeq),
		Start:  e.u64(completionStart),
		End:    e.u64(completionEnd),
		Value:  [3]uint64{e.u64(completionValues), e.u64(completionValues + 8), e.u64(completionValues + 16)},
	}
	if e[completionVersion] != EntryVersion {
		return c, fmt.Errorf("completion entry version %d, not %d: %w", e[completionVersion], EntryVersion, StatusUnsupportedVersion)
	}
	return c, nil
}
