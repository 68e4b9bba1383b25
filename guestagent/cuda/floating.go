package cuda

import (
	"math/bits"
	"strconv"
	"strings"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// taskMemoryVariable names the variable that says how much GPU memory each of the program's contexts
// will take, where the virtual GPU floats, as parseBytes reads it.
const taskMemoryVariable = "VGPU_TASK_MEMORY"

// contextOptions returns how the program's contexts are made. Where the virtual GPU floats, each waits
// until a GPU of the host has the memory that the program asks for, or the guest's whole limit if the
// program says nothing.
func (d *Driver) contextOptions() driver.ContextOptions {
	o := driver.ContextOptions{Preempt: d.preempt}
	info := d.gpu.Info()
	if info.Features&abi.FeatureFloating == 0 {
		return o
	}
	if n, ok := parseBytes(d.getenv(taskMemoryVariable)); ok && (info.MemoryBytes == 0 || n < info.MemoryBytes) {
		o.Task = &driver.Task{MemoryBytes: n}
	}
	return o
}

// taskLimit returns how much GPU memory a context may have that floats, as its program knows it.
func (d *Driver) taskLimit() uint64 {
	limit := d.gpu.Info().MemoryBytes
	if n, ok := parseBytes(d.getenv(taskMemoryVariable)); ok && n < limit {
		return n
	}
	return limit
}

// parseBytes parses a positive number of bytes, with K, M, G or T behind for powers of 1024, or with
// KiB, MiB, GiB or TiB as the host's own settings have them.
func parseBytes(s string) (uint64, bool) {
	s = strings.ToUpper(s)
	shift := 0
	for i, unit := range []string{"K", "M", "G", "T"} {
		if digits, ok := strings.CutSuffix(strings.TrimSuffix(s, "IB"), unit); ok {
			s, shift = digits, 10*(i+1)
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || bits.Len64(n)+shift > 64 {
		return 0, false
	}
	return n << shift, true
}
