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

// daemon checks the daemon and its GPUs.
func daemon(ctx context.Context, h *Host) []ability.Ability {
	health, err := h.Health(ctx)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return []ability.Ability{ability.Undetermined(Daemon, err.Error(), asRoot)}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return []ability.Ability{ability.Missing(Daemon, "no daemon listens on its socket", "systemctl start vgpud, or name its socket with --socket")}
	case err != nil:
		return []ability.Ability{ability.Missing(Daemon, err.Error(), "systemctl restart vgpud; see `journalctl -u vgpud` for the reason")}
	}
	a := ability.Available(Daemon, "version %s answers", health.Version)
	if health.Version != h.Version {
		a.Do = fmt.Sprintf("restart the daemon, during which guests go on, or update vgpuctl, which is version %s", h.Version)
	}
	all := []ability.Ability{a, confinement(&health)}
	if len(health.UsageProblems) > 0 {
		all = append(all, ability.Missing(Usage, strings.Join(health.UsageProblems, "; "), "see the section on usage in operations.md"))
	}
	gpus, err := h.GPUs(ctx)
	if err != nil {
		return append(all, ability.Missing(GPU, err.Error(), "see `journalctl -u vgpud` for the reason"))
	}
	for i := range gpus {
		all = append(all, gpuOf(&gpus[i]), accounting(&gpus[i]), eventKernels(&gpus[i]))
	}
	return all
}

// confinementNeeds says what a host must provide so that guests' processes are confined.
const confinementNeeds = "run the daemon as root by its unit, which delegates a control group (systemd 254 or later), on Linux 5.12 or later with cgroup v2 and seccomp"

// confinement returns whether guests' processes are separated from each other and the host.
func confinement(h *api.Health) ability.Ability {
	if len(h.Unconfined) > 0 {
		return ability.Missing(Confinement, strings.Join(h.Unconfined, "; "), confinementNeeds)
	}
	return ability.Available(Confinement, "guests' processes have users, devices and limits of their own")
}

// gpuOf returns the state of one of the daemon's GPUs.
func gpuOf(g *api.GPU) ability.Ability {
	a := ability.Available(GPU, "%s, kind %s", g.Model, g.Kind)
	if !g.Healthy {
		a = ability.Missing(GPU, g.Problem, "")
	}
	a.GPU = g.Name
	var advice []string
	// Reading the GPU's own record needs no priority.
	if g.RealTimeProblem != "" && g.AccountingSource == api.SourceRegisters {
		advice = append(advice, "give the polling thread real-time priority (CAP_SYS_NICE, or LimitRTPRIO= as in the unit): "+g.RealTimeProblem)
	}
	if g.Hardware != nil {
		advice = append(advice, g.Hardware.Warnings...)
	}
	a.Do = strings.Join(advice, "; ")
	return a
}

// accounting returns the source by which one of the daemon's GPUs is accounted, with the reason in
// short. The GPU's own abilities have it in full.
func accounting(g *api.GPU) ability.Ability {
	a := ability.Available(Accounting, "by %s", g.AccountingSource)
	if why, _, _ := strings.Cut(g.AccountingSourceReason, ": "); why != "" {
		a.What += ": " + why
	}
	if g.AccountingSource == "" {
		a = ability.Missing(Accounting, cmp.Or(g.AccountingSourceReason, "no source shows which guest uses the GPU"), "")
	}
	a.GPU = g.Name
	return a
}

// eventKernels returns whether what drives one of the daemon's GPUs launches event kernels.
func eventKernels(g *api.GPU) ability.Ability {
	a := ability.Available(EventKernels, "the GPU launches registered kernels of guests that do not float by itself")
	if !g.EventKernels {
		a = ability.Missing(EventKernels, fmt.Sprintf("there is no dispatcher for GPUs of kind %s: their driver launches by commands alone, and guests are not offered event kernels", cmp.Or(g.Kind, "unknown")), "")
	}
	a.GPU = g.Name
	return a
}

// program checks for the host's program, and so for a GPU in software.
func program(ctx context.Context, h *Host) []ability.Ability {
	const do = "install it in $PATH, by `make install` or a package"
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
		ability.Available(SoftGPU, "`vgpud softgpu` runs one on any host; `vgpud demo` shows it at work"),
	}
}

// nvidia makes the host's program try the abilities of NVIDIA's GPUs, in a process of its own.
func nvidia(ctx context.Context, h *Host) []ability.Ability {
	path, err := h.Find("vgpud")
	if err != nil {
		return []ability.Ability{ability.Undetermined(Libcuda, "`vgpud probe` would find out, but there is no vgpud", "see vgpud")}
	}
	out, err := h.Run(ctx, path, "probe", "--abilities")
	if err != nil {
		return []ability.Ability{ability.Undetermined(Libcuda, "`vgpud probe --abilities`: "+err.Error(), "")}
	}
	var r ability.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Abilities) == 0 {
		return []ability.Ability{ability.Undetermined(Libcuda, fmt.Sprintf("`vgpud probe --abilities` printed %.60q", out), "install vgpuctl and vgpud of one version")}
	}
	return r.Abilities
}

