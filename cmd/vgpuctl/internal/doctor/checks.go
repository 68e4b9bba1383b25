package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"

	"vgpud/cmd/internal/ability"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/api"
	"vgpud/mediator/libvirt"
)

const asRoot = "run `vgpuctl doctor` as root"

// daemon asks the daemon how it is, and how its GPUs are.
func daemon(ctx context.Context, h *Host) []ability.Ability {
	health, err := h.Health(ctx)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return []ability.Ability{ability.Undetermined(Daemon, err.Error(), asRoot)}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return []ability.Ability{ability.Missing(Daemon, "no daemon listens here", "systemctl start vgpud; or name its socket with --socket")}
	case err != nil:
		return []ability.Ability{ability.Missing(Daemon, err.Error(), "systemctl restart vgpud; `journalctl -u vgpud` says why")}
	}
	a := ability.Available(Daemon, "version %s answers", health.Version)
	if health.Version != h.Version {
		a.Do = fmt.Sprintf("restart the daemon, or update vgpuctl: this is version %s; guests go on meanwhile", h.Version)
	}
	all := []ability.Ability{a, confinement(&health)}
	gpus, err := h.GPUs(ctx)
	if err != nil {
		return append(all, ability.Missing(GPU, err.Error(), "`journalctl -u vgpud` says why"))
	}
	for i := range gpus {
		all = append(all, gpuOf(&gpus[i]), accounting(&gpus[i]))
	}
	return all
}

// confinement is whether guests' processes are kept from each other and the host.
func confinement(h *api.Health) ability.Ability {
	if len(h.Unconfined) > 0 {
		return ability.Missing(Confinement, strings.Join(h.Unconfined, "; "), "docs/security.md says what each takes")
	}
	return ability.Available(Confinement, "guests' processes have users, devices and limits of their own")
}

// gpuOf is one of the daemon's GPUs.
func gpuOf(g *api.GPU) ability.Ability {
	a := ability.Available(GPU, "%s, kind %s", g.Model, g.Kind)
	if !g.Healthy {
		a = ability.Missing(GPU, g.Problem, "")
	}
	a.GPU = g.Name
	var advice []string
	// Who reads the GPU's own record is in no hurry.
	if g.RealTimeProblem != "" && g.AccountingSource == api.SourceRegisters {
		advice = append(advice, "real-time priority for the polling thread (CAP_SYS_NICE, or LimitRTPRIO= as the unit has it): "+g.RealTimeProblem)
	}
	if g.Hardware != nil {
		advice = append(advice, g.Hardware.Warnings...)
	}
	a.Do = strings.Join(advice, "; ")
	return a
}

// accounting is what one of the daemon's GPUs is watched by, and in short why. The
// abilities of the GPU itself say it at length.
func accounting(g *api.GPU) ability.Ability {
	a := ability.Available(Accounting, "by %s", g.AccountingSource)
	if why, _, _ := strings.Cut(g.AccountingSourceReason, ": "); why != "" {
		a.What += ": " + why
	}
	if g.AccountingSource == "" {
		a = ability.Missing(Accounting, cmp.Or(g.AccountingSourceReason, "nothing tells who uses the GPU"), "")
	}
	a.GPU = g.Name
	return a
}

// program looks for the host's program, and so for a GPU in software.
func program(ctx context.Context, h *Host) []ability.Ability {
	const do = "`make install`, or a package; $PATH is where it is looked for"
	path, err := h.Find("vgpud")
	if err != nil {
		return []ability.Ability{ability.Missing(Program, "it is neither beside vgpuctl nor in $PATH", do)}
	}
	out, err := h.Run(ctx, path, "--version")
	if err != nil {
		return []ability.Ability{ability.Missing(Program, err.Error(), do)}
	}
	return []ability.Ability{
		ability.Available(Program, "%s: %s", path, firstLine(out)),
		ability.Available(SoftGPU, "`vgpud softgpu` runs one on any host; `vgpud demo` shows it"),
	}
}

// nvidia has the host's program find out what NVIDIA's GPUs here can do: by trying
// it, in a process of its own.
func nvidia(ctx context.Context, h *Host) []ability.Ability {
	path, err := h.Find("vgpud")
	if err != nil {
		return []ability.Ability{ability.Undetermined(Libcuda, "`vgpud probe` finds out, and there is no vgpud", "see vgpud")}
	}
	out, err := h.Run(ctx, path, "probe", "--abilities")
	if err != nil {
		return []ability.Ability{ability.Undetermined(Libcuda, "`vgpud probe --abilities`: "+err.Error(), "")}
	}
	var r ability.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Abilities) == 0 {
		return []ability.Ability{ability.Undetermined(Libcuda, fmt.Sprintf("`vgpud probe --abilities` says %.60q", out), "have vgpuctl and vgpud of one version")}
	}
	return r.Abilities
}

// nvml asks NVIDIA's driver for its GPUs, by the program for it.
func nvml(ctx context.Context, h *Host) []ability.Ability {
	v, err := h.Inventory(ctx)
	switch {
	case errors.Is(err, inventory.ErrUnavailable):
		return []ability.Ability{ability.Missing(NVML, err.Error(), "only for the health of NVIDIA GPUs: a C compiler when vgpud is built, and the driver's utilities")}
	case err != nil:
		return []ability.Ability{ability.Missing(NVML, err.Error(), "")}
	}
	var names, warnings []string
	for _, g := range v.GPUs {
		names = append(names, cmp.Or(g.Name, g.UUID))
		for _, w := range g.Warnings() {
			warnings = append(warnings, g.PCI+": "+w)
		}
	}
	a := ability.Available(NVML, "driver %s, GPUs: %s", v.Driver, cmp.Or(strings.Join(names, ", "), "none"))
	a.Do = strings.Join(warnings, "; ")
	return []ability.Ability{a}
}

