package abi

import (
	"errors"
	"reflect"
	"testing"
)

// codec is one form's encoder and decoder, for use by reflection.
type codec struct {
	form   Form
	zero   any
	decode any
}

var codecs = []codec{
	{FormEmpty, Empty{}, DecodeEmpty},
	{FormHandle, Handle{}, DecodeHandle},
	{FormQuery, Query{}, DecodeQuery},
	{FormLookup, Lookup{}, DecodeLookup},
	{FormWindow, WindowArg{}, DecodeWindowArg},
	{FormAlloc, Alloc{}, DecodeAlloc},
	{FormTransfer, Transfer{}, DecodeTransfer},
	{FormCopy3D, Copy3D{}, DecodeCopy3D},
	{FormSet, Set{}, DecodeSet},
	{FormModule, Module{}, DecodeModule},
	{FormOccupancy, Occupancy{}, DecodeOccupancy},
	{FormLaunch, Launch{}, DecodeLaunch},
	{FormElapsed, Elapsed{}, DecodeElapsed},
	{FormMapping, Mapping{}, DecodeMapping},
	{FormPoint, Point{}, DecodePoint},
	{FormArray, Array{}, DecodeArray},
	{FormArrayCopy, ArrayCopy{}, DecodeArrayCopy},
	{FormTexture, Texture{}, DecodeTexture},
	{FormBinding, Binding{}, DecodeBinding},
}

// leaves returns the numbers that a value consists of, in order.
func leaves(v reflect.Value) []reflect.Value {
	switch v.Kind() {
	case reflect.Struct:
		var all []reflect.Value
		for i := range v.NumField() {
			all = append(all, leaves(v.Field(i))...)
		}
		return all
	case reflect.Array:
		var all []reflect.Value
		for i := range v.Len() {
			all = append(all, leaves(v.Index(i))...)
		}
		return all
	}
	return []reflect.Value{v}
}

func (c codec) encode(x reflect.Value, e *Entry) {
	x.MethodByName("Encode").Call([]reflect.Value{reflect.ValueOf(e)})
}

func (c codec) parse(e *Entry) (any, error) {
	out := reflect.ValueOf(c.decode).Call([]reflect.Value{reflect.ValueOf(e)})
	err, _ := out[1].Interface().(error)
	return out[0].Interface(), err
}

// valid sets what the decoder requires not to be zero.
func valid(v reflect.Value) {
	if f := v.FieldByName("Width"); f.IsValid() && v.Type() == reflect.TypeFor[Set]() {
		f.SetUint(4)
	}
}

// TestForms sets each field of each form, finds it at its offset and nowhere else, and reads it
// back. Every byte outside the fields must be zero.
func TestForms(t *testing.T) {
	if len(codecs) != len(formNames) || len(FormFields) != len(formNames) {
		t.Fatalf("%d codecs, %d layouts, %d forms", len(codecs), len(FormFields), len(formNames))
	}
	for _, c := range codecs {
		t.Run(c.form.String(), func(t *testing.T) {
			x := reflect.New(reflect.TypeOf(c.zero)).Elem()
			fields := FormFields[c.form]
			if got := len(leaves(x)); got != len(fields) {
				t.Fatalf("%d numbers, %d fields in the table", got, len(fields))
			}
			var covered [EntrySize]bool
			for i := range payload {
				covered[i] = true
			}
			for i, f := range fields {
				x.SetZero()
				valid(x)
				var base, e Entry
				c.encode(x, &base)
				leaf := leaves(x)[i]
				if leaf.Type().Size() != uintptr(f.Size) {
					t.Errorf("%s has %d bytes, its number %d", f.Name, f.Size, leaf.Type().Size())
				}
				flip := uint64(1)<<(8*f.Size-1) - 1 // differs in every byte from the base
				leaf.SetUint(leaf.Uint() ^ flip)
				c.encode(x, &e)
				for at := range e {
					inside := at >= f.Offset && at < f.Offset+f.Size
					if (e[at] != base[at]) != inside {
						t.Errorf("%s: byte %d changed: %v, inside: %v", f.Name, at, e[at] != base[at], inside)
					}
					covered[at] = covered[at] || inside
				}
				if got, err := c.parse(&e); err == nil && got != x.Interface() {
					t.Errorf("%s: decoded %+v, want %+v", f.Name, got, x)
				} else if err != nil && !errors.Is(err, StatusMalformed) {
					t.Errorf("%s: %v is no StatusMalformed", f.Name, err)
				}
			}
			x.SetZero()
			valid(x)
			for at, ok := range covered {
				var e Entry
				c.encode(x, &e)
				if got, err := c.parse(&e); err != nil || got != x.Interface() {
					t.Fatalf("decode: %+v, %v", got, err)
				}
				if e[at] ^= 0x80; ok {
					continue
				}
				if _, err := c.parse(&e); !errors.Is(err, StatusMalformed) {
					t.Errorf("byte %d set, which is no field's: %v", at, err)
				}
			}
		})
	}
}

