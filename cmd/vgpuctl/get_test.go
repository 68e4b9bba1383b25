package main

import (
	"bytes"
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
	name := column[api.GPU]{"NAME", false, func(g api.GPU) string { return g.Name }}
	if err := print(&out, &output.Format{Kind: "wide"}, append([]column[api.GPU]{name}, hardwareColumns...), nil, gpus); err != nil {
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

// TestControlColumns checks the columns about guests under hardware control.
func TestControlColumns(t *testing.T) {
	idle := api.VM{Name: "a"}
	if n := len(vmColumnsOf([]api.VM{idle})); n != len(vmColumns) {
		t.Errorf("%d columns about guests on a soft GPU, want %d", n, len(vmColumns))
	}
	vms := []api.VM{idle, {Name: "b", Control: api.Control{Contexts: 1, Disables: 4, DisableSeconds: 0.003, TimeSliceSeconds: 0.002048, Errors: 1}}}
	columns := vmColumnsOf(vms)
	var out bytes.Buffer
	if err := print(&out, &output.Format{Kind: "wide"}, append(columns[:1:1], controlColumns...), nil, vms); err != nil {
		t.Fatal(err)
	}
	want := `NAME   DISABLES   DISABLE-TIME   TIME-SLICE   CONTROL-ERRORS
a      0          -              -            0
b      4          750µs          2.048ms      1
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
