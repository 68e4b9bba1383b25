package tasks

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	testBase  = 1 << 40
	testGrain = 64 << 10
)

func newRecord() *Record {
	return New(Options{Base: testBase, Bytes: 1 << 36, Grain: testGrain, Limit: 4 << 30})
}

func (r *Record) mustAlloc(t *testing.T, n uint64) uint64 {
	t.Helper()
	p, err := r.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (r *Record) mustRead(t *testing.T, p, n uint64) []byte {
	t.Helper()
	b := bytes.Repeat([]byte{0xee}, int(n))
	if err := r.Read(b, p); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAnswers: a copy back is answered from what was recorded last, whichever way it came.
func TestAnswers(t *testing.T) {
	r := newRecord()
	a, b := r.mustAlloc(t, 64), r.mustAlloc(t, 1<<20)
	src := []byte("abcdefgh")
	err := errors.Join(r.Write(a+2, src), r.Set(a+4, 0, 0x01020304, 4, 1, 1), r.Copy(b+102, a+1, 10), r.Set(a, 8, 0x7fff, 2, 1, 3))
	if err != nil {
		t.Fatal(err)
	}
	copy(src, "the next") // the program may use its memory again
	for what, c := range map[string]struct {
		p    uint64
		want string
	}{
		"rows over all":   {a, "\xff\x7fab\x04\x03\x02\x01\xff\x7f\x00\x00\x00\x00\x00\x00\xff\x7f\x00\x00"},
		"a turned copy":   {b + 101, "\x00\x00ab\x04\x03\x02\x01gh\x00\x00"},
		"never written":   {b + 1<<19, "\x00\x00\x00\x00"},
		"within patterns": {b + 106, "\x03\x02"},
	} {
		if got := r.mustRead(t, c.p, uint64(len(c.want))); string(got) != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// TestForgets: what was overwritten or freed is kept no longer and not replayed.
func TestForgets(t *testing.T) {
	r := newRecord()
	a, b := r.mustAlloc(t, 8), r.mustAlloc(t, 8)
	if err := errors.Join(r.Write(a, []byte("aaaaaaaa")), r.Write(b, []byte("bbbb")), r.Copy(a+1, b, 2), r.Write(b, []byte("bbb!"))); err != nil {
		t.Fatal(err)
	}
	if r.data != 8+4+4 {
		t.Errorf("%d bytes are kept", r.data) // a's copy has a part of what was in b
	}
	if err := r.Set(a, 0, 0, 1, 8, 1); err != nil || r.data != 4 {
		t.Errorf("%d bytes are kept of b's 4, %v", r.data, err)
	}
	if r.Free(b) == nil || r.data != 0 || r.pieces != 0 {
		t.Errorf("%d bytes, %d parts of nothing", r.data, r.pieces)
	}
	for w := range r.Writes() {
		t.Errorf("replays %+v", w)
	}
	if r.Free(b) != nil || r.Free(a+1) != nil {
		t.Error("what is no object was freed")
	}
}

// TestBounds: what a record can't hold begins the task and changes nothing.
func TestBounds(t *testing.T) {
	r := newRecord()
	p := r.mustAlloc(t, 2<<30)
	full := make([]byte, MaxData-8)
	if err := r.Write(p, full); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a copy beyond the bound":     r.Write(p+1<<30, make([]byte, 9)),
		"rows beyond the bound":       r.Set(p, 8, 1, 1, 4, maxPieces),
		"past an object's end":        r.Write(p+2<<30-1, []byte{1, 2}),
		"a variable's address":        r.Write(4096, []byte{1}),
		"a copy from a variable":      r.Copy(p, 4096, 1),
		"a copy to a variable":        r.Copy(4096, p, 1),
		"reading a variable":          r.Read(make([]byte, 1), 4096),
		"more objects than it counts": func() error { _, err := r.Alloc(0); return err }(),
		"close to the limit":          func() error { _, err := r.Alloc(2<<30 - 64<<20); return err }(),
	} {
		if !errors.Is(err, ErrBegin) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.Alloc(2<<30 + 1); !errors.Is(err, ErrMemory) {
		t.Errorf("more than there can be: %v", err)
	}
	if _, err := r.Alloc(1<<64 - 1); !errors.Is(err, ErrMemory) {
		t.Errorf("more than there can be: %v", err)
	}
	if err := r.Write(p+1<<30, make([]byte, 8)); err != nil || r.Objects() != 1 || r.data != MaxData {
		t.Errorf("%d objects with %d bytes, %v", r.Objects(), r.data, err)
	}
}

// TestMaxObjects: so many objects, and no more.
func TestMaxObjects(t *testing.T) {
	r := newRecord()
	for range MaxObjects {
		r.mustAlloc(t, 1)
	}
	if _, err := r.Alloc(1); !errors.Is(err, ErrBegin) {
		t.Error(err)
	}
}

// TestRegions: small objects share regions of the grain, a large one has its own, and a region ends
// with its last object.
func TestRegions(t *testing.T) {
	r := newRecord()
	a := r.mustAlloc(t, 100)
	big := r.mustAlloc(t, testGrain/2+1)
	b := r.mustAlloc(t, testGrain/2)
	want := []Region{{Base: testBase, Bytes: testGrain, Objects: 2}, {Base: testBase + testGrain, Bytes: testGrain, Objects: 1}}
	compare := func() {
		t.Helper()
		if diff := cmp.Diff(want, r.Regions(), cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".used" }, cmp.Ignore())); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	compare()
	if a != testBase || b != testBase+Align || big != testBase+testGrain || r.Bytes() != 2*testGrain {
		t.Errorf("objects at %#x, %#x and %#x in %d bytes", a, b, big, r.Bytes())
	}
	if g := r.Free(a); g.Objects != 1 {
		t.Errorf("%d objects are left beside it", g.Objects)
	}
	if g := r.Free(b); g.Objects != 0 || g.Base != testBase {
		t.Errorf("the region at %#x has %d objects", g.Base, g.Objects)
	}
	want = want[1:]
	compare()
	if r.Free(big); r.Bytes() != 0 {
		t.Errorf("nothing takes %d bytes", r.Bytes())
	}
	for range 1 << 20 { // more than there are addresses
		r.Free(r.mustAlloc(t, 1<<20))
	}
}

// TestUsable: addresses where the process has something are passed over.
func TestUsable(t *testing.T) {
	var asked []uint64
	r := New(Options{Base: testBase, Bytes: 1 << 30, Grain: testGrain, Limit: 1 << 30, Usable: func(base, _ uint64) bool {
		asked = append(asked, base)
		return base >= testBase+4<<20
	}})
	if p := r.mustAlloc(t, 1); p != testBase+4<<20 {
		t.Errorf("at %#x", p)
	}
	if want := []uint64{testBase, testBase + 2<<20, testBase + 4<<20}; !slices.Equal(asked, want) {
		t.Errorf("asked for %#x", asked)
	}
	none := New(Options{Base: testBase, Bytes: 1 << 30, Grain: testGrain, Limit: 1 << 30, Usable: func(uint64, uint64) bool { return false }})
	if _, err := none.Alloc(1); !errors.Is(err, ErrBegin) {
		t.Error(err)
	}
	short := New(Options{Base: testBase, Bytes: testGrain, Grain: testGrain, Limit: 1 << 30})
	short.mustAlloc(t, testGrain)
	if _, err := short.Alloc(1); !errors.Is(err, ErrBegin) {
		t.Error(err)
	}
}

// TestWrites: patterns are replayed in words, with what is left at their ends.
func TestWrites(t *testing.T) {
	r := newRecord()
	p := r.mustAlloc(t, 64)
	if err := errors.Join(r.Set(p, 0, 0x0201, 2, 16, 1), r.Write(p+8, []byte("data")), r.Set(p+15, 0, 9, 1, 2, 1), r.Set(p+20, 0, 0, 1, 1, 1)); err != nil {
		t.Fatal(err)
	}
	want := []Write{
		{Address: p, Value: 0x02010201, Words: 2}, {Address: p + 8, Data: []byte("data")},
		{Address: p + 12, Data: []byte{1, 2, 1}},
		{Address: p + 15, Data: []byte{9}}, {Address: p + 16, Data: []byte{9}},
		{Address: p + 17, Data: []byte{2, 1, 2}},
		{Address: p + 21, Data: []byte{2, 1, 2}}, {Address: p + 24, Value: 0x02010201, Words: 2},
	}
	if diff := cmp.Diff(want, slices.Collect(r.Writes())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for range r.Writes() {
		break // a loop may end early
	}
}

// TestForget: once the GPU has what is in the objects, their bytes are not kept for the program's life,
// and freeing them still says when a region is empty.
func TestForget(t *testing.T) {
	r := New(Options{Base: 1 << 30, Bytes: 1 << 30, Grain: 2 << 20, Limit: 1 << 30})
	var at [2]uint64
	for i := range at {
		var err error
		if at[i], err = r.Alloc(1000); err != nil {
			t.Fatal(err)
		}
		if err := r.Write(at[i], make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	r.Forget()
	for w := range r.Writes() {
		t.Errorf("%+v is kept", w)
	}
	if r.data != 0 || r.pieces != 0 {
		t.Errorf("%d bytes in %d pieces are counted", r.data, r.pieces)
	}
	if g := r.Free(at[0]); g == nil || g.Objects != 1 {
		t.Errorf("one was freed: %+v", g)
	}
	if g := r.Free(at[1]); g == nil || g.Objects != 0 || r.Bytes() != 0 || r.data != 0 || r.pieces != 0 {
		t.Errorf("both were freed: %+v; %d bytes", g, r.data)
	}
}
