package accounting_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/accounting"
	"vgpud/accounting/nvreg"
)

const runlistBase = 0x400000

// page returns a register page with one graphics runlist.
func page(t testing.TB) nvreg.File {
	t.Helper()
	mem := make([]uint32, nvreg.Size/4)
	file, err := nvreg.NewFile(bytesOf(mem))
	if err != nil {
		t.Fatal(err)
	}
	file.Store(nvreg.PMCBoot0, nvreg.Boot0{Architecture: nvreg.Hopper}.Encode())
	graphics := nvreg.Device{Type: nvreg.DeviceGraphics, IsEngine: true, RunlistBase: runlistBase, Engine: 1}
	rows := graphics.Encode()
	file.Store(nvreg.PTopDeviceInfoCfg, nvreg.DeviceInfoCfg{Version: 2, MaxDevices: 1, RowsPerDevice: 3, Rows: uint16(len(rows))}.Encode())
	for i, row := range rows {
		file.Store(nvreg.PTopDeviceInfo2+uint32(4*i), row)
	}
	file.Store(runlistBase+nvreg.RunlistChannelConfig, nvreg.ChannelConfig{Log2Channels: 11, Base: 0x500000}.Encode())
	return file
}

func open(t testing.TB, file nvreg.File, host func() time.Duration, entries bool) *accounting.Registers {
	t.Helper()
	r, err := accounting.OpenRegisters(file.Space, host, accounting.RegisterOptions{Settle: 1})
	if err != nil {
		t.Fatal(err)
	}
	r.ReadEntries(entries)
	return r
}

func TestRegisters(t *testing.T) {
	const status0, statusChannel = runlistBase + 0x200 + 64, runlistBase + 0x208 + 64
	valid := nvreg.EngineState{TSGID: 0x123, Context: nvreg.ContextValid, Busy: true}
	tests := []struct {
		name    string
		state   nvreg.EngineState
		channel uint32
		on      bool
		entry   nvreg.ChannelEntry
		want    accounting.Status
	}{
		{name: "nothing", want: accounting.Status{Entry: accounting.EntryIdle}},
		{name: "busy", state: valid, channel: 7, on: true, entry: nvreg.ChannelEnable | nvreg.ChannelBusy,
			want: accounting.Status{Valid: true, Group: 0x123, Busy: true, Entry: accounting.EntryPending}},
		{name: "resident and dry", state: nvreg.EngineState{TSGID: 4095, Context: nvreg.ContextValid}, channel: 7, on: true, entry: nvreg.ChannelEnable,
			want: accounting.Status{Valid: true, Group: 4095, Entry: accounting.EntryIdle}},
		{name: "the entry lags", state: valid, channel: 2047, on: true, entry: nvreg.ChannelEnable,
			want: accounting.Status{Valid: true, Group: 0x123, Busy: true, Entry: accounting.EntryIdle}},
		{name: "a channel beyond the table", state: valid, channel: 2048, on: true, entry: nvreg.ChannelBusy,
			want: accounting.Status{Valid: true, Group: 0x123, Busy: true, Entry: accounting.EntryIdle}},
		{name: "save", state: nvreg.EngineState{TSGID: 5, Context: nvreg.ContextSave, NextTSGID: 6, Busy: true},
			want: accounting.Status{Valid: true, Group: 5, Switch: accounting.Saving, Busy: true, Entry: accounting.EntryIdle}},
		{name: "load", state: nvreg.EngineState{TSGID: 5, Context: nvreg.ContextLoad, NextTSGID: 6, Busy: true},
			want: accounting.Status{Valid: true, Group: 5, Switch: accounting.Loading, Next: 6, Busy: true, Entry: accounting.EntryIdle}},
		{name: "switch", state: nvreg.EngineState{TSGID: 5, Context: nvreg.ContextSwitch, NextTSGID: 6, Busy: true},
			want: accounting.Status{Valid: true, Group: 5, Switch: accounting.Switching, Next: 6, Busy: true, Entry: accounting.EntryIdle}},
		{name: "a state that isn't defined", state: nvreg.EngineState{TSGID: 5, Context: 3, Busy: true},
			want: accounting.Status{Busy: true, Entry: accounting.EntryIdle}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := page(t)
			now := 10 * time.Second
			r := open(t, file, func() time.Duration { now++; return now }, true)
			if _, err := r.Sample(); err != nil {
				t.Fatal(err)
			}
			file.Store(0x500000+4*test.channel, uint32(test.entry))
			file.Store(statusChannel, uint32(nvreg.EncodeEngineChannel(test.channel, test.on)))
			file.Store(status0, uint32(test.state.Encode()))
			if want := test.on || test.state != (nvreg.EngineState{}); r.Changed() != want {
				t.Errorf("Changed = %v, want %v", !want, want)
			}
			got, err := r.Sample()
			if err != nil {
				t.Fatal(err)
			}
			if got.Clock != now {
				t.Errorf("clock %v, want the host's, %v", got.Clock, now)
			}
			got.Clock = 0
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if r.Changed() {
				t.Error("Changed right after Sample")
			}
		})
	}
}

func TestRegistersGone(t *testing.T) {
	file := page(t)
	var now time.Duration
	r := open(t, file, func() time.Duration { now++; return now }, false)
	file.Store(runlistBase+0x240, nvreg.AllOnes)
	if !r.Changed() {
		t.Error("a GPU that fell off the bus didn't change")
	}
	if _, err := r.Sample(); !errors.Is(err, accounting.ErrGone) {
		t.Errorf("Sample: %v, want ErrGone", err)
	}
	if _, err := accounting.OpenRegisters(nvreg.Space{}, func() time.Duration { return 0 }, accounting.RegisterOptions{}); !errors.Is(err, nvreg.ErrNoDevice) {
		t.Errorf("OpenRegisters of nothing: %v, want ErrNoDevice", err)
	}
}

// BenchmarkPoll measures one iteration of the polling loop, which reads the host's clock and one
// register and updates the meter, without and with a change each time.
func BenchmarkPoll(b *testing.B) {
	epoch := time.Now()
	host := func() time.Duration { return time.Since(epoch) }
	poll := func(b *testing.B, entries bool, changes bool) {
		file := page(b)
		r := open(b, file, host, entries)
		m := accounting.NewMeter(accounting.Config{})
		st, err := r.Sample()
		if err != nil {
			b.Fatal(err)
		}
		m.Begin(st)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if changes {
				state := nvreg.EngineState{TSGID: uint16(i & 15), Context: nvreg.ContextValid, Busy: true}
				file.Store(runlistBase+0x240, uint32(state.Encode()))
			}
			m.Host(host())
			if !r.Changed() {
				m.Unchanged(1)
				continue
			}
			if st, err = r.Sample(); err != nil {
				b.Fatal(err)
			}
			m.Observe(st)
		}
	}
	b.Run("unchanged", func(b *testing.B) { poll(b, false, false) })
	b.Run("unchanged with entries", func(b *testing.B) { poll(b, true, false) })
	b.Run("changed", func(b *testing.B) { poll(b, false, true) })
}
