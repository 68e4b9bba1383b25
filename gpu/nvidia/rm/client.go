package rm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"vgpud/gpu/nvidia/rm/abi"
)

// GPU identifies a GPU.
type GPU struct {
	// PCI is the address, "0000:3b:00.0". If empty, it is the driver's first GPU.
	PCI string
	// Minor is the number in the name of its node, /dev/nvidia0.
	Minor int
}

// Client is this process's own client on one GPU, with access to the GPU as a whole. It is safe for
// concurrent use.
type Client struct {
	kernel            Kernel
	gpu               GPU
	call              caller
	node              Node // the GPU's
	device, subdevice abi.Handle
}

// Open makes a client. The caller must close it.
func Open(k Kernel, g GPU) (*Client, error) {
	c := &Client{kernel: k, gpu: g}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("reach the GPU's driver: %w", err), c.Close())
	}
	return c, nil
}

func (c *Client) open() (err error) {
	if c.call.node, err = c.kernel.Open(ControlNode); err != nil {
		return err
	}
	if c.node, err = c.openGPU(); err != nil {
		return err
	}
	if c.call.client, err = c.call.alloc("make a client", 0, abi.NV01_ROOT_CLIENT, nil); err != nil {
		return err
	}
	attach := abi.NV0000_CTRL_GPU_ATTACH_IDS_PARAMS{}
	attach.IDs[0] = abi.NV0000_CTRL_GPU_ATTACH_ALL_PROBED_IDS
	if err := c.call.control("attach GPUs", c.call.client, abi.NV0000_CTRL_CMD_GPU_ATTACH_IDS, &attach); err != nil {
		return err
	}
	number, err := c.deviceNumber()
	if err != nil {
		return err
	}
	if c.device, err = c.call.alloc("make a device", c.call.client, abi.NV01_DEVICE_0, &abi.NV0080_ALLOC_PARAMETERS{Device: number}); err != nil {
		return err
	}
	c.subdevice, err = c.call.alloc("make a subdevice", c.device, abi.NV20_SUBDEVICE_0, &abi.NV2080_ALLOC_PARAMETERS{})
	return err
}

// openGPU opens the GPU's node and ties it to the control node.
func (c *Client) openGPU() (Node, error) {
	n, err := c.kernel.Open(fmt.Sprintf(gpuNode, c.gpu.Minor))
	if err != nil {
		return nil, err
	}
	var buf [4]byte
	if err := ioctl(n.Ioctl, buf[:], abi.NV_ESC_REGISTER_FD, &abi.Nv_ioctl_register_fd_t{FD: int32(c.call.node.FD())}, nil, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("tie the GPU's node to the control node: %w", err), n.Close())
	}
	return n, nil
}

// deviceNumber returns the driver's number of the GPU at the PCI address.
func (c *Client) deviceNumber() (uint32, error) {
	if c.gpu.PCI == "" {
		return 0, nil
	}
	domain, bus, slot, err := parsePCI(c.gpu.PCI)
	if err != nil {
		return 0, err
	}
	var probed abi.NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS
	if err := c.call.control("list GPUs", c.call.client, abi.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, &probed); err != nil {
		return 0, err
	}
	for _, id := range probed.IDs {
		if id == abi.NV0000_CTRL_GPU_INVALID_ID {
			break
		}
		p := abi.NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS{ID: id}
		if err := c.call.control("get a GPU's PCI address", c.call.client, abi.NV0000_CTRL_CMD_GPU_GET_PCI_INFO, &p); err != nil {
			return 0, err
		}
		if p.Domain != domain || p.Bus != bus || p.Slot != slot {
			continue
		}
		info := abi.NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS{ID: id}
		err := c.call.control("get a GPU's number", c.call.client, abi.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, &info)
		return info.Device, err
	}
	return 0, fmt.Errorf("the driver has no GPU at PCI address %s", c.gpu.PCI)
}

// parsePCI parses "0000:3b:00.0", or nvidia-smi's form with eight digits of the domain.
func parsePCI(s string) (domain uint32, bus, slot uint16, err error) {
	bad := func() (uint32, uint16, uint16, error) {
		return 0, 0, 0, fmt.Errorf("PCI address %q: want one like 0000:3b:00.0", s)
	}
	rest, function, ok := strings.Cut(s, ".")
	parts := strings.Split(rest, ":")
	if !ok || len(parts) != 3 || function != "0" {
		return bad()
	}
	d, err1 := strconv.ParseUint(parts[0], 16, 32)
	b, err2 := strconv.ParseUint(parts[1], 16, 8)
	sl, err3 := strconv.ParseUint(parts[2], 16, 8)
	if err1 != nil || err2 != nil || err3 != nil {
		return bad()
	}
	return uint32(d), uint16(b), uint16(sl), nil
}

// Now reads the GPU's clock, PTIMER, which %globaltimer and the record of context switches use too.
// It takes about 7 µs.
func (c *Client) Now() (time.Duration, error) {
	var p abi.NV2080_CTRL_TIMER_GET_TIME_PARAMS
	err := c.call.brief("read the GPU's clock", c.subdevice, abi.NV2080_CTRL_CMD_TIMER_GET_TIME, &p)
	return time.Duration(p.Nanoseconds), err
}

// GPU returns the client's GPU.
func (c *Client) GPU() GPU { return c.gpu }

// Close ends the client and all objects that it made. Its Events must be closed before.
func (c *Client) Close() error {
	var errs []error
	for _, n := range []Node{c.node, c.call.node} {
		if n != nil {
			errs = append(errs, n.Close()) // the driver frees the node's objects
		}
	}
	return errors.Join(errs...)
}
