// Package bar0 maps a GPU's registers into this process, for reading alone: the
// status that package accounting polls. It takes a kernel that lets it; one that
// is locked down does not, and the GPU's own record of context switches is the way
// then.
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

// Open maps the registers of the GPU at a PCI address, such as 0000:41:00.0. root
// is the root of the file system, whose files must be the host's own. The caller
// closes it when nobody reads them any more.
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

// mapped maps as much of a file as there are registers.
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

// Close unmaps the registers. A read after it ends the process.
func (r *Registers) Close() error {
	if err := unix.Munmap(r.mem); err != nil {
		return fmt.Errorf("unmap a GPU's registers: %w", err)
	}
	return nil
}

// otherwise is what always helps.
const otherwise = "or have the GPU accounted by its record of context switches (accounting: source: events)"

// explain adds why the host does not let registers be read, and what to do.
func explain(root fs.FS, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: the kernel keeps devices' registers to itself%s: boot without secure boot and without lockdown=, %s", err, lockdown(root), otherwise)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: run the daemon as root, %s", err, otherwise)
	case errors.Is(err, unix.EINVAL):
		// What a driver has claimed can't be mapped where CONFIG_IO_STRICT_DEVMEM is set.
		return fmt.Errorf("%w: the kernel keeps what a driver uses from others: boot with iomem=relaxed, %s", err, otherwise)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no such device in this host or container", err)
	}
	return err
}

// lockdown is what the kernel says of its lockdown, if it says anything.
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
