package blocks

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// small is a GPU that is quick to simulate.
var small = func() Costs {
	c := H100.part(11)
	c.SMs = 6
	return c
}()

func anyKernel(t *rapid.T) Kernel {
	return Kernel{
		Tasks: rapid.Uint64Range(1, 3000).Draw(t, "tasks"), PerSM: rapid.IntRange(1, 8).Draw(t, "perSM"),
		Warps: rapid.IntRange(1, 8).Draw(t, "warps"), Issue: rapid.Float64Range(0, 5000).Draw(t, "issue"),
		Latency: rapid.Float64Range(0, 3000).Draw(t, "latency"), Bytes: rapid.Float64Range(0, 8192).Draw(t, "bytes"),
		Setup: rapid.Float64Range(0, 200).Draw(t, "setup"),
	}
}

func anyForm(t *rapid.T) Form {
	f := Form{Kind: Kind(rapid.IntRange(0, 2).Draw(t, "kind"))}
	switch f.Kind {
	case EarlyExit:
		f.Group, f.Word = rapid.IntRange(1, 64).Draw(t, "group"), rapid.SampledFrom([]Word{OwnLine, AllThreads, HostMemory, HostMemoryAll}).Draw(t, "word")
	case Persistent:
		f.Group, f.Every = rapid.IntRange(1, 64).Draw(t, "group"), rapid.IntRange(1, 16).Draw(t, "every")
		f.Word = Word(rapid.IntRange(0, int(ProxyOne)).Draw(t, "word"))
	}
	f.PerUnit, f.PerTask = rapid.Float64Range(0, 50).Draw(t, "unit"), rapid.Float64Range(0, 50).Draw(t, "task")
	return f
}

// Every task is done once or left, whenever the kernel is evicted, and no block stays.
func TestEveryTaskIsDoneOrLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, f := anyKernel(t), anyForm(t)
		r := newRun(&small, k, f, rapid.Uint64().Draw(t, "seed"))
		r.below = rapid.IntRange(1, small.SMs).Draw(t, "below")
		r.start(0)
		for range rapid.IntRange(0, 4000).Draw(t, "events") {
			r.step()
		}
		evict := rapid.Bool().Draw(t, "evict")
		if evict {
			r.evictAt = r.now
		}
		r.finish()
		left := uint64(0)
		switch f.Kind {
		case EarlyExit:
			// Units are skipped as a whole; the last may be smaller.
			g := uint64(f.Group)
			left = min(r.skipped*g, k.Tasks)
			if short := r.units*g - k.Tasks; r.done+left != k.Tasks && r.done+left != k.Tasks+short {
				t.Fatalf("%d tasks done and %d units of %d left, of %d", r.done, r.skipped, g, k.Tasks)
			}
		case Persistent:
			left = k.Tasks - r.next
			if r.done+left != k.Tasks {
				t.Fatalf("%d tasks done and %d left, of %d", r.done, left, k.Tasks)
			}
		}
		if (!evict || f.Kind == Original) && r.done != k.Tasks {
			t.Fatalf("%d of %d tasks done without an eviction", r.done, k.Tasks)
		}
		if r.live != 0 || r.waits != 0 || r.inBelow != 0 || r.reading != 0 {
			t.Fatalf("%d blocks, of which %d wait and %d read host memory, are still there", r.live, r.waits, r.reading)
		}
	})
}

// A part of the GPU behaves like the whole.
func TestPart(t *testing.T) {
	k := Kernel{Tasks: 1056 * 40, PerSM: 8, Warps: 8, Issue: 40, Latency: 400, Bytes: 3000}
	for _, f := range []Form{
		{}, {Kind: EarlyExit, Group: 4, Word: OwnLine}, {Kind: EarlyExit, Group: 1, Word: AllThreads},
		{Kind: Persistent, Group: 1, Every: 1, Word: OwnLine}, {Kind: Persistent, Group: 1, Every: 8, Word: HostMemory},
	} {
		whole := newRun(&H100, k, f, 1)
		whole.start(0)
		whole.finish()
		if part, want := Duration(H100, k, f), H100.Launch+whole.now; math.Abs(part/want-1) > 0.03 {
			t.Errorf("%+v: a part takes %.1f µs, the whole %.1f", f, part/1000, want/1000)
		}
	}
}

