//go:build amd64

package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	cpufeatures "golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// The requests of KVM's API for this architecture, and why a processor stopped, from linux/kvm.h.
const (
	kvmGetVCPUMapSize      = 0xae04
	kvmRun                 = 0xae80
	kvmGetSupportedCPUID   = 0xc008ae05
	kvmSetCPUID2           = 0x4008ae90
	kvmSetUserMemoryRegion = 0x4020ae46
	kvmGetRegs             = 0x8090ae81
	kvmSetRegs             = 0x4090ae82
	kvmGetSregs            = 0x8138ae83
	kvmSetSregs            = 0x4138ae84

	kvmExitReasonOffset  = 8 // of kvm_run's exit_reason
	kvmExitHlt           = 5
	kvmExitInternalError = 17
)

// userMemoryRegion is struct kvm_userspace_memory_region.
type userMemoryRegion struct {
	Slot, Flags   uint32
	GuestPhysAddr uint64
	MemorySize    uint64
	UserspaceAddr uint64
}

// cpuid2 is struct kvm_cpuid2 with room for as many entries as any KVM has.
type cpuid2 struct {
	Entries, _ uint32
	_          [256][40]byte
}

// regs is struct kvm_regs.
type regs struct {
	RAX         uint64
	_           [15]uint64
	RIP, RFlags uint64
}

// segment is struct kvm_segment.
type segment struct {
	Base                                              uint64
	Limit                                             uint32
	Selector                                          uint16
	Type, Present, DPL, DB, S, L, G, AVL, Unusable, _ uint8
}

// sregs is struct kvm_sregs.
type sregs struct {
	CS, DS, ES, FS, GS, SS  segment
	_                       [2]segment
	_                       [4]uint64 // descriptor tables
	CR0, CR2, CR3, CR4, CR8 uint64
	EFER                    uint64
	_                       [5]uint64 // the interrupt controller
}

// Bits of the processor's control registers, for 64-bit mode.
const (
	cr0PE, cr0PG     = 1, 1 << 31
	cr4PAE           = 1 << 5
	eferLME, eferLMA = 1 << 8, 1 << 10
	pagePresent      = 1
	pageWritable     = 1 << 1
	pageLarge        = 1 << 7
)

// Where the VM's memory has what, from guestAt on. The page tables map the lowest 2 MiB as they are.
const (
	guestAt                                = 0x1000
	pml4, pdpt, directory, code, guestSize = 0, 0x1000, 0x2000, 0x3000, 0x4000
)

// haltsWith is rax when shiftAndHalt halts.
const haltsWith = 1 << 4

// shiftAndHalt is what the VM executes. A kernel uses every instruction that the processor has, and not
// every KVM that runs VMs carries out all: so the shift is one of BMI2's where the processor has it.
func shiftAndHalt(bmi2 bool) []byte {
	shift := []byte{0x48, 0xd3, 0xe0} // shl rax, cl
	if bmi2 {
		shift = []byte{0xc4, 0xe2, 0xf1, 0xf7, 0xc0} // shlx rax, rax, rcx
	}
	return slices.Concat(
		[]byte{0xb9, 4, 0, 0, 0}, // mov ecx, 4
		[]byte{0xb8, 1, 0, 0, 0}, // mov eax, 1
		shift,
		[]byte{0xf4}, // hlt
	)
}

// runLimit is how long shiftAndHalt may take.
const runLimit = 5 * time.Second

// runVM has a VM's processor execute a few instructions as a kernel would, in 64-bit mode with pages.
func runVM(device, vm, cpu int) error {
	return execute(device, vm, cpu, shiftAndHalt(cpufeatures.X86.HasBMI2))
}

// execute is runVM for any program that halts with haltsWith.
func execute(device, vm, cpu int, program []byte) (err error) {
	mapSize, err := unix.IoctlRetInt(device, kvmGetVCPUMapSize)
	if err != nil {
		return fmt.Errorf("ask for the size of a processor's state: %w", err)
	}
	run, err := unix.Mmap(cpu, 0, mapSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map a processor's state: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(run)) }()
	memory, err := unix.Mmap(-1, 0, guestSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("make a VM's memory: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(memory)) }()
	binary.LittleEndian.PutUint64(memory[pml4:], guestAt+pdpt|pagePresent|pageWritable)
	binary.LittleEndian.PutUint64(memory[pdpt:], guestAt+directory|pagePresent|pageWritable)
	binary.LittleEndian.PutUint64(memory[directory:], pagePresent|pageWritable|pageLarge)
	copy(memory[code:], program)
	region := userMemoryRegion{GuestPhysAddr: guestAt, MemorySize: guestSize, UserspaceAddr: uint64(uintptr(unsafe.Pointer(&memory[0])))}
	if err := kvmIoctl(vm, kvmSetUserMemoryRegion, unsafe.Pointer(&region)); err != nil {
		return fmt.Errorf("give a VM memory: %w", err)
	}
	if err := start(device, cpu); err != nil {
		return err
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
	switch reason := binary.LittleEndian.Uint32(run[kvmExitReasonOffset:]); reason {
	case kvmExitHlt:
	case kvmExitInternalError:
		return errors.New("run a VM: KVM does not carry out an instruction that the processor has")
	default:
		return fmt.Errorf("run a VM: its processor stopped for reason %d instead of the instruction that halts it", reason)
	}
	var r regs
	if err := kvmIoctl(cpu, kvmGetRegs, unsafe.Pointer(&r)); err != nil {
		return fmt.Errorf("read a processor's registers: %w", err)
	}
	if r.RAX != haltsWith {
		return fmt.Errorf("run a VM: it computed %d, want %d", r.RAX, haltsWith)
	}
	return nil
}

// start has a processor be in 64-bit mode, at the program, with all that KVM can give it.
func start(device, cpu int) error {
	features := cpuid2{Entries: 256}
	if err := kvmIoctl(device, kvmGetSupportedCPUID, unsafe.Pointer(&features)); err != nil {
		return fmt.Errorf("ask what processors KVM has: %w", err)
	}
	if err := kvmIoctl(cpu, kvmSetCPUID2, unsafe.Pointer(&features)); err != nil {
		return fmt.Errorf("set what a processor can do: %w", err)
	}
	var s sregs
	if err := kvmIoctl(cpu, kvmGetSregs, unsafe.Pointer(&s)); err != nil {
		return fmt.Errorf("read a processor's segments: %w", err)
	}
	const codeType, dataType = 0xb, 0x3 // accessed; code that can be read, data that can be written
	s.CS = segment{Limit: 1<<32 - 1, Selector: 8, Type: codeType, Present: 1, S: 1, L: 1, G: 1}
	data := segment{Limit: 1<<32 - 1, Selector: 16, Type: dataType, Present: 1, DB: 1, S: 1, G: 1}
	s.DS, s.ES, s.FS, s.GS, s.SS = data, data, data, data, data
	s.CR0, s.CR3, s.CR4, s.EFER = cr0PE|cr0PG, guestAt+pml4, cr4PAE, eferLME|eferLMA
	if err := kvmIoctl(cpu, kvmSetSregs, unsafe.Pointer(&s)); err != nil {
		return fmt.Errorf("set a processor's segments: %w", err)
	}
	const reserved = 2 // the bit of the flags that is always set
	if err := kvmIoctl(cpu, kvmSetRegs, unsafe.Pointer(&regs{RIP: guestAt + code, RFlags: reserved})); err != nil {
		return fmt.Errorf("set a processor's registers: %w", err)
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
