package rm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/rm/abi"
)

// eventRecords is the number of context switches that the driver keeps for a reader: those of over
// a second at the fastest rate measured on an H100, 7070 per second.
const eventRecords = 8192

// Switch is one context switch of the GPU's compute engine, from the GPU's own record.
type Switch struct {
	// Clock is the time on the GPU's clock.
	Clock time.Duration
	// PID is the process of the context, as the driver numbers processes (in the first PID
	// namespace), or 0 if the driver does not report it.
	PID int
	// On is true if the context was put on the engine, and false if its state had been saved.
	On bool
}

// DroppedError reports that records were lost because the reader was too slow.
type DroppedError struct{ Records uint64 }

// Error returns the number of lost records.
func (e *DroppedError) Error() string {
	return fmt.Sprintf("%d records of context switches lost: they were not read in time", e.Records)
}

// Events reads the GPU's record of its context switches: those of all processes' contexts on the
// compute engine, from the call of Client.Events on. It must be used by one goroutine at a time. A
// context that has run out of work stays on the engine until another context needs it, and a
// context that is alone writes no records at all.
type Events struct {
	c               *Client
	call            caller
	buffer          abi.Handle
	header, records Mapping
	n               uint32
	// get is the next record to read, and reported the read position last reported to the driver.
	get, reported uint32
	// dropped is the number of losses reported to the caller. gap is the position of losses that
	// were seen and not reported yet.
	dropped uint64
	gap     uint32
	gapped  bool
}

// Events starts reading. It needs CAP_SYS_ADMIN: without it the driver would answer, but hide the
// processes of the contexts. The caller must close it before the client.
func (c *Client) Events() (*Events, error) {
	if !c.kernel.Admin() {
		return nil, fmt.Errorf("read the GPU's record of context switches: this process lacks CAP_SYS_ADMIN, and would not see whose they are: %w", unix.EPERM)
	}
	e := &Events{c: c, call: caller{node: c.call.node, client: c.call.client}, n: eventRecords}
	if err := e.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("read the GPU's record of context switches: %w", err), e.Close())
	}
	return e, nil
}

func (e *Events) open() (err error) {
	header, err := e.memory(4096, &e.header)
	if err != nil {
		return err
	}
	records, err := e.memory(int(e.n)*abi.EventRecordBytes, &e.records)
	if err != nil {
		return err
	}
	// The driver wakes nobody, since Read polls.
	e.buffer, err = e.call.alloc("make an event buffer", e.call.client, abi.NV_EVENT_BUFFER, &abi.NV_EVENT_BUFFER_ALLOC_PARAMETERS{
		RecordSize: abi.EventRecordBytes, RecordCount: e.n, RecordsFreeThreshold: e.n,
		Subdevice: e.c.subdevice, HeaderMemory: header, RecordMemory: records,
	})
	if err != nil {
		return err
	}
	bind := abi.NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS{Buffer: e.buffer, RecordSize: abi.EventRecordBytes, AllUsers: true}
	if err := e.call.control("bind to context switches", e.c.subdevice, abi.NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2, &bind); err != nil {
		if bind.Reason != 0 {
			return fmt.Errorf("%w: %v", err, bind.Reason)
		}
		return err
	}
	return e.call.control("enable an event buffer", e.buffer, abi.NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS, &abi.NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS{Enable: true, Policy: abi.NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_OLDEST})
}

// memory makes and maps memory that the driver writes.
func (e *Events) memory(size int, m *Mapping) (abi.Handle, error) {
	h, err := e.call.alloc("make an event buffer's memory", e.call.client, abi.NV01_MEMORY_DEVICELESS,
		&abi.NV_MEMORY_ALLOCATION_PARAMS{Attr: abi.NVOS32_ATTR_COHERENCY_CACHED, Attr2: abi.NVOS32_ATTR2_PROTECTION_USER_READ_ONLY, Size: uint64(size)})
	if err != nil {
		return 0, err
	}
	*m, err = e.call.mapMemory(e.c.kernel, h, size)
	return h, err
}

// Read reads the switches since the last call into buf, oldest first, and returns their number. It
// makes the GPU write out its pending records, which takes 4 to 12 µs, and does not wait for
// further ones. With a [*DroppedError] the returned switches are valid, and the lost records came
// after them.
func (e *Events) Read(buf []Switch) (int, error) {
	if err := e.call.brief("flush an event buffer", e.buffer, abi.NV_EVENT_BUFFER_CTRL_CMD_FLUSH, nil); err != nil {
		return 0, err
	}
	var raw [abi.EventHeaderBytes]byte
	e.header.Copy(raw[:], 0)
	// Put is read again, in one access: the records before it are complete.
	binary.LittleEndian.PutUint32(raw[4:], e.header.Load32(4))
	h, err := abi.DecodeEventHeader(raw[:], e.n)
	if err != nil {
		return 0, err
	}
	// A full buffer takes no more records, so the lost ones came after all that are there.
	if h.Dropped != e.dropped && !e.gapped {
		e.gap, e.gapped = h.Put, true
	}
	end := h.Put
	if e.gapped {
		end = e.gap
	}
	n, err := e.take(buf, end)
	if err != nil || !e.gapped || e.get != end {
		return n, err
	}
	lost := h.Dropped - e.dropped
	e.dropped, e.gapped = h.Dropped, false
	return n, &DroppedError{Records: lost}
}

// take moves the records before end to buf, as far as there is room.
func (e *Events) take(buf []Switch, end uint32) (n int, err error) {
	get := e.get
	var b [abi.EventRecordBytes]byte
	for get != end && n < len(buf) {
		e.records.Copy(b[:], int(get)*abi.EventRecordBytes)
		if s, ok := decodeSwitch(abi.DecodeSwitchRecord(&b)); ok {
			buf[n] = s
			n++
		}
		get = (get + 1) % e.n
	}
	e.get = get
	// With enough room left, the driver need not know every step.
	if (get-e.reported+e.n)%e.n < e.n/4 && !e.gapped {
		return n, nil
	}
	e.reported = get
	return n, e.call.brief("move in an event buffer", e.buffer, abi.NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET, &abi.NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET_PARAMS{Record: get})
}

// decodeSwitch decodes a record and reports whether it is a context switch.
func decodeSwitch(r abi.NV_EVENT_BUFFER_FECS_RECORD_V2) (Switch, bool) {
	at, ok := r.Time()
	if !ok || r.Type != abi.EventTypeFECS || r.Tag != abi.NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START && r.Tag != abi.NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_END {
		return Switch{}, false
	}
	s := Switch{Clock: at, PID: int(r.PID), On: r.Tag == abi.NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START}
	if r.PID == abi.KernelPID {
		s.PID = 0
	}
	return s, true
}

// Now reads the clock of the switches' time stamps.
func (e *Events) Now() (time.Duration, error) { return e.c.Now() }

// Close stops the record. The driver writes a harmless line to the kernel's log about it.
func (e *Events) Close() error {
	var errs []error
	if e.buffer != 0 {
		errs = append(errs, e.call.free("end an event buffer", e.call.client, e.buffer))
	}
	for _, m := range []Mapping{e.header, e.records} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
