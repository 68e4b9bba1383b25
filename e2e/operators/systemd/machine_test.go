package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vgpud/e2e/operators"
	"vgpud/vfio/qemu"
)

// limit bounds the time of the boot and of each script, on a busy machine without KVM.
const limit = 20 * time.Minute

// machine is a VM that systemd has booted.
type machine struct{ vm *qemu.VM }

// boot makes a disk, boots the VM from it, and returns when the VM's shell answers.
func boot(t *testing.T) *machine {
	t.Helper()
	operators.Require(t)
	deps, err := qemu.Find("")
	if err != nil {
		t.Fatal(err)
	}
	disk := image(t, deps)
	deps.Kernel, deps.Initramfs = operators.System(t, "vmlinuz"), operators.System(t, "initrd.cpio")
	o := qemu.Options{
		Deps: deps, Name: "systemd", MemoryMiB: 2048, CPUs: 2,
		Append: "apparmor=1 security=apparmor systemd.show_status=0 systemd.log_level=notice",
		Args:   []string{"-drive", "if=virtio,format=raw,cache=unsafe,file=" + disk},
	}
	vm, err := power(t, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console of the VM:\n%s", vm.Console())
		}
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	})
	return &machine{vm}
}

// power starts a VM and waits until it has booted: by KVM, or where that doesn't run this kernel, with
// QEMU translating its instructions.
func power(t *testing.T, o qemu.Options) (*qemu.VM, error) {
	t.Helper()
	if _, err := os.Stat("/dev/kvm"); err == nil {
		kvm := o
		kvm.Accel, kvm.CPU = "kvm", "host"
		vm, err := powerBy(t, kvm)
		if says := doctorOnKVM(t); err == nil && says != "yes" || errors.Is(err, errInternal) && says == "yes" {
			t.Errorf("vgpuctl doctor says %q of KVM, and that VM: %v", says, err)
		}
		if err == nil {
			return vm, nil
		}
		t.Logf("KVM doesn't run this VM: %s", firstLine(err))
	}
	t.Log("QEMU translates the VM's instructions")
	return powerBy(t, o)
}

// errInternal says that QEMU has stopped a VM with which KVM can't go on.
var errInternal = errors.New("QEMU has stopped it for an internal error")

// doctorOnKVM returns whether this host's KVM runs VMs, in vgpuctl doctor's words.
func doctorOnKVM(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(operators.Tree, "bin", "vgpuctl"), "doctor", "-o", "json").Output()
	var report struct {
		Abilities []struct{ Name, State string }
	}
	if jsonErr := json.Unmarshal(out, &report); jsonErr != nil {
		t.Fatal(errors.Join(err, jsonErr)) // it fails also where something else is missing
	}
	for _, a := range report.Abilities {
		if a.Name == "kvm" {
			return a.State
		}
	}
	t.Fatalf("vgpuctl doctor says nothing of KVM: %s", out)
	return ""
}

// powerBy is power for the accelerator that o has. A VM that KVM can't go on with is stopped.
func powerBy(t *testing.T, o qemu.Options) (_ *qemu.VM, err error) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("not booted in %v", limit))
	defer cancel()
	o.Stopped = true
	vm, err := qemu.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, vm.Close())
		}
	}()
	booting, give := context.WithCancelCause(ctx)
	defer give(nil)
	stop := vm.Expect(qemu.Named("STOP"))
	go func() {
		if _, err := stop.Wait(booting); err == nil {
			give(errInternal)
		}
	}()
	if err := vm.Continue(ctx); err != nil {
		return nil, err
	}
	if err := vm.Ready(booting); err != nil {
		return nil, err
	}
	t.Logf("booted in %.0f s", time.Since(began).Seconds())
	return vm, nil
}

// firstLine returns the first line of an error.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// try runs a shell script in the VM and returns what it prints.
func (m *machine) try(t *testing.T, script string) (string, error) {
	t.Helper()
	// The test's own context has ended when a failed test asks for the journal.
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return m.vm.Output(ctx, "/bin/sh", "-ec", "exec 2>&1\n"+script)
}

// run is try for what must succeed.
func (m *machine) run(t *testing.T, script string) string {
	t.Helper()
	began := time.Now()
	out, err := m.try(t, script)
	if err != nil {
		t.Fatalf("%v\nIt printed:\n%s\n%s", err, out, m.journal(t))
	}
	t.Logf("%.1f s: %s\n%s", time.Since(began).Seconds(), strings.TrimSpace(script), out)
	return out
}

// word is run for a script that prints one line.
func (m *machine) word(t *testing.T, script string) string {
	t.Helper()
	return strings.TrimSpace(m.run(t, script))
}

// journal returns the end of the journal and what AppArmor refused.
func (m *machine) journal(t *testing.T) string {
	t.Helper()
	out, err := m.try(t, `
systemctl --no-pager status 'vgpud*' || true
journalctl --no-pager -o short-monotonic -n 10 _PID=1
journalctl --no-pager -o short-monotonic -n 1000 | grep -v '\]:  *[^ ]*/go/\|fp=0x\|\]: r[a-z0-9]*  *0x' | tail -n 80
dmesg | grep 'apparmor="DENIED"' | tail -n 20 || true`)
	if err != nil {
		return fmt.Sprintf("the journal can't be read: %v\n%s", err, out)
	}
	return "The units, the journal's end, and what AppArmor refused:\n" + out
}

// step runs a test that later ones depend on.
func (m *machine) step(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	if !t.Run(name, func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Log(m.journal(t))
			}
		}()
		f(t)
	}) {
		t.Fatalf("%s failed, and what follows depends on it", filepath.Join(t.Name(), name))
	}
}
