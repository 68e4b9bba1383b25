package nvidia

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// contextBytes is what the driver takes for a context before anything is allocated: 520 MiB on an H100
// (docs/nvidia.md).
const contextBytes = 520 << 20

// startBytes is what kernels may print and allocate unless a program changes that.
const startBytes = 9 << 20

// Info is one GPU as the driver lists it.
type Info struct {
	// UUID in nvidia-smi's form: "GPU-…".
	UUID string `json:"uuid"`
	// PCI is the address: "0000:00:05.0".
	PCI string `json:"pci"`
	// Index is the position among the GPUs that this process sees.
	Index      int            `json:"index"`
	Properties gpu.Properties `json:"properties"`
}

// List returns the GPUs that this process sees. It makes no context.
func List(d Driver) ([]Info, error) {
	n, err := d.DeviceGetCount()
	if err != nil {
		return nil, fmt.Errorf("count GPUs: %w", meaning(err))
	}
	all := make([]Info, n)
	for i := range all {
		if all[i], err = query(d, i); err != nil {
			return nil, fmt.Errorf("look at GPU %d: %w", i, meaning(err))
		}
	}
	return all, nil
}

// query queries the driver about one GPU.
func query(d Driver, i int) (Info, error) {
	dev, err := d.DeviceGet(i)
	if err != nil {
		return Info{}, err
	}
	info := Info{Index: i}
	p := &info.Properties
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	p.MachineCode = true
	p.Name, err = d.DeviceGetName(dev)
	keep(err)
	p.UUID, err = d.DeviceGetUUID(dev)
	keep(err)
	info.UUID = FormatUUID(p.UUID)
	info.PCI, err = d.DeviceGetPCIBusID(dev)
	keep(err)
	info.PCI = strings.ToLower(info.PCI)
	p.ContextBytes, p.StartBytes = contextBytes, startBytes
	p.MemoryBytes, err = d.DeviceTotalMem(dev)
	keep(err)
	ask := func(a cuda.Attribute) int {
		v, err := d.DeviceGetAttribute(dev, a)
		keep(err)
		return v
	}
	p.Major, p.Minor = ask(cuda.ComputeCapabilityMajor), ask(cuda.ComputeCapabilityMinor)
	p.SMs = ask(cuda.MultiprocessorCount)
	p.ThreadsPerSM, p.BlocksPerSM = ask(cuda.MaxThreadsPerMultiprocessor), ask(cuda.MaxBlocksPerMultiprocessor)
	p.ThreadsPerBlock = ask(cuda.MaxThreadsPerBlock)
	p.SharedPerSM = uint64(ask(cuda.MaxSharedPerMultiprocessor))
	p.SharedPerBlock = uint64(ask(cuda.MaxSharedMemoryPerBlock))
	p.SharedPerBlockOptin = uint64(ask(cuda.MaxSharedPerBlockOptin))
	p.RegistersPerSM = ask(cuda.MaxRegsPerMultiprocessor)
	p.ClockHz = uint64(ask(cuda.ClockRate)) * 1000
	p.L2Bytes = uint64(ask(cuda.L2CacheSize))
	p.MaxGrid = gpu.Dim3{X: uint32(ask(cuda.MaxGridDimX)), Y: uint32(ask(cuda.MaxGridDimY)), Z: uint32(ask(cuda.MaxGridDimZ))}
	p.MaxBlockDim = gpu.Dim3{X: uint32(ask(cuda.MaxBlockDimX)), Y: uint32(ask(cuda.MaxBlockDimY)), Z: uint32(ask(cuda.MaxBlockDimZ))}
	return info, errors.Join(errs...)
}

// FormatUUID formats a UUID as NVIDIA's tools do.
func FormatUUID(u [16]byte) string {
	h := hex.EncodeToString(u[:])
	return "GPU-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Find finds a GPU by its UUID, its PCI address, with or without domain, or its index. The empty
// string finds the only one.
func Find(all []Info, device string) (Info, error) {
	var names []string
	for _, g := range all {
		names = append(names, g.UUID+" ("+g.PCI+")")
	}
	there := "there is none: is the NVIDIA driver loaded, and may this process open its devices?"
	if len(names) > 0 {
		there = "there is " + strings.Join(names, ", ")
	}
	if device == "" {
		if len(all) == 1 {
			return all[0], nil
		}
		return Info{}, fmt.Errorf("%d GPUs: select one by its UUID, PCI address or index: %s: %w", len(all), there, gpu.ErrNotFound)
	}
	for _, g := range all {
		_, short, _ := strings.Cut(g.PCI, ":")
		if strings.EqualFold(device, g.UUID) || strings.EqualFold(device, g.PCI) || strings.EqualFold(device, short) ||
			device == strconv.Itoa(g.Index) {
			return g, nil
		}
	}
	return Info{}, fmt.Errorf("no GPU %q: %s: %w", device, there, gpu.ErrNotFound)
}
