package abi_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/gpu/nvidia/rm/abi"
)

// TestSizes holds every struct to the size that the driver's headers give it: the driver refuses
// parameters of another size.
func TestSizes(t *testing.T) {
	for _, s := range []struct {
		v    any
		want int
	}{
		{abi.NVOS64_PARAMETERS{}, 48},
		{abi.NVOS54_PARAMETERS{}, 32},
		{abi.NVOS00_PARAMETERS{}, 16},
		{abi.Nv_ioctl_nvos33_parameters_with_fd{}, 56},
		{abi.Nv_ioctl_register_fd_t{}, 4},
		{abi.NV0080_ALLOC_PARAMETERS{}, 56},
		{abi.NV2080_ALLOC_PARAMETERS{}, 4},
		{abi.NV_MEMORY_ALLOCATION_PARAMS{}, 128},
		{abi.NV_EVENT_BUFFER_ALLOC_PARAMETERS{}, 72},
		{abi.NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS{}, 128},
		{abi.NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS{}, 384},
		{abi.NV0000_CTRL_GPU_ATTACH_IDS_PARAMS{}, 132},
		{abi.NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS{}, 12},
		{abi.NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS{}, 32},
		{abi.NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS{}, 16},
		{abi.NV2080_CTRL_TIMER_GET_TIME_PARAMS{}, 8},
		{abi.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS{}, 536},
		{abi.NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS{}, 24},
		{abi.NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS{}, 8},
		{abi.NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET_PARAMS{}, 8},
		{abi.NVA06C_CTRL_TIMESLICE_PARAMS{}, 8},
		{abi.NVA06C_CTRL_PREEMPT_PARAMS{}, 8},
		{abi.NVA06C_CTRL_GET_INFO_PARAMS{}, 4},
	} {
		if got := abi.Size(s.v); got != s.want {
			t.Errorf("%T has %d bytes, want %d", s.v, got, s.want)
		}
	}
}

// TestPlaces puts a mark into every field that calls use and finds it at the offset that the
// headers give it.
func TestPlaces(t *testing.T) {
	disable := abi.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS{Disable: true, Count: 0x11, OnlyScheduling: true, RewindGpPut: true, Event: 0x22}
	disable.Clients[1], disable.Channels[63] = 0x33, 0x44
	for _, s := range []struct {
		name  string
		v     any
		bytes map[int]byte // all others are zero
	}{
		{"alloc", &abi.NVOS64_PARAMETERS{Client: 1, Parent: 2, Object: 3, Class: 4, Params: 5, Rights: 6, ParamsSize: 7, Flags: 8, Status: 9},
			map[int]byte{0: 1, 4: 2, 8: 3, 12: 4, 16: 5, 24: 6, 32: 7, 36: 8, 40: 9}},
		{"control", &abi.NVOS54_PARAMETERS{Client: 1, Object: 2, Command: 3, Flags: 4, Params: 5, ParamsSize: 6, Status: 7},
			map[int]byte{0: 1, 4: 2, 8: 3, 12: 4, 16: 5, 24: 6, 28: 7}},
		{"free", &abi.NVOS00_PARAMETERS{Client: 1, Parent: 2, Object: 3, Status: 4}, map[int]byte{0: 1, 4: 2, 8: 3, 12: 4}},
		{"map", &abi.Nv_ioctl_nvos33_parameters_with_fd{Client: 1, Device: 2, Memory: 3, Offset: 4, Length: 5, Address: 6, Status: 7, Flags: 8, FD: 9},
			map[int]byte{0: 1, 4: 2, 8: 3, 16: 4, 24: 5, 32: 6, 40: 7, 44: 8, 48: 9}},
		{"memory", &abi.NV_MEMORY_ALLOCATION_PARAMS{Attr: abi.NVOS32_ATTR_COHERENCY_CACHED, Attr2: abi.NVOS32_ATTR2_PROTECTION_USER_READ_ONLY, Size: 1}, map[int]byte{27: 0x20, 30: 0x40, 64: 1}},
		{"buffer", &abi.NV_EVENT_BUFFER_ALLOC_PARAMETERS{RecordSize: 1, RecordCount: 2, RecordsFreeThreshold: 3, Notification: 4, Subdevice: 5, HeaderMemory: 6, RecordMemory: 7},
			map[int]byte{16: 1, 20: 2, 36: 3, 40: 4, 52: 5, 60: 6, 64: 7}},
		{"bind", &abi.NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS{Buffer: 1, RecordSize: 2, Detail: 3, Filter: 4, AllUsers: true, Reason: 5},
			map[int]byte{0: 1, 4: 2, 8: 3, 12: 4, 16: 1, 20: 5}},
		{"disable", &disable, map[int]byte{0: 1, 4: 0x11, 8: 1, 9: 1, 16: 0x22, 28: 0x33, 280 + 4*63: 0x44}},
		{"preempt", &abi.NVA06C_CTRL_PREEMPT_PARAMS{Wait: true, ManualTimeout: true, TimeoutMicros: 2}, map[int]byte{0: 1, 1: 1, 4: 2}},
		{"handle", &abi.NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS{Object: 1, Index: 2, Result: 3}, map[int]byte{0: 1, 4: 2, 8: 3}},
		{"pci", &abi.NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS{ID: 1, Domain: 2, Bus: 3, Slot: 4}, map[int]byte{0: 1, 4: 2, 8: 3, 10: 4}},
	} {
		want := make([]byte, abi.Size(s.v))
		for off, b := range s.bytes {
			want[off] = b
		}
		got := make([]byte, len(want))
		if _, err := abi.Encode(got, s.v); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s encodes to\n%x, want\n%x", s.name, got, want)
		}
	}
}

