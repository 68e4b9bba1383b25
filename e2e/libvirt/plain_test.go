package libvirt

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/e2e/host"
	"vgpud/vfio/qemu"
)

// TestNoSpace runs VMs without libvirt whose guests find no addresses for attached devices.
func TestNoSpace(t *testing.T) {
	deps, err := qemu.Find("")
	if err != nil {
		t.Fatal(err)
	}
	bin, err := host.Programs()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		// cpu is the guest's. QEMU's default qemu64 is AMD's with 40 address bits, and room is
		// assigned at the end of what these reach.
		cpu     string
		reserve int
		problem string
	}{
		{name: "too little room", cpu: "qemu64,phys-bits=39", reserve: 32, problem: "no space: port spare0 has room for 32 MiB, and the virtual GPU's memory (BAR2) needs 64 MiB"},
		{name: "room that the guest can't use", cpu: "qemu64", reserve: 1024, problem: "AMD processor with 40 address bits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := host.Start(t, "dfq")
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			vm, err := qemu.Start(ctx, qemu.Options{Deps: deps, Name: "plain", CPU: c.cpu, SparePorts: 2, ReserveMiB: c.reserve})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := vm.Close(); err != nil {
					t.Error(err)
				}
			}()
			if err := vm.Ready(ctx); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(ctx, filepath.Join(bin, "vgpuctl"), "--socket", h.Config.Socket, "attach", "--qmp", vm.QMPSocket(), "--bar2", "64MiB", "--wait", "20s").CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.problem) {
				t.Errorf("%v: %s; want %s", err, out, c.problem)
			}
			if vms, err := h.Client.VMs(ctx); err != nil || len(vms) != 0 {
				t.Errorf("%d guests are left: %v", len(vms), err)
			}
		})
	}
}
