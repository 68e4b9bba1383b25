package web

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestHistoryProperty compares a history with a list of everything that was ever added.
func TestHistoryProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(1, 8).Draw(t, "length")
		h := newHistory(length)
		type instant struct {
			at     int64
			points map[string]int16
		}
		var all []instant
		for i := range rapid.IntRange(0, 40).Draw(t, "instants") {
			in := instant{int64(i), make(map[string]int16)}
			var observed []observation
			for g := range 3 {
				if p := rapid.Int16Range(-3, full).Draw(t, "point"); p >= 0 {
					name := fmt.Sprint("g", g)
					in.points[name] = p
					observed = append(observed, observation{kindGuest, "gpu0", name, [seriesCount]int16{p, p, p}})
				}
			}
			all = append(all, in)
			h.add(in.at, observed)
		}
		after := rapid.IntRange(0, len(all)+2).Draw(t, "after")
		first := max(after, len(all)-length)
		if after > len(all) {
			first = max(0, len(all)-length) // another daemon's number
		}
		got := h.since(uint64(after))
		if got.First != uint64(first) || got.Next != uint64(len(all)) {
			t.Fatalf("points %d to %d, want %d to %d", got.First, got.Next, first, len(all))
		}
		want := make(map[string][]int16)
		for i, in := range all[first:] {
			for name, p := range in.points {
				if want[name] == nil {
					want[name] = make([]int16, len(all)-first)
					for j := range want[name] {
						want[name][j] = missing
					}
				}
				want[name][i] = p
			}
		}
		tracks := make(map[string][]int16)
		for _, track := range got.Tracks {
			tracks[track.Name] = track.Share
		}
		if diff := cmp.Diff(want, tracks); diff != "" {
			t.Fatalf("since %d (-want +got):\n%s", after, diff)
		}
	})
}

// TestHistoryIsBounded: guests that come and go don't make a history grow.
func TestHistoryIsBounded(t *testing.T) {
	h := newHistory(10)
	for i := range 3 * maxTracks {
		h.add(int64(i), []observation{{kind: kindGuest, gpu: "gpu0", name: fmt.Sprint(i)}})
		if n := len(h.tracks); n > 11 {
			t.Fatalf("%d tracks after %d guests of one instant each, of which 10 are kept", n, i+1)
		}
	}
	var crowd []observation
	for i := range maxTracks + 100 {
		crowd = append(crowd, observation{kind: kindGuest, gpu: "gpu0", name: fmt.Sprint("crowd-", i)})
	}
	h.add(0, crowd)
	if n := len(h.tracks); n != maxTracks {
		t.Errorf("%d tracks of %d guests, want %d", n, len(crowd), maxTracks)
	}
}

func TestPoints(t *testing.T) {
	for r, want := range map[float64]int16{-1: missing, 0: 0, 0.25: 2500, 1: full, 1.7: full} {
		if got := point(r); got != want {
			t.Errorf("point(%v) = %v, want %v", r, got, want)
		}
	}
}
