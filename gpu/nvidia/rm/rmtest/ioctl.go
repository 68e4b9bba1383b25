package rmtest

import (
	"fmt"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/rm/abi"
)

// Ioctl implements [rm.Node]. A request of an unknown size is an error of the ioctl itself, as in
// the real driver.
func (n *node) Ioctl(nr uint8, arg, params []byte) error {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	switch nr {
	case abi.NV_ESC_RM_ALLOC:
		return answer(arg, &abi.NVOS64_PARAMETERS{}, func(c *abi.NVOS64_PARAMETERS) abi.Status { return n.alloc(c, params) },
			func(c *abi.NVOS64_PARAMETERS, s abi.Status) { c.Status = s })
	case abi.NV_ESC_RM_CONTROL:
		return answer(arg, &abi.NVOS54_PARAMETERS{}, func(c *abi.NVOS54_PARAMETERS) abi.Status { return n.control(c, params) },
			func(c *abi.NVOS54_PARAMETERS, s abi.Status) { c.Status = s })
	case abi.NV_ESC_RM_FREE:
		return answer(arg, &abi.NVOS00_PARAMETERS{}, n.free, func(c *abi.NVOS00_PARAMETERS, s abi.Status) { c.Status = s })
	case abi.NV_ESC_RM_MAP_MEMORY:
		return answer(arg, &abi.Nv_ioctl_nvos33_parameters_with_fd{}, n.mapMemory, func(c *abi.Nv_ioctl_nvos33_parameters_with_fd, s abi.Status) { c.Status = s })
	case abi.NV_ESC_RM_UNMAP_MEMORY:
		return answer(arg, &abi.NVOS34_PARAMETERS{}, n.unmapMemory, func(c *abi.NVOS34_PARAMETERS, s abi.Status) { c.Status = s })
	case abi.NV_ESC_REGISTER_FD:
		if n.file.control {
			return unix.EINVAL
		}
		n.file.tied = true
		return nil
	}
	return fmt.Errorf("call %#x: %w", nr, unix.ENOTTY)
}

// IoctlBriefly implements [rm.Node].
func (n *node) IoctlBriefly(nr uint8, arg, params []byte) error { return n.Ioctl(nr, arg, params) }

// answer decodes a call, carries it out, and writes it back with its status.
func answer[T any](arg []byte, call *T, do func(*T) abi.Status, set func(*T, abi.Status)) error {
	if len(arg) != abi.Size(call) {
		return unix.EINVAL
	}
	if err := abi.Decode(arg, call); err != nil {
		return err
	}
	set(call, do(call))
	_, err := abi.Encode(arg, call)
	return err
}

func (n *node) alloc(c *abi.NVOS64_PARAMETERS, params []byte) abi.Status {
	if int(c.ParamsSize) != len(params) {
		return abi.NV_ERR_INVALID_ARGUMENT
	}
	if c.Class == abi.NV01_ROOT_CLIENT {
		c.Object = n.d.newClient(n.file).handle
		return abi.NV_OK
	}
	cl, st := n.d.client(n.file, c.Client)
	if st != abi.NV_OK {
		return st
	}
	if cl.objects[c.Parent] == nil {
		return abi.NV_ERR_OBJECT_NOT_FOUND
	}
	o := &object{parent: c.Parent, class: c.Class}
	switch c.Class {
	case abi.NV01_DEVICE_0, abi.NV20_SUBDEVICE_0:
		if n.d.lost {
			return abi.NV_ERR_GPU_IS_LOST
		}
	case abi.NV01_MEMORY_DEVICELESS:
		var p abi.NV_MEMORY_ALLOCATION_PARAMS
		if abi.Decode(params, &p) != nil || p.Size == 0 || p.Size > 1<<24 {
			return abi.NV_ERR_INVALID_ARGUMENT
		}
		o.memory = &memory{b: make([]byte, p.Size)}
	case abi.NV_EVENT_BUFFER:
		var p abi.NV_EVENT_BUFFER_ALLOC_PARAMETERS
		if abi.Decode(params, &p) != nil || cl.objects[p.HeaderMemory] == nil || cl.objects[p.RecordMemory] == nil {
			return abi.NV_ERR_INVALID_ARGUMENT
		}
		o.buffer = &buffer{header: cl.objects[p.HeaderMemory].memory, records: cl.objects[p.RecordMemory].memory, n: p.RecordCount}
		if o.buffer.header == nil || o.buffer.records == nil || len(o.buffer.records.b) < int(p.RecordCount*p.RecordSize) {
			return abi.NV_ERR_INVALID_ARGUMENT
		}
	default:
		return abi.NV_ERR_INVALID_CLASS
	}
	cl.free++
	c.Object = cl.free
	cl.objects[c.Object] = o
	return abi.NV_OK
}

