package allot

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"vgpud/mediator/vgpu/abi"
)

// TestNeverOverlap has programs come and go at random: no two have the same part, and every part
// belongs to the device.
func TestNeverOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		contexts, channels := rapid.IntRange(1, abi.MaxContexts).Draw(t, "contexts"), rapid.IntRange(1, abi.MaxChannels).Draw(t, "channels")
		vectors := rapid.IntRange(0, 32).Draw(t, "vectors")
		rings := abi.Window{Offset: uint64(abi.HeaderBytes(channels)), Size: rapid.Uint64Range(0, 8<<10).Draw(t, "rings") * abi.PageSize}
		if rings.Size < minRingBytes*uint64(channels) {
			rings = abi.Window{Offset: rings.Offset} // no area for rings alone
		}
		shared := abi.Window{Offset: rings.Offset + rings.Size, Size: rapid.Uint64Range(minBytes+abi.PageSize, 64<<20).Draw(t, "shared")}
		table := NewTable(contexts, channels, vectors, rings, shared)
		var held []Allotment
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				a, err := table.Allot(Ask{
					Contexts: rapid.IntRange(-1, 20).Draw(t, "contexts"), Channels: rapid.IntRange(-1, 70).Draw(t, "channels"),
					SharedBytes: rapid.Uint64Range(0, 70<<20).Draw(t, "bytes"),
				})
				if err == nil {
					held = append(held, a)
				}
			},
			"give": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is allotted")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "who")
				table.Release(held[i])
				held = append(held[:i], held[i+1:]...)
			},
			"": func(t *rapid.T) { disjoint(t, held, contexts, channels, vectors, rings, shared) },
		})
		for _, a := range held {
			table.Release(a)
		}
		end, _ := shared.End()
		from := (shared.Offset + abi.PageSize - 1) &^ (abi.PageSize - 1)
		if whole := (end - from) &^ (abi.PageSize - 1); whole >= minBytes {
			a, err := table.Allot(Ask{Contexts: contexts, Channels: channels, SharedBytes: whole})
			if err != nil || a.Rings.Size != rings.Size {
				t.Fatalf("something was lost: %+v, %v", a, err)
			}
		}
	})
}

func disjoint(t *rapid.T, held []Allotment, contexts, channels, vectors int, rings, shared abi.Window) {
	contextOf, channelOf, vectorOf := map[int]int{}, map[int]int{}, map[int]int{}
	once := func(of map[int]int, what string, n, limit, who int) {
		if other, taken := of[n]; taken || n < 0 || n >= limit {
			t.Fatalf("%s %d of %d: %d and %d have it", what, n, limit, other, who)
		}
		of[n] = who
	}
	for i, a := range held {
		for _, n := range a.Contexts {
			once(contextOf, "context", n, contexts, i)
		}
		for _, n := range a.Channels {
			once(channelOf, "channel", n, channels, i)
		}
		for k, n := range a.Vectors {
			if (k == 0) != (n == 0) {
				t.Fatalf("vectors %v: the first is that of states", a.Vectors)
			}
			if n != 0 {
				once(vectorOf, "vector", n, vectors, i)
			}
		}
		apart := func(what string, mine, all abi.Window, of func(Allotment) abi.Window) {
			to, ok := mine.End()
			if end, _ := all.End(); !ok || mine.Offset < all.Offset || to > end || mine.Offset%abi.PageSize != 0 {
				t.Fatalf("%s: %+v lies outside %+v", what, mine, all)
			}
			for k, b := range held[:i] {
				if other, _ := of(b).End(); mine.Offset < other && of(b).Offset < to {
					t.Fatalf("%s: %d and %d overlap: %+v, %+v", what, k, i, of(b), mine)
				}
			}
		}
		apart("windows", a.Shared, shared, func(a Allotment) abi.Window { return a.Shared })
		switch {
		case rings.Size == 0 && a.Rings != abi.Window{}:
			t.Fatalf("rings are given where there is nothing for them: %+v", a.Rings)
		case rings.Size > 0:
			apart("rings", a.Rings, rings, func(a Allotment) abi.Window { return a.Rings })
			if a.Rings.Size < minRingBytes*uint64(len(a.Channels)) {
				t.Fatalf("%d bytes for the rings of %d channels", a.Rings.Size, len(a.Channels))
			}
		}
	}
}

