//go:build amd64

package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The requests of KVM's API for this architecture, and why a processor stopped, from linux/kvm.h.
const (
	kvmGetVCPUMapSize      = 0xae04
	kvmRun                 = 0xae80
	kvmSetUserMemoryRegion = 0x4020ae46
	kvmGetSregs            = 0x8138ae83
	kvmSetSregs            = 0x4138ae84
	kvmSetRegs             = 0x4090ae82

	kvmExitReasonOffset = 8 // of kvm_run's exit_reason
	kvmExitHlt          = 5
)

// userMemoryRegion is struct kvm_userspace_memory_region.
type userMemoryRegion struct {
	Slot, Flags   uint32
	GuestPhysAddr uint64
	MemorySize    uint64
	UserspaceAddr uint64
}

// regs is struct kvm_regs.
type regs struct {
	General     [16]uint64
	RIP, RFlags uint64
}

// sregs is struct kvm_sregs, of which only the code segment's base and selector matter here.
type sregs struct {
	CSBase     uint64
	CSLimit    uint32
	CSSelector uint16
	_          [312 - 14]byte
}

// runLimit is how long one instruction may take.
const runLimit = 5 * time.Second

// runVM has a VM's processor execute one instruction, which halts it.
func runVM(device, vm, cpu int) (err error) {
	mapSize, err := unix.IoctlRetInt(device, kvmGetVCPUMapSize)
	if err != nil {
		return fmt.Errorf("ask for the size of a processor's state: %w", err)
	}
	run, err := unix.Mmap(cpu, 0, mapSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map a processor's state: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(run)) }()
	memory, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("make a VM's memory: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(memory)) }()
	const hlt, at = 0xf4, 0x1000
	memory[0] = hlt
	region := userMemoryRegion{GuestPhysAddr: at, MemorySize: uint64(len(memory)), UserspaceAddr: uint64(uintptr(unsafe.Pointer(&memory[0])))}
	if err := kvmIoctl(vm, kvmSetUserMemoryRegion, unsafe.Pointer(&region)); err != nil {
		return fmt.Errorf("give a VM memory: %w", err)
	}
	var s sregs
	if err := kvmIoctl(cpu, kvmGetSregs, unsafe.Pointer(&s)); err != nil {
		return fmt.Errorf("read a processor's segments: %w", err)
	}
	s.CSBase, s.CSSelector = 0, 0
	if err := kvmIoctl(cpu, kvmSetSregs, unsafe.Pointer(&s)); err != nil {
		return fmt.Errorf("set a processor's segments: %w", err)
	}
	const reserved = 2 // the bit of the flags that is always set
	if err := kvmIoctl(cpu, kvmSetRegs, unsafe.Pointer(&regs{RIP: at, RFlags: reserved})); err != nil {
		return fmt.Errorf("set a processor's registers: %w", err)
	}
	for begin := time.Now(); ; {
		err := kvmIoctl(cpu, kvmRun, nil)
		switch {
		case errors.Is(err, unix.EINTR) && time.Since(begin) < runLimit:
			continue // Go's runtime sends itself signals
		case err != nil:
			return fmt.Errorf("run a VM: %w", err)
		}
		break
	}
	if reason := binary.LittleEndian.Uint32(run[kvmExitReasonOffset:]); reason != kvmExitHlt {
		return fmt.Errorf("run a VM: its processor stopped for reason %d instead of the instruction that halts it", reason)
	}
	return nil
}

// kvmIoctl makes a request with an argument.
func kvmIoctl(fd int, request uint, argument unsafe.Pointer) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(argument)); e != 0 {
		return e
	}
	return nil
}
