package drivertest

import (
	"strings"

	"vgpud/mediator/vgpu/abi"
)

var formNames = map[abi.PreemptForm]string{abi.PreemptSingle: "single", abi.PreemptCoarse: "coarse", abi.PreemptPersistent: "persist"}

// decodeCall decodes a launch's attributes, which must include that of its form.
func decodeCall(name string, grid [3]uint32, attributes []byte) (Call, error) {
	call := Call{Grid: grid}
	for ; len(attributes) > 0; attributes = attributes[abi.EntrySize:] {
		a, err := abi.DecodeAttribute((*abi.Entry)(attributes))
		if err == nil && a.ID == abi.AttributePreempt {
			call.Preempt, err = abi.DecodePreempt(&a)
		}
		if err != nil {
			return call, err
		}
		if a.ID == abi.AttributePriority {
			call.Priority = int32(a.Uint32(0))
		}
	}
	base, form, _ := strings.Cut(name, formSuffix)
	if call.Kernel = base; form != formNames[call.Preempt.Form] {
		return call, abi.StatusInvalidValue
	}
	return call, nil
}

// describe answers questions about the GPU: it has 4 SMs, each of which holds one block of a
// kernel.
func (g *GPU) describe(op abi.Opcode, e *abi.Entry, c *abi.Completion) error {
	if op == abi.OpDeviceAttribute {
		x, err := abi.DecodeQuery(e)
		c.Value[0] = map[uint32]uint64{
			abi.DeviceSMs: SMs, abi.DeviceMaxThreadsPerSM: 2048, abi.DeviceComputeMajor: 9,
			abi.DeviceAddressBase: PlacesBase, abi.DeviceAddressBytes: PlacesBytes, abi.DeviceAddressGrain: PlacesGrain,
		}[x.Key]
		return err
	}
	if op == abi.OpFunctionAttribute {
		x, err := abi.DecodeQuery(e)
		if err == nil && g.handles[x.Handle] == "" {
			err = abi.StatusInvalidHandle
		}
		c.Value[0] = map[uint32]uint64{abi.FunctionMaxThreads: 1024}[x.Key]
		return err
	}
	x, err := abi.DecodeOccupancy(e)
	name, ok := g.handles[x.Function]
	if err == nil && !ok {
		err = abi.StatusInvalidHandle
	}
	g.occupancyQueries++
	c.Value[0] = PerSM
	k, _ := g.kernel(name)
	if k.FormsPerSM > 0 && strings.Contains(name, formSuffix) {
		c.Value[0] = k.FormsPerSM
	}
	for form, suffix := range formNames {
		if k.TooLarge&form != 0 && strings.HasSuffix(name, formSuffix+suffix) {
			c.Value[0] = 0
		}
	}
	return err
}

// SMs is the number of SMs of every GPU, and PerSM how many blocks of any kernel each holds.
const (
	SMs   = 4
	PerSM = 2
)

// OccupancyQueries returns how often the guest asked how many blocks an SM holds.
func (g *GPU) OccupancyQueries() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.occupancyQueries
}
