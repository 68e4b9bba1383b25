package sysfs

import (
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

// FS is a file system with sysfs in it. Its zero value is this machine's.
type FS struct {
	// Root is what /sys and /dev lie under; "" is "/".
	Root string
}

// Path returns where an absolute path of the machine lies.
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

// IDs are what a kind of PCI function is known by.
type IDs struct {
	Vendor, Device uint16
	Class          uint32 // of 24 bits
}

// String is the form that lspci -n has.
func (i IDs) String() string {
	return fmt.Sprintf("%04x:%04x, class %06x", i.Vendor, i.Device, i.Class)
}

// Function is a PCI function.
type Function struct {
	// Address is as the kernel writes it, such as "0000:00:10.0".
	Address string
	// Instance tells this function from others that were at its address before and
	// have been unplugged.
	Instance uint64
	// Driver is the kernel driver that has the function, "" for none.
	Driver string
	// Group is the number of its IOMMU group, "" without one. NoIOMMU says that
	// the group is one that vfio made up, without an IOMMU behind it.
	Group   string
	NoIOMMU bool
	// BARs are what the kernel has given the function.
	BARs [6]BAR
}

// BAR is the address range of a BAR. It has no bytes where the function has no such
// BAR, or where the kernel found no room for it.
type BAR struct{ Start, Bytes uint64 }

// Functions returns all functions with these ids, by address. It is empty on a
// machine without PCI.
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
		// One that is gone was unplugged just now.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("PCI function %s: %w", e.Name(), err)
		}
	}
	slices.SortFunc(found, func(a, b Function) int { return strings.Compare(a.Address, b.Address) })
	return found, nil
}

// Is tells whether the function at an address is there and has these ids.
func (f FS) Is(address string, ids IDs) (bool, error) {
	match, err := f.match(address, ids)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return match, err
}

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

// Function returns the function at an address; the error is fs.ErrNotExist when
// there is none.
func (f FS) Function(address string) (Function, error) {
	fn := Function{Address: filepath.Base(address)}
	text, err := f.read(address, "resource")
	if err != nil {
		return fn, err
	}
	if fn.BARs, err = parseResources(text); err != nil {
		return fn, fmt.Errorf("resource: %w", err)
	}
	// The kernel makes a new directory for each, and numbers its directories anew.
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

// Present tells whether there is a function at an address.
func (f FS) Present(address string) bool {
	_, err := os.Stat(filepath.Join(f.dir(address), "vendor"))
	return err == nil
}

// Answers tells whether the function answers accesses to its configuration space,
// where the kernel lets that be seen. One that is there and does not has lost what is
// behind it.
func (f FS) Answers(address string) bool {
	file, err := os.Open(filepath.Join(f.dir(address), "config"))
	if err != nil {
		return true
	}
	var ids [4]byte
	_, err = file.ReadAt(ids[:], 0)
	_ = file.Close()
	return err != nil || ids != [4]byte{0xff, 0xff, 0xff, 0xff}
}

// ResourcePath is the file by which a BAR is mapped.
func (f FS) ResourcePath(address string, bar int) string {
	return filepath.Join(f.dir(address), "resource"+strconv.Itoa(bar))
}

// read is a small file of a function's.
func (f FS) read(address, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(f.dir(address), name))
	return strings.TrimSpace(string(b)), err
}

// link is the last part of what a symbolic link names, "" without one.
func (f FS) link(address, name string) string {
	to, err := os.Readlink(filepath.Join(f.dir(address), name))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// unset is IORESOURCE_UNSET of include/linux/ioport.h: the kernel has given the
// range no place.
const unset = 0x20000000

// parseResources reads a function's resource file: a line for each BAR with its
// first and last address and its flags. Older kernels put zeros for a BAR without a
// place, newer ones its size with the flag that says so.
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
