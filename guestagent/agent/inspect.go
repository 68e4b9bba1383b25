package agent

import (
	"errors"
	"io/fs"
	"os"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/sysfs"
)

// Function describes a virtual GPU without opening it.
type Function struct {
	Address string `json:"address"`
	// Driver is the kernel driver that is bound to the function, or "".
	Driver string `json:"driver"`
	// Access is how it can currently be reached: "vfio", "polling", or "" for not at all. Problem
	// says why not by vfio, or why not at all.
	Access      string `json:"access"`
	Node        string `json:"node,omitempty"`
	SharedBytes uint64 `json:"shared_bytes"` // BAR2
	Problem     string `json:"problem,omitempty"`
}

// List describes all virtual GPUs. It opens none.
func List(p driver.PCI) ([]Function, error) {
	all, err := p.Functions()
	if err != nil {
		return nil, err
	}
	list := make([]Function, len(all))
	for i, f := range all {
		list[i] = inspect(p, f)
	}
	return list, nil
}

func inspect(p driver.PCI, f sysfs.Function) Function {
	d := Function{Address: f.Address, Driver: f.Driver, SharedBytes: f.BARs[2].Bytes}
	if err := driver.CheckRoom(f); err != nil {
		d.Problem = err.Error()
		return d
	}
	files := sysfs.FS{Root: p.Root}
	if !files.Answers(f.Address) {
		d.Problem = "it does not answer: the host's process behind it has ended. Restart the VM, or have the host's operator unplug it and attach another (vgpuctl detach, attach)"
		return d
	}
	switch f.Driver {
	case sysfs.VFIODriver:
		d.Access, d.Node = driver.AccessVFIO.String(), files.GroupPath(f)
		if d.Node == "" {
			d.Access, d.Problem = "", "vfio-pci has it, but it has no IOMMU group"
			break
		}
		d.Problem = openProblem(d.Node)
	case "":
		d.Access, d.Node = driver.AccessPolling.String(), files.ResourcePath(f.Address, 0)
		d.Problem = openProblem(d.Node)
	default:
		d.Problem = "kernel driver " + f.Driver + " has it"
	}
	return d
}

// openProblem returns what keeps this process from opening a node, or "".
func openProblem(node string) string {
	f, err := os.OpenFile(node, os.O_RDWR, 0)
	switch {
	case err == nil:
		_ = f.Close()
		return ""
	case errors.Is(err, fs.ErrPermission):
		return "no permission to open " + node
	case errors.Is(err, fs.ErrNotExist):
		return node + " is not there"
	}
	return "" // busy, for example: in use
}
