package doctor

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The requests of KVM's API, from linux/kvm.h.
const (
	kvmGetAPIVersion = 0xae00
	kvmCreateVM      = 0xae01
	kvmCreateVCPU    = 0xae41

	kvmAPIVersion = 12 // since Linux 2.6.22, for good
)

// TryKVM makes a VM with one processor by the device at a path, lets it run a few instructions if it
// is known how for this host's architecture, and ends it. A device that can be opened may still be
// unable to: for example if the processor's virtualisation is off, another hypervisor has it, or a
// host that is a VM itself makes VMs but does not run them, or not all that a kernel consists of.
func TryKVM(path string) error { return tryKVM(path, runVM) }

// tryKVM is TryKVM, where run has the VM's processor run.
func tryKVM(path string, run func(device, vm, cpu int) error) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	version, err := unix.IoctlRetInt(int(f.Fd()), kvmGetAPIVersion)
	if err != nil {
		return fmt.Errorf("ask for KVM's version: %w", err)
	}
	if version != kvmAPIVersion {
		return fmt.Errorf("KVM's version is %d, want %d", version, kvmAPIVersion)
	}
	vm, err := unix.IoctlRetInt(int(f.Fd()), kvmCreateVM)
	if err != nil {
		return fmt.Errorf("create a VM: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(vm)) }()
	cpu, err := unix.IoctlRetInt(vm, kvmCreateVCPU)
	if err != nil {
		return fmt.Errorf("create a VM's processor: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(cpu)) }()
	return run(int(f.Fd()), vm, cpu)
}
