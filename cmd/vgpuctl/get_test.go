package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/cmd/internal/output"
	"vgpud/mediator/api"
)

// TestHardwareColumns checks that a host with an NVIDIA GPU has columns about it, which are empty
// for a soft GPU.
func TestHardwareColumns(t *testing.T) {
	soft := api.GPU{Name: "gpu0", Kind: "soft", Model: "soft"}
	gpus := []api.GPU{
		{
			Name: "gpu1", Kind: "nvidia", Model: "H100", MemoryBytes: 80 << 30, Healthy: true, Hardware: &api.Hardware{
				UUID: "GPU-1", PCI: "0000:05:00.0", Driver: "580.159.04", CUDA: "13.0", MIG: "off", TemperatureCelsius: new(31.4), PowerWatts: new(70.5),
				SMClockHertz: new(1.98e9), MemoryUsedBytes: new(uint64(20 << 30)), Throttled: []string{"power-cap", "thermal"},
				Xids: []api.XidCount{{Xid: 31, Count: 2}, {Xid: 79, Count: 1}},
			},
		},
		{Name: "gpu2", Kind: "nvidia", Model: "H100", Hardware: &api.Hardware{UUID: "GPU-2", Problem: "vgpu-nvml ended"}},
		soft,
	}
	var columns []string
	for _, c := range gpuColumnsOf([]api.GPU{soft}) {
		columns = append(columns, c.head)
	}
	for _, c := range hardwareColumns {
		for _, head := range columns {
			if head == c.head {
				t.Errorf("a host with a soft GPU alone shows %s", head)
			}
		}
	}
	var out bytes.Buffer
	name := textColumn("NAME", gpuName)
	wide := table[api.GPU]{columns: func([]api.GPU) []column[api.GPU] { return append([]column[api.GPU]{name}, hardwareColumns...) }, name: gpuName}
	if err := wide.print(&out, &output.Format{Kind: "wide"}, gpus); err != nil {
		t.Fatal(err)
	}
	want := `NAME   TEMPERATURE   POWER   MEMORY-USED   XIDS        CLOCK      THROTTLED           DRIVER       CUDA   MIG   PCI            UUID
gpu1   31 °C         70 W    25.0%         31×2,79×1   1980 MHz   power-cap,thermal   580.159.04   13.0   off   0000:05:00.0   GPU-1
gpu2   -             -       -             -           -          -                   -            -      -     -              GPU-2
gpu0   -             -       -             -           -          -                   -            -      -     -              -
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDescribeControl: the driver's control of a guest's contexts is described where there is any.
func TestDescribeControl(t *testing.T) {
	idle := api.VM{Name: "a"}
	if text := strings.Join(describeVM(&idle), "\n"); strings.Contains(text, "Control by the driver") {
		t.Errorf("a guest on a soft GPU:\n%s", text)
	}
	v := api.VM{Name: "b", Control: api.Control{Contexts: 1, Disables: 4, DisableSeconds: 0.003, TimeSliceSeconds: 0.002048, Errors: 1, Problem: "busy\x1b[31m"}}
	_, text, _ := strings.Cut(strings.Join(describeVM(&v), "\n"), "Control by the driver:\n")
	want := `  Contexts:            1, of which 0 are off the GPU
  Disables:            4, mean time 750µs
  Time slice:          2.048ms
  Errors:              1
  Problem:             busy\x1b[31m`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestLostColumns: a guest that is lost, or silent, has its problem in the table.
func TestLostColumns(t *testing.T) {
	var out bytes.Buffer
	vms := []api.VM{{Name: "a", Lost: "its process 7 ended"}, {Name: "b", Silent: "it does not answer"}, {Name: "c"}}
	if err := vmTable.print(&out, &output.Format{Kind: "csv"}, vms); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{",lost,", ",silent,", ",its process 7 ended\n", ",it does not answer\n", ",problem\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestEventReasonIsWide: why the host launches a kernel's events is in the wide table and in JSON.
func TestEventReasonIsWide(t *testing.T) {
	kernels := []api.EventKernel{{VM: "a", Number: 1, Kernel: "say", Tier: "host", Reason: "prints"}, {VM: "a", Number: 2, Kernel: "ping", Tier: "warp"}}
	for kind, want := range map[string]bool{"table": false, "wide": true, "json": true, "csv": true} {
		var out strings.Builder
		if err := eventKernelTable.print(&out, &output.Format{Kind: kind}, kernels); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "prints") != want || strings.Count(out.String(), `"reason"`) != strings.Count(out.String(), `"prints"`) {
			t.Errorf("-o %s:\n%s", kind, out.String())
		}
	}
}

// TestEventColumns: -o wide shows what event kernels did where a guest has had any, and CSV always.
func TestEventColumns(t *testing.T) {
	for _, test := range []struct {
		kind string
		vm   api.VM
		want bool
	}{{"wide", api.VM{}, false}, {"wide", api.VM{Events: 1}, true}, {"wide", api.VM{EventsDropped: 1}, true}, {"csv", api.VM{}, true}, {"table", api.VM{Events: 1}, false}} {
		vms := []api.VM{{}, test.vm}
		heads, rows := vmTable.rows(&output.Format{Kind: test.kind}, vmTable.columns(vms), vms)
		if got := slices.Contains(heads, "EVENTS") || slices.Contains(heads, "events"); got != test.want || len(rows[0]) != len(heads) {
			t.Errorf("%s of %+v has the heads %q", test.kind, test.vm, heads)
		}
	}
}
