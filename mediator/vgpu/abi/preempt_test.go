package abi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// TestPreemptArgs sets each field, finds it at its offset and nowhere else, and reads it back.
func TestPreemptArgs(t *testing.T) {
	args := reflect.New(reflect.TypeFor[PreemptArgs]()).Elem()
	if got := len(leaves(args)); got != len(PreemptArgsFields) {
		t.Fatalf("%d numbers, %d fields in the table", got, len(PreemptArgsFields))
	}
	var covered [PreemptArgsBytes]bool
	for i, f := range PreemptArgsFields {
		args.SetZero()
		leaf := leaves(args)[i]
		if leaf.Type().Size() != uintptr(f.Size) {
			t.Errorf("%s has %d bytes, its number %d", f.Name, f.Size, leaf.Type().Size())
		}
		leaf.SetUint(1<<(8*f.Size) - 1) // every byte
		a := args.Interface().(PreemptArgs)
		b := make([]byte, PreemptArgsBytes)
		for j := range b {
			b[j] = 0x55 // what was there before is gone
		}
		a.Encode(b)
		for at := range b {
			inside := at >= f.Offset && at < f.Offset+f.Size
			if (b[at] != 0) != inside {
				t.Errorf("%s: byte %d is %#x", f.Name, at, b[at])
			}
			covered[at] = covered[at] || inside
		}
		if got, err := decodePreemptArgs(b); err != nil || got != a {
			t.Errorf("%s: decoded %+v, %v, want %+v", f.Name, got, err, a)
		}
	}
	for at, ok := range covered {
		b := make([]byte, PreemptArgsBytes)
		if b[at] = 1; ok {
			continue
		}
		if _, err := decodePreemptArgs(b); !errors.Is(err, StatusMalformed) {
			t.Errorf("byte %d set, which is no field's: %v", at, err)
		}
	}
	if _, err := decodePreemptArgs(make([]byte, PreemptArgsBytes-1)); !errors.Is(err, StatusMalformed) {
		t.Errorf("a byte short: %v", err)
	}
}

func TestPreemptAttribute(t *testing.T) {
	for _, p := range []Preempt{
		{PreemptSingle, 1, 1}, {PreemptCoarse, 1, 1}, {PreemptCoarse, MaxPreemptGroup, 1}, {PreemptPersistent, 16, MaxPreemptEvery},
	} {
		a := p.Attribute()
		var e Entry
		a.Encode(&e)
		read, err := DecodeAttribute(&e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodePreempt(&read); err != nil || got != p {
			t.Errorf("decoded %+v, %v, want %+v", got, err, p)
		}
	}
	for _, p := range []Preempt{
		{}, {0, 1, 1}, {8, 1, 1}, {PreemptSingle | PreemptCoarse, 1, 1},
		{PreemptSingle, 0, 1}, {PreemptSingle, 2, 1}, {PreemptSingle, 1, 2}, {PreemptCoarse, 0, 1}, {PreemptCoarse, 4, 2},
		{PreemptCoarse, MaxPreemptGroup + 1, 1}, {PreemptPersistent, 1, 0}, {PreemptPersistent, 1, MaxPreemptEvery + 1},
	} {
		a := p.Attribute()
		if _, err := DecodePreempt(&a); !errors.Is(err, StatusInvalidValue) {
			t.Errorf("%+v: %v, want %v", p, err, StatusInvalidValue)
		}
	}
	for at := 12; at < len(Attribute{}.Value); at++ {
		a := Preempt{PreemptCoarse, 8, 1}.Attribute()
		a.Value[at] = 1
		if _, err := DecodePreempt(&a); !errors.Is(err, StatusMalformed) {
			t.Errorf("byte %d of the value set: %v", at, err)
		}
	}
}

// TestControlLines checks that no two words of the control block share a line.
func TestControlLines(t *testing.T) {
	lines := map[int]string{}
	for _, w := range ControlWords {
		if other, taken := lines[w.Offset/ControlAlign]; taken {
			t.Errorf("%s and %s share a line", w.Name, other)
		}
		lines[w.Offset/ControlAlign] = w.Name
		if w.Offset%ControlAlign != 0 || w.Offset+ControlAlign > ControlBytes {
			t.Errorf("%s at %#x", w.Name, w.Offset)
		}
	}
	if preemptZero%8 != 0 || PreemptArgsBytes%8 != 0 {
		t.Error("the appended parameter is not a multiple of its alignment")
	}
}

// checkDecodePreempt decodes any 64 bytes as the attribute: an accepted value is usable, and
// encoded to the same bytes.
func checkDecodePreempt(t *testing.T, e *Entry) {
	a, err := DecodeAttribute(e)
	if err != nil {
		return
	}
	p, err := DecodePreempt(&a)
	if err != nil {
		if !errors.Is(err, StatusMalformed) && !errors.Is(err, StatusInvalidValue) {
			t.Fatalf("error without a status: %v", err)
		}
		return
	}
	if p.Group == 0 || p.Every == 0 || p.Form.EarlyExit() == (p.Form == PreemptPersistent) {
		t.Fatalf("took %+v", p)
	}
	if again := p.Attribute(); again.Value != a.Value {
		t.Fatalf("%+v encodes as %v, was %v", p, again.Value, a.Value)
	}
}

// decodePreemptArgs reads what Encode wrote.
func decodePreemptArgs(b []byte) (PreemptArgs, error) {
	if len(b) != PreemptArgsBytes {
		return PreemptArgs{}, fmt.Errorf("%d bytes of a preemptible launch's arguments, want %d: %w", len(b), PreemptArgsBytes, StatusMalformed)
	}
	le := binary.LittleEndian
	a := PreemptArgs{
		Control:  le.Uint64(b[preemptControl:]),
		List:     le.Uint64(b[preemptList:]),
		Skipped:  le.Uint64(b[preemptSkipped:]),
		First:    le.Uint32(b[preemptFirst:]),
		Count:    le.Uint32(b[preemptCount:]),
		Tasks:    le.Uint32(b[preemptTasks:]),
		Grid:     [3]uint32{le.Uint32(b[preemptGridX:]), le.Uint32(b[preemptGridY:]), le.Uint32(b[preemptGridZ:])},
		Group:    le.Uint32(b[preemptGroup:]),
		Every:    le.Uint32(b[preemptEvery:]),
		Capacity: le.Uint32(b[preemptCapacity:]),
		Flags:    le.Uint32(b[preemptFlags:]),
		Word:     le.Uint64(b[preemptWord:]),
	}
	for _, z := range b[preemptZero:] {
		if z != 0 {
			return a, errReserved
		}
	}
	return a, nil
}
