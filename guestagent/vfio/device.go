package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"
)

// Device is a PCI device that VFIO gives this process access to. Close must be called to free it;
// until then the kernel waits with the device's removal. Its methods may be called from several
// goroutines at once.
type Device struct {
	kernel  Kernel
	mu      sync.RWMutex
	fds     []int // device, group, container; empty after Close
	regions uint32
	irqs    uint32
}

// Location says which device to open and through which nodes.
type Location struct {
	Container string // /dev/vfio/vfio
	Group     string // /dev/vfio/N or /dev/vfio/noiommu-N
	NoIOMMU   bool
	Address   string // PCI address
}

// ErrBusy means that another process has the device open.
var ErrBusy = errors.New("another process has the device open")

// Open opens a device. The kernel resets it now and when it is closed, so its previous user leaves
// nothing behind.
func Open(k Kernel, w Location) (_ *Device, err error) {
	d := &Device{kernel: k}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open %s by vfio: %w", w.Address, describe(err, w)), d.Close())
		}
	}()
	container, err := k.Open(w.Container)
	if err != nil {
		return nil, opened(w.Container, err)
	}
	d.fds = []int{container}
	version, err := k.Value(container, GetAPIVersion, 0)
	if err != nil {
		return nil, fmt.Errorf("ask for vfio's version: %w", err)
	}
	if version != APIVersion {
		return nil, fmt.Errorf("vfio has version %d, want %d", version, APIVersion)
	}
	group, err := k.Open(w.Group)
	if err != nil {
		return nil, opened(w.Group, err)
	}
	d.fds = []int{group, container}
	status := GroupStatus{}
	arg := status.Encode()
	if _, err := k.Memory(group, GroupGetStatus, arg); err != nil {
		return nil, fmt.Errorf("ask for the group's status: %w", err)
	}
	if status.Decode(arg); status.Flags&GroupViable == 0 {
		return nil, fmt.Errorf("%s is not viable: other devices of the group have kernel drivers", w.Group)
	}
	var fd [4]byte
	ne.PutUint32(fd[:], uint32(container))
	if _, err := k.Memory(group, GroupSetContainer, fd[:]); err != nil {
		return nil, fmt.Errorf("give the group a container: %w", err)
	}
	kind := Type1v2IOMMU
	if w.NoIOMMU {
		kind = NoIOMMU
	}
	if _, err := k.Value(container, SetIOMMU, kind); err != nil {
		if errors.Is(err, unix.EPERM) && !w.NoIOMMU {
			return nil, fmt.Errorf("the IOMMU does not remap interrupts (QEMU: intel-iommu,intremap=on): %w", err)
		}
		return nil, fmt.Errorf("set the container's IOMMU (is vfio_iommu_type1 loaded?): %w", err)
	}
	device, err := k.Memory(group, GroupGetDeviceFD, append([]byte(w.Address), 0))
	if err != nil {
		return nil, fmt.Errorf("get the device: %w", err)
	}
	d.fds = []int{device, group, container}
	info := DeviceInfo{}
	arg = info.Encode()
	if _, err := k.Memory(device, DeviceGetInfo, arg); err != nil {
		return nil, fmt.Errorf("ask about the device: %w", err)
	}
	if info.Decode(arg); info.Flags&DevicePCI == 0 {
		return nil, errors.New("not a PCI device")
	}
	d.regions, d.irqs = info.Regions, info.IRQs
	return d, d.enableBusMaster()
}

func opened(path string, err error) error { return &fs.PathError{Op: "open", Path: path, Err: err} }

