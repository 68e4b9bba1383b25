package main

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// TestDescribeHardware: what the driver tells of a GPU is described, and what it does not is left out.
func TestDescribeHardware(t *testing.T) {
	watts := 310.4
	g := api.GPU{Name: "gpu0", Hardware: &api.Hardware{PowerWatts: &watts, UUID: "GPU-1", Problem: "no temperature"}}
	want := []string{"Hardware:", "  Power:               310 W", "  UUID:                GPU-1", "  Problem:             no temperature"}
	if diff := cmp.Diff(want, linesOf(hardwareOf(&g))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDescribeFloating: a guest that floats is among those of each GPU where it has contexts.
func TestDescribeFloating(t *testing.T) {
	v := api.VM{Name: "a", GPU: "gpu0", Float: true, Weight: 1, Contexts: 3, OnGPUs: []api.OnGPU{{GPU: "gpu0"}, {GPU: "gpu1", Contexts: 3}}}
	for gpu, want := range map[string]int{"gpu0": 0, "gpu1": 1} {
		if got := guestsOn(&api.GPU{Name: gpu}, []api.VM{v}).lines; len(got) != want {
			t.Errorf("on %s: %v", gpu, got)
		}
	}
}
