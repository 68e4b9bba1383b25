package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// VFIODriver is the kernel driver that gives user space access to functions.
const VFIODriver = "vfio-pci"

// ErrNoDriver means that the kernel has no vfio-pci, or has not loaded it.
var ErrNoDriver = errors.New("vfio-pci is not loaded (modprobe vfio-pci)")

// ErrNoIOMMU means that vfio-pci can't have a function because nothing would restrict its DMA.
var ErrNoIOMMU = errors.New("no IOMMU, and the kernel's vfio has no mode without one (CONFIG_VFIO_NOIOMMU)")

// Bind binds the function at an address to vfio-pci, unless it is bound already. It takes it from
// no other driver: a virtual GPU has none by default, so another one was bound on purpose.
//
// Without an IOMMU it first turns on vfio's no-IOMMU mode, if the kernel has it. That mode is
// called unsafe because it does not restrict a device's DMA; the virtual GPU never does DMA. It
// taints the kernel all the same.
func (f FS) Bind(address string) error {
	fn, err := f.Function(address)
	if err != nil {
		return err
	}
	switch fn.Driver {
	case VFIODriver:
		return nil
	case "":
	default:
		return fmt.Errorf("kernel driver %s has it", fn.Driver)
	}
	if _, err := os.Stat(f.Path("/sys/bus/pci/drivers/" + VFIODriver)); err != nil {
		return ErrNoDriver
	}
	if fn.Group == "" {
		if err := f.allowNoIOMMU(); err != nil {
			return err
		}
	}
	if err := write(filepath.Join(f.dir(address), "driver_override"), VFIODriver); err != nil {
		return fmt.Errorf("reserve it for vfio-pci: %w", err)
	}
	if err := write(f.Path("/sys/bus/pci/drivers_probe"), fn.Address); err != nil {
		return fmt.Errorf("give it to vfio-pci: %w", err)
	}
	if got := f.link(address, "driver"); got != VFIODriver {
		return errors.New("vfio-pci did not bind to it; see the kernel's log")
	}
	return nil
}

// Unbind unbinds the function from vfio-pci and leaves it without a driver. The kernel waits for
// processes that have it open, so there must be none.
func (f FS) Unbind(address string) error {
	if err := write(filepath.Join(f.dir(address), "driver_override"), "\n"); err != nil {
		return fmt.Errorf("reserve it for no driver: %w", err)
	}
	if err := write(filepath.Join(f.dir(address), "driver", "unbind"), filepath.Base(address)); err != nil {
		return fmt.Errorf("take it from vfio-pci: %w", err)
	}
	return nil
}

// allowNoIOMMU turns on vfio's no-IOMMU mode.
func (f FS) allowNoIOMMU() error {
	path := f.Path("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
	now, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoIOMMU
	}
	if err != nil {
		return fmt.Errorf("vfio without IOMMU: %w", err)
	}
	if strings.HasPrefix(string(now), "Y") {
		return nil
	}
	if err := write(path, "Y"); err != nil {
		return fmt.Errorf("turn on vfio without IOMMU: %w", err)
	}
	return nil
}

// Enable turns on the memory decoding of a function without a kernel driver, unless it is on: each
// write increments a counter.
func (f FS) Enable(address string) error {
	on, err := f.read(address, "enable")
	if err == nil && on == "0" {
		err = write(filepath.Join(f.dir(address), "enable"), "1")
	}
	if err != nil {
		return fmt.Errorf("enable the PCI function: %w", err)
	}
	return nil
}

// write writes a file that must exist.
func write(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

// GroupPath returns the node that opens a function bound to vfio-pci, or "" if it has no group.
func (f FS) GroupPath(fn Function) string {
	if fn.Group == "" {
		return ""
	}
	name := fn.Group
	if fn.NoIOMMU {
		name = "noiommu-" + name
	}
	return f.Path("/dev/vfio/" + name)
}
