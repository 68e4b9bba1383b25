package abi

import (
	"testing"

	"pgregory.net/rapid"
)

func TestRingsBytes(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name              string
		shared            int64
		channels, entries int
		windows           int // where they begin
	}{
		{"the defaults", DefaultSharedBytes, 64, 1 << 14, 32 * mib},
		{"all channels", DefaultSharedBytes, MaxChannels, MaxRingEntries, 34 * mib},
		{"on a huge page", 64 * mib, 64, 1 << 14, 10 * mib},
		{"the least memory", MinSharedBytes, 64, 1 << 14, HeaderBytes(64) + mib},
		{"the least memory, all channels", MinSharedBytes, MaxChannels, MaxRingEntries, HeaderBytes(MaxChannels) + mib},
		{"no more than all rings", MaxSharedBytes, MaxChannels, MaxRingEntries, 2050 * mib},
		{"one channel of the shortest", MinSharedBytes, 1, MinRingEntries, HeaderBytes(1) + 4*PageSize},
	} {
		if got := HeaderBytes(c.channels) + RingsBytes(c.shared, c.channels, c.entries); got != c.windows {
			t.Errorf("%s: windows begin at %#x, want %#x", c.name, got, c.windows)
		}
	}
}

// TestRingsBytesProperty checks that, for any configuration, rings and windows get pages, every
// channel has room for its shortest rings or the rings have a quarter, and unless BAR2 is small
// every channel has room for its usual rings.
func TestRingsBytesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shared := int64(MinSharedBytes) << rapid.IntRange(0, 14).Draw(t, "size")
		channels := rapid.IntRange(1, MaxChannels).Draw(t, "channels")
		most := MinRingEntries << rapid.IntRange(0, 9).Draw(t, "entries")
		rings := RingsBytes(shared, channels, most)
		windows := int64(HeaderBytes(channels) + rings)
		switch {
		case rings%PageSize != 0 || rings < min(2*channels*RingBytes(MinRingEntries), MinSharedBytes/4):
			t.Fatalf("%d bytes for rings", rings)
		case shared-windows < shared/4:
			t.Fatalf("%d of %d bytes for windows", shared-windows, shared)
		case int64(uint32(rings)) != int64(rings):
			t.Fatalf("%d bytes are more than a register holds", rings)
		case shared >= DefaultSharedBytes/2 && rings < 2*channels*min(RingBytes(UsualRingEntries), RingBytes(most)):
			t.Fatalf("%d bytes: no room for %d channels as drivers make them", rings, channels)
		case shared >= hugeFrom && windows%hugePage != 0:
			t.Fatalf("windows begin at %#x", windows)
		}
	})
}