func TestHeader(t *testing.T) {
	good := Header{Op: OpLaunch, Flags: FlagQuiet, More: MaxMore, Aux: 0x1234, Cookie: 0x123456789abcdef0}
	var e Entry
	good.Encode(&e)
	if got, err := DecodeHeader(&e); err != nil || got != good {
		t.Fatalf("DecodeHeader = %+v, %v, want %+v", got, err, good)
	}
	for _, c := range []struct {
		name   string
		change func(e *Entry)
		want   Status
	}{
		{"zeroed", func(e *Entry) { *e = Entry{} }, StatusUnsupportedVersion},
		{"other version", func(e *Entry) { e[headerVersion]++ }, StatusUnsupportedVersion},
		{"invalid op", func(e *Entry) { e.putU16(headerOp, 0) }, StatusMalformed},
		{"unknown op", func(e *Entry) { e.putU16(headerOp, 0xff) }, StatusMalformed},
		{"op past the table", func(e *Entry) { e.putU16(headerOp, 0xffff) }, StatusMalformed},
		{"flags", func(e *Entry) { e[headerFlags] |= 0x80 }, StatusMalformed},
		{"reserved", func(e *Entry) { e[headerZero] = 1 }, StatusMalformed},
		{"too many", func(e *Entry) { e[headerMore] = MaxMore + 1 }, StatusMalformed},
		{"not inline", func(e *Entry) { e.putU16(headerOp, uint16(OpNop)) }, StatusMalformed},
	} {
		bad := e
		c.change(&bad)
		if _, err := DecodeHeader(&bad); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestCompletion(t *testing.T) {
	want := Completion{StatusTrap, OpLaunch, 1 << 63, 2 << 40, 3 << 50, 4 << 50, [3]uint64{5, 6 << 33, 7 << 60}}
	var e Entry
	want.Encode(&e)
	if got, err := DecodeCompletion(&e); err != nil || got != want {
		t.Errorf("DecodeCompletion = %+v, %v, want %+v", got, err, want)
	}
	e[completionVersion] = 0
	if _, err := DecodeCompletion(&e); !errors.Is(err, StatusUnsupportedVersion) {
		t.Errorf("another version: %v", err)
	}
}

func TestWindowBytes(t *testing.T) {
	shared := make([]byte, 4096)
	for _, c := range []struct {
		w  Window
		ok bool
	}{
		{Window{1024, 3072}, true},
		{Window{4096, 0}, true},
		{Window{1024, 3073}, false},
		{Window{1023, 1}, false},
		{Window{4097, 0}, false},
		{Window{2048, ^uint64(0)}, false},
		{Window{^uint64(0), 2}, false},
	} {
		b, err := c.w.Bytes(shared, 1024)
		if (err == nil) != c.ok || c.ok && uint64(len(b)) != c.w.Size || !c.ok && !errors.Is(err, StatusInvalidWindow) {
			t.Errorf("%+v: %d bytes, %v", c.w, len(b), err)
		}
	}
}

func TestNegotiate(t *testing.T) {
	for _, c := range []struct{ oldest, newest, dOldest, dNewest, want Version }{
		{0x10000, 0x10000, 0x10000, 0x10000, 0x10000},
		{0x10000, 0x10003, 0x10000, 0x10001, 0x10001},
		{0x10000, 0x10001, 0x10000, 0x20000, 0x10001},
		{0x10001, 0x10001, 0x10000, 0x10000, 0}, // what was selected is newer than the driver
		{0x20000, 0x20000, 0x10000, 0x10000, 0},
		{0x10000, 0x10000, 0x20000, 0x20000, 0},
	} {
		if got, err := Negotiate(c.oldest, c.newest, c.dOldest, c.dNewest); got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("Negotiate%+v = %v, %v", c, got, err)
		}
	}
}

func TestStatusesAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range statuses {
		s := i.status
		if s.String() == "" || seen[s.Name()] {
			t.Errorf("status %d: %q %q", uint16(s), s.Name(), s)
		}
		seen[s.Name()] = true
	}
	if got := Status(500); got.CUDA() != 999 || got.String() != "status 500" {
		t.Errorf("unknown status: %d, %q", got.CUDA(), got)
	}
	if StatusLaunchResources.Poisons() || !StatusTrap.Poisons() {
		t.Error("the groups of status codes are wrong")
	}
}
