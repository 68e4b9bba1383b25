package rm

import (
	"errors"
	"fmt"
	"slices"

	"vgpud/gpu/nvidia/rm/abi"
)

// windowTries is how many of a context's newest memory objects Window looks into.
const windowTries = 4

// Window maps the first length bytes of memory that the context has on GPU g, through the
// GPU's own aperture (BAR1): what the process stores there a running kernel sees, by an
// H100's measure 3 µs sooner than by the driver's quickest copy, and with nothing of the
// driver's in between that could take longer. Which object an allocation is libcuda
// doesn't say, so the newest are mapped until is recognises what was put there; small
// allocations share objects and may lie anywhere in one. The caller closes the mapping
// before the memory is freed and before it closes c.
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
	n, err := k.Open(fmt.Sprintf(gpuNode, g.Minor)) // one for each mapping
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

// window is a mapping that the driver keeps until it is told otherwise.
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
