package nvreg

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func newFile(t testing.TB) File {
	t.Helper()
	f, err := NewFile(make([]byte, Size))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestEngineStatusLayout tests values computed by hand from the manuals' bit ranges, so that
// encoder and decoder can't both be wrong in the same way.
func TestEngineStatusLayout(t *testing.T) {
	for _, c := range []struct {
		raw  EngineStatus
		want EngineState
	}{
		{0, EngineState{}},
		{0x80002005, EngineState{TSGID: 5, Context: ContextValid, Busy: true}},
		{0x0007e003, EngineState{TSGID: 3, Context: ContextSwitch, NextTSGID: 7}},
		{0x8fffafff, EngineState{TSGID: 0xfff, Context: ContextSave, NextTSGID: 0xfff, Busy: true}},
		{0x6001c000, EngineState{Context: ContextLoad, NextTSGID: 1, Reload: true, Faulted: true}},
	} {
		if diff := cmp.Diff(c.want, c.raw.Decode()); diff != "" {
			t.Errorf("%#x decodes otherwise (-want +got):\n%s", c.raw, diff)
		}
		if got := c.want.Encode(); got != c.raw {
			t.Errorf("%+v encodes to %#x, want %#x", c.want, got, c.raw)
		}
	}
}

func TestEngineStateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := EngineState{
			TSGID:     rapid.Uint16Range(0, 0xfff).Draw(t, "tsgid"),
			Context:   ContextStatus(rapid.Uint8Range(0, 7).Draw(t, "context")),
			NextTSGID: rapid.Uint16Range(0, 0xfff).Draw(t, "next"),
			Reload:    rapid.Bool().Draw(t, "reload"),
			Faulted:   rapid.Bool().Draw(t, "faulted"),
			Busy:      rapid.Bool().Draw(t, "busy"),
		}
		if got := s.Encode().Decode(); got != s {
			t.Fatalf("%+v comes back as %+v", s, got)
		}
	})
}

func TestDeviceRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Device{
			FaultID:     rapid.Uint16Range(0, 0x7ff).Draw(t, "fault"),
			Group:       rapid.Uint8Range(0, 31).Draw(t, "group"),
			Instance:    rapid.Uint8().Draw(t, "instance"),
			Type:        DeviceType(rapid.Uint8Range(0, 127).Draw(t, "type")),
			ResetID:     rapid.Uint8().Draw(t, "reset"),
			PRIBase:     rapid.Uint32Range(0, 1<<18-1).Draw(t, "pri") << 8,
			IsEngine:    rapid.Bool().Draw(t, "engine"),
			Engine:      rapid.Uint8Range(0, 3).Draw(t, "rleng"),
			RunlistBase: rapid.Uint32Range(0, 1<<16-1).Draw(t, "runlist") << 10,
		}
		if got := decodeDevice(d.Encode()); got != d {
			t.Fatalf("%+v comes back as %+v", d, got)
		}
	})
}

func TestDeviceLayout(t *testing.T) {
	d := Device{FaultID: 384, Instance: 0, Type: DeviceCopy, ResetID: 0x0c, PRIBase: 0x400000, IsEngine: true,
		Engine: 2, RunlistBase: 0x00081c00}
	if got, want := d.Encode(), [3]uint32{0x93000180, 0xc040000c, 0x00081c02}; got != want {
		t.Errorf("rows %#x, want %#x", got, want)
	}
}

