package abi

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// pair is both ends of both rings over private memory.
type pair struct {
	page, sub, comp []byte
	sw              *SubmissionWriter
	sr              *SubmissionReader
	cw              *CompletionWriter
	cr              *CompletionReader
}

func newPair(tb rapid.TB, entries int) *pair {
	tb.Helper()
	return newPairIn(tb, make([]byte, PageSize+2*entries*EntrySize))
}

// newSharedPair is newPair over memory that processes could share, where the race detector's
// operations order less than in Go's own memory.
func newSharedPair(t *testing.T, entries int) *pair {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, PageSize+2*entries*EntrySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return newPairIn(t, mem)
}

func newPairIn(tb rapid.TB, mem []byte) *pair {
	tb.Helper()
	half := (len(mem) - PageSize) / 2
	p := &pair{page: mem[:PageSize], sub: mem[PageSize:][:half], comp: mem[PageSize+half:]}
	ResetChannelPage(p.page)
	var errs [4]error
	p.sw, errs[0] = NewSubmissionWriter(p.page, p.sub)
	p.sr, errs[1] = NewSubmissionReader(p.page, p.sub)
	p.cw, errs[2] = NewCompletionWriter(p.page, p.comp)
	p.cr, errs[3] = NewCompletionReader(p.page, p.comp)
	if err := errors.Join(errs[:]...); err != nil {
		tb.Fatal(err)
	}
	return p
}

func (p *pair) submit(tb rapid.TB, op Opcode, cookie uint64, more int) {
	tb.Helper()
	if !p.sw.Reserve(1 + more) {
		tb.Fatalf("no room for %d entries", 1+more)
	}
	e := p.sw.Next()
	Header{Op: op, Cookie: cookie, More: uint8(more)}.Encode(e)
	Empty{}.Encode(e)
	for i := range more {
		clear(p.sw.Next()[:])
		_ = i
	}
}

func TestRingFullAndEmpty(t *testing.T) {
	p := newPair(t, 128)
	for i := range 128 {
		p.submit(t, OpNop, uint64(i), 0)
	}
	if p.sw.Next() != nil {
		t.Error("a full ring gave a slot")
	}
	if n, err := p.sr.Pending(); n != 0 || err != nil {
		t.Errorf("before publish the host sees %d entries (%v), want 0", n, err)
	}
	if !p.sw.Publish() {
		t.Error("the first publish asks for no doorbell, though the host begins asleep")
	}
	buf := make([]Entry, 256)
	n, err := p.sr.Fetch(buf)
	if n != 128 || err != nil {
		t.Fatalf("Fetch = %d, %v, want 128", n, err)
	}
	for i := range n {
		if h, err := DecodeHeader(&buf[i]); err != nil || h.Cookie != uint64(i) {
			t.Fatalf("entry %d: %+v, %v", i, h, err)
		}
	}
	if n, err := p.sr.Fetch(buf); n != 0 || err != nil {
		t.Errorf("Fetch of an empty ring = %d, %v", n, err)
	}
	if got := p.sw.Room(); got != 128 {
		t.Errorf("Room after fetch = %d, want 128", got)
	}
}

func TestDoorbellOnlyWhenArmed(t *testing.T) {
	p := newPair(t, 128)
	buf := make([]Entry, MaxMore+1)
	submit := func(n int) bool {
		for range n {
			p.submit(t, OpNop, 0, 0)
		}
		return p.sw.Publish()
	}
	if !submit(1) {
		t.Error("first entry: no doorbell")
	}
	if submit(1) || submit(5) {
		t.Error("doorbell asked for while the host is awake")
	}
	if p.sr.Arm() {
		t.Error("Arm says empty with 7 entries waiting")
	}
	for i := 0; i < 7; {
		n, err := p.sr.Fetch(buf)
		if err != nil {
			t.Fatal(err)
		}
		i += n
	}
	if !p.sr.Arm() {
		t.Error("Arm says there is work in an empty ring")
	}
	if !submit(3) {
		t.Error("armed host gets no doorbell")
	}
	if submit(1) {
		t.Error("second doorbell for one Arm")
	}
}

func TestInterruptAfterSkip(t *testing.T) {
	p := newPair(t, 128)
	complete := func() bool {
		e, err := p.cw.Next()
		if e == nil || err != nil {
			t.Fatal("no room", err)
		}
		(&Completion{Op: OpNop}).Encode(e)
		return p.cw.Publish()
	}
	if !p.cr.Arm(2) {
		t.Fatal("Arm(2) of an empty ring says not to sleep")
	}
	if got := []bool{complete(), complete(), complete(), complete()}; got[0] || got[1] || !got[2] || got[3] {
		t.Errorf("interrupts after Arm(2): %v, want the third only", got)
	}
	if p.cr.Arm(3) {
		t.Error("Arm(3) with 4 waiting says to sleep")
	}
}

