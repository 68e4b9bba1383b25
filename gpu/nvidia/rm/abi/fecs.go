package abi

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Sizes of what the kernel writes to an event buffer.
const (
	EventHeaderBytes = 32
	EventRecordBytes = 32
)

// EventHeader is NV_EVENT_BUFFER_HEADER (cl90cd.h): Get and Put are indices of records;
// equal, there are none. Dropped counts records that found no room.
type EventHeader struct {
	Get, Put       uint32
	Count, Dropped uint64
}

// DecodeEventHeader reads the header of a buffer of n records. The kernel wrote it, but
// nothing indexes by it unchecked.
func DecodeEventHeader(b []byte, n uint32) (EventHeader, error) {
	if len(b) < EventHeaderBytes {
		return EventHeader{}, fmt.Errorf("event buffer's header of %d bytes, want %d", len(b), EventHeaderBytes)
	}
	h := EventHeader{
		Get:     binary.LittleEndian.Uint32(b[0:]),
		Put:     binary.LittleEndian.Uint32(b[4:]),
		Count:   binary.LittleEndian.Uint64(b[8:]),
		Dropped: binary.LittleEndian.Uint64(b[16:]),
	}
	if h.Get >= n || h.Put >= n {
		return EventHeader{}, fmt.Errorf("event buffer of %d records has get %d and put %d", n, h.Get, h.Put)
	}
	return h, nil
}

// Encode writes h as the kernel does.
func (h EventHeader) Encode(b []byte) {
	binary.LittleEndian.PutUint32(b[0:], h.Get)
	binary.LittleEndian.PutUint32(b[4:], h.Put)
	binary.LittleEndian.PutUint64(b[8:], h.Count)
	binary.LittleEndian.PutUint64(b[16:], h.Dropped)
}

// SwitchTag is what a record tells (NV_EVENT_BUFFER_FECS_CTXSWTAG_*, cl90cdfecs.h). User
// space gets only the simple ones, whatever it asks for.
type SwitchTag uint8

// The tags that there are for user space.
const (
	TagStart SwitchTag = 6 // SIMPLE_START: the context was put on the engine
	TagEnd   SwitchTag = 7 // SIMPLE_END: its state had been saved
)

// EventTypeFECS is the type of records of context switches (NV_EVENT_BUFFER_RECORD_TYPE).
const EventTypeFECS = 2

// PIDs that name no process (cl90cdfecs.h).
const (
	HiddenPID = 0
	KernelPID = 0xffffffff
)

// SwitchRecord is NV_EVENT_BUFFER_FECS_RECORD_V2 (cl90cdfecs.h) with the header that all
// records have.
type SwitchRecord struct {
	Type     uint16
	Tag      SwitchTag
	Sequence uint16
	Context  uint32 // the channel's number
	PID      uint32
	// Clock is nanoseconds of the GPU's clock.
	Clock uint64
}

// DecodeSwitchRecord reads one record.
func DecodeSwitchRecord(b *[EventRecordBytes]byte) SwitchRecord {
	return SwitchRecord{
		Type:     binary.LittleEndian.Uint16(b[0:]),
		Tag:      SwitchTag(b[8]),
		Sequence: binary.LittleEndian.Uint16(b[10:]),
		Context:  binary.LittleEndian.Uint32(b[12:]),
		PID:      binary.LittleEndian.Uint32(b[16:]),
		Clock:    binary.LittleEndian.Uint64(b[24:]),
	}
}

// Encode writes r as the kernel does.
func (r SwitchRecord) Encode(b *[EventRecordBytes]byte) {
	*b = [EventRecordBytes]byte{}
	binary.LittleEndian.PutUint16(b[0:], r.Type)
	b[8] = byte(r.Tag)
	binary.LittleEndian.PutUint16(b[10:], r.Sequence)
	binary.LittleEndian.PutUint32(b[12:], r.Context)
	binary.LittleEndian.PutUint32(b[16:], r.PID)
	binary.LittleEndian.PutUint64(b[24:], r.Clock)
}

// Time is the record's clock as a duration. A time beyond a duration's reach, in the
// year 2262, is no time at all, and false.
func (r SwitchRecord) Time() (time.Duration, bool) {
	return time.Duration(r.Clock), r.Clock>>63 == 0
}
