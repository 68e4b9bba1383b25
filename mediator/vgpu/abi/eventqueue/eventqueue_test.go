package eventqueue

import (
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"vgpud/mediator/vgpu/abi"
)

// newPair returns both ends of the queue of event kernel n, whose parameters are one 8-byte number.
func newPair(t interface{ Fatal(...any) }, n, entries int) (area []byte, p *Poller, l *Launcher) {
	area = make([]byte, abi.EventAreaBytes)
	p, err := NewPoller(area, n, abi.EventRow{Function: 5, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}, make([]byte, 8), entries)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = Attach(area, n); err != nil {
		t.Fatal(err)
	}
	return area, p, l
}

// launch launches an event with a number, and reports whether there was a free entry.
func launch(l *Launcher, v uint64) bool {
	e, ok := l.Free()
	if !ok {
		return false
	}
	binary.LittleEndian.PutUint64(l.Params(e), v)
	l.Launch()
	return true
}

func next(p *Poller) (v uint64, entry int, ok bool) {
	var params [8]byte
	entry, ok = p.Next(params[:])
	return binary.LittleEndian.Uint64(params[:]), entry, ok
}

// TestInOrder: events start in the order of their rings, end in any order, and are completed in the
// order of their rings again.
func TestInOrder(t *testing.T) {
	_, p, l := newPair(t, 3, 4)
	for v := range uint64(4) {
		if !launch(l, v) {
			t.Fatalf("no entry for event %d", v)
		}
	}
	if launch(l, 4) {
		t.Error("a fifth event in four entries")
	}
	var entries []int
	for want := range uint64(4) {
		v, e, ok := next(p)
		if !ok || v != want {
			t.Fatalf("event %d: %d, %v", want, v, ok)
		}
		entries = append(entries, e)
	}
	if _, _, ok := next(p); ok {
		t.Error("a fifth event starts")
	}
	p.Done(entries[2])
	if _, ok := l.Done(); ok {
		t.Error("the third event's end completes the first")
	}
	p.Done(entries[0])
	if e, ok := l.Done(); !ok || e != entries[0] {
		t.Errorf("completed entry %d, %v", e, ok)
	}
	l.Complete()
	if _, ok := l.Done(); ok {
		t.Error("the second event has not ended")
	}
	if !launch(l, 5) {
		t.Error("the first entry is not free again")
	}
	if v, _, ok := next(p); !ok || v != 5 {
		t.Errorf("event in the first entry: %d, %v", v, ok)
	}
	if got, want := p.Counts(), (Counts{Started: 5, Ended: 2}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// TestRingsWithoutEntry: a ring without a free entry starts nothing, overwrites nothing, and is
// counted, however many there are; and what ends later starts again at the head.
func TestRingsWithoutEntry(t *testing.T) {
	area, p, l := newPair(t, 0, 2)
	launch(l, 1)
	launch(l, 2)
	_, first, _ := next(p)
	_, second, _ := next(p)
	for range 1000 {
		l.Ring()
	}
	if _, _, ok := next(p); ok {
		t.Error("an event under way starts again")
	}
	p.Done(first)
	l.Ring()
	if _, _, ok := next(p); ok {
		t.Error("a result that was not consumed is overwritten")
	}
	if got := p.Counts().Dropped; got != 1001 {
		t.Errorf("%d rings dropped, want 1001", got)
	}
	if got := abi.LoadWord(area, abi.EventPage(0)+abi.EventDroppedWord); got != 1001 {
		t.Errorf("the page says %d", got)
	}
	p.Done(second)
	l.Complete()
	l.Complete()
	launch(l, 3)
	if v, _, ok := next(p); !ok || v != 3 {
		t.Errorf("after all: %d, %v", v, ok)
	}
}

// TestDoorbellAnywhere: a doorbell word that jumps is bounded work.
func TestDoorbellAnywhere(t *testing.T) {
	area, p, _ := newPair(t, 1, 8)
	for _, v := range []uint32{1 << 31, ^uint32(0), 5} {
		abi.StoreWord(area, abi.EventPage(1)+abi.EventDoorbellWord, v)
		if _, _, ok := next(p); ok || p.Pending() {
			t.Errorf("doorbell word %#x starts an event, or stays pending", v)
		}
	}
}

// TestArm: only a ring after Arm kicks, one ring; and Arm sees a ring before it.
func TestArm(t *testing.T) {
	_, p, l := newPair(t, 0, 8)
	ring := func() bool {
		e, ok := l.Free()
		if !ok {
			t.Fatalf("entry %d is not free", e)
		}
		return l.Launch()
	}
	if !ring() {
		t.Error("the first ring does not kick")
	}
	if p.Arm() {
		t.Error("Arm does not see a ring")
	}
	if _, _, ok := next(p); !ok {
		t.Fatal("no event")
	}
	if ring() {
		t.Error("a ring kicks a poller that is awake")
	}
	next(p)
	if !p.Arm() {
		t.Error("Arm sees a ring that was taken")
	}
	if !ring() || ring() {
		t.Error("want a kick with the first ring after Arm, and none with the second")
	}
	for range 2 {
		next(p)
	}
	p.Arm()
	p.Disarm()
	for range 3 {
		if ring() {
			t.Error("a ring kicks after Disarm")
		}
	}
	if !p.Pending() {
		t.Error("rings after Disarm are not there")
	}
}

// TestSuccessor kills a launcher at each point of its work. The next goes on: events under way are
// its own, an entry that was busy and not rung for is free, and nothing runs twice.
func TestSuccessor(t *testing.T) {
	area, p, l := newPair(t, 2, 4)
	launch(l, 1)
	if _, err := Attach(area, 2); !errors.Is(err, ErrRinging) {
		t.Errorf("attach with a ring that was not taken: %v", err)
	}
	_, e1, _ := next(p)
	launch(l, 2)
	_, e2, _ := next(p)
	p.Done(e1)
	// It dies between busy and the ring.
	l.setFlag(l.head, abi.EventBusy)
	l2, err := Attach(area, 2)
	if err != nil {
		t.Fatal(err)
	}
	if l2.Flying() != 2 {
		t.Errorf("%d under way, want 2", l2.Flying())
	}
	if e, ok := l2.Done(); !ok || e != e1 {
		t.Errorf("completes %d, %v", e, ok)
	}
	l2.Complete()
	if _, ok := l2.Done(); ok {
		t.Error("the second has not ended")
	}
	p.Done(e2)
	if e, ok := l2.Done(); !ok || e != e2 {
		t.Errorf("completes %d, %v", e, ok)
	}
	l2.Complete()
	for v := range uint64(4) {
		if !launch(l2, 10+v) {
			t.Fatalf("no entry for event %d", v)
		}
		if got, _, ok := next(p); !ok || got != 10+v {
			t.Errorf("event %d: %d, %v", 10+v, got, ok)
		}
	}
	if p.Counts().Dropped != 0 {
		t.Errorf("%d dropped", p.Counts().Dropped)
	}
}

// TestAttachRefuses: no event kernel, one that is ending, and rows and flags that no host writes.
func TestAttachRefuses(t *testing.T) {
	area, p, _ := newPair(t, 0, 4)
	for _, n := range []int{-1, 1, abi.MaxEventKernels} {
		if _, err := Attach(area, n); !errors.Is(err, ErrNotRegistered) {
			t.Errorf("attach to %d: %v", n, err)
		}
	}
	if _, err := Attach(area[:100], 0); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("a short area: %v", err)
	}
	row := area[abi.EventPage(0)+abi.EventRowOffset:]
	for _, off := range []int{8, 16, 24, 32} {
		was := row[off]
		row[off]++
		if _, err := Attach(area, 0); !errors.Is(err, ErrNotRegistered) {
			t.Errorf("byte %d of the row: %v", off, err)
		}
		row[off] = was
	}
	p.End()
	if _, err := Attach(area, 0); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("ending: %v", err)
	}
	abi.StoreWord(area, abi.EventPage(0)+abi.EventDoorbellWord, 3)
	if p.Pending() {
		t.Error("rings after the end are pending")
	}
	if got := p.Close(abi.EventUnregistered); got != 3 {
		t.Errorf("%d stray rings, want 3", got)
	}
}