// describe explains known errors.
func describe(err error, w Location) error {
	var path *fs.PathError
	if errors.Is(err, unix.EBUSY) && errors.As(err, &path) && path.Path == w.Group {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}

// Configuration space: see include/uapi/linux/pci_regs.h.
const (
	pciCommand       = 4
	pciCommandMemory = 1 << 1
	pciCommandMaster = 1 << 2
)

// enableBusMaster turns on memory decoding and bus mastering. vfio-pci turns the latter off when it
// enables a device, but an MSI is a write by the device: without bus mastering QEMU drops every
// interrupt. The virtual GPU writes nothing else.
func (d *Device) enableBusMaster() error {
	var b [2]byte
	if err := d.config(b[:], pciCommand, false); err != nil {
		return err
	}
	v := binary.LittleEndian.Uint16(b[:]) | pciCommandMemory | pciCommandMaster
	binary.LittleEndian.PutUint16(b[:], v)
	return d.config(b[:], pciCommand, true)
}

func (d *Device) config(b []byte, offset uint64, write bool) error {
	region, err := d.region(RegionConfig)
	if err != nil {
		return err
	}
	access, verb := d.kernel.Pread, "read"
	if write {
		access, verb = d.kernel.Pwrite, "write"
	}
	err = d.withFD(func(fd int) error {
		n, err := access(fd, b, int64(region.Offset+offset))
		if err == nil && n != len(b) {
			err = fmt.Errorf("%d of %d bytes", n, len(b))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s the PCI configuration space: %w", verb, err)
	}
	return nil
}

// withFD calls f with the device's descriptor, which stays open meanwhile.
func (d *Device) withFD(f func(fd int) error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.fds) < 3 {
		return fs.ErrClosed
	}
	return f(d.fds[0])
}

func (d *Device) region(index uint32) (RegionInfo, error) {
	info := RegionInfo{Index: index}
	arg := info.Encode()
	err := d.withFD(func(fd int) error { _, err := d.kernel.Memory(fd, DeviceGetRegionInfo, arg); return err })
	if err != nil {
		return info, fmt.Errorf("ask about region %d: %w", index, err)
	}
	info.Decode(arg)
	return info, nil
}

// maxRegionBytes is the largest size of a region that is plausible.
const maxRegionBytes = 1 << 40

// Map maps a region. The mapping outlives Close.
func (d *Device) Map(index uint32) ([]byte, error) {
	info, err := d.region(index)
	if err != nil {
		return nil, err
	}
	if info.Bytes == 0 || info.Bytes > maxRegionBytes || info.Flags&RegionMmap == 0 {
		return nil, fmt.Errorf("region %d of %d bytes, flags %#x, can't be mapped", index, info.Bytes, info.Flags)
	}
	var b []byte
	err = d.withFD(func(fd int) (err error) { b, err = d.kernel.Map(fd, int64(info.Offset), int(info.Bytes)); return err })
	if err != nil {
		return nil, fmt.Errorf("map region %d: %w", index, err)
	}
	return b, nil
}

// Offset returns a region's offset in the device's descriptor.
func (d *Device) Offset(index uint32) (int64, error) {
	info, err := d.region(index)
	return int64(info.Offset), err
}

// IRQs returns how many interrupts of a kind the device has; 0 for a kind that it does not have or
// that can't be eventfds.
func (d *Device) IRQs(index uint32) (int, error) {
	if index >= d.irqs {
		return 0, nil
	}
	info := IRQInfo{Index: index}
	arg := info.Encode()
	err := d.withFD(func(fd int) error { _, err := d.kernel.Memory(fd, DeviceGetIRQInfo, arg); return err })
	if errors.Is(err, unix.EINVAL) { // ERR, on what is not PCI Express
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("ask about interrupts %d: %w", index, err)
	}
	if info.Decode(arg); info.Flags&IRQEventfd == 0 {
		return 0, nil
	}
	return int(info.Count), nil
}

// SetIRQs makes the first interrupts of a kind raise these eventfds, and returns how many it could:
// for MSI an interrupt controller without interrupt remapping may offer fewer vectors than the
// device has.
func (d *Device) SetIRQs(index uint32, eventfds []int) (int, error) {
	for len(eventfds) > 0 {
		set := IRQSet{Flags: IRQSetDataEventfd | IRQSetActionTrigger, Index: index, Count: uint32(len(eventfds))}
		for _, fd := range eventfds {
			set.FDs = append(set.FDs, int32(fd))
		}
		var n int
		err := d.withFD(func(fd int) (err error) { n, err = d.kernel.Memory(fd, DeviceSetIRQs, set.Encode()); return err })
		switch {
		case err != nil:
			return 0, fmt.Errorf("enable %d interrupts %d: %w", len(eventfds), index, err)
		case n == 0:
			return len(eventfds), nil
		case n >= len(eventfds):
			return 0, fmt.Errorf("enable %d interrupts %d: the kernel offers %d", len(eventfds), index, n)
		}
		// A positive result is no success: it is how many vectors are possible. They come in powers
		// of two.
		for len(eventfds) > n {
			eventfds = eventfds[:(len(eventfds)+1)/2]
		}
	}
	return 0, nil
}

// FD returns the device's descriptor, which belongs to the Device; -1 after Close.
func (d *Device) FD() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.fds) < 3 {
		return -1
	}
	return d.fds[0]
}

// Close returns the device to the kernel, which gets it when its mappings are gone too.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	for _, fd := range d.fds {
		err = errors.Join(err, d.kernel.Close(fd))
	}
	d.fds = nil
	return err
}
