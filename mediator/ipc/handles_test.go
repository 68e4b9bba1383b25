package ipc

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func TestReadHandles(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}()
	many := make([]*os.File, MaxHandleFiles+1)
	for i := range many {
		many[i] = file
	}
	long, err := json.Marshal(strings.Repeat("x", MaxHandleNames))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body  any
		files []*os.File
		want  string // of the error; none where empty
	}{
		"some":           {Handles{Slot: 3, Names: json.RawMessage(`{"client":1}`)}, many[:1], ""},
		"none":           {Handles{Slot: MaxContexts - 1}, nil, ""},
		"as many files":  {Handles{}, many[:MaxHandleFiles], ""},
		"too many files": {Handles{}, many, "5 files"},
		"slot below":     {Handles{Slot: -1}, many[:1], "slot -1"},
		"slot above":     {Handles{Slot: MaxContexts}, many[:1], "slot 32"},
		"long names":     {Handles{Names: long}, many[:1], "want at most 16384"},
		"no body":        {nil, many[:1], "decode"},
		"another body":   {[]int{1}, many[:1], "decode"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := NewMessage(KindHandles, c.body, c.files...)
			if err != nil {
				t.Fatal(err)
			}
			h, err := m.ReadHandles()
			switch {
			case c.want == "" && (err != nil || h.Slot != c.body.(Handles).Slot):
				t.Errorf("got %+v, %v", h, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got error %v, want %q", err, c.want)
			}
		})
	}
}

// TestDisabledContexts: each context has a bit, and setting it wakes that context alone.
func TestDisabledContexts(t *testing.T) {
	p, other := newPages(t)
	var bells [MaxContexts]uint32
	for i := range bells {
		bells[i] = p.Context(i).Futex()
	}
	p.SetSuspendWord(Run) // says nothing new
	p.SetDisabled(0, true)
	p.SetDisabled(MaxContexts-1, true)
	p.SetDisabled(MaxContexts-1, true)
	p.SetDisabled(0, false)
	for i := range bells {
		if got, want := p.Disabled(i), i == MaxContexts-1; got != want {
			t.Errorf("context %d: disabled %v, want %v", i, got, want)
		}
		want := map[int]uint32{0: 2, MaxContexts - 1: 1}[i]
		if rung := p.Context(i).Futex() - bells[i]; rung != want {
			t.Errorf("context %d: rung %d times, want %d", i, rung, want)
		}
	}
	if !other.Disabled(MaxContexts-1) || other.Disabled(1) {
		t.Error("another process sees other contexts disabled")
	}
}
