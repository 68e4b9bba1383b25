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

// NV_EVENT_BUFFER_HEADER (cl90cd.h) is the header of an event buffer. Get and Put are indices of
// records; if they are equal, there are none. Dropped counts records that found no room.
type NV_EVENT_BUFFER_HEADER struct {
	Get, Put       uint32
	Count, Dropped uint64
}

// DecodeEventHeader reads the header of a buffer of n records. The kernel wrote it, but nothing
// indexes by it unchecked.
func DecodeEventHeader(b []byte, n uint32) (NV_EVENT_BUFFER_HEADER, error) {
	if len(b) < EventHeaderBytes {
		return NV_EVENT_BUFFER_HEADER{}, fmt.Errorf("event buffer's header of %d bytes, want %d", len(b), EventHeaderBytes)
	}
	h := NV_EVENT_BUFFER_HEADER{
		Get:     binary.LittleEndian.Uint32(b[0:]),
		Put:     binary.LittleEndian.Uint32(b[4:]),
		Count:   binary.LittleEndian.Uint64(b[8:]),
		Dropped: binary.LittleEndian.Uint64(b[16:]),
	}
	if h.Get >= n || h.Put >= n {
		return NV_EVENT_BUFFER_HEADER{}, fmt.Errorf("event buffer of %d records has get %d and put %d", n, h.Get, h.Put)
	}
	return h, nil
}

// Encode writes h as the kernel does.
func (h NV_EVENT_BUFFER_HEADER) Encode(b []byte) {
	binary.LittleEndian.PutUint32(b[0:], h.Get)
	binary.LittleEndian.PutUint32(b[4:], h.Put)
	binary.LittleEndian.PutUint64(b[8:], h.Count)
	binary.LittleEndian.PutUint64(b[16:], h.Dropped)
}

// SwitchTag is the kind of a record (NV_EVENT_BUFFER_FECS_CTXSWTAG_*, cl90cdfecs.h). User space
// gets only the simple kinds, whatever it asks for.
type SwitchTag uint8

// The tags for user space.
const (
	NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START SwitchTag = 6 // the context was put on the engine
	NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_END   SwitchTag = 7 // its state had been saved
)

// EventTypeFECS is the type of records of context switches (NV_EVENT_BUFFER_RECORD_TYPE).
const EventTypeFECS = 2

// PIDs that name no process (cl90cdfecs.h).
const (
	HiddenPID = 0
	KernelPID = 0xffffffff
)

// NV_EVENT_BUFFER_FECS_RECORD_V2 (cl90cdfecs.h) is a record of a context switch, with the header
// that all records have.
type NV_EVENT_BUFFER_FECS_RECORD_V2 struct {
	Type     uint16
	Tag      SwitchTag
	Sequence uint16
	Context  uint32 // the channel's number
	PID      uint32
	// Clock is nanoseconds of the GPU's clock.
	Clock uint64
}

// DecodeSwitchRecord reads one record.
func DecodeSwitchRecord(b *[EventRecordBytes]byte) NV_EVENT_BUFFER_FECS_RECORD_V2 {
	return NV_EVENT_BUFFER_FECS_RECORD_V2{
		Type:     binary.LittleEndian.Uint16(b[0:]),
		Tag:      SwitchTag(b[8]),
		Sequence: binary.LittleEndian.Uint16(b[10:]),
		Context:  binary.LittleEndian.Uint32(b[12:]),
		PID:      binary.LittleEndian.Uint32(b[16:]),
		Clock:    binary.LittleEndian.Uint64(b[24:]),
	}
}

// Encode writes r as the kernel does.
func (r NV_EVENT_BUFFER_FECS_RECORD_V2) Encode(b *[EventRecordBytes]byte) {
	*b = [EventRecordBytes]byte{}
	binary.LittleEndian.PutUint16(b[0:], r.Type)
	b[8] = byte(r.Tag)
	binary.LittleEndian.PutUint16(b[10:], r.Sequence)
	binary.LittleEndian.PutUint32(b[12:], r.Context)
	binary.LittleEndian.PutUint32(b[16:], r.PID)
	binary.LittleEndian.PutUint64(b[24:], r.Clock)
}

// Time returns the record's clock as a duration, and reports whether a duration can hold it, which
// is so until the year 2262.
func (r NV_EVENT_BUFFER_FECS_RECORD_V2) Time() (time.Duration, bool) {
	return time.Duration(r.Clock), r.Clock>>63 == 0
}