func (n *node) free(c *abi.NVOS00_PARAMETERS) abi.Status {
	cl, st := n.d.client(n.file, c.Client)
	if st != abi.NV_OK {
		return st
	}
	if cl.objects[c.Object] == nil {
		return abi.NV_ERR_OBJECT_NOT_FOUND
	}
	delete(cl.objects, c.Object)
	return abi.NV_OK
}

func (n *node) mapMemory(c *abi.Nv_ioctl_nvos33_parameters_with_fd) abi.Status {
	cl, st := n.d.client(n.file, c.Client)
	if st != abi.NV_OK {
		return st
	}
	o := cl.objects[c.Memory]
	ino, err := inode(int(c.FD))
	window := n.d.files[ino]
	if o == nil || o.memory == nil || err != nil || window == nil || window.memory != nil || len(window.clients) > 0 || c.Length > uint64(len(o.memory.b)) {
		return abi.NV_ERR_INVALID_ARGUMENT
	}
	// The GPU's memory is mapped through the GPU's node.
	if onGPU := o.class == abi.NV01_MEMORY_LOCAL_USER; onGPU == window.control || onGPU && cl.objects[c.Device].class != abi.NV01_DEVICE_0 {
		return abi.NV_ERR_INVALID_ARGUMENT
	}
	window.memory, window.write = o.memory, c.Flags&abi.NVOS33_FLAGS_ACCESS_READ_ONLY == 0
	o.mapped++
	c.Address = addressOf(c.Memory)
	return abi.NV_OK
}

// addressOf returns the address that a mapping reports.
func addressOf(memory abi.Handle) uint64 { return 0x7f00_0000_0000 + uint64(memory)<<12 }

func (n *node) unmapMemory(c *abi.NVOS34_PARAMETERS) abi.Status {
	cl, st := n.d.client(n.file, c.Client)
	if st != abi.NV_OK {
		return st
	}
	o := cl.objects[c.Memory]
	if o == nil || o.mapped == 0 || c.Address != addressOf(c.Memory) {
		return abi.NV_ERR_INVALID_ARGUMENT
	}
	o.mapped--
	return abi.NV_OK
}

func (n *node) control(c *abi.NVOS54_PARAMETERS, params []byte) abi.Status {
	cl, st := n.d.client(n.file, c.Client)
	if st != abi.NV_OK {
		return st
	}
	o := cl.objects[c.Object]
	if o == nil {
		return abi.NV_ERR_OBJECT_NOT_FOUND
	}
	if s := n.d.refuse[uint32(c.Command)]; s != abi.NV_OK {
		return s
	}
	if n.d.lost && c.Command > 0xffff {
		return abi.NV_ERR_GPU_IS_LOST
	}
	if int(c.ParamsSize) != len(params) {
		return abi.NV_ERR_INVALID_ARGUMENT
	}
	do := commands[c.Command]
	if do == nil {
		return abi.NV_ERR_NOT_SUPPORTED
	}
	return do(n.d, cl, o, params)
}