func TestRegistersRoundTrip(t *testing.T) {
	b := Boot0{Architecture: Ampere, Implementation: 2, Major: 0xa, Minor: 1}
	if got := b.Encode(); got != 0x172000a1 || DecodeBoot0(got) != b {
		t.Errorf("boot0 %#x, decoded %+v", got, DecodeBoot0(got))
	}
	c := DeviceInfoCfg{Version: 2, MaxDevices: 0x99, RowsPerDevice: 3, Rows: 0x161}
	if got := c.Encode(); got != 0x16130992 || DecodeDeviceInfoCfg(got) != c {
		t.Errorf("cfg %#x, decoded %+v", got, DecodeDeviceInfoCfg(got))
	}
	k := ChannelConfig{Log2Channels: 11, Base: 0x00700000}
	if got := k.Encode(); got != 0x0070000b || DecodeChannelConfig(got) != k {
		t.Errorf("channel config %#x, decoded %+v", got, DecodeChannelConfig(got))
	}
	if got := EncodeEngineChannel(9, true); got != 0x8009 {
		t.Errorf("engine channel %#x, want 0x8009", got)
	}
	if id, ok := EngineChannel(0x8009).ID(); id != 9 || !ok {
		t.Errorf("engine channel = %d, %v", id, ok)
	}
	if _, ok := EncodeEngineChannel(9, false).ID(); ok {
		t.Error("no channel is on the engine, but its register says one is")
	}
}

func TestTimeWords(t *testing.T) {
	for _, at := range []time.Duration{0, 32, 4294967264, 4294967296, 1<<61 - 32} {
		low, high := EncodeTime(at)
		if got := DecodeTime(low, high); got != at {
			t.Errorf("%d comes back as %d", at, got)
		}
		f := newFile(t)
		f.StoreTime(at)
		if got := ReadTime(f.Space); got != at {
			t.Errorf("stored %d, read %d", at, got)
		}
	}
	if low, _ := EncodeTime(63); low != 32 {
		t.Errorf("low word at 63 ns is %d, want steps of 32", low)
	}
}

func TestFindGraphics(t *testing.T) {
	f := newFile(t)
	if _, err := FindGraphics(f.Space); !errors.Is(err, ErrNoDevice) {
		t.Errorf("empty space: %v, want ErrNoDevice", err)
	}
	if _, err := FindGraphics(Space{}); !errors.Is(err, ErrNoDevice) {
		t.Errorf("no space: %v, want ErrNoDevice", err)
	}
	f.Store(PMCBoot0, Boot0{Architecture: Turing, Implementation: 4}.Encode())
	if _, err := FindGraphics(f.Space); !errors.Is(err, ErrTooOld) {
		t.Errorf("Turing: %v, want ErrTooOld", err)
	}
	f.Store(PMCBoot0, Boot0{Architecture: Ampere}.Encode())
	copyEngine := Device{Type: DeviceCopy, IsEngine: true, RunlistBase: 0x80000, FaultID: 15}
	f.StoreDevices([]Device{copyEngine})
	if _, err := FindGraphics(f.Space); !errors.Is(err, ErrNoGraphics) {
		t.Errorf("copy engines only: %v, want ErrNoGraphics", err)
	}
	graphics := Device{Type: DeviceGraphics, IsEngine: true, Engine: 1, RunlistBase: 0x90000, FaultID: 384}
	f.StoreDevices([]Device{copyEngine, graphics})
	f.Store(0x90000+RunlistChannelConfig, ChannelConfig{Log2Channels: 9, Base: 0xa0000}.Encode())
	got, err := FindGraphics(f.Space)
	if err != nil {
		t.Fatal(err)
	}
	want := Runlist{Base: 0x90000, Engine: 1, Entries: 0xa0000, Channels: 512}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runlist (-want +got):\n%s", diff)
	}
	if off := got.StatusOffset(); off != 0x90240 {
		t.Errorf("status at %#x, want 0x90240", off)
	}
	f.Store(0x90240, uint32(EngineState{TSGID: 7, Context: ContextValid, Busy: true}.Encode()))
	if s := got.Status(f.Space).Decode(); s.TSGID != 7 || !s.Busy {
		t.Errorf("status %+v", s)
	}
	f.Store(0xa0000+4*511, uint32(ChannelEnable|ChannelBusy))
	if e := got.Entry(f.Space, 511); !e.Working() || e.String() != "enable|busy" {
		t.Errorf("entry 511 is %v", e)
	}
	if e := got.Entry(f.Space, 512); e != 0 {
		t.Errorf("entry beyond the runlist is %v", e)
	}
}

