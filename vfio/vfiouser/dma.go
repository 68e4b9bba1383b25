package vfiouser

import "fmt"

// DMARead fills p from the client's memory at addr, by messages. It may be called while a request
// of the client is being handled.
func (s *Session) DMARead(addr uint64, p []byte) error {
	return s.eachPiece(addr, p, s.conn.dmaRead)
}

// DMAWrite writes p to the client's memory at addr, by messages, under the conditions of DMARead.
func (s *Session) DMAWrite(addr uint64, p []byte) error {
	return s.eachPiece(addr, p, s.conn.dmaWrite)
}

// eachPiece splits a transfer into pieces of the size that the client accepts.
func (s *Session) eachPiece(addr uint64, p []byte, f func(addr uint64, p []byte) error) error {
	piece := int(min(max(s.caps.MaxDataBytes, 1), MaxDataBytes))
	for len(p) > 0 {
		n := min(len(p), piece)
		if err := f(addr, p[:n]); err != nil {
			return err
		}
		addr += uint64(n)
		p = p[n:]
	}
	return nil
}

func (c *conn) dmaRead(addr uint64, p []byte) error {
	k, req, err := c.begin(CmdDMARead, SizeofDMARegionAccess, SizeofDMARegionAccess+len(p))
	if err != nil {
		return err
	}
	defer c.end(k)
	(&DMARegionAccess{Addr: addr, Count: uint64(len(p))}).MarshalBytes(req)
	if err := c.roundTrip(k, nil); err != nil {
		return fmt.Errorf("read %d bytes at %#x: %w", len(p), addr, err)
	}
	if len(k.reply) != SizeofDMARegionAccess+len(p) {
		err := protocolErrorf("DMA_READ of %d bytes answered with %d", len(p), len(k.reply))
		c.fail(err)
		return err
	}
	copy(p, k.reply[SizeofDMARegionAccess:])
	return nil
}

func (c *conn) dmaWrite(addr uint64, p []byte) error {
	k, req, err := c.begin(CmdDMAWrite, SizeofDMARegionAccess+len(p), SizeofDMARegionAccess+len(p))
	if err != nil {
		return err
	}
	defer c.end(k)
	(&DMARegionAccess{Addr: addr, Count: uint64(len(p))}).MarshalBytes(req)
	copy(req[SizeofDMARegionAccess:], p)
	if err := c.roundTrip(k, nil); err != nil {
		return fmt.Errorf("write %d bytes at %#x: %w", len(p), addr, err)
	}
	return nil
}

// roundTrip sends a call's request and waits for its reply.
func (c *conn) roundTrip(k *call, fds []int) error {
	if err := c.send(k, 0, fds); err != nil {
		k.awaited.Store(0)
		c.inFlight.Add(-1)
		return err
	}
	return c.wait(k)
}