// TestRequests has the numbers that strace shows of programs that use CUDA.
func TestRequests(t *testing.T) {
	for _, r := range []struct {
		nr   uint8
		call any
		want uint32
	}{
		{abi.NV_ESC_RM_CONTROL, abi.NVOS54_PARAMETERS{}, 0xc020462a},
		{abi.NV_ESC_RM_ALLOC, abi.NVOS64_PARAMETERS{}, 0xc030462b},
		{abi.NV_ESC_RM_FREE, abi.NVOS00_PARAMETERS{}, 0xc0104629},
		{abi.NV_ESC_RM_MAP_MEMORY, abi.Nv_ioctl_nvos33_parameters_with_fd{}, 0xc038464e},
		{abi.NV_ESC_REGISTER_FD, abi.Nv_ioctl_register_fd_t{}, 0xc00446c9},
	} {
		if got := abi.Request(r.nr, abi.Size(r.call)); got != r.want {
			t.Errorf("%T is ioctl %#x, want %#x", r.call, got, r.want)
		}
	}
}

func TestEncodeWantsRoom(t *testing.T) {
	if _, err := abi.Encode(make([]byte, 31), &abi.NVOS54_PARAMETERS{}); err == nil {
		t.Error("31 bytes were enough for 32")
	}
}

func TestClassesOfOtherGenerations(t *testing.T) {
	for c, want := range map[abi.Class][2]bool{
		0xc86f: {true, false}, 0xc36f: {true, false}, 0xc96f: {true, false}, 0xca6f: {true, false},
		0xcbc0: {false, true}, 0xc6c0: {false, true}, 0xcdc0: {false, true},
		0xa06c: {}, 0xc8b5: {}, 0xb06f: {}, 0x2080: {}, 0xcb97: {}, 0xf06f: {},
	} {
		if got := [2]bool{c.Channel(), c.Compute()}; got != want {
			t.Errorf("class %#x: channel, compute = %v, want %v", uint32(c), got, want)
		}
	}
}

// TestSwitchRecord decodes a record byte by byte as the header has them.
func TestSwitchRecord(t *testing.T) {
	var b [abi.EventRecordBytes]byte
	copy(b[:], "\x02\x00\x00\x00\x00\x00\x00\x00"+ // type, subtype, variable data
		"\x06\x00\x34\x12"+ // tag, vm, sequence
		"\x01\x02\x03\x04"+ // context
		"\x15\xcd\x5b\x07"+ // pid
		"\x00\x00\xff\xff"+ // instances of MIG
		"\x00\x10\xa5\xd4\xe8\x00\x00\x00")
	want := abi.NV_EVENT_BUFFER_FECS_RECORD_V2{Type: 2, Tag: abi.NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START, Sequence: 0x1234, Context: 0x04030201, PID: 123456789, Clock: 1e12}
	if diff := cmp.Diff(want, abi.DecodeSwitchRecord(&b)); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if at, ok := want.Time(); !ok || at != 1000*time.Second {
		t.Errorf("time = %v, %v", at, ok)
	}
}

func FuzzSwitchRecord(f *testing.F) {
	f.Add(make([]byte, abi.EventRecordBytes))
	f.Add(bytes.Repeat([]byte{0xff}, abi.EventRecordBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		var raw, again [abi.EventRecordBytes]byte
		if copy(raw[:], b) < len(raw) {
			return
		}
		r := abi.DecodeSwitchRecord(&raw)
		r.Encode(&again)
		if got := abi.DecodeSwitchRecord(&again); got != r {
			t.Errorf("%+v encodes to %+v", r, got)
		}
		if at, ok := r.Time(); ok && at < 0 {
			t.Errorf("time %v", at)
		}
	})
}

func FuzzEventHeader(f *testing.F) {
	f.Add(make([]byte, abi.EventHeaderBytes), uint32(8))
	f.Add([]byte{}, uint32(0))
	f.Add(bytes.Repeat([]byte{0xff}, abi.EventHeaderBytes), uint32(1<<32-1))
	f.Fuzz(func(t *testing.T, b []byte, n uint32) {
		h, err := abi.DecodeEventHeader(b, n)
		if err != nil {
			return
		}
		if h.Get >= n || h.Put >= n {
			t.Errorf("header %+v of %d records", h, n)
		}
		again := make([]byte, abi.EventHeaderBytes)
		h.Encode(again)
		if got, err := abi.DecodeEventHeader(again, n); err != nil || got != h {
			t.Errorf("%+v encodes to %+v, %v", h, got, err)
		}
	})
}