// nvml asks NVIDIA's driver for its GPUs, through vgpu-nvml.
func nvml(ctx context.Context, h *Host) []ability.Ability {
	v, err := h.Inventory(ctx)
	switch {
	case errors.Is(err, inventory.ErrUnavailable):
		return []ability.Ability{ability.Missing(NVML, err.Error(), "for the health of NVIDIA GPUs only: build vgpud with a C compiler, and install the driver's utilities")}
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

// kvm checks whether VMs can run at the processor's own speed.
func kvm(_ context.Context, h *Host) []ability.Ability {
	const slow = "QEMU translates VMs' instructions, some twenty times slower"
	err := h.TryKVM("dev/kvm")
	switch {
	case err == nil:
		return []ability.Ability{ability.Available(KVM, "/dev/kvm runs a VM")}
	case errors.Is(err, fs.ErrPermission):
		return []ability.Ability{ability.Undetermined(KVM, "/dev/kvm exists, but not for this user", "add QEMU's user to group kvm; "+asRoot)}
	}
	do := "enable virtualisation in the firmware, and `modprobe kvm_intel` or `kvm_amd`"
	if cpu, rerr := fs.ReadFile(h.Files, "proc/cpuinfo"); rerr == nil && strings.Contains(string(cpu), " hypervisor") {
		do = "this host is a VM itself: enable nested virtualisation on its host"
	}
	what := "there is no /dev/kvm"
	if !errors.Is(err, fs.ErrNotExist) {
		what = fmt.Sprintf("/dev/kvm is there, but can't run a VM (%v)", err)
	}
	return []ability.Ability{ability.Missing(KVM, what+": "+slow, do)}
}

// device is the device that QEMU must support.
const device = "vfio-user-pci"

// qemu checks QEMU for the device.
func qemu(ctx context.Context, h *Host) []ability.Ability {
	const do = "install QEMU 10.1 or later, or name one outside $PATH with --qemu"
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

// sockets lists the sockets of libvirt's daemons: the one for QEMU, and the one for all drivers.
var sockets = []string{"run/libvirt/virtqemud-sock", "run/libvirt/libvirt-sock"}

// libvirtDaemon checks for libvirt, which only domains need.
func libvirtDaemon(ctx context.Context, h *Host) []ability.Ability {
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
		return []ability.Ability{ability.Missing(Libvirt, "it is not installed", "for libvirt's domains only: install version 6.5 or later; `vgpuctl attach --qmp` serves VMs without it")}
	case socket == "":
		return []ability.Ability{ability.Missing(Libvirt, version+" is installed but does not run", "systemctl start virtqemud.socket, or libvirtd")}
	}
	n, err := h.Domains(ctx)
	if err == nil {
		return []ability.Ability{ability.Available(Libvirt, "%s answers on %s, with %d domains", cmp.Or(version, "a libvirt"), socket, n)}
	}
	a := ability.Undetermined(Libvirt, fmt.Sprintf("%s listens on %s: %v", cmp.Or(version, "a libvirt"), socket, err), asRoot)
	if errors.Is(err, libvirt.ErrUnavailable) {
		a.Do = "for `vgpu-libvirt`, build vgpud with a C compiler, and install libvirt's library"
	}
	return []ability.Ability{a}
}

// hooks lists where libvirt's hook may be installed.
var hooks = []string{"etc/libvirt/hooks/qemu.d/50-vgpu", "etc/libvirt/hooks/qemu"}

// hook checks for libvirt's hook.
func hook(_ context.Context, h *Host) []ability.Ability {
	for _, path := range hooks {
		st, err := fs.Stat(h.Files, path)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return []ability.Ability{ability.Undetermined(Hook, "/etc/libvirt/hooks can't be read", asRoot)}
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
	return []ability.Ability{ability.Missing(Hook, "libvirt's hook is not installed", "for libvirt's domains only: `make install`, then restart libvirt's daemon")}
}

// isHook recognises the program by its usage line, as the installation script does.
func isHook(files fs.FS, path string) (bool, error) {
	b, err := fs.ReadFile(files, path)
	if err != nil {
		return false, fmt.Errorf("read libvirt's hook: %w", err)
	}
	return strings.Contains(string(b), "usage: vgpu-hook DOMAIN OPERATION"), nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

// Explain returns the error of a failed program: the last line of its standard error, if any.
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
