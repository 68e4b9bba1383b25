package web

import (
	"math"
	"slices"
)

// missing is a point at which nothing was known.
const missing = -1

// full is a ratio of 1 as a point. Points are integers since thousands of them are kept for each
// guest, and sent.
const full = 10000

// point returns a ratio as a point. A ratio above 1 counts as 1.
func point(ratio float64) int16 {
	if math.IsNaN(ratio) || ratio < 0 {
		return missing
	}
	return int16(math.Round(min(ratio, 1) * full))
}

// maxTracks bounds how many guests and GPUs a history keeps. Guests that are gone stay until their
// last point is overwritten.
const maxTracks = 4096

// history keeps the last points of guests and GPUs. Points of one instant have one sequence number.
type history struct {
	length int
	next   uint64            // the next point's sequence number
	times  []int64           // in Unix milliseconds
	tracks map[string]*track // by key
}

// track is one guest or GPU.
type track struct {
	kind, gpu, name string
	last            uint64 // the sequence number of its newest point
	series          [seriesCount][]int16
}

// The series of a track. A GPU has seriesShare alone: how busy it was.
const (
	seriesShare = iota // the part of the GPU's time that was used
	seriesEntitled
	seriesHeld // the part of the time for which the guest was suspended
	seriesCount
)

const (
	kindGuest = "guest"
	kindGPU   = "gpu"
)

// observation is a track's points at one instant.
type observation struct {
	kind, gpu, name string
	points          [seriesCount]int16
}

func (o *observation) key() string { return o.kind + "/" + o.gpu + "/" + o.name }

func newHistory(length int) *history {
	return &history{length: length, times: make([]int64, length), tracks: make(map[string]*track)}
}

// add appends the points of one instant.
func (h *history) add(at int64, observed []observation) {
	slot := int(h.next % uint64(h.length))
	h.times[slot] = at
	for key, t := range h.tracks {
		if h.next-t.last >= uint64(h.length) {
			delete(h.tracks, key)
			continue
		}
		for i := range t.series {
			t.series[i][slot] = missing
		}
	}
	for i := range observed {
		o := &observed[i]
		t := h.tracks[o.key()]
		if t == nil {
			if len(h.tracks) >= maxTracks {
				continue
			}
			t = &track{kind: o.kind, gpu: o.gpu, name: o.name}
			for s := range t.series {
				t.series[s] = slices.Repeat([]int16{missing}, h.length)
			}
			h.tracks[o.key()] = t
		}
		t.last = h.next
		for s, p := range o.points {
			t.series[s][slot] = p
		}
	}
	h.next++
}

// mean returns the means over the newest n instants of each track that has a point among them.
func (h *history) mean(n int) []observation {
	var all []observation
	first := h.first(h.next - min(uint64(n), h.next))
	for _, t := range h.tracks {
		if t.last < first {
			continue
		}
		o := observation{kind: t.kind, gpu: t.gpu, name: t.name}
		for s := range t.series {
			sum, count := 0, 0
			for seq := first; seq < h.next; seq++ {
				if p := t.series[s][seq%uint64(h.length)]; p != missing {
					sum, count = sum+int(p), count+1
				}
			}
			o.points[s] = missing
			if count > 0 {
				o.points[s] = int16((sum + count/2) / count)
			}
		}
		all = append(all, o)
	}
	return all
}

// first returns the oldest sequence number that is kept and not before seq.
func (h *history) first(seq uint64) uint64 {
	if h.next > uint64(h.length) {
		seq = max(seq, h.next-uint64(h.length))
	}
	return min(seq, h.next)
}

// Span is a part of a history as the page gets it. Points are in ten-thousandths, -1 if unknown.
type Span struct {
	// First is the sequence number of the first point, and Next that of the one after the last.
	First  uint64  `json:"first"`
	Next   uint64  `json:"next"`
	Times  []int64 `json:"times"`
	Tracks []Track `json:"tracks"`
}

// Track is the points of one guest or GPU.
type Track struct {
	Kind     string  `json:"kind"`
	GPU      string  `json:"gpu"`
	Name     string  `json:"name"`
	Share    []int16 `json:"share"`
	Entitled []int16 `json:"entitled,omitempty"`
	Held     []int16 `json:"held,omitempty"`
}

// since returns the points from a sequence number on. One from another history, of an earlier
// daemon, returns everything.
func (h *history) since(seq uint64) Span {
	if seq > h.next {
		seq = 0
	}
	first := h.first(seq)
	s := Span{First: first, Next: h.next, Times: []int64{}, Tracks: []Track{}}
	for i := first; i < h.next; i++ {
		s.Times = append(s.Times, h.times[i%uint64(h.length)])
	}
	for _, t := range h.tracks {
		if t.last < first || first == h.next {
			continue
		}
		out := Track{Kind: t.kind, GPU: t.gpu, Name: t.name, Share: h.cut(t.series[seriesShare], first)}
		if t.kind == kindGuest {
			out.Entitled, out.Held = h.cut(t.series[seriesEntitled], first), h.cut(t.series[seriesHeld], first)
		}
		s.Tracks = append(s.Tracks, out)
	}
	slices.SortFunc(s.Tracks, func(a, b Track) int {
		return compareStrings(a.GPU, b.GPU, a.Kind, b.Kind, a.Name, b.Name)
	})
	return s
}

// cut returns a ring's points from a sequence number on.
func (h *history) cut(ring []int16, first uint64) []int16 {
	points := make([]int16, 0, h.next-first)
	for i := first; i < h.next; i++ {
		points = append(points, ring[i%uint64(h.length)])
	}
	return points
}

// compareStrings compares pairs of strings until two differ.
func compareStrings(pairs ...string) int {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] != pairs[i+1] {
			if pairs[i] < pairs[i+1] {
				return -1
			}
			return 1
		}
	}
	return 0
}