// TestNewPollerBounds refuses what does not fit.
func TestNewPollerBounds(t *testing.T) {
	area := make([]byte, abi.EventAreaBytes)
	for _, c := range []struct{ n, params, entries int }{
		{-1, 8, 1}, {abi.MaxEventKernels, 8, 1}, {0, 8, 0}, {0, 8, abi.MaxEventEntries + 1}, {0, 4096, 14}, {0, abi.EventQueueBytes, 1},
	} {
		if _, err := NewPoller(area, c.n, abi.EventRow{}, make([]byte, c.params), c.entries); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	if _, err := NewPoller(area[:4096], 0, abi.EventRow{}, nil, 1); err == nil {
		t.Error("a short area is accepted")
	}
	for _, v := range area {
		if v != 0 {
			t.Fatal("a refused queue has left something in the area")
		}
	}
}

// TestQueueProperty runs both ends at random: every event starts once, in order, with its own
// parameters, and is completed once, in order; nothing is dropped.
func TestQueueProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.IntRange(1, 9).Draw(t, "entries")
		area, p, l := newPair(t, 4, entries)
		var launched, started, completed uint64
		flying := map[int]uint64{}
		t.Repeat(map[string]func(*rapid.T){
			"launch": func(*rapid.T) {
				if launch(l, launched) {
					launched++
				} else if launched-completed < uint64(entries) {
					t.Fatalf("no free entry with %d of %d under way", launched-completed, entries)
				}
			},
			"start": func(*rapid.T) {
				v, e, ok := next(p)
				if ok != (started < launched) || ok && v != started {
					t.Fatalf("started %d, %v, want %d of %d", v, ok, started, launched)
				}
				if ok {
					flying[e] = v
					started++
				}
			},
			"end": func(t *rapid.T) {
				for e := range flying {
					p.Done(e)
					delete(flying, e)
					return
				}
			},
			"complete": func(*rapid.T) {
				if e, ok := l.Done(); ok {
					if got := binary.LittleEndian.Uint64(l.Params(e)); got != completed {
						t.Fatalf("completes %d, want %d", got, completed)
					}
					l.Complete()
					completed++
				}
			},
			"die": func(*rapid.T) {
				var err error
				if l, err = Attach(area, 4); err != nil && !(errors.Is(err, ErrRinging) && started < launched) {
					t.Fatal(err)
				} else if err != nil {
					for started < launched {
						_, e, _ := next(p)
						flying[e] = started
						started++
					}
					if l, err = Attach(area, 4); err != nil {
						t.Fatal(err)
					}
				}
			},
			"": func(*rapid.T) {
				if d := p.Counts().Dropped; d != 0 || p.Flying() != len(flying) || l.Flying() != int(launched-completed) {
					t.Fatalf("%d dropped, %d of %d under way, launcher %d of %d", d, p.Flying(), len(flying), l.Flying(), launched-completed)
				}
			},
		})
	})
}