// commands are the commands of objects.
var commands = map[abi.Command]func(*Driver, *client, *object, []byte) abi.Status{
	abi.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS: with(func(*Driver, *client, *object, *abi.NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS) abi.Status {
		return abi.NV_OK
	}),
	abi.NV0000_CTRL_CMD_GPU_ATTACH_IDS: with(func(d *Driver, _ *client, _ *object, p *abi.NV0000_CTRL_GPU_ATTACH_IDS_PARAMS) abi.Status {
		if d.lost {
			return abi.NV_ERR_GPU_IS_LOST
		}
		return abi.NV_OK
	}),
	abi.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS: with(func(_ *Driver, _ *client, _ *object, p *abi.NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS) abi.Status {
		for i := range p.IDs {
			p.IDs[i] = abi.NV0000_CTRL_GPU_INVALID_ID
		}
		p.IDs[0] = gpuID
		return abi.NV_OK
	}),
	abi.NV0000_CTRL_CMD_GPU_GET_PCI_INFO: with(func(_ *Driver, _ *client, _ *object, p *abi.NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS) abi.Status {
		if p.ID != gpuID {
			return abi.NV_ERR_INVALID_ARGUMENT
		}
		p.Bus = 0x3b
		return abi.NV_OK
	}),
	abi.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2: with(func(*Driver, *client, *object, *abi.NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS) abi.Status {
		return abi.NV_OK
	}),
	abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO: with(func(_ *Driver, c *client, _ *object, p *abi.NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS) abi.Status {
		o := c.objects[p.Object]
		switch {
		case o == nil:
			return abi.NV_ERR_OBJECT_NOT_FOUND
		case p.Index == abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_PARENT:
			p.Result = uint64(o.parent)
		case p.Index == abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_CLASSID:
			p.Result = uint64(o.class)
		default:
			return abi.NV_ERR_INVALID_ARGUMENT
		}
		return abi.NV_OK
	}),
	abi.NV2080_CTRL_CMD_TIMER_GET_TIME: on(abi.NV20_SUBDEVICE_0, func(d *Driver, _ *client, _ *object, p *abi.NV2080_CTRL_TIMER_GET_TIME_PARAMS) abi.Status {
		p.Nanoseconds = uint64(d.now)
		return abi.NV_OK
	}),
	abi.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS: on(abi.NV20_SUBDEVICE_0, disable),
	abi.NVA06C_CTRL_CMD_SET_TIMESLICE: on(abi.KEPLER_CHANNEL_GROUP_A, func(_ *Driver, _ *client, o *object, p *abi.NVA06C_CTRL_TIMESLICE_PARAMS) abi.Status {
		o.timeslice = p.Microseconds
		return abi.NV_OK
	}),
	abi.NVA06C_CTRL_CMD_GET_TIMESLICE: on(abi.KEPLER_CHANNEL_GROUP_A, func(_ *Driver, _ *client, o *object, p *abi.NVA06C_CTRL_TIMESLICE_PARAMS) abi.Status {
		p.Microseconds = o.timeslice
		return abi.NV_OK
	}),
	abi.NVA06C_CTRL_CMD_PREEMPT: on(abi.KEPLER_CHANNEL_GROUP_A, func(*Driver, *client, *object, *abi.NVA06C_CTRL_PREEMPT_PARAMS) abi.Status { return abi.NV_OK }),
	abi.NVA06C_CTRL_CMD_GET_INFO: on(abi.KEPLER_CHANNEL_GROUP_A, func(_ *Driver, _ *client, o *object, p *abi.NVA06C_CTRL_GET_INFO_PARAMS) abi.Status {
		p.ID = uint32(o.id)
		return abi.NV_OK
	}),
	abi.NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2: on(abi.NV20_SUBDEVICE_0, func(_ *Driver, c *client, _ *object, p *abi.NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS) abi.Status {
		o := c.objects[p.Buffer]
		if o == nil || o.buffer == nil || p.RecordSize != abi.EventRecordBytes {
			return abi.NV_ERR_INVALID_ARGUMENT
		}
		o.buffer.bound = true
		return abi.NV_OK
	}),
	abi.NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS: on(abi.NV_EVENT_BUFFER, func(_ *Driver, _ *client, o *object, p *abi.NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS) abi.Status {
		o.buffer.enabled = p.Enable && p.Policy == abi.NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_OLDEST
		return abi.NV_OK
	}),
	abi.NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET: on(abi.NV_EVENT_BUFFER, func(_ *Driver, _ *client, o *object, p *abi.NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET_PARAMS) abi.Status {
		if p.Record >= o.buffer.n {
			return abi.NV_ERR_INVALID_ARGUMENT
		}
		o.buffer.get = p.Record
		return abi.NV_OK
	}),
	abi.NV_EVENT_BUFFER_CTRL_CMD_FLUSH: func(_ *Driver, _ *client, o *object, params []byte) abi.Status {
		if o.buffer == nil || params != nil {
			return abi.NV_ERR_INVALID_ARGUMENT
		}
		o.buffer.flush()
		return abi.NV_OK
	},
}

// disable counts disables per channel, and not below zero. All handles are checked first.
func disable(_ *Driver, c *client, _ *object, p *abi.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS) abi.Status {
	if p.Count == 0 || p.Count > abi.NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES || p.Event != 0 {
		return abi.NV_ERR_INVALID_PARAM_STRUCT
	}
	for i := range p.Count {
		if o := c.objects[p.Channels[i]]; p.Clients[i] != c.handle || o == nil || !o.class.Channel() {
			return abi.NV_ERR_INVALID_CHANNEL
		}
	}
	for i := range p.Count {
		o := c.objects[p.Channels[i]]
		if p.Disable {
			o.disables++
		} else {
			o.disables = max(0, o.disables-1)
		}
	}
	return abi.NV_OK
}

// with decodes a command's parameters and writes them back.
func with[T any](do func(*Driver, *client, *object, *T) abi.Status) func(*Driver, *client, *object, []byte) abi.Status {
	return func(d *Driver, c *client, o *object, params []byte) abi.Status {
		var p T
		if len(params) != abi.Size(&p) {
			return abi.NV_ERR_INVALID_ARGUMENT
		}
		if abi.Decode(params, &p) != nil {
			return abi.NV_ERR_INVALID_ARGUMENT
		}
		st := do(d, c, o, &p)
		if _, err := abi.Encode(params, &p); err != nil {
			return abi.NV_ERR_INVALID_ARGUMENT
		}
		return st
	}
}

// on is with for a command that only one class has.
func on[T any](class abi.Class, do func(*Driver, *client, *object, *T) abi.Status) func(*Driver, *client, *object, []byte) abi.Status {
	return func(d *Driver, c *client, o *object, params []byte) abi.Status {
		if o.class != class {
			return abi.NV_ERR_NOT_SUPPORTED
		}
		return with(do)(d, c, o, params)
	}
}
