package preemption

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"vgpud/mediator/vgpu/abi"
)

// A guest can write what is read back. Each of these readbacks is refused, and so are later ones.
func TestImpossibleReadbacks(t *testing.T) {
	single := Config{Form: abi.PreemptSingle, Grid: [3]uint32{10, 1, 1}, Group: 1, Every: 1}
	wide := Config{Form: abi.PreemptCoarse, Grid: [3]uint32{70_000, 1, 1}, Group: 1, Every: 1}
	persistent := Config{Form: abi.PreemptPersistent, Grid: [3]uint32{100, 1, 1}, Group: 8, Every: 1, Resident: 4}
	bitmap := func(n uint32, set ...uint32) Readback {
		r := Readback{Control: Control{Skipped: n}, Skipped: make([]byte, 4*((70_000+31)/32)), Evicted: true}
		for _, u := range set {
			r.Skipped[u/8] |= 1 << (u % 8)
		}
		return r
	}
	counters := func(next, inside uint32) Readback {
		return Readback{Control: Control{Next: next, Inside: inside}, Evicted: true}
	}
	for name, tc := range map[string]struct {
		c     Config
		reads []Readback // the last is refused
	}{
		"more skipped than launched":    {single, []Readback{{Control: Control{Skipped: 11}, Skipped: make([]byte, 44), Evicted: true}}},
		"as many as can be":             {single, []Readback{{Control: Control{Skipped: math.MaxUint32}, Evicted: true}}},
		"a unit that is none":           {single, []Readback{skipped(10)}},
		"the last of all numbers":       {single, []Readback{skipped(math.MaxUint32)}},
		"a unit twice":                  {single, []Readback{skipped(3, 4, 3)}},
		"a unit that ran before":        {single, []Readback{skipped(3, 5), skipped(4)}},
		"a unit of another piece":       {single, []Readback{skipped(3, 4, 5), skipped(6)}},
		"a bitmap with more than said":  {wide, []Readback{bitmap(2, 1, 2, 3)}},
		"a bitmap with less than said":  {wide, []Readback{bitmap(3, 1, 2)}},
		"a bit beyond the last unit":    {wide, []Readback{bitmap(1, 70_001)}},
		"a bit beyond, and one missing": {wide, []Readback{bitmap(2, 70_001, 2)}},
		"less than before":              {persistent, []Readback{counters(16, 0), counters(8, 0)}},
		"a counter beyond reach":        {persistent, []Readback{counters(100+6*8, 0)}},
		"a block still inside":          {persistent, []Readback{counters(16, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := New(tc.c)
			if err != nil {
				t.Fatal(err)
			}
			l.First()
			for i, r := range tc.reads {
				if uint64(len(r.Skipped)) < l.SkippedRead(r.Control) {
					t.Fatalf("%d bytes are wanted of %d", l.SkippedRead(r.Control), len(r.Skipped))
				}
				_, done, err := l.Next(r)
				last := i == len(tc.reads)-1
				if done || last != errors.Is(err, ErrReadback) {
					t.Fatalf("readback %d: done %v, %v", i, done, err)
				}
			}
			if _, done, err := l.Next(Readback{}); done || !errors.Is(err, ErrReadback) {
				t.Errorf("after an error: done %v, %v", done, err)
			}
		})
	}
}

// A kernel whose blocks leave without having been asked is launched again a bounded number of
// times, with or without progress.
func TestLeavingUnasked(t *testing.T) {
	for _, tc := range []struct {
		form abi.PreemptForm
		each uint32 // tasks that each launch finishes
	}{{abi.PreemptSingle, 0}, {abi.PreemptSingle, 1}, {abi.PreemptPersistent, 0}, {abi.PreemptPersistent, 1}} {
		l, err := New(Config{Form: tc.form, Grid: [3]uint32{1000, 1, 1}, Group: 1, Every: 1, Resident: 8})
		if err != nil {
			t.Fatal(err)
		}
		l.First()
		for {
			ran := tc.each * uint32(l.Launches())
			var r Readback
			if tc.form == abi.PreemptSingle {
				var left []uint32
				for u := ran; u < 1000; u++ {
					left = append(left, u)
				}
				r = skipped(left...)
			} else {
				r.Control = Control{Next: ran}
			}
			r.Evicted = false
			var done bool
			if _, done, err = l.Next(r); done {
				t.Fatalf("%v is done", tc.form)
			} else if err != nil {
				break
			}
		}
		if !errors.Is(err, ErrUnasked) || l.Launches() != MaxUnasked+1 || l.Unasked() != MaxUnasked+1 {
			t.Errorf("%v: %v after %d launches", tc.form, err, l.Launches())
		}
	}
}

// TestNextOutOfTurn: an owner's mistakes are errors, not panics.
func TestNextOutOfTurn(t *testing.T) {
	l, err := New(Config{Form: abi.PreemptSingle, Grid: [3]uint32{10, 1, 1}, Group: 1, Every: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, done, err := l.Next(Readback{}); done || !errors.Is(err, ErrInvalid) {
		t.Errorf("before the first launch: %v, %v", done, err)
	}
	l.First()
	if _, done, err := l.Next(Readback{Control: Control{Skipped: 2}, Skipped: make([]byte, 7)}); done || !errors.Is(err, ErrInvalid) {
		t.Errorf("a record cut off: %v, %v", done, err)
	}
}

// Whatever is read back, a launch ends, and its plans stay within bounds.
func TestHostileReadbacks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := configs(t)
		if rapid.Bool().Draw(t, "wide") {
			c.Grid, c.Group = [3]uint32{66_000, 1, 1}, 1
		}
		l, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		word := rapid.OneOf(rapid.Uint32Range(0, 3), rapid.Uint32Range(0, l.Tasks()+20), rapid.Uint32())
		p, done := l.First(), false
		evicted := rapid.Bool().Draw(t, "evicted")
		for n := 0; !done; n++ {
			if n > 5000 {
				t.Fatal("does not end")
			}
			checkPlan(t, l, &p)
			r := Readback{Evicted: evicted && !p.Stay, Control: Control{
				Skipped: word.Draw(t, "skipped"), Next: word.Draw(t, "next"), Inside: word.Draw(t, "inside") / 4,
			}}
			r.Skipped = make([]byte, l.SkippedRead(r.Control))
			if uint64(len(r.Skipped)) > l.SkippedBytes() {
				t.Fatalf("wants %d bytes of %d", len(r.Skipped), l.SkippedBytes())
			}
			for i := 0; i+4 <= len(r.Skipped) && i < 64; i += 4 {
				binary.LittleEndian.PutUint32(r.Skipped[i:], word.Draw(t, "unit"))
			}
			if p, done, err = l.Next(r); err != nil {
				return
			}
		}
	})
}

