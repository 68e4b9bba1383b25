package allot

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"vgpud/mediator/vgpu/abi"
)

// TestNeverOverlap has programs come and go at random: whatever they have, no two
// have the same, and all of it is the device's.
func TestNeverOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		contexts, channels := rapid.IntRange(1, abi.MaxContexts).Draw(t, "contexts"), rapid.IntRange(1, abi.MaxChannels).Draw(t, "channels")
		vectors := rapid.IntRange(0, 32).Draw(t, "vectors")
		shared := abi.Window{Offset: uint64(abi.HeaderBytes(channels)), Size: rapid.Uint64Range(leastBytes+abi.PageSize, 64<<20).Draw(t, "shared")}
		table := NewTable(contexts, channels, vectors, shared)
		var held []Allotment
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				a, err := table.Take(Ask{
					Contexts: rapid.IntRange(-1, 20).Draw(t, "contexts"), Channels: rapid.IntRange(-1, 70).Draw(t, "channels"),
					SharedBytes: rapid.Uint64Range(0, 70<<20).Draw(t, "bytes"),
				})
				if err == nil {
					held = append(held, a)
				}
			},
			"give": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nobody has anything")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "who")
				table.Give(held[i])
				held = append(held[:i], held[i+1:]...)
			},
			"": func(t *rapid.T) { disjoint(t, held, contexts, channels, vectors, shared) },
		})
		for _, a := range held {
			table.Give(a)
		}
		end, _ := shared.End()
		from := (shared.Offset + abi.PageSize - 1) &^ (abi.PageSize - 1)
		if whole := (end - from) &^ (abi.PageSize - 1); whole >= leastBytes {
			if _, err := table.Take(Ask{Contexts: contexts, Channels: channels, SharedBytes: whole}); err != nil {
				t.Fatalf("something was lost: %v", err)
			}
		}
	})
}

func disjoint(t *rapid.T, held []Allotment, contexts, channels, vectors int, shared abi.Window) {
	contextOf, channelOf, vectorOf := map[int]int{}, map[int]int{}, map[int]int{}
	end, _ := shared.End()
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
		to, ok := a.Shared.End()
		if !ok || a.Shared.Offset < shared.Offset || to > end || a.Shared.Offset%abi.PageSize != 0 {
			t.Fatalf("%+v lies outside %+v", a.Shared, shared)
		}
		for k, b := range held[:i] {
			if bEnd, _ := b.Shared.End(); a.Shared.Offset < bEnd && b.Shared.Offset < to {
				t.Fatalf("%d and %d overlap: %+v, %+v", k, i, b.Shared, a.Shared)
			}
		}
	}
}

func TestTakeErrors(t *testing.T) {
	shared := abi.Window{Offset: 9 * abi.PageSize, Size: 4 << 20}
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
			table := NewTable(2, 8, 1, shared)
			if _, err := table.Take(Ask{Channels: 2}); err != nil {
				t.Fatal(err)
			}
			if a, err := table.Take(c.ask); err == nil || errors.Is(err, ErrFull) != c.full {
				t.Errorf("Take: %+v, %v", a, err)
			}
			if _, err := table.Take(Ask{Channels: 2}); err != nil {
				t.Errorf("after a refusal: %v", err)
			}
		})
	}
}
