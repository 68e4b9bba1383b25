package qemu

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"vgpud/vfio/qemu/console"
)

// Command is a program to run in a guest.
type Command = console.Command

// Process is a program that runs in a guest.
type Process = console.Process

// ExitError describes how a program in a guest failed.
type ExitError = console.ExitError

// Defaults of [Options].
const (
	DefaultMemoryMiB  = 128 // enough for the kernel, the initramfs and small programs
	DefaultReserveMiB = 512 // two BARs of the virtual GPU's default size
	DefaultAccel      = "tcg"
	// DefaultCPU boots faster than max under TCG. Without rdrand a guest's kernel spends a third of
	// its boot on gathering randomness, and programs that need randomness wait.
	DefaultCPU = "qemu64,+rdrand"
)

// Limits of [Options]: the PCI slots that are set aside.
const (
	MaxDevices    = 8
	MaxSparePorts = 8
)

// Device is a vfio-user device of a VM.
type Device struct {
	ID     string // QEMU's name for the device
	Socket string // the socket of its server
	// Bus is the ID of the bus that it is plugged into. "" is the root complex, where it gets the
	// slot after the previous device.
	Bus string
}

// Options describe a VM. With Deps alone it is a VM without devices.
type Options struct {
	Deps Deps   // what to boot: see Find
	Name string // in errors and logs, and QEMU's -name; "" is "vm"

	MemoryMiB int // DefaultMemoryMiB if 0
	CPUs      int // 1 if 0
	Accel     string
	CPU       string // in the form of QEMU's -cpu

	// Devices are present from the start, the n-th at 00:10+n.0.
	Devices []Device
	// SparePorts is the number of empty PCIe root ports for [VM.Plug], named "spare0" and so on.
	// Each gets ReserveMiB of 64-bit prefetchable addresses (a power of two, DefaultReserveMiB if
	// 0). Without them a large BAR can't be placed behind a port of a running guest.
	SparePorts int
	ReserveMiB int
	// IOMMU gives the guest an emulated Intel IOMMU. Debian's kernels have no no-IOMMU mode, so
	// vfio-pci binds devices only in such a guest.
	IOMMU bool

	Append string   // added to the kernel's command line
	Args   []string // added to QEMU's
	// Stopped starts QEMU with the guest's processors stopped, until [VM.Continue].
	Stopped bool

	// Log, if set, receives the output of the guest's kernel and init and of QEMU. One goroutine at
	// a time writes to it.
	Log io.Writer
	// Dir is the directory of the VM's sockets; "" makes a temporary one. The length of a unix
	// socket's path is limited, so keep it short.
	Dir string
}

// withDefaults fills in defaults and validates the options.
func (o Options) withDefaults() (Options, error) {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.MemoryMiB, DefaultMemoryMiB)
	set(&o.CPUs, 1)
	set(&o.ReserveMiB, DefaultReserveMiB)
	for p, v := range map[*string]string{&o.Name: "vm", &o.Accel: DefaultAccel, &o.CPU: DefaultCPU} {
		if *p == "" {
			*p = v
		}
	}
	ids := map[string]bool{}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Deps != Deps{}, "no Deps are given")
	check(o.MemoryMiB >= 64, "a guest of %d MiB can't boot", o.MemoryMiB)
	check(o.CPUs >= 1, "%d processors", o.CPUs)
	check(len(o.Devices) <= MaxDevices, "%d devices are over the limit of %d", len(o.Devices), MaxDevices)
	check(o.SparePorts >= 0 && o.SparePorts <= MaxSparePorts, "%d spare ports: from 0 to %d", o.SparePorts, MaxSparePorts)
	check(o.ReserveMiB > 0 && o.ReserveMiB&(o.ReserveMiB-1) == 0, "%d MiB reserved for a spare port: a power of two is wanted", o.ReserveMiB)
	for _, s := range []string{o.Name, o.Accel, o.CPU} {
		check(!strings.ContainsAny(s, "\n\x00"), "%q can't be said to QEMU", s)
	}
	for _, d := range o.Devices {
		check(d.ID != "" && !ids[d.ID], "devices need ids of their own, got %q", d.ID)
		check(d.Socket != "", "device %s has no socket", d.ID)
		ids[d.ID] = true
	}
	if err := errors.Join(errs...); err != nil {
		return o, fmt.Errorf("qemu: %w", err)
	}
	return o, nil
}
