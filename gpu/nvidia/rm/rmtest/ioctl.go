package rmtest

import (
	"fmt"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/rm/abi"
)

// Ioctl implements [rm.Node]. A request that the driver has no such size of is an error of
// the ioctl itself, as it is there.
func (n *node) Ioctl(nr uint8, arg, params []byte) error {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	switch nr {
	case abi.EscAlloc:
		return answer(arg, &abi.Alloc{}, func(c *abi.Alloc) abi.Status { return n.alloc(c, params) },
			func(c *abi.Alloc, s abi.Status) { c.Status = s })
	case abi.EscControl:
		return answer(arg, &abi.Control{}, func(c *abi.Control) abi.Status { return n.control(c, params) },
			func(c *abi.Control, s abi.Status) { c.Status = s })
	case abi.EscFree:
		return answer(arg, &abi.Free{}, n.free, func(c *abi.Free, s abi.Status) { c.Status = s })
	case abi.EscMapMemory:
		return answer(arg, &abi.MapMemory{}, n.mapMemory, func(c *abi.MapMemory, s abi.Status) { c.Status = s })
	case abi.EscUnmapMemory:
		return answer(arg, &abi.UnmapMemory{}, n.unmapMemory, func(c *abi.UnmapMemory, s abi.Status) { c.Status = s })
	case abi.EscRegisterFD:
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

func (n *node) alloc(c *abi.Alloc, params []byte) abi.Status {
	if int(c.ParamsSize) != len(params) {
		return abi.InvalidArgument
	}
	if c.Class == abi.ClassClient {
		c.Object = n.d.newClient(n.file).handle
		return abi.OK
	}
	cl, st := n.d.client(n.file, c.Client)
	if st != abi.OK {
		return st
	}
	if cl.objects[c.Parent] == nil {
		return abi.ObjectNotFound
	}
	o := &object{parent: c.Parent, class: c.Class}
	switch c.Class {
	case abi.ClassDevice, abi.ClassSubdevice:
		if n.d.lost {
			return abi.GPULost
		}
	case abi.ClassMemory:
		var p abi.MemoryAlloc
		if abi.Decode(params, &p) != nil || p.Size == 0 || p.Size > 1<<24 {
			return abi.InvalidArgument
		}
		o.memory = &memory{b: make([]byte, p.Size)}
	case abi.ClassEventBuffer:
		var p abi.EventBufferAlloc
		if abi.Decode(params, &p) != nil || cl.objects[p.HeaderMemory] == nil || cl.objects[p.RecordMemory] == nil {
			return abi.InvalidArgument
		}
		o.buffer = &buffer{header: cl.objects[p.HeaderMemory].memory, records: cl.objects[p.RecordMemory].memory, n: p.RecordCount}
		if o.buffer.header == nil || o.buffer.records == nil || len(o.buffer.records.b) < int(p.RecordCount*p.RecordSize) {
			return abi.InvalidArgument
		}
	default:
		return abi.InvalidClass
	}
	cl.free++
	c.Object = cl.free
	cl.objects[c.Object] = o
	return abi.OK
}

func (n *node) free(c *abi.Free) abi.Status {
	cl, st := n.d.client(n.file, c.Client)
	if st != abi.OK {
		return st
	}
	if cl.objects[c.Object] == nil {
		return abi.ObjectNotFound
	}
	delete(cl.objects, c.Object)
	return abi.OK
}

func (n *node) mapMemory(c *abi.MapMemory) abi.Status {
	cl, st := n.d.client(n.file, c.Client)
	if st != abi.OK {
		return st
	}
	o := cl.objects[c.Memory]
	ino, err := inode(int(c.FD))
	window := n.d.files[ino]
	if o == nil || o.memory == nil || err != nil || window == nil || window.memory != nil || len(window.clients) > 0 || c.Length > uint64(len(o.memory.b)) {
		return abi.InvalidArgument
	}
	// The GPU's memory is mapped through its own node.
	if onGPU := o.class == abi.ClassGPUMemory; onGPU == window.control || onGPU && cl.objects[c.Device].class != abi.ClassDevice {
		return abi.InvalidArgument
	}
	window.memory, window.write = o.memory, c.Flags&abi.MapReadOnly == 0
	o.mapped++
	c.Address = addressOf(c.Memory)
	return abi.OK
}

// addressOf is what a mapping's address is said to be.
func addressOf(memory abi.Handle) uint64 { return 0x7f00_0000_0000 + uint64(memory)<<12 }

func (n *node) unmapMemory(c *abi.UnmapMemory) abi.Status {
	cl, st := n.d.client(n.file, c.Client)
	if st != abi.OK {
		return st
	}
	o := cl.objects[c.Memory]
	if o == nil || o.mapped == 0 || c.Address != addressOf(c.Memory) {
		return abi.InvalidArgument
	}
	o.mapped--
	return abi.OK
}

func (n *node) control(c *abi.Control, params []byte) abi.Status {
	cl, st := n.d.client(n.file, c.Client)
	if st != abi.OK {
		return st
	}
	o := cl.objects[c.Object]
	if o == nil {
		return abi.ObjectNotFound
	}
	if s := n.d.refuse[uint32(c.Command)]; s != abi.OK {
		return s
	}
	if n.d.lost && c.Command > 0xffff {
		return abi.GPULost
	}
	if int(c.ParamsSize) != len(params) {
		return abi.InvalidArgument
	}
	do := commands[c.Command]
	if do == nil {
		return abi.NotSupported
	}
	return do(n.d, cl, o, params)
}

// commands are what objects can be told.
var commands = map[abi.Command]func(*Driver, *client, *object, []byte) abi.Status{
	abi.CmdGetAttachedIDs: with(func(*Driver, *client, *object, *abi.AttachedIDs) abi.Status { return abi.OK }),
	abi.CmdAttachIDs: with(func(d *Driver, _ *client, _ *object, p *abi.AttachIDs) abi.Status {
		if d.lost {
			return abi.GPULost
		}
		return abi.OK
	}),
	abi.CmdGetProbedIDs: with(func(_ *Driver, _ *client, _ *object, p *abi.ProbedIDs) abi.Status {
		for i := range p.IDs {
			p.IDs[i] = abi.InvalidID
		}
		p.IDs[0] = gpuID
		return abi.OK
	}),
	abi.CmdGetPCIInfo: with(func(_ *Driver, _ *client, _ *object, p *abi.PCIInfo) abi.Status {
		if p.ID != gpuID {
			return abi.InvalidArgument
		}
		p.Bus = 0x3b
		return abi.OK
	}),
	abi.CmdGetIDInfo: with(func(*Driver, *client, *object, *abi.IDInfo) abi.Status { return abi.OK }),
	abi.CmdGetHandleInfo: with(func(_ *Driver, c *client, _ *object, p *abi.HandleInfo) abi.Status {
		o := c.objects[p.Object]
		switch {
		case o == nil:
			return abi.ObjectNotFound
		case p.Index == abi.InfoParent:
			p.Result = uint64(o.parent)
		case p.Index == abi.InfoClass:
			p.Result = uint64(o.class)
		default:
			return abi.InvalidArgument
		}
		return abi.OK
	}),
	abi.CmdGetTime: on(abi.ClassSubdevice, func(d *Driver, _ *client, _ *object, p *abi.Time) abi.Status {
		p.Nanoseconds = uint64(d.now)
		return abi.OK
	}),
	abi.CmdDisable: on(abi.ClassSubdevice, disable),
	abi.CmdSetTimeslice: on(abi.ClassGroup, func(_ *Driver, _ *client, o *object, p *abi.Timeslice) abi.Status {
		o.timeslice = p.Microseconds
		return abi.OK
	}),
	abi.CmdGetTimeslice: on(abi.ClassGroup, func(_ *Driver, _ *client, o *object, p *abi.Timeslice) abi.Status {
		p.Microseconds = o.timeslice
		return abi.OK
	}),
	abi.CmdPreempt: on(abi.ClassGroup, func(*Driver, *client, *object, *abi.Preempt) abi.Status { return abi.OK }),
	abi.CmdGetGroupInfo: on(abi.ClassGroup, func(_ *Driver, _ *client, o *object, p *abi.GroupInfo) abi.Status {
		p.ID = uint32(o.id)
		return abi.OK
	}),
	abi.CmdBindEvents: on(abi.ClassSubdevice, func(_ *Driver, c *client, _ *object, p *abi.BindEvents) abi.Status {
		o := c.objects[p.Buffer]
		if o == nil || o.buffer == nil || p.RecordSize != abi.EventRecordBytes {
			return abi.InvalidArgument
		}
		o.buffer.bound = true
		return abi.OK
	}),
	abi.CmdEnableEvents: on(abi.ClassEventBuffer, func(_ *Driver, _ *client, o *object, p *abi.EnableEvents) abi.Status {
		o.buffer.enabled = p.Enable && p.Policy == abi.KeepOldest
		return abi.OK
	}),
	abi.CmdUpdateGet: on(abi.ClassEventBuffer, func(_ *Driver, _ *client, o *object, p *abi.UpdateGet) abi.Status {
		if p.Record >= o.buffer.n {
			return abi.InvalidArgument
		}
		o.buffer.get = p.Record
		return abi.OK
	}),
	abi.CmdFlush: func(_ *Driver, _ *client, o *object, params []byte) abi.Status {
		if o.buffer == nil || params != nil {
			return abi.InvalidArgument
		}
		o.buffer.flush()
		return abi.OK
	},
}

// disable counts for each channel, and not below none. All names are looked at first.
func disable(_ *Driver, c *client, _ *object, p *abi.DisableChannels) abi.Status {
	if p.Count == 0 || p.Count > abi.MaxDisable || p.Event != 0 {
		return abi.InvalidParamStruct
	}
	for i := range p.Count {
		if o := c.objects[p.Channels[i]]; p.Clients[i] != c.handle || o == nil || !o.class.Channel() {
			return abi.InvalidChannel
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
	return abi.OK
}

// with decodes a command's parameters and writes them back.
func with[T any](do func(*Driver, *client, *object, *T) abi.Status) func(*Driver, *client, *object, []byte) abi.Status {
	return func(d *Driver, c *client, o *object, params []byte) abi.Status {
		var p T
		if len(params) != abi.Size(&p) {
			return abi.InvalidArgument
		}
		if abi.Decode(params, &p) != nil {
			return abi.InvalidArgument
		}
		st := do(d, c, o, &p)
		if _, err := abi.Encode(params, &p); err != nil {
			return abi.InvalidArgument
		}
		return st
	}
}

// on is with for a command that only one class knows.
func on[T any](class abi.Class, do func(*Driver, *client, *object, *T) abi.Status) func(*Driver, *client, *object, []byte) abi.Status {
	return func(d *Driver, c *client, o *object, params []byte) abi.Status {
		if o.class != class {
			return abi.NotSupported
		}
		return with(do)(d, c, o, params)
	}
}
