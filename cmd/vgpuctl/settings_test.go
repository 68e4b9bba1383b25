package main

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"vgpud/mediator/api"
)

// TestHelpNamesAllSettings: the help of `set vm` explains each key, at the beginning of a line.
func TestHelpNamesAllSettings(t *testing.T) {
	help := newSetVM(new(options)).Long
	for _, s := range settings {
		if !strings.Contains(help, "\n  "+s.key+"=") {
			t.Errorf("the help says nothing of %s=", s.key)
		}
	}
}

// TestCSVLeavesOutWhatThereIsNot: for programs, what an item lacks is an empty cell and not a dash.
func TestCSVLeavesOutWhatThereIsNot(t *testing.T) {
	lacksNothing(t, vmTable, api.VM{Name: "a"})
	lacksNothing(t, gpuTable, api.GPU{Name: "a", Hardware: &api.Hardware{}})
	lacksNothing(t, taskTable, api.Task{})
	lacksNothing(t, eventKernelTable, api.EventKernel{})
}

func lacksNothing[T any](t *testing.T, shown table[T], item T) {
	t.Helper()
	f := newFormat()
	f.Kind = "csv"
	var out bytes.Buffer
	if err := shown.print(&out, &f, []T{item}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, head := range rows[0] {
		if cell := rows[1][i]; slices.Contains([]string{"-", "'-"}, cell) {
			t.Errorf("%T: %s is %q", item, head, cell)
		}
	}
}
