package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"vgpud/cmd/internal/ability"
	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/api"
	"vgpud/mediator/libvirt"
)

// fullHost is a host that has everything. Programs print the outputs for their command lines.
func fullHost() (h *Host, outputs map[string]string) {
	outputs = map[string]string{
		"vgpud --version": "vgpud version 1.0\n",
		"vgpud probe --abilities": `{"abilities":[
			{"name":"libcuda","state":"yes","what":"CUDA 13.0","needed":false},
			{"name":"registers","gpu":"GPU-1","state":"no","what":"the kernel is locked down","do":"use the record","needed":false}]}`,
		"qemu-system-x86_64 --version":                  "QEMU emulator version 11.1.3\nCopyright\n",
		"qemu-system-x86_64 -device vfio-user-pci,help": "vfio-user-pci options:\n  socket=<SocketAddress>\n",
		"virtqemud --version":                           "virtqemud (libvirt) 11.3.0\n",
		"/usr/local/bin/qemu-system-x86_64 --vgpu-qemu": "vgpu-qemu version 1.0 runs /usr/bin/qemu-system-x86_64\n",
	}
	return &Host{
		Files: fstest.MapFS{
			"run/libvirt/virtqemud-sock":       {Mode: fs.ModeSocket},
			"usr/local/bin/qemu-system-x86_64": {Mode: 0o755},
			"usr/bin/qemu-system-x86_64":       {Mode: 0o755},
			"etc/libvirt/hooks/qemu.d/50-vgpu": {Mode: 0o755, Data: []byte("\x7fELF…usage: vgpu-hook DOMAIN OPERATION…")},
		},
		TryKVM: func(string) error { return nil },
		Find: func(name string) (string, error) {
			for line := range outputs {
				if strings.HasPrefix(line, name+" ") {
					return name, nil
				}
			}
			return "", exec.ErrNotFound
		},
		Run: func(_ context.Context, program string, args ...string) (string, error) {
			if out, ok := outputs[program+" "+strings.Join(args, " ")]; ok {
				return out, nil
			}
			return "", errors.New("unknown flag")
		},
		Health: func(context.Context) (api.Health, error) { return api.Health{Version: "1.0", Healthy: true}, nil },
		GPUs: func(context.Context) ([]api.GPU, error) {
			return []api.GPU{{Name: "gpu0", Kind: "nvidia", Model: "H100", Healthy: true, AccountingSource: api.SourceEvents, AccountingSourceReason: "its status can't be read: map it: refused"}}, nil
		},
		Inventory: func(context.Context) (inventory.Inventory, error) {
			return inventory.Inventory{Driver: "580.159.04", GPUs: []inventory.GPU{{Name: "H100"}, {UUID: "GPU-2"}}}, nil
		},
		Domains: func(context.Context) (int, error) { return 3, nil },
		Version: "1.0",
		QEMU:    []string{"qemu-system-x86_64", "qemu-kvm"},
	}, outputs
}