// checkPlan checks that a plan stays within the memory that its launch needs.
func checkPlan(t rapid.TB, l *Launch, p *Plan) {
	t.Helper()
	a := &p.Args
	bad := uint64(len(p.List))*4 > l.ListBytes() || p.BitmapBytes > l.SkippedBytes() || uint64(a.Capacity)*4 > l.SkippedBytes()
	if l.c.Form.EarlyExit() {
		bad = bad || uint64(a.First)+uint64(a.Count) > uint64(l.units) || a.Count == 0 || a.Capacity != 0 && a.Capacity < a.Count
		for i, u := range p.List {
			bad = bad || u >= l.units || i > 0 && p.List[i-1] >= u
		}
	}
	if bad || p.Grid[0] == 0 || p.Grid[1] == 0 || p.Grid[2] == 0 {
		t.Fatalf("a plan out of bounds: %+v", p)
	}
}

// FuzzReadback gives a launch arbitrary readbacks.
func FuzzReadback(f *testing.F) {
	f.Add(uint8(1), uint16(10), uint16(1), []byte{2, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0})
	f.Add(uint8(2), uint16(0xffff), uint16(1), []byte{1, 0, 0, 0, 0xff})
	f.Add(uint8(4), uint16(100), uint16(4), []byte{8, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, form uint8, tasks, group uint16, data []byte) {
		c := Config{Form: abi.PreemptForm(form), Grid: [3]uint32{uint32(tasks), 2, 1}, Group: uint32(group), Every: 1, Resident: 8}
		l, err := New(c)
		if err != nil {
			return
		}
		take := func() (v uint32) {
			var b [4]byte
			data = data[copy(b[:], data):]
			return binary.LittleEndian.Uint32(b[:])
		}
		p, done := l.First(), false
		for !done && len(data) > 0 {
			checkPlan(t, l, &p)
			var r Readback
			if r.Evicted = data[0]&1 == 0; c.Form.EarlyExit() {
				r.Control.Skipped = take()
				r.Skipped = make([]byte, l.SkippedRead(r.Control))
				data = data[copy(r.Skipped, data):]
			} else {
				r.Control = Control{Next: take(), Inside: take()}
			}
			before := l.Remaining()
			if p, done, err = l.Next(r); err != nil {
				return
			}
			if l.Remaining() > before || done != (l.Remaining() == 0) {
				t.Fatalf("%d tasks remained, now %d, done %v", before, l.Remaining(), done)
			}
		}
	})
}