func TestCompletionRoomDoorbell(t *testing.T) {
	p := newPair(t, 128)
	for range 128 {
		e, err := p.cw.Next()
		if e == nil || err != nil {
			t.Fatal("no room", err)
		}
		(&Completion{}).Encode(e)
		p.cw.Publish()
	}
	if e, err := p.cw.Next(); e != nil || err != nil {
		t.Fatalf("full ring gave %v, %v", e, err)
	}
	dst := make([]Completion, 1)
	if _, kick, _ := p.cr.Fetch(dst); kick {
		t.Error("doorbell for a host that does not wait for room")
	}
	if p.cw.ArmRoom() {
		t.Error("ArmRoom says full after the guest consumed one")
	}
	if e, _ := p.cw.Next(); e == nil {
		t.Fatal("no slot though the guest consumed one")
	}
	p.cw.Publish()
	if _, err := p.cw.Room(); err != nil {
		t.Fatal(err)
	}
	if !p.cw.ArmRoom() {
		t.Error("ArmRoom of a full ring says there is room")
	}
	if _, kick, _ := p.cr.Fetch(dst); !kick {
		t.Error("no doorbell for a host that waits for room")
	}
}

func TestFetchKeepsCommandsWhole(t *testing.T) {
	p := newPair(t, 256)
	p.submit(t, OpNop, 1, 0)
	p.submit(t, OpLaunch, 2, MaxMore)
	p.submit(t, OpNop, 3, 0)
	p.sw.Publish()
	buf := make([]Entry, MaxMore+1)
	var got []int
	for {
		n, err := p.sr.Fetch(buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		got = append(got, n)
	}
	if len(got) != 3 || got[0] != 1 || got[1] != MaxMore+1 || got[2] != 1 {
		t.Errorf("fetched %v entries, want [1 %d 1]", got, MaxMore+1)
	}
}

func TestTornCommand(t *testing.T) {
	p := newPair(t, 128)
	p.submit(t, OpNop, 1, 0)
	e := p.sw.Next()
	Header{Op: OpLaunch, More: 2}.Encode(e)
	p.sw.Next()
	p.sw.Publish()
	buf := make([]Entry, MaxMore+1)
	if n, err := p.sr.Fetch(buf); n != 1 || err != nil {
		t.Fatalf("Fetch = %d, %v, want the whole command first", n, err)
	}
	if n, err := p.sr.Fetch(buf); n != 0 || !errors.Is(err, ErrorTorn) {
		t.Fatalf("Fetch = %d, %v, want ErrorTorn", n, err)
	}
}

func TestHostilePointers(t *testing.T) {
	p := newPair(t, 128)
	buf := make([]Entry, MaxMore+1)
	for _, put := range []uint32{129, 1 << 31, ^uint32(0)} {
		StoreWord(p.page, SubmissionPutWord, put)
		if _, err := p.sr.Pending(); !errors.Is(err, ErrorPutRange) {
			t.Errorf("put %#x: Pending error %v", put, err)
		}
		if n, err := p.sr.Fetch(buf); n != 0 || !errors.Is(err, ErrorPutRange) {
			t.Errorf("put %#x: Fetch = %d, %v", put, n, err)
		}
		if p.sr.Arm() {
			t.Errorf("put %#x: the host would sleep over a broken channel", put)
		}
	}
	for _, get := range []uint32{1, 1 << 31, ^uint32(0) - 200} {
		StoreWord(p.page, CompletionGetWord, get)
		if _, err := p.cw.Room(); !errors.Is(err, ErrorGetRange) {
			t.Errorf("get %#x: Room error %v", get, err)
		}
	}
}

// TestRingModel compares the rings with a queue, over wrap-around of the counters, with random
// batch sizes on either side.
func TestRingModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t, 128)
		start := rapid.SampledFrom([]uint32{0, ^uint32(0) - 60, 1<<31 - 3}).Draw(t, "start")
		p.seek(start)
		var want []uint64
		var cookie uint64
		buf := make([]Entry, 200)
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				more := rapid.SampledFrom([]int{0, 0, 0, 1, 5, MaxMore}).Draw(t, "more")
				if !p.sw.Reserve(1 + more) {
					return
				}
				e := p.sw.Next()
				cookie++
				Header{Op: OpLaunch, More: uint8(more), Cookie: cookie}.Encode(e)
				for range more {
					p.sw.Next()
				}
				want = append(want, cookie)
			},
			"publish": func(t *rapid.T) { p.sw.Publish() },
			"fetch": func(t *rapid.T) {
				n, err := p.sr.Fetch(buf[:rapid.IntRange(MaxMore+1, 200).Draw(t, "buffer")])
				if err != nil {
					t.Fatal(err)
				}
				for i := 0; i < n; i += Span(&buf[i]) {
					h, err := DecodeHeader(&buf[i])
					if err != nil || h.Cookie != want[0] {
						t.Fatalf("got %+v (%v), want cookie %d", h, err, want[0])
					}
					want = want[1:]
				}
			},
			"arm": func(t *rapid.T) {
				pending, _ := p.sr.Pending()
				if p.sr.Arm() != (pending == 0) {
					t.Fatalf("Arm disagrees with %d pending", pending)
				}
			},
			"": func(t *rapid.T) {
				if room := p.sw.Room(); room < 0 || room > 128 {
					t.Fatalf("room %d", room)
				}
			},
		})
	})
}

// seek sets every counter to v, as if that many entries had passed.
func (p *pair) seek(v uint32) {
	for _, w := range ChannelWords {
		StoreWord(p.page, w.Offset, v)
	}
	p.sw.next, p.sw.published, p.sw.seenGet = v, v, v
	p.sr.fetched = v
	p.cw.next, p.cw.published, p.cw.seenGet = v, v, v
	p.cr.consumed = v
}