func TestAHostThatHasAll(t *testing.T) {
	h, _ := fullHost()
	want := Report{Ready: true, Abilities: []ability.Ability{
		{Name: Daemon, State: ability.Present, What: "version 1.0 answers"},
		{Name: Confinement, State: ability.Present, What: "guests' processes have users, devices and limits of their own"},
		{Name: GPU, GPU: "gpu0", State: ability.Present, What: "H100, kind nvidia", Needed: true},
		{Name: Accounting, GPU: "gpu0", State: ability.Present, What: "by events: its status can't be read"},
		{Name: EventKernels, GPU: "gpu0", State: ability.Absent, What: "there is no dispatcher for GPUs of kind nvidia: their driver launches by commands alone, and guests are not offered event kernels"},
		{Name: Program, State: ability.Present, What: "vgpud: vgpud version 1.0", Needed: true},
		{Name: SoftGPU, State: ability.Present, What: "`vgpud softgpu` runs one on any host; `vgpud demo` shows it at work"},
		{Name: Libcuda, State: ability.Present, What: "CUDA 13.0"},
		{Name: "registers", GPU: "GPU-1", State: ability.Absent, What: "the kernel is locked down", Do: "use the record"},
		{Name: NVML, State: ability.Present, What: "driver 580.159.04, GPUs: H100, GPU-2"},
		{Name: KVM, State: ability.Present, What: "/dev/kvm runs a VM"},
		{Name: QEMU, State: ability.Present, What: "qemu-system-x86_64: QEMU emulator version 11.1.3, with vfio-user-pci", Needed: true},
		{Name: Libvirt, State: ability.Present, What: "virtqemud (libvirt) 11.3.0 answers on /run/libvirt/virtqemud-sock, with 3 domains"},
		{Name: Hook, State: ability.Present, What: "/etc/libvirt/hooks/qemu.d/50-vgpu"},
		{Name: Emulator, State: ability.Present, What: "/usr/local/bin/qemu-system-x86_64 runs /usr/bin/qemu-system-x86_64"},
	}}
	if diff := cmp.Diff(want, Examine(t.Context(), h)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestWhatIsMissing removes one thing at a time.
func TestWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name     string
		take     func(h *Host, outputs map[string]string)
		ability  string
		state    ability.State
		what, do string
		ready    bool
	}{
		{
			name: "the daemon does not run", ability: Daemon, state: ability.Absent, what: "no daemon listens", do: "systemctl start vgpud", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Health = func(context.Context) (api.Health, error) {
					return api.Health{}, fmt.Errorf("no daemon: %w", syscall.ECONNREFUSED)
				}
			},
		},
		{
			name: "the daemon is root's", ability: Daemon, state: ability.Unknown, what: "not allowed to use /x", do: "as root", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Health = func(context.Context) (api.Health, error) {
					return api.Health{}, fmt.Errorf("not allowed to use /x: %w", fs.ErrPermission)
				}
			},
		},
		{
			name: "the daemon is stuck", ability: Daemon, state: ability.Absent, what: "deadline exceeded", do: "systemctl restart vgpud", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Health = func(context.Context) (api.Health, error) { return api.Health{}, context.DeadlineExceeded }
			},
		},
		{
			name: "the daemon is another version", ability: Daemon, state: ability.Present, what: "version 0.9 answers", do: "which is version 1.0", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Health = func(context.Context) (api.Health, error) { return api.Health{Version: "0.9"}, nil }
			},
		},
		{
			name: "guests are not confined", ability: Confinement, state: ability.Absent, what: "no users; no control groups", do: "delegates a control group", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Health = func(context.Context) (api.Health, error) {
					return api.Health{Version: "1.0", Unconfined: []string{"no users", "no control groups"}}, nil
				}
			},
		},
		{
			name: "the GPU failed", ability: GPU, state: ability.Absent, what: "Xid 79", do: "",
			take: func(h *Host, _ map[string]string) {
				h.GPUs = func(context.Context) ([]api.GPU, error) {
					return []api.GPU{{Name: "gpu0", Problem: "Xid 79: off the bus"}}, nil
				}
			},
		},
		{
			name: "the GPU could be better", ability: GPU, state: ability.Present, what: "H100", do: "LimitRTPRIO= as in the unit): no right; MIG is on", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.GPUs = func(context.Context) ([]api.GPU, error) {
					return []api.GPU{{Name: "gpu0", Model: "H100", Healthy: true, AccountingSource: api.SourceRegisters, RealTimeProblem: "no right", Hardware: &api.Hardware{Warnings: []string{"MIG is on"}}}}, nil
				}
			},
		},
		{
			name: "no polling, no real-time priority", ability: GPU, state: ability.Present, what: "H100", do: "", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.GPUs = func(context.Context) ([]api.GPU, error) {
					return []api.GPU{{Name: "gpu0", Model: "H100", Healthy: true, AccountingSource: api.SourceEvents, RealTimeProblem: "not asked for"}}, nil
				}
			},
		},
		{
			name: "nobody tells who uses the GPU", ability: Accounting, state: ability.Absent, what: "no source shows", do: "", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.GPUs = func(context.Context) ([]api.GPU, error) { return []api.GPU{{Name: "gpu0", Healthy: true}}, nil }
			},
		},
		{
			name: "a GPU that launches by itself", ability: EventKernels, state: ability.Present, what: "launches registered kernels", do: "", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.GPUs = func(context.Context) ([]api.GPU, error) {
					return []api.GPU{{Name: "gpu0", Kind: "soft", Healthy: true, EventKernels: true}}, nil
				}
			},
		},
		{
			name: "no program", ability: Program, state: ability.Absent, what: "neither beside vgpuctl nor in $PATH", do: "make install",
			take: func(_ *Host, o map[string]string) { delete(o, "vgpud --version"); delete(o, "vgpud probe --abilities") },
		},
		{
			name: "nobody to ask about NVIDIA", ability: Libcuda, state: ability.Unknown, what: "there is no vgpud", do: "see vgpud",
			take: func(_ *Host, o map[string]string) { delete(o, "vgpud --version"); delete(o, "vgpud probe --abilities") },
		},
		{
			name: "a program of another version", ability: Libcuda, state: ability.Unknown, what: "printed \"{}\"", do: "of one version", ready: true,
			take: func(_ *Host, o map[string]string) { o["vgpud probe --abilities"] = "{}" },
		},
		{
			name: "a corrupt record of usage", ability: Usage, state: ability.Absent, what: "was corrupt; the disk is full", do: "operations.md", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Health = func(context.Context) (api.Health, error) {
					return api.Health{Version: "1.0", UsageProblems: []string{"it was corrupt", "the disk is full"}}, nil
				}
			},
		},
		{
			name: "no NVML", ability: NVML, state: ability.Absent, what: "libnvidia-ml", do: "health of NVIDIA GPUs only", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Inventory = func(context.Context) (inventory.Inventory, error) {
					return inventory.Inventory{}, fmt.Errorf("no libnvidia-ml: %w", inventory.ErrUnavailable)
				}
			},
		},
		{
			name: "a GPU in parts", ability: NVML, state: ability.Present, what: "driver 580", do: "0000:05:00.0: MIG is on", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Inventory = func(context.Context) (inventory.Inventory, error) {
					return inventory.Inventory{Driver: "580", GPUs: []inventory.GPU{{PCI: "0000:05:00.0", MIG: "on"}}}, nil
				}
			},
		},
		{
			name: "no KVM", ability: KVM, state: ability.Absent, what: "translates", do: "modprobe kvm_intel", ready: true,
			take: func(h *Host, _ map[string]string) { h.TryKVM = func(string) error { return syscall.ENOENT } },
		},
		{
			name: "no KVM in a VM", ability: KVM, state: ability.Absent, what: "translates", do: "this host is a VM itself", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.TryKVM = func(string) error { return syscall.ENOENT }
				h.Files.(fstest.MapFS)["proc/cpuinfo"] = &fstest.MapFile{Data: []byte("flags : fpu hypervisor lahf_lm\n")}
			},
		},
		{
			name: "KVM that can't run a VM", ability: KVM, state: ability.Absent, what: "/dev/kvm is there, but can't run a VM (create a VM: device or resource busy)", do: "modprobe kvm_intel", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.TryKVM = func(string) error { return fmt.Errorf("create a VM: %w", syscall.EBUSY) }
			},
		},
		{
			name: "KVM is for a group", ability: KVM, state: ability.Unknown, what: "not for this user", do: "group kvm", ready: true,
			take: func(h *Host, _ map[string]string) { h.TryKVM = func(string) error { return syscall.EACCES } },
		},
		{
			name: "an old QEMU", ability: QEMU, state: ability.Absent, what: "(QEMU emulator version 11.1.3) has no device vfio-user-pci", do: "QEMU 10.1 or later",
			take: func(_ *Host, o map[string]string) { delete(o, "qemu-system-x86_64 -device vfio-user-pci,help") },
		},
		{
			name: "no QEMU", ability: QEMU, state: ability.Absent, what: "none of qemu-system-x86_64, qemu-kvm is in $PATH", do: "--qemu",
			take: func(_ *Host, o map[string]string) {
				delete(o, "qemu-system-x86_64 --version")
				delete(o, "qemu-system-x86_64 -device vfio-user-pci,help")
			},
		},
		{
			name: "libvirt does not run", ability: Libvirt, state: ability.Absent, what: "11.3.0 is installed but does not run", do: "systemctl start", ready: true,
			take: func(h *Host, _ map[string]string) { delete(h.Files.(fstest.MapFS), "run/libvirt/virtqemud-sock") },
		},
		{
			name: "no libvirt", ability: Libvirt, state: ability.Absent, what: "it is not installed", do: "--qmp", ready: true,
			take: func(h *Host, o map[string]string) {
				delete(h.Files.(fstest.MapFS), "run/libvirt/virtqemud-sock")
				delete(o, "virtqemud --version")
			},
		},
		{
			name: "libvirt is root's", ability: Libvirt, state: ability.Unknown, what: "authentication failed", do: "as root", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Domains = func(context.Context) (int, error) { return 0, errors.New("authentication failed") }
			},
		},
		{
			name: "no library of libvirt's", ability: Libvirt, state: ability.Unknown, what: "no program", do: "a C compiler", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Domains = func(context.Context) (int, error) { return 0, fmt.Errorf("no program: %w", libvirt.ErrUnavailable) }
			},
		},
		{
			name: "no hook", ability: Hook, state: ability.Absent, what: "not installed", do: "make install", ready: true,
			take: func(h *Host, _ map[string]string) { delete(h.Files.(fstest.MapFS), "etc/libvirt/hooks/qemu.d/50-vgpu") },
		},
		{
			name: "another's hook", ability: Hook, state: ability.Absent, what: "not installed", do: "make install", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Files.(fstest.MapFS)["etc/libvirt/hooks/qemu.d/50-vgpu"].Data = []byte("#!/bin/sh\n")
			},
		},
		{
			name: "a hook that can't run", ability: Hook, state: ability.Absent, what: "is not executable", do: "install.sh", ready: true,
			take: func(h *Host, _ map[string]string) {
				h.Files.(fstest.MapFS)["etc/libvirt/hooks/qemu.d/50-vgpu"].Mode = 0o644
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, outputs := fullHost()
			c.take(h, outputs)
			r := Examine(t.Context(), h)
			if r.Ready != c.ready {
				t.Errorf("ready: %v", r.Ready)
			}
			for _, a := range r.Abilities {
				if a.Name != c.ability {
					continue
				}
				if a.State != c.state || !strings.Contains(a.What, c.what) || !strings.Contains(a.Do, c.do) || c.do == "" && a.Do != "" {
					t.Errorf("%+v; want %s, %q, %q", a, c.state, c.what, c.do)
				}
				return
			}
			t.Errorf("nothing of %s", c.ability)
		})
	}
}

