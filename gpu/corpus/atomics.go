package corpus

import (
	"math"
	"math/rand/v2"
)

// atomics exercises atomics of 32 and 64 bits on global memory, compare-and-swap loops, returned
// values.
var atomics = Kernel{
	Name: "atomics",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 400, 12_000, 180_000)
		in := words(rng, n)
		start := []uint32{rng.Uint32(), rng.Uint32(), math.MaxUint32, 0, math.MaxUint32, 0, rng.Uint32(), 0, 1, 0}
		want := append([]uint32(nil), start...)
		const threads = 128
		swaps := func(i int) bool { return i/threads%16 == 0 }
		for i, x := range in {
			want[0] += x
			want[1] -= x
			want[2] = min(want[2], x)
			want[3] = max(want[3], x)
			want[4] &= x | 0x0f0f0000
			want[5] |= x & 0xf0f0
			want[6] ^= x
			want[7] = (want[7] + 1) % 1000
			if swaps(i) {
				want[8] = want[8]*5 + 1
			}
		}
		want[9] = 77

		wide := make([]uint64, n)
		for i := range wide {
			wide[i] = rng.Uint64()
		}
		startWide := []uint64{rng.Uint64(), math.MaxUint64, 0, math.MaxUint64, 0, rng.Uint64(), 0, 0, math.MaxInt64, 1 << 63}
		wantWide := append([]uint64(nil), startWide...)
		for i, x := range wide {
			w := wantWide
			w[0] += x
			w[1] = min(w[1], x)
			w[2] = max(w[2], x)
			w[3] &= x | 0x0f0f000000000000
			w[4] |= x & 0xf0f0f0f0f0
			w[5] ^= x
			if swaps(i) {
				w[6] += x & 0xffff
			}
			w[8] = uint64(min(int64(w[8]), int64(x)))
			w[9] = uint64(max(int64(w[9]), int64(x)))
		}
		wantWide[7] = 1<<63 | 5

		// Slot k is handed out once by each owner that has more than k threads.
		owners := choose(size, 10, 100, 1_000)
		owner, counters := below(rng, n, uint32(owners)), make([]uint32, owners)
		seen := make([]uint32, n)
		for _, o := range owner {
			seen[counters[o]]++
			counters[o]++
		}
		step := func(entry string, args ...Arg) Launch {
			return launch(entry, blocksFor(n, threads), threads, append(args, i32(n))...)
		}
		return &Case{
			Buffers: []Buffer{
				input("in", in), update("words", start, want),
				input("wide", wide), update("longs", startWide, wantWide),
				input("owner", owner), update("counters", make([]uint32, owners), counters),
				update("seen", make([]uint32, n), seen),
			},
			Steps: []Launch{
				step("atomics32", ptr("in"), ptr("words")),
				step("atomics64", ptr("wide"), ptr("longs")),
				step("atomic_slots", ptr("owner"), ptr("counters"), ptr("seen")),
			},
		}
	},
}
