package rm

import (
	"sync"

	"vgpud/gpu/nvidia/rm/abi"
)

// caller makes calls on one control node for one client. It is safe for concurrent use. Its calls
// are serialized, so that they can share buffers.
type caller struct {
	node   Node
	client abi.Handle

	mu     sync.Mutex
	arg    [64]byte
	params [1024]byte
}

// control sends a command to an object. params is a pointer to one of abi's structs, or nil if the
// command has none. It is encoded for the call, and decoded again when the driver has answered,
// even with an error.
func (c *caller) control(what string, object abi.Handle, cmd abi.Command, params any) error {
	return c.command(c.node.Ioctl, what, object, cmd, params)
}

// brief is control for frequent commands that take some microseconds.
func (c *caller) brief(what string, object abi.Handle, cmd abi.Command, params any) error {
	return c.command(c.node.IoctlBriefly, what, object, cmd, params)
}

// ioctlFunc is one of a Node's ways to make a call.
type ioctlFunc func(nr uint8, arg, params []byte) error

func (c *caller) command(by ioctlFunc, what string, object abi.Handle, cmd abi.Command, params any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var buf []byte
	if params != nil {
		n, err := abi.Encode(c.params[:], params)
		if err != nil {
			return err
		}
		buf = c.params[:n]
	}
	call := abi.NVOS54_PARAMETERS{Client: c.client, Object: object, Command: cmd, ParamsSize: uint32(len(buf))}
	err := ioctl(by, c.arg[:], abi.NV_ESC_RM_CONTROL, &call, buf, &call.Status)
	if params != nil {
		if derr := abi.Decode(buf, params); derr != nil && err == nil {
			err = derr
		}
	}
	if err != nil {
		return &Error{Call: what, Object: object, Err: err}
	}
	return nil
}

// alloc makes an object below parent and returns its handle.
func (c *caller) alloc(what string, parent abi.Handle, class abi.Class, params any) (abi.Handle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var buf []byte
	if params != nil {
		n, err := abi.Encode(c.params[:], params)
		if err != nil {
			return 0, err
		}
		buf = c.params[:n]
	}
	call := abi.NVOS64_PARAMETERS{Client: c.client, Parent: parent, Class: class, ParamsSize: uint32(len(buf))}
	if err := c.ioctl(abi.NV_ESC_RM_ALLOC, &call, buf, &call.Status); err != nil {
		return 0, &Error{Call: what, Object: parent, Err: err}
	}
	return call.Object, nil
}

// free frees an object.
func (c *caller) free(what string, parent, object abi.Handle) error {
	call := abi.NVOS00_PARAMETERS{Client: c.client, Parent: parent, Object: object}
	return c.plain(what, object, abi.NV_ESC_RM_FREE, &call, &call.Status)
}

// mapMemory maps a memory object of the client for reading.
func (c *caller) mapMemory(k Kernel, memory abi.Handle, length int) (Mapping, error) {
	window, err := k.Open(ControlNode) // each mapping needs its own
	if err != nil {
		return nil, err
	}
	defer window.Close() // the mapping stays
	call := abi.Nv_ioctl_nvos33_parameters_with_fd{Client: c.client, Device: c.client, Memory: memory, Length: uint64(length),
		Flags: abi.NVOS33_FLAGS_ACCESS_READ_ONLY, FD: int32(window.FD())}
	if err := c.plain("map an event buffer", memory, abi.NV_ESC_RM_MAP_MEMORY, &call, &call.Status); err != nil {
		return nil, err
	}
	return window.Map(length, false)
}

// plain makes a call about object that has no parameters besides its own. status points into call.
func (c *caller) plain(what string, object abi.Handle, nr uint8, call any, status *abi.Status) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ioctl(nr, call, nil, status); err != nil {
		return &Error{Call: what, Object: object, Err: err}
	}
	return nil
}

// ioctl makes one call on the control node. The caller holds mu. status points into call.
func (c *caller) ioctl(nr uint8, call any, params []byte, status *abi.Status) error {
	return ioctl(c.node.Ioctl, c.arg[:], nr, call, params, status)
}

// ioctl makes one call, encoded to buf. status is nil for a call without a status.
func ioctl(by ioctlFunc, buf []byte, nr uint8, call any, params []byte, status *abi.Status) error {
	size, err := abi.Encode(buf, call)
	if err != nil {
		return err
	}
	if err := by(nr, buf[:size], params); err != nil {
		return err
	}
	if err := abi.Decode(buf[:size], call); err != nil {
		return err
	}
	if status != nil && *status != abi.NV_OK {
		return *status
	}
	return nil
}

// parent returns the parent of an object.
func (c *caller) parent(object abi.Handle) (abi.Handle, error) {
	p := abi.NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS{Object: object, Index: abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_PARENT}
	err := c.control("ask for an object's parent", c.client, abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO, &p)
	return abi.Handle(p.Result), err
}

// class returns the class of an object.
func (c *caller) class(object abi.Handle) (abi.Class, error) {
	p := abi.NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS{Object: object, Index: abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_CLASSID}
	err := c.control("ask for an object's class", c.client, abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO, &p)
	return abi.Class(p.Result), err
}

// known returns an error unless the client belongs to this node.
func (c *caller) known() error {
	return c.control("look for a client", c.client, abi.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, &abi.NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS{})
}
