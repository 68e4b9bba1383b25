// Package bar0 maps a GPU's registers into this process, read-only, for the status that package
// accounting polls. The kernel must allow it. A locked-down kernel does not; use the GPU's own
// record of context switches then.
package bar0

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"vgpud/accounting/nvreg"
)

// Registers are the registers of one GPU.
type Registers struct {
	nvreg.Space
	mem []byte
}

// Open maps the registers of the GPU at a PCI address, such as 0000:41:00.0. root is the root of
// the host's own file system. The caller must close the registers once nobody reads them any more.
func Open(root fs.FS, pci string) (*Registers, error) {
	r, err := open(root, path.Join("sys/bus/pci/devices", strings.ToLower(pci), "resource0"))
	if err != nil {
		return nil, fmt.Errorf("map the registers of the GPU at %s: %w", pci, explain(root, err))
	}
	return r, nil
}

func open(root fs.FS, name string) (*Registers, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	mem, err := mapped(f)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = errors.Join(cerr, unix.Munmap(mem))
	}
	if err != nil {
		return nil, err
	}
	space, err := nvreg.NewSpace(mem)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	return &Registers{Space: space, mem: mem}, nil
}

// mapped maps the register part of a file.
func mapped(f fs.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	file, ok := f.(interface{ Fd() uintptr })
	if !ok {
		return nil, errors.ErrUnsupported
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, int(min(st.Size(), nvreg.Size)), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, &fs.PathError{Op: "mmap", Path: st.Name(), Err: err}
	}
	return mem, nil
}

// Close unmaps the registers. A later read ends the process.
func (r *Registers) Close() error {
	if err := unix.Munmap(r.mem); err != nil {
		return fmt.Errorf("unmap a GPU's registers: %w", err)
	}
	return nil
}

// otherwise is the advice that always works.
const otherwise = "or have the GPU accounted by its record of context switches (accounting: source: events)"

// explain adds to err the reason why the host does not allow access to registers, and advice.
func explain(root fs.FS, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: the kernel does not allow access to devices' registers%s: boot without secure boot and without lockdown=, %s", err, lockdown(root), otherwise)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: run the daemon as root, %s", err, otherwise)
	case errors.Is(err, unix.EINVAL):
		// The registers of a driver's device can't be mapped with CONFIG_IO_STRICT_DEVMEM.
		return fmt.Errorf("%w: the kernel reserves the registers of devices in use for their drivers: boot with iomem=relaxed, %s", err, otherwise)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no such device in this host or container", err)
	}
	return err
}

// lockdown returns the kernel's lockdown mode, or "" if it is not reported.
func lockdown(root fs.FS) string {
	b, err := fs.ReadFile(root, "sys/kernel/security/lockdown")
	if err != nil {
		return ""
	}
	for word := range strings.FieldsSeq(string(b)) {
		if mode, ok := strings.CutPrefix(word, "["); ok {
			return " (lockdown: " + strings.TrimSuffix(mode, "]") + ")"
		}
	}
	return ""
}
