package driver

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu/abi"
)

// TestRingsApartProperty opens and closes channels of any depth, and allocates and frees host
// memory, in any order. Rings lie in the device's area for rings and windows in theirs, and no two
// overlap. The host refuses a ring or a command's window anywhere else.
func TestRingsApartProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old := rapid.Bool().Draw(t, "old")
		host, err := drivertest.NewHost(drivertest.Options{
			Version1_0: old, Features: abi.AllFeatures, SharedBytes: abi.MinSharedBytes << rapid.IntRange(0, 2).Draw(t, "shared"),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		d, err := Open(ctx, host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}()
		gpu, err := d.NewContext(ctx, ContextOptions{})
		if err != nil {
			t.Fatal(err)
		}
		mem, err := gpu.Alloc(ctx, 64<<10)
		if err != nil {
			t.Fatal(err)
		}
		now, end := context.WithCancel(ctx)
		end()
		var channels []*Channel
		var memory []*HostMemory
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				depth := rapid.SampledFrom([]int{0, 0, 100, 2048, 1 << 20}).Draw(t, "depth")
				ch, err := gpu.NewChannel(ctx, ChannelOptions{Depth: depth})
				switch {
				case err == nil:
					channels = append(channels, ch)
				case !errors.Is(err, errStagingFull) && !errors.Is(err, abi.ErrorLimit):
					t.Fatal(err)
				}
			},
			"close": func(t *rapid.T) {
				if len(channels) == 0 {
					t.Skip("no channel")
				}
				i := rapid.IntRange(0, len(channels)-1).Draw(t, "which")
				if err := channels[i].Close(); err != nil {
					t.Fatal(err)
				}
				channels = slices.Delete(channels, i, i+1)
			},
			"allocate": func(t *rapid.T) {
				if m, err := d.AllocHost(now, rapid.IntRange(1, 1<<20).Draw(t, "bytes")); err == nil {
					memory = append(memory, m)
				} else if !errors.Is(err, errStagingFull) {
					t.Fatal(err)
				}
			},
			"free": func(t *rapid.T) {
				if len(memory) == 0 {
					t.Skip("no host memory")
				}
				i := rapid.IntRange(0, len(memory)-1).Draw(t, "which")
				memory[i].Free()
				memory = slices.Delete(memory, i, i+1)
			},
			"copy": func(t *rapid.T) {
				for _, ch := range append(channels, gpu.Own()) {
					for _, m := range memory[:min(1, len(memory))] {
						p, err := ch.CopyOutHost(ctx, m, 0, mem, min(m.Len(), 64<<10))
						if err == nil {
							err = p.Wait(ctx)
						}
						if err != nil {
							t.Fatal(err)
						}
					}
				}
			},
			"": func(t *rapid.T) {
				// By the device's registers, not by the driver's.
				reg := func(r uint32) uint64 { v, _ := host.Read(r); return uint64(v) }
				header := reg(abi.RegHeaderBytes)
				windows := abi.Window{Offset: header, Size: reg(abi.RegSharedBytesLo) - header}
				rings := windows
				if !old {
					rings.Size = reg(abi.RegRingsBytes)
					windows.Offset, windows.Size = header+rings.Size, windows.Size-rings.Size
				}
				var all []abi.Window
				for _, ch := range append(channels, gpu.Own()) {
					if !validPart(ch.rings, rings) || ch.rings.Offset%abi.PageSize != 0 {
						t.Fatalf("rings at %+v, not in %+v", ch.rings, rings)
					}
					all = append(all, ch.rings)
				}
				for _, m := range memory {
					if !validPart(m.w, windows) {
						t.Fatalf("host memory at %+v, not in %+v", m.w, windows)
					}
					all = append(all, m.w)
				}
				for i, a := range all {
					for _, b := range all[:i] {
						if a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size {
							t.Fatalf("%+v overlaps %+v", a, b)
						}
					}
				}
			},
		})
	})
}

// TestDepthFits checks that channels of a depth, or of less where there is no room, all fit.
func TestDepthFits(t *testing.T) {
	for _, c := range []struct{ rings, channels, depth, want int }{
		{32 << 20, 64, 1024, 1024}, {32 << 20, 64, 4096, 4096}, {32 << 20, 64, 8192, 4096}, {1 << 20, 8, 1024, 1024},
		{1<<20 - abi.PageSize, 8, 1024, 512}, {1 << 20, 64, 4096, 128}, {64 << 10, 64, 1024, 128}, {1 << 20, 8, 128, 128},
	} {
		d := &Device{info: Info{Channels: c.channels}, rings: newStaging(abi.Window{Size: uint64(c.rings)})}
		if got := d.fitting(c.depth); got != c.want {
			t.Errorf("%d channels of %d commands with %d bytes for rings are %d deep, want %d", c.channels, c.depth, c.rings, got, c.want)
		}
	}
	any := newStaging(abi.Window{Size: 1 << 20})
	if got := (&Device{info: Info{Channels: 64}, rings: any, staging: any}).fitting(4096); got != 1024 {
		t.Errorf("channels of a device that has no part for rings are %d deep", got)
	}
}

// allotted is a part of a host, as an agent grants it.
type allotted struct {
	*drivertest.Host
	mine allot.Allotment
}

func (a allotted) Allotment() allot.Allotment { return a.mine }

func (a allotted) Set(offset, value uint32) (abi.ErrorCode, error) { return Set(a.Host, offset, value) }

// TestImpossibleAllotments opens no device with an allotment that an agent can't grant.
func TestImpossibleAllotments(t *testing.T) {
	for _, old := range []bool{false, true} {
		host, err := drivertest.NewHost(drivertest.Options{Version1_0: old, Features: abi.AllFeatures})
		if err != nil {
			t.Fatal(err)
		}
		info, whole, err := Negotiate(host)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]abi.Version{false: abi.Newest, true: abi.Version1_0}[old]; info.Version != want || (whole.Rings == abi.Window{}) != old {
			t.Errorf("an old device %v: version %v, %+v", old, info.Version, whole)
		}
		for name, c := range map[string]struct {
			change func(*allot.Allotment)
			good   bool
		}{
			"all":               {func(*allot.Allotment) {}, true},
			"no rings":          {func(a *allot.Allotment) { a.Rings = abi.Window{} }, old},
			"rings in windows":  {func(a *allot.Allotment) { a.Rings = abi.Window{Offset: a.Shared.Offset, Size: abi.PageSize} }, false},
			"rings over both":   {func(a *allot.Allotment) { a.Rings.Size += abi.PageSize }, false},
			"rings in header":   {func(a *allot.Allotment) { a.Rings = abi.Window{Offset: 0, Size: abi.PageSize} }, false},
			"no windows":        {func(a *allot.Allotment) { a.Shared.Size = 0 }, false},
			"windows in rings":  {func(a *allot.Allotment) { a.Shared.Offset -= abi.PageSize }, false},
			"windows outside":   {func(a *allot.Allotment) { a.Shared.Size += abi.PageSize }, false},
			"windows all round": {func(a *allot.Allotment) { a.Shared.Size = -a.Shared.Offset + 1 }, false},
		} {
			mine := whole
			c.change(&mine)
			d := &Device{bus: allotted{host, mine}, shared: host.Shared()}
			if err := d.negotiate(); (err == nil) != c.good {
				t.Errorf("%s of an old device %v: %v", name, old, err)
			}
		}
		if err := host.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
