package vfiouser

import (
	"fmt"
	"runtime"
)

// IRQInfo requests the description of an interrupt.
func (c *Client) IRQInfo(index uint32) (IRQInfo, error) {
	info := IRQInfo{Argsz: SizeofIRQInfo, Index: index}
	err := c.ask(CmdDeviceGetIRQInfo, SizeofIRQInfo, &info)
	return info, err
}

// SetIRQs sends DEVICE_SET_IRQS and fills in Argsz. data goes with IRQSetDataBool, one byte a
// vector. fds goes with IRQSetDataEventfd, one a vector or none; they remain the caller's. The
// methods below use it.
func (c *Client) SetIRQs(s IRQSet, data []byte, fds []int) error {
	b := make([]byte, SizeofIRQSet+len(data))
	s.Argsz = uint32(len(b))
	s.MarshalBytes(b)
	copy(b[SizeofIRQSet:], data)
	if err := c.do(CmdDeviceSetIRQs, b, fds, 0, nil); err != nil {
		return fmt.Errorf("interrupt %d, vectors %d+%d: %w", s.Index, s.Start, s.Count, err)
	}
	return nil
}

// EnableIRQs makes the vectors of an interrupt, from start on, signal the given eventfds instead of
// earlier ones.
func (c *Client) EnableIRQs(index, start uint32, events ...*Eventfd) error {
	piece := int(min(max(c.caps.MaxMessageFDs, 1), MaxMessageFDs))
	for len(events) > 0 {
		n := min(len(events), piece)
		fds := make([]int, n)
		for i, e := range events[:n] {
			fds[i] = e.fd
		}
		s := IRQSet{Flags: IRQSetDataEventfd | IRQSetTrigger, Index: index, Start: start, Count: uint32(n)}
		err := c.SetIRQs(s, nil, fds)
		runtime.KeepAlive(events)
		if err != nil {
			return err
		}
		start += uint32(n)
		events = events[n:]
	}
	return nil
}

// DisableIRQ disables all vectors of an interrupt.
func (c *Client) DisableIRQ(index uint32) error {
	return c.SetIRQs(IRQSet{Flags: IRQSetDataNone | IRQSetTrigger, Index: index}, nil, nil)
}

// MaskIRQs masks vectors. Interrupts stay pending until UnmaskIRQs.
func (c *Client) MaskIRQs(index, start, count uint32) error {
	return c.SetIRQs(IRQSet{Flags: IRQSetDataNone | IRQSetMask, Index: index, Start: start, Count: count}, nil, nil)
}

// UnmaskIRQs unmasks vectors.
func (c *Client) UnmaskIRQs(index, start, count uint32) error {
	return c.SetIRQs(IRQSet{Flags: IRQSetDataNone | IRQSetUnmask, Index: index, Start: start, Count: count}, nil, nil)
}

// TriggerIRQs makes the server signal vectors as if the device had.
func (c *Client) TriggerIRQs(index, start, count uint32) error {
	return c.SetIRQs(IRQSet{Flags: IRQSetDataNone | IRQSetTrigger, Index: index, Start: start, Count: count}, nil, nil)
}
