package rm

import (
	"errors"
	"fmt"
	"slices"

	"vgpud/gpu/nvidia/rm/abi"
)

// windowTries is the number of a context's newest memory objects that Window inspects.
const windowTries = 4

// Window maps the first length bytes of memory that the context has on GPU g, through the GPU's own
// aperture (BAR1). A running kernel sees stores to it. On an H100 that takes 3 µs less than the
// driver's quickest copy, and nothing of the driver is in between that could take longer. libcuda
// doesn't tell the object of an allocation, so Window maps the newest ones until is recognises the
// contents. Small allocations share objects and may lie anywhere in one. The caller must close the
// mapping before the memory is freed and before it closes c.
func (c *Control) Window(k Kernel, g GPU, length int, is func(Mapping) bool) (Mapping, error) {
	device, err := c.call.parent(c.objects.Subdevice)
	if err != nil {
		return nil, err
	}
	var all []abi.Handle
	for h, class := range c.call.all() {
		if class == abi.NV01_MEMORY_LOCAL_USER {
			all = append(all, h)
		}
	}
	newest := all[max(len(all)-windowTries, 0):]
	var errs []error
	for _, h := range slices.Backward(newest) {
		w, err := c.mapGPU(k, g, device, h, length)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if is(w) {
			return w, nil
		}
		errs = append(errs, w.Close())
	}
	return nil, errors.Join(append(errs, fmt.Errorf("map memory on the GPU: not found in the newest %d of the context's %d objects", len(newest), len(all)))...)
}

// mapGPU maps the beginning of an object.
func (c *Control) mapGPU(k Kernel, g GPU, device, memory abi.Handle, length int) (Mapping, error) {
	n, err := k.Open(fmt.Sprintf(gpuNode, g.Minor)) // each mapping needs its own
	if err != nil {
		return nil, err
	}
	call := abi.Nv_ioctl_nvos33_parameters_with_fd{Client: c.call.client, Device: device, Memory: memory, Length: uint64(length), FD: int32(n.FD())}
	if err := c.call.plain("map memory on the GPU", memory, abi.NV_ESC_RM_MAP_MEMORY, &call, &call.Status); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	w := &window{c: c, unmap: abi.NVOS34_PARAMETERS{Client: c.call.client, Device: device, Memory: memory, Address: call.Address}}
	w.Mapping, err = n.Map(length, true)
	if err = errors.Join(err, n.Close()); err != nil { // the mapping stays
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// window is a mapping that the driver keeps until it is asked to unmap it.
type window struct {
	Mapping // nil: none
	c       *Control
	unmap   abi.NVOS34_PARAMETERS
}

// Close ends the mapping, here and in the driver.
func (w *window) Close() error {
	var err error
	if w.Mapping != nil {
		err = w.Mapping.Close()
	}
	return errors.Join(err, w.c.call.plain("unmap memory on the GPU", w.unmap.Memory, abi.NV_ESC_RM_UNMAP_MEMORY, &w.unmap, &w.unmap.Status))
}
