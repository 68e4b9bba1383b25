package sysfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// FS is a file system that contains sysfs. Its zero value is this machine's.
type FS struct {
	// Root contains /sys and /dev; "" means "/".
	Root string
}

// Path returns the location of an absolute path of the machine.
func (f FS) Path(path string) string {
	if f.Root == "" {
		return path
	}
	return filepath.Join(f.Root, path)
}

const pciDevices = "/sys/bus/pci/devices"

func (f FS) dir(address string) string {
	return filepath.Join(f.Path(pciDevices), filepath.Base(address))
}

// IDs identify a kind of PCI function.
type IDs struct {
	Vendor, Device uint16
	Class          uint32 // 24 bits
}

// String formats the IDs as lspci -n does.
func (i IDs) String() string {
	return fmt.Sprintf("%04x:%04x, class %06x", i.Vendor, i.Device, i.Class)
}

// Function is a PCI function.
type Function struct {
	// Address is in the kernel's form, such as "0000:00:10.0".
	Address string
	// Instance distinguishes functions that were at the same address in turn.
	Instance uint64
	// Driver is the kernel driver bound to the function, or "".
	Driver string
	// Group is the number of its IOMMU group, or "". NoIOMMU means that vfio created the group
	// without an IOMMU.
	Group   string
	NoIOMMU bool
	// BARs are the address ranges that the kernel assigned.
	BARs [6]BAR
}

// BAR is the address range of a BAR. It is empty if the function has no such BAR or the kernel
// found no room for it.
type BAR struct{ Start, Bytes uint64 }

// Functions returns all functions with these IDs, ordered by address; none on a machine without
// PCI.
func (f FS) Functions(ids IDs) ([]Function, error) {
	entries, err := os.ReadDir(f.Path(pciDevices))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list PCI functions: %w", err)
	}
	var found []Function
	for _, e := range entries {
		match, err := f.match(e.Name(), ids)
		if err == nil && match {
			var fn Function
			if fn, err = f.Function(e.Name()); err == nil {
				found = append(found, fn)
			}
		}
		// One that no longer exists was just unplugged.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("PCI function %s: %w", e.Name(), err)
		}
	}
	slices.SortFunc(found, func(a, b Function) int { return strings.Compare(a.Address, b.Address) })
	return found, nil
}

// match reports whether the function at an address has these IDs.
func (f FS) match(address string, ids IDs) (bool, error) {
	for _, want := range []struct {
		file  string
		value uint64
	}{{"vendor", uint64(ids.Vendor)}, {"device", uint64(ids.Device)}, {"class", uint64(ids.Class)}} {
		text, err := f.read(address, want.file)
		if err != nil {
			return false, err
		}
		got, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return false, fmt.Errorf("%s: %w", want.file, err)
		}
		if got != want.value {
			return false, nil
		}
	}
	return true, nil
}

// Function returns the function at an address. The error is fs.ErrNotExist if there is none.
func (f FS) Function(address string) (Function, error) {
	fn := Function{Address: filepath.Base(address)}
	text, err := f.read(address, "resource")
	if err != nil {
		return fn, err
	}
	if fn.BARs, err = parseResources(text); err != nil {
		return fn, fmt.Errorf("resource: %w", err)
	}
	// The kernel creates a new directory for each function, with a new inode number.
	st, err := os.Stat(f.dir(address))
	if err != nil {
		return fn, err
	}
	fn.Instance = st.Sys().(*syscall.Stat_t).Ino
	fn.Driver = f.link(address, "driver")
	if fn.Group = f.link(address, "iommu_group"); fn.Group != "" {
		name, err := os.ReadFile(filepath.Join(f.dir(address), "iommu_group", "name"))
		fn.NoIOMMU = err == nil && strings.TrimSpace(string(name)) == "vfio-noiommu"
	}
	return fn, nil
}

// Present reports whether there is a function at an address.
func (f FS) Present(address string) bool {
	_, err := os.Stat(filepath.Join(f.dir(address), "vendor"))
	return err == nil
}

// Answers reports whether the function answers accesses to its configuration space, as far as the
// kernel shows that. One that exists and does not answer has lost its host process: its identity
// then reads as ones, or as QEMU's error number, and not as what the kernel read when it found the
// function.
func (f FS) Answers(address string) bool {
	file, err := os.Open(filepath.Join(f.dir(address), "config"))
	if err != nil {
		return true
	}
	var ids [4]byte
	_, err = file.ReadAt(ids[:], 0)
	_ = file.Close()
	if err != nil {
		return true
	}
	for i, name := range []string{"vendor", "device"} {
		text, err := f.read(address, name)
		if err != nil {
			continue
		}
		if id, err := strconv.ParseUint(text, 0, 16); err == nil && uint16(id) != binary.LittleEndian.Uint16(ids[2*i:]) {
			return false
		}
	}
	return ids != [4]byte{0xff, 0xff, 0xff, 0xff}
}

// ResourcePath returns the file that maps a BAR.
func (f FS) ResourcePath(address string, bar int) string {
	return filepath.Join(f.dir(address), "resource"+strconv.Itoa(bar))
}

// read reads a small file of a function.
func (f FS) read(address, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(f.dir(address), name))
	return strings.TrimSpace(string(b)), err
}

// link returns the last element of a symbolic link's target, or "" without a link.
func (f FS) link(address, name string) string {
	to, err := os.Readlink(filepath.Join(f.dir(address), name))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// unset is IORESOURCE_UNSET of include/linux/ioport.h: the kernel has not assigned the range an
// address.
const unset = 0x20000000

// parseResources parses a function's resource file: a line for each BAR with its first and last
// address and its flags. For a BAR without an address older kernels have zeros, newer ones its size
// with the flag unset.
func parseResources(text string) (bars [6]BAR, err error) {
	i := 0
	for line := range strings.Lines(text) {
		if i == len(bars) {
			break
		}
		var start, end, flags uint64
		if _, err := fmt.Sscanf(line, "%v %v %v", &start, &end, &flags); err != nil {
			return bars, fmt.Errorf("line %d: %w", i+1, err)
		}
		if start != 0 && end >= start && flags&unset == 0 {
			bars[i] = BAR{Start: start, Bytes: end - start + 1}
		}
		i++
	}
	return bars, nil
}