// A grid that is simulated in part takes as long as the whole.
func TestLongGrids(t *testing.T) {
	k := Kernel{PerSM: 8, Warps: 8, Issue: 40, Latency: 400, Bytes: 3000}
	for _, f := range []Form{{}, {Kind: EarlyExit, Group: 8}, {Kind: Persistent, Group: 16, Every: 2}} {
		k.Tasks = 1056 * 400
		short := Duration(H100, k, f)
		k.Tasks *= 4
		if long := Duration(H100, k, f); math.Abs(long/short/4-1) > 0.03 {
			t.Errorf("%+v: %.1f µs, and four times the tasks %.1f", f, short/1000, long/1000)
		}
	}
}

// An eviction takes at least until the word is seen and the end is known. Evicting some SMs takes
// no longer than evicting all.
func TestEvictions(t *testing.T) {
	k := Kernel{Tasks: 1056 * 100, PerSM: 8, Warps: 8, Issue: 300, Latency: 400, Bytes: 3000}
	f := Form{Kind: Persistent, Group: 4, Every: 1}
	all := Evictions(H100, k, f, 0.1, 0.9, 8)
	for _, l := range all {
		if l.Latency < H100.Seen+H100.Gone || l.Latency > 100_000 || l.After <= l.Done || l.After >= k.Tasks {
			t.Errorf("%+v", l)
		}
	}
	some := Evict(H100, k, f, 0.5, 12, 1)
	if some.Latency < H100.Seen+H100.Gone || some.Latency > Quantile(all, 1) {
		t.Errorf("12 SMs are left after %.1f µs, all after at most %.1f", some.Latency/1000, Quantile(all, 1)/1000)
	}
	if again := Evictions(H100, k, f, 0.1, 0.9, 8); Quantile(again, 0.5) != Quantile(all, 0.5) {
		t.Error("the same evictions differ")
	}
}

// Even if blocks poll over the bus only once and then compute for long, an SM loses the time until
// the last of its blocks has polled.
func TestHostReadsHoldTheirSMs(t *testing.T) {
	k := Kernel{Tasks: 1056 * 8, PerSM: 8, Warps: 8, Issue: 40_000}
	looks := float64(H100.Slots(k)) * H100.HostEach
	lost := Duration(H100, k, Form{Kind: Persistent, Group: 1, Every: 64, Word: HostMemory}) -
		Duration(H100, k, Form{Kind: Persistent, Group: 1, Every: 64})
	if lost < 0.8*looks || lost > 1.1*looks {
		t.Errorf("looks of %.0f µs in all cost %.0f µs", looks/1000, lost/1000)
	}
}

// Fewer blocks than an SM holds are slower, by what docs/results/preemption-on-h100.md measured for
// persistent blocks: 7 of 8 by 4 %, 2 of 8 by 93 %.
func TestFewerBlocks(t *testing.T) {
	k := Kernel{Tasks: 1 << 20, PerSM: 8, Warps: 8, Issue: 18, Latency: 300, Bytes: 3072} // vector addition
	f := Form{Kind: Persistent, Group: 16, Every: 1}
	full := Duration(H100, k, f)
	for _, c := range []struct {
		blocks      int
		least, most float64
	}{{7, 1.02, 1.08}, {2, 1.5, 2.4}} {
		k.PerSM = c.blocks
		if r := Duration(H100, k, f) / full; r < c.least || r > c.most {
			t.Errorf("%d of 8 blocks: %.2f times as long", c.blocks, r)
		}
	}
}

func BenchmarkDuration(b *testing.B) {
	k := Kernel{Tasks: 1 << 20, PerSM: 8, Warps: 8, Issue: 18, Latency: 300, Bytes: 3072}
	for b.Loop() {
		Duration(H100, k, Form{Kind: EarlyExit, Group: 8})
	}
}