// TestRingsGoWithChannels checks that programs with default requests get all channels together, and
// as much for rings as goes with them; when what remains is in pieces, later programs get less.
func TestRingsGoWithChannels(t *testing.T) {
	const each = 4 * abi.PageSize
	rings := abi.Window{Offset: 17 * abi.PageSize, Size: 16 * each}
	table := NewTable(16, 16, 1, rings, abi.Window{Offset: rings.Offset + rings.Size, Size: 64 << 20})
	var held []Allotment
	for i, channels := range []int{4, 8, 4} {
		a, err := table.Allot(Ask{Channels: channels})
		if err != nil || a.Rings.Size != uint64(channels)*each {
			t.Fatalf("program %d: %+v, %v", i, a, err)
		}
		held = append(held, a)
	}
	if _, err := table.Allot(Ask{Channels: 1}); !errors.Is(err, ErrFull) {
		t.Errorf("one channel more: %v", err)
	}
	table.Release(held[0])
	table.Release(held[2])
	if a, err := table.Allot(Ask{Channels: 8}); !errors.Is(err, ErrFull) {
		t.Errorf("rings of less than the least: %+v, %v", a, err)
	}
	if a, err := table.Allot(Ask{Channels: 4}); err != nil || a.Rings != held[0].Rings {
		t.Errorf("what was given back: %+v, %v", a, err)
	}
}

func TestTakeErrors(t *testing.T) {
	rings := abi.Window{Offset: 9 * abi.PageSize, Size: 128 << 10}
	shared := abi.Window{Offset: rings.Offset + rings.Size, Size: 4 << 20}
	for name, c := range map[string]struct {
		ask  Ask
		full bool
	}{
		"more contexts than there are": {Ask{Contexts: 3}, false},
		"more channels than there are": {Ask{Channels: 9}, false},
		"more memory than there is":    {Ask{SharedBytes: 5 << 20}, false},
		"too little memory":            {Ask{SharedBytes: 1}, false},
		"contexts that others have":    {Ask{Contexts: 2}, true},
		"channels that others have":    {Ask{Channels: 8}, true},
		"memory that others have":      {Ask{Channels: 1, SharedBytes: 4 << 20}, true},
	} {
		t.Run(name, func(t *testing.T) {
			table := NewTable(2, 8, 1, rings, shared)
			if _, err := table.Allot(Ask{Channels: 2}); err != nil {
				t.Fatal(err)
			}
			if a, err := table.Allot(c.ask); err == nil || errors.Is(err, ErrFull) != c.full {
				t.Errorf("Take: %+v, %v", a, err)
			}
			if _, err := table.Allot(Ask{Channels: 2}); err != nil {
				t.Errorf("after a refusal: %v", err)
			}
		})
	}
}

// TestLimits checks that each bound holds for a user's parts together, and alone.
func TestLimits(t *testing.T) {
	part := func(contexts, channels int, shared uint64) Allotment {
		return Allotment{Contexts: upTo(contexts), Channels: upTo(channels), Shared: abi.Window{Size: shared}}
	}
	have := []Allotment{part(1, 4, 100), part(2, 4, 100)}
	for _, c := range []struct {
		l    Limits
		next Allotment
		ok   bool
	}{
		{Limits{}, part(60, 200, 1<<40), true},
		{Limits{Programs: 3, Contexts: 4, Channels: 10, SharedBytes: 250}, part(1, 2, 50), true},
		{Limits{Programs: 2}, part(1, 1, 1), false},
		{Limits{Contexts: 3}, part(1, 1, 1), false},
		{Limits{Channels: 9}, part(1, 2, 1), false},
		{Limits{SharedBytes: 250}, part(1, 1, 51), false},
	} {
		if err := c.l.Check(have, c.next); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrUserLimit) {
			t.Errorf("%+v: %v", c.l, err)
		}
	}
}
