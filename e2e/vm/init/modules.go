package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// parameters are set if the kernel has them: vfio-pci needs them to serve a guest without an IOMMU,
// or with one that can't remap interrupts. In such a guest, programs could make a device write
// anywhere in memory; our device writes nowhere.
var parameters = []string{
	"/sys/module/vfio/parameters/enable_unsafe_noiommu_mode",
	"/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts",
}

// loadModules loads the modules that dir/order lists, in that order.
func loadModules(dir string) error {
	order, err := os.Open(filepath.Join(dir, "order"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer order.Close()
	for names := bufio.NewScanner(order); names.Scan(); {
		if err := loadModule(filepath.Join(dir, names.Text())); err != nil {
			return err
		}
	}
	for _, p := range parameters {
		if err := os.WriteFile(p, []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}