// TestDeviceTableShapes tests device tables with rows that are no device, and with devices that
// have fewer or more rows than this package knows.
func TestDeviceTableShapes(t *testing.T) {
	f := newFile(t)
	rows := []uint32{
		0,
		0x13000001,                         // one row only
		0x80000180, 0xc0400000, 0x00081c00, // graphics
		0,
		0x80000002, 0x80000000, 0x80000000, 0x00000007, // four rows
	}
	for i, r := range rows {
		f.Store(PTopDeviceInfo2+4*uint32(i), r)
	}
	f.Store(PTopDeviceInfoCfg, DeviceInfoCfg{Rows: uint16(len(rows))}.Encode())
	got, err := Devices(f.Space)
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{
		{Type: DeviceCopy, FaultID: 1},
		{FaultID: 0x180, IsEngine: true, PRIBase: 0x400000, RunlistBase: 0x81c00},
		{FaultID: 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestCalibrate(t *testing.T) {
	var now time.Duration
	host := func() time.Duration { now += 100; return now }
	f := newFile(t)
	f.StoreTime(12345)
	if off, _, ticks := Calibrate(f.Space, host, 5000); ticks || off != 0 {
		t.Errorf("a clock that stands still: offset %d, ticks %v", off, ticks)
	}
	reads := 0
	restless := func() time.Duration {
		// A soft GPU that works: its status changes from time to time.
		now += 100
		if reads++; reads%700 == 0 {
			f.StoreTime(now)
		}
		return now
	}
	if off, _, ticks := Calibrate(f.Space, restless, 200000); ticks || off != 0 {
		t.Errorf("a clock that moves now and then: offset %d, ticks %v", off, ticks)
	}
	ahead := 7 * time.Second
	ticking := func() time.Duration { now += 100; f.StoreTime(now + ahead); return now }
	off, bound, ticks := Calibrate(f.Space, ticking, 5000)
	if d := off - ahead; !ticks || d > bound || -d > bound {
		t.Errorf("offset %d±%d (ticks %v), want %d", off, bound, ticks, ahead)
	}
}

func TestSpaceBounds(t *testing.T) {
	if _, err := NewSpace(make([]byte, 3)); err == nil {
		t.Error("a space of 3 bytes was accepted")
	}
	if _, err := NewSpace(make([]byte, 12)[1:9]); err == nil {
		t.Error("a misaligned space was accepted")
	}
	f, err := NewFile(make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	f.Store(8, 1) // ignored
	if got := f.Load(8); got != AllOnes {
		t.Errorf("beyond the space: %#x, want all ones", got)
	}
	if !EngineStatus(f.Load(8)).Gone() || EngineStatus(0x80002005).Gone() {
		t.Error("Gone doesn't tell a GPU that is there from one that isn't")
	}
}

func FuzzFindGraphics(f *testing.F) {
	f.Add(uint32(0x17000000), uint32(0xfff00002), []byte{0, 1, 0, 0x80, 0, 0, 0x40, 0xc0, 0, 0x1c, 8, 0})
	f.Add(uint32(0xffffffff), uint32(0), []byte{})
	f.Fuzz(func(t *testing.T, boot, cfg uint32, rows []byte) {
		mem := make([]byte, 0x40000)
		file, err := NewFile(mem)
		if err != nil {
			t.Fatal(err)
		}
		file.Store(PMCBoot0, boot)
		copy(mem[PTopDeviceInfo2:], rows)
		file.Store(PTopDeviceInfoCfg, cfg)
		r, err := FindGraphics(file.Space)
		if err == nil {
			r.Status(file.Space)
			r.Entry(file.Space, r.Channels-1)
		}
	})
}

func BenchmarkStatusRead(b *testing.B) {
	f := newFile(b)
	r := Runlist{Base: 0x90000}
	b.ReportAllocs()
	var sum EngineStatus
	for b.Loop() {
		sum += r.Status(f.Space)
	}
	_ = sum
}

func BenchmarkStatusWrite(b *testing.B) {
	f := newFile(b)
	off := Runlist{Base: 0x90000}.StatusOffset()
	v := uint32(EngineState{TSGID: 3, Context: ContextValid, Busy: true}.Encode())
	b.ReportAllocs()
	for b.Loop() {
		f.Store(off, v)
		v ^= 1
	}
}