// FuzzPoller lets a guest write anything anywhere in the area between the host's steps. Input:
// records of what to do (1 byte), where (4 bytes), what (4 bytes). The host neither panics nor loops,
// starts no entry twice, and writes nothing outside the kernel's own page and queue.
func FuzzPoller(f *testing.F) {
	rec := func(op byte, at, v uint32) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32([]byte{op}, at), v)
	}
	page, queue := uint32(abi.EventPage(3)), uint32(abi.EventQueue(3))
	f.Add(append(rec(0, page, 1), rec(1, 0, 0)...))
	f.Add(append(append(rec(0, queue+4*16, 1), rec(0, page, 1)...), append(rec(1, 0, 0), rec(2, 0, 0)...)...))
	f.Add(append(append(rec(0, queue+8, 0xfff0), rec(0, page, ^uint32(0))...), rec(1, 0, 0)...))
	f.Add(append(append(rec(0, queue+8, queue+2), rec(0, page, 9)...), rec(1, 0, 0)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		area, p, _ := newPair(t, 3, 4)
		written := map[int]bool{}
		flying := map[int]bool{}
		for ; len(data) >= 9; data = data[9:] {
			at, v := int(binary.LittleEndian.Uint32(data[1:]))%abi.EventAreaBytes&^3, binary.LittleEndian.Uint32(data[5:])
			switch data[0] % 5 {
			case 0:
				abi.StoreWord(area, at, v)
				written[at] = true
			case 1:
				if e, ok := p.Next(make([]byte, 8)); ok {
					if flying[e] {
						t.Fatalf("entry %d starts twice", e)
					}
					flying[e] = true
				}
			case 2:
				for e := range flying {
					p.Done(e)
					delete(flying, e)
					break
				}
			case 3:
				p.Arm()
			case 4:
				if l, err := Attach(area, 3); err == nil {
					if e, ok := l.Free(); ok {
						clear(l.Params(e))
						l.Launch()
					}
					if _, ok := l.Done(); ok {
						l.Complete()
					}
				}
			}
			if p.Flying() != len(flying) {
				t.Fatalf("%d under way, want %d", p.Flying(), len(flying))
			}
		}
		for at := 0; at < len(area); at += 4 {
			own := at >= abi.EventPage(3) && at < abi.EventPage(4) || at >= abi.EventQueue(3) && at < abi.EventQueue(4)
			if !own && !written[at] && abi.LoadWord(area, at) != 0 {
				t.Fatalf("the host wrote at %#x", at)
			}
		}
	})
}
