package rm

import (
	"sync"

	"vgpud/gpu/nvidia/rm/abi"
)

// caller makes calls on one control node for one client. It is safe for concurrent use;
// its calls take turns, so that they need no memory of their own.
type caller struct {
	node   Node
	client abi.Handle

	mu     sync.Mutex
	arg    [64]byte
	params [1024]byte
}

// control tells object something: params, a pointer to one of abi's structs, or nil
// where the command has none, is encoded, and decoded again when the driver has answered,
// also where it refused.
func (c *caller) control(what string, object abi.Handle, cmd abi.Command, params any) error {
	return c.command(c.node.Ioctl, what, object, cmd, params)
}

// brief is control for commands that are made often and take some microseconds.
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

// alloc makes an object beneath parent and returns its handle.
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

// free ends an object.
func (c *caller) free(what string, parent, object abi.Handle) error {
	call := abi.NVOS00_PARAMETERS{Client: c.client, Parent: parent, Object: object}
	return c.plain(what, object, abi.NV_ESC_RM_FREE, &call, &call.Status)
}

// mapMemory maps a memory object of the client's for reading.
func (c *caller) mapMemory(k Kernel, memory abi.Handle, length int) (Mapping, error) {
	window, err := k.Open(ControlNode) // one for each mapping
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

// plain makes a call about object that has no parameters but its own; status is call's.
func (c *caller) plain(what string, object abi.Handle, nr uint8, call any, status *abi.Status) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ioctl(nr, call, nil, status); err != nil {
		return &Error{Call: what, Object: object, Err: err}
	}
	return nil
}

// ioctl makes one call on the control node. The caller holds mu; status is call's.
func (c *caller) ioctl(nr uint8, call any, params []byte, status *abi.Status) error {
	return ioctl(c.node.Ioctl, c.arg[:], nr, call, params, status)
}

// ioctl makes one call, encoded to buf. A call that has no status of its own has nil for
// it.
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

// parent and class ask what an object is.
func (c *caller) parent(object abi.Handle) (abi.Handle, error) {
	p := abi.NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS{Object: object, Index: abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_PARENT}
	err := c.control("ask for an object's parent", c.client, abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO, &p)
	return abi.Handle(p.Result), err
}

func (c *caller) class(object abi.Handle) (abi.Class, error) {
	p := abi.NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS{Object: object, Index: abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_CLASSID}
	err := c.control("ask for an object's class", c.client, abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO, &p)
	return abi.Class(p.Result), err
}

// known says whether the client is one of this node's.
func (c *caller) known() error {
	return c.control("look for a client", c.client, abi.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, &abi.NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS{})
}
