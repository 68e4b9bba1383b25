package qemu

import (
	"fmt"
	"os"
	"path/filepath"
)

// Deps are the files that a VM needs.
type Deps struct {
	Dir       string // what `make vm-deps` filled
	QEMU      string // the wrapper that runs QEMU
	Kernel    string // the guests' kernel
	Initramfs string // the guests' programs and kernel modules
	Root      string // QEMU and libvirt with all their dependencies, to run libvirt in
}

// Find returns the files that `make vm-deps` has put into dir. If dir is "", it uses
// $VGPUD_VM_DEPS, or vgpud/vm in the user's cache.
func Find(dir string) (Deps, error) {
	if dir == "" {
		dir = os.Getenv("VGPUD_VM_DEPS")
	}
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return Deps{}, fmt.Errorf("find what VMs need: %w", err)
		}
		dir = filepath.Join(cache, "vgpud", "vm")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Deps{}, fmt.Errorf("find what VMs need: %w", err)
	}
	d := Deps{
		Dir:       dir,
		QEMU:      filepath.Join(dir, "qemu"),
		Kernel:    filepath.Join(dir, "vmlinux"),
		Initramfs: filepath.Join(dir, "initramfs.cpio"),
		Root:      filepath.Join(dir, "root"),
	}
	// unpacked is written after the packages are complete.
	for _, path := range []string{filepath.Join(dir, "unpacked"), d.QEMU, d.Kernel, d.Initramfs, d.Root} {
		if _, err := os.Stat(path); err != nil {
			return Deps{}, fmt.Errorf("what VMs need is not there (%w): run `make vm-deps`", err)
		}
	}
	return d, nil
}
