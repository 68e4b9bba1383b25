// Package vfiotest is a fake kernel with VFIO for tests: it has one device, whose BARs are files
// and whose interrupts the test raises. It accepts calls in the order that Linux requires, and
// answers as Linux does.
package vfiotest

import (
	"bytes"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/vfio"
)

// Kernel is a fake kernel with one device. Its fields are set before it is used.
type Kernel struct {
	Address string
	NoIOMMU bool
	// BARs are files with the contents of the device's BARs.
	BARs [6]string
	// Vectors is how many MSIs the device has, Granted how many the interrupt controller offers; 0
	// means all.
	Vectors, Granted int
	// Busy means that another process has the group open, NotViable that another device of the
	// group has a kernel driver, NoRemapping that the IOMMU remaps no interrupts.
	Busy, NotViable, NoRemapping bool

	mu      sync.Mutex
	files   map[int]string // open descriptors: "container", "group", "device"
	grouped bool
	iommu   bool
	command [2]byte // of the configuration space
	irqs    map[uint32][]int32
}

// regionShift is the shift of region indices in offsets of vfio-pci's device descriptors.
const regionShift = 40

// Open implements vfio.Kernel.
func (k *Kernel) Open(path string) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kind := "group"
	if bytes.HasSuffix([]byte(path), []byte("/vfio/vfio")) {
		kind = "container"
	}
	if kind == "group" && k.Busy {
		return -1, unix.EBUSY
	}
	return k.fd(kind)
}

// fd makes a real descriptor, so that numbers are not reused.
func (k *Kernel) fd(kind string) (int, error) {
	fd, err := unix.MemfdCreate("vfiotest-"+kind, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if k.files == nil {
		k.files, k.irqs = map[int]string{}, map[uint32][]int32{}
	}
	k.files[fd] = kind
	return fd, nil
}

// Close implements vfio.Kernel.
func (k *Kernel) Close(fd int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.files[fd] == "device" {
		k.irqs = map[uint32][]int32{}
	}
	delete(k.files, fd)
	return unix.Close(fd)
}

// OpenFiles returns how many descriptors are open.
func (k *Kernel) OpenFiles() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.files)
}

// Value implements vfio.Kernel.
func (k *Kernel) Value(fd int, request uintptr, v int) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.files[fd] == "container" && request == vfio.GetAPIVersion:
		return vfio.APIVersion, nil
	case k.files[fd] == "container" && request == vfio.SetIOMMU:
		switch {
		case !k.grouped || (v == vfio.NoIOMMU) != k.NoIOMMU:
			return 0, unix.ENODEV
		case k.NoRemapping:
			return 0, unix.EPERM
		}
		k.iommu = true
		return 0, nil
	}
	return 0, unix.ENOTTY
}

// Memory implements vfio.Kernel.
func (k *Kernel) Memory(fd int, request uintptr, arg []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch kind := k.files[fd]; {
	case kind == "group" && request == vfio.GroupGetStatus:
		s := vfio.GroupStatus{Flags: vfio.GroupViable}
		if k.NotViable {
			s.Flags = 0
		}
		copy(arg, s.Encode())
		return 0, nil
	case kind == "group" && request == vfio.GroupSetContainer:
		k.grouped = true
		return 0, nil
	case kind == "group" && request == vfio.GroupGetDeviceFD:
		if !k.iommu {
			return 0, unix.EINVAL
		}
		if string(arg) != k.Address+"\x00" {
			return 0, unix.ENODEV
		}
		k.command = [2]byte{2, 0} // enabled, without bus mastering
		return k.fd("device")
	case kind == "device":
		return k.device(request, arg)
	}
	return 0, unix.ENOTTY
}

func (k *Kernel) device(request uintptr, arg []byte) (int, error) {
	switch request {
	case vfio.DeviceGetInfo:
		copy(arg, vfio.DeviceInfo{Flags: vfio.DevicePCI, Regions: 9, IRQs: 5}.Encode())
		return 0, nil
	case vfio.DeviceGetRegionInfo:
		var i vfio.RegionInfo
		i.Decode(arg)
		i.Offset = uint64(i.Index) << regionShift
		if i.Index == vfio.RegionConfig {
			i.Bytes = 4096
		} else if st, err := os.Stat(k.bar(i.Index)); err == nil {
			i.Bytes, i.Flags = uint64(st.Size()), vfio.RegionMmap
		}
		copy(arg, i.Encode())
		return 0, nil
	case vfio.DeviceGetIRQInfo:
		var i vfio.IRQInfo
		i.Decode(arg)
		i.Flags, i.Count = vfio.IRQEventfd, 1
		switch i.Index {
		case vfio.IRQMSI:
			i.Count = uint32(k.Vectors)
		case vfio.IRQErr:
			return 0, unix.EINVAL
		}
		copy(arg, i.Encode())
		return 0, nil
	case vfio.DeviceSetIRQs:
		var s vfio.IRQSet
		s.Decode(arg)
		if int(s.Count) != len(s.FDs) || s.Start != 0 {
			return 0, unix.EINVAL
		}
		if s.Index == vfio.IRQMSI && k.Granted > 0 && len(s.FDs) > k.Granted {
			return k.Granted, nil
		}
		k.irqs[s.Index] = s.FDs
		return 0, nil
	}
	return 0, unix.ENOTTY
}

func (k *Kernel) bar(index uint32) string {
	if int(index) >= len(k.BARs) {
		return ""
	}
	return k.BARs[index]
}

// Raise raises an interrupt.
func (k *Kernel) Raise(index uint32, vector int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if index == vfio.IRQMSI && k.command[0]&4 == 0 {
		return errors.New("the device is no bus master")
	}
	if vector >= len(k.irqs[index]) {
		return errors.New("the interrupt is not enabled")
	}
	_, err := unix.Write(int(k.irqs[index][vector]), []byte{1, 0, 0, 0, 0, 0, 0, 0})
	return err
}

// Pread implements vfio.Kernel.
func (k *Kernel) Pread(_ int, b []byte, offset int64) (int, error) {
	return k.config(offset, b, k.command[:], b)
}

// Pwrite implements vfio.Kernel.
func (k *Kernel) Pwrite(_ int, b []byte, offset int64) (int, error) {
	return k.config(offset, k.command[:], b, b)
}

// config emulates only the command register.
func (k *Kernel) config(offset int64, dst, src, b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if offset != vfio.RegionConfig<<regionShift+4 || len(b) != 2 {
		return 0, unix.EINVAL
	}
	return copy(dst, src), nil
}

// Map implements vfio.Kernel.
func (k *Kernel) Map(_ int, offset int64, size int) (b []byte, err error) {
	f, err := os.OpenFile(k.bar(uint32(offset>>regionShift)), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}
