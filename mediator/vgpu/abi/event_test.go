package abi

import (
	"testing"

	"pgregory.net/rapid"
)

// TestEventAreaFits: the pages and queues of all event kernels lie in the area, apart.
func TestEventAreaFits(t *testing.T) {
	if end := EventQueue(MaxEventKernels); end > EventAreaBytes || EventPage(MaxEventKernels) != EventQueue(0) {
		t.Errorf("queues from %#x to %#x in %#x bytes", EventQueue(0), end, EventAreaBytes)
	}
	if DefaultSharedBytes+EventAreaBytes > 512<<20 {
		t.Error("BAR2 and BAR4 do not fit a port that OVMF makes")
	}
	lines := map[int]bool{}
	for _, w := range EventWords {
		if w.Offset == EventPreparedWord {
			continue // shares the doorbell's line on purpose: it is stored with it
		}
		if lines[w.Offset/LineSize] || w.Offset%LineSize != 0 || w.Offset+EventRowBytes > PageSize {
			t.Errorf("%s at %#x", w.Name, w.Offset)
		}
		lines[w.Offset/LineSize] = true
	}
	if EventDoorbell(MaxEventKernels) > EventDoorbellTable+MaxEventDoorbells*DoorbellSize {
		t.Error("more event kernels than doorbells")
	}
}

// TestEventEntryBytes: the parameters and the flag's offset fit, aligned, with nothing between them
// that a multiple of 16 does not need.
func TestEventEntryBytes(t *testing.T) {
	for params, want := range map[int]int{0: 16, 1: 16, 8: 16, 9: 32, 24: 32, 25: 48, 4096: 4112} {
		if got := EventEntryBytes(params); got != want {
			t.Errorf("%d bytes of parameters: %d, want %d", params, got, want)
		}
	}
}

// TestEventRow encodes and decodes rows, in 66 bytes.
func TestEventRow(t *testing.T) {
	last := EventRowFields[len(EventRowFields)-1]
	if last.Offset+last.Size != EventRowBytes {
		t.Errorf("fields end at %d of %d", last.Offset+last.Size, EventRowBytes)
	}
	rapid.Check(t, func(t *rapid.T) {
		r := EventRow{
			Function: rapid.Uint64().Draw(t, "function"), Base: rapid.Uint64().Draw(t, "base"), Head: rapid.Uint64().Draw(t, "head"),
			EntrySize: rapid.Uint64().Draw(t, "size"), End: rapid.Uint64().Draw(t, "end"), Shared: rapid.Uint16().Draw(t, "shared"),
		}
		for i := range 3 {
			r.Grid[i], r.Block[i] = rapid.Uint32().Draw(t, "grid"), rapid.Uint32().Draw(t, "block")
		}
		var b [EventRowBytes]byte
		r.Encode(&b)
		if got := DecodeEventRow(&b); got != r {
			t.Fatalf("%+v, want %+v", got, r)
		}
		if entries, ok := r.Entries(0); ok && (entries < 1 || entries > MaxEventEntries) {
			t.Fatalf("%+v has %d entries", r, entries)
		}
	})
}

// FuzzDecodeEventRow decodes any row: one that is accepted lies in its kernel's queue, and encodes to
// the same bytes.
func FuzzDecodeEventRow(f *testing.F) {
	r := EventRow{Base: uint64(EventQueue(2)), Head: uint64(EventQueue(2)) + 32, EntrySize: 32, End: uint64(EventQueue(2)) + 64}
	var b [EventRowBytes]byte
	r.Encode(&b)
	f.Add(b[:], 2)
	f.Add(make([]byte, EventRowBytes), 0)
	f.Fuzz(func(t *testing.T, in []byte, n int) {
		var b, back [EventRowBytes]byte
		copy(b[:], in)
		r := DecodeEventRow(&b)
		if r.Encode(&back); back != b {
			t.Fatalf("%+v: % x encodes to % x", r, b, back)
		}
		entries, ok := r.Entries(n)
		if !ok {
			return
		}
		if from, to := uint64(EventQueue(n)), uint64(EventQueue(n))+EventQueueBytes; r.Base < from || r.Head < r.Base || r.Head > r.End ||
			r.Base+uint64(entries)*(r.EntrySize+4) > to {
			t.Fatalf("%+v is accepted for event kernel %d", r, n)
		}
	})
}