// kvm looks whether VMs run at the processor's own speed.
func kvm(_ context.Context, h *Host) []ability.Ability {
	const slow = "VMs run under translation, some twenty times slower"
	err := h.Access("dev/kvm")
	switch {
	case err == nil:
		return []ability.Ability{ability.Available(KVM, "/dev/kvm may be used")}
	case errors.Is(err, fs.ErrPermission):
		return []ability.Ability{ability.Undetermined(KVM, "/dev/kvm is there, and not for this user", "QEMU's user wants group kvm; "+asRoot)}
	}
	do := "turn virtualisation on in the firmware, and `modprobe kvm_intel` or `kvm_amd`"
	if cpu, rerr := fs.ReadFile(h.Files, "proc/cpuinfo"); rerr == nil && strings.Contains(string(cpu), " hypervisor") {
		do = "this host is itself a VM: turn nested virtualisation on where that is run"
	}
	return []ability.Ability{ability.Missing(KVM, "there is no /dev/kvm: "+slow, do)}
}

// device is what QEMU has to have.
const device = "vfio-user-pci"

// qemu asks QEMU for the device.
func qemu(ctx context.Context, h *Host) []ability.Ability {
	const do = "QEMU 10.1 or later; --qemu names one that is not in $PATH"
	for _, name := range h.QEMU {
		path, err := h.Find(name)
		if err != nil {
			continue
		}
		version, err := h.Run(ctx, path, "--version")
		if err != nil {
			return []ability.Ability{ability.Missing(QEMU, err.Error(), do)}
		}
		if out, err := h.Run(ctx, path, "-device", device+",help"); err != nil || !strings.Contains(out, "socket") {
			return []ability.Ability{ability.Missing(QEMU, fmt.Sprintf("%s (%s) has no device %s", path, firstLine(version), device), do)}
		}
		return []ability.Ability{ability.Available(QEMU, "%s: %s, with %s", path, firstLine(version), device)}
	}
	return []ability.Ability{ability.Missing(QEMU, "none of "+strings.Join(h.QEMU, ", ")+" is in $PATH", do)}
}

// sockets are where libvirt's daemons listen: the one for QEMU, and the one for all.
var sockets = []string{"run/libvirt/virtqemud-sock", "run/libvirt/libvirt-sock"}

// daemonOfLibvirt looks for libvirt, which is needed for domains alone.
func daemonOfLibvirt(ctx context.Context, h *Host) []ability.Ability {
	socket := ""
	for _, s := range sockets {
		if _, err := fs.Stat(h.Files, s); err == nil {
			socket = "/" + s
			break
		}
	}
	version := ""
	for _, name := range []string{"virtqemud", "libvirtd", "virsh"} {
		path, err := h.Find(name)
		if err != nil {
			continue
		}
		if out, err := h.Run(ctx, path, "--version"); err == nil {
			version = firstLine(out)
			break
		}
	}
	switch {
	case socket == "" && version == "":
		return []ability.Ability{ability.Missing(Libvirt, "it is not here", "only for libvirt's domains: version 6.5 or later; `vgpuctl attach --qmp` serves VMs without it")}
	case socket == "":
		return []ability.Ability{ability.Missing(Libvirt, version+" is here and does not run", "systemctl start virtqemud.socket, or libvirtd")}
	}
	n, err := h.Domains(ctx)
	if err == nil {
		return []ability.Ability{ability.Available(Libvirt, "%s answers on %s, with %d domains", cmp.Or(version, "a libvirt"), socket, n)}
	}
	a := ability.Undetermined(Libvirt, fmt.Sprintf("%s listens on %s: %v", cmp.Or(version, "a libvirt"), socket, err), asRoot)
	if errors.Is(err, libvirt.ErrUnavailable) {
		a.Do = "`vgpu-libvirt` wants a C compiler when vgpud is built, and libvirt's library"
	}
	return []ability.Ability{a}
}

// hooks are where libvirt's hook may be installed.
var hooks = []string{"etc/libvirt/hooks/qemu.d/50-vgpu", "etc/libvirt/hooks/qemu"}

// hook looks for libvirt's hook.
func hook(_ context.Context, h *Host) []ability.Ability {
	for _, path := range hooks {
		st, err := fs.Stat(h.Files, path)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return []ability.Ability{ability.Undetermined(Hook, "not allowed to look into /etc/libvirt/hooks", asRoot)}
		case err != nil:
			continue
		}
		ours, err := isHook(h.Files, path)
		switch {
		case err != nil:
			return []ability.Ability{ability.Undetermined(Hook, err.Error(), asRoot)}
		case ours && st.Mode()&0o111 == 0:
			return []ability.Ability{ability.Missing(Hook, "/"+path+" is not executable", "deploy/libvirt/install.sh")}
		case ours:
			return []ability.Ability{ability.Available(Hook, "/%s", path)}
		}
	}
	return []ability.Ability{ability.Missing(Hook, "libvirt's hook is not installed", "only for libvirt's domains: `make install`, then restart libvirt's daemon")}
}

// isHook knows the program by its usage line, as its installation does.
func isHook(files fs.FS, path string) (bool, error) {
	b, err := fs.ReadFile(files, path)
	if err != nil {
		return false, fmt.Errorf("look at libvirt's hook: %w", err)
	}
	return strings.Contains(string(b), "usage: vgpu-hook DOMAIN OPERATION"), nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

// Explain is the error of a program that failed: what it said last, where it said
// something.
func Explain(err error, stderr string) error {
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if last := lines[len(lines)-1]; last != "" {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return errors.New(last)
		}
		return fmt.Errorf("%s: %w", last, err)
	}
	return err
}