// TestOneGoodGPUIsEnough checks that one healthy GPU of several is enough, and that none is not.
func TestOneGoodGPUIsEnough(t *testing.T) {
	h, _ := fullHost()
	gpus := []api.GPU{{Name: "gpu0", Problem: "gone"}, {Name: "gpu1", Healthy: true}}
	h.GPUs = func(context.Context) ([]api.GPU, error) { return gpus, nil }
	if !Examine(t.Context(), h).Ready {
		t.Error("with one of two GPUs it is not ready")
	}
	gpus[1].Healthy = false
	if Examine(t.Context(), h).Ready {
		t.Error("without a GPU it is ready")
	}
}

func TestExplain(t *testing.T) {
	exit := new(exec.ExitError)
	for _, c := range []struct {
		err    error
		stderr string
		want   string
	}{{nil, "warning", "<nil>"}, {exit, "usage\nno such flag\n", "no such flag"}, {fs.ErrNotExist, "", "file does not exist"}, {fs.ErrClosed, "oops", "oops: file already closed"}} {
		if got := fmt.Sprint(Explain(c.err, c.stderr)); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestTryKVMOnAFile: a file is not taken for the device.
func TestTryKVMOnAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kvm")
	if err := TryKVM(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is there: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := TryKVM(file); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty file: %v", err)
	}
}
