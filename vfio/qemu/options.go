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

// ExitError is how a program in a guest ended that did not end well.
type ExitError = console.ExitError

// Defaults of [Options].
const (
	DefaultMemoryMiB  = 128 // enough for the kernel, the initramfs and small programs
	DefaultReserveMiB = 512 // two BARs of the virtual GPU's default size
	DefaultAccel      = "tcg"
	// DefaultCPU boots faster than max under TCG. Without rdrand a guest's
	// kernel gathers randomness for a third of its boot, and whoever asks for
	// some waits.
	DefaultCPU = "qemu64,+rdrand"
)

// Limits of [Options]: PCI slots set aside, and what a port may reserve.
const (
	MaxDevices    = 8
	MaxSparePorts = 8
)

// Device is a vfio-user device of a VM.
type Device struct {
	ID     string // QEMU's name for it
	Socket string // where its server listens
	// Bus is the id of the bus that it is plugged into, "" for the root
	// complex, where it gets the slot after the device before it.
	Bus string
}

// Options say what a VM consists of. The zero value with Deps is a VM without
// devices.
type Options struct {
	Deps Deps   // what to boot: see Find
	Name string // in errors and logs, and QEMU's -name; "" is "vm"

	MemoryMiB int // DefaultMemoryMiB if 0
	CPUs      int // 1 if 0
	Accel     string
	CPU       string // as QEMU's -cpu has it

	// Devices are there from the start, the n-th at 00:10+n.0.
	Devices []Device
	// SparePorts is how many empty PCIe root ports there are, for [VM.Plug],
	// named "spare0" and so on. Each is given ReserveMiB of 64-bit prefetchable
	// addresses (a power of two, DefaultReserveMiB if 0): without it a large
	// BAR can't be placed behind a port once the guest runs.
	SparePorts int
	ReserveMiB int
	// IOMMU gives the guest an emulated Intel IOMMU. Debian's kernels have no
	// no-IOMMU mode, so vfio-pci takes a device in such a guest alone.
	IOMMU bool

	Append string   // added to the kernel's command line
	Args   []string // added to QEMU's
	// Stopped starts QEMU with the guest's processors stopped, until [VM.Continue].
	Stopped bool

	// Log, if set, gets what the guest's kernel and init print, and QEMU. It is
	// written to by one goroutine at a time.
	Log io.Writer
	// Dir is where the VM's sockets are made; "" makes a temporary directory.
	// A unix socket's path has little room: keep it short.
	Dir string
}

// withDefaults fills in what is left out, and says what can't be.
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
