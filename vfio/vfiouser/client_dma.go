package vfiouser

import "syscall"

// answer handles a request of the server. It is the connection's onRequest, called by the reader.
func (c *Client) answer(m *message) error {
	defer m.closeFDs()
	n, err := c.dispatch(m)
	if !m.wantsReply() {
		return nil
	}
	h := Header{ID: m.ID, Cmd: m.Cmd, Flags: FlagTypeReply}
	if err != nil {
		n = 0
		h.Flags |= FlagError
		h.Errno = uint32(errnoOf(err))
	}
	c.out = grow(c.out, SizeofHeader+n)
	h.Size = uint32(len(c.out))
	h.MarshalBytes(c.out)
	return c.conn.write(c.out, nil)
}

// dispatch leaves the reply's body of n bytes in c.out, after space for the header.
func (c *Client) dispatch(m *message) (n int, err error) {
	if m.Cmd != CmdDMARead && m.Cmd != CmdDMAWrite || c.dma == nil {
		return 0, syscall.ENOSYS // as QEMU answers
	}
	if m.Flags&^uint32(FlagNoReply) != FlagTypeCommand || len(m.fds) > 0 || len(m.payload) < SizeofDMARegionAccess {
		return 0, syscall.EINVAL
	}
	var a DMARegionAccess
	a.UnmarshalBytes(m.payload)
	data := m.payload[SizeofDMARegionAccess:]
	if a.Count > MaxDataBytes || a.Addr+a.Count < a.Addr {
		return 0, syscall.EINVAL
	}
	if m.Cmd == CmdDMAWrite {
		if uint64(len(data)) != a.Count {
			return 0, syscall.EINVAL
		}
		c.out = grow(c.out, SizeofHeader+SizeofDMARegionAccess)
		a.MarshalBytes(c.out[SizeofHeader:])
		return SizeofDMARegionAccess, c.dma.DMAWrite(a.Addr, data)
	}
	if len(data) != 0 {
		return 0, syscall.EINVAL
	}
	n = SizeofDMARegionAccess + int(a.Count)
	c.out = grow(c.out, SizeofHeader+n)
	a.MarshalBytes(c.out[SizeofHeader:])
	return n, c.dma.DMARead(a.Addr, c.out[SizeofHeader+SizeofDMARegionAccess:])
}
