package vfiouser

import "fmt"

// RegionRead fills p from a region at offset.
func (c *Client) RegionRead(region uint32, offset uint64, p []byte) error {
	for {
		n := min(len(p), c.pieceBytes())
		if err := c.read(region, offset, p[:n]); err != nil {
			return err
		}
		if p = p[n:]; len(p) == 0 {
			return nil
		}
		offset += uint64(n)
	}
}

// RegionWrite writes p to a region at offset and waits until the device has accepted it.
func (c *Client) RegionWrite(region uint32, offset uint64, p []byte) error {
	return c.writeAll(region, offset, p, 0)
}

// RegionWritePosted is RegionWrite without waiting. It does not report an error of the device. The
// device handles later calls after the write.
func (c *Client) RegionWritePosted(region uint32, offset uint64, p []byte) error {
	return c.writeAll(region, offset, p, FlagNoReply)
}

// ReadUint32 reads a 32-bit register.
func (c *Client) ReadUint32(region uint32, offset uint64) (uint32, error) {
	var b [4]byte
	err := c.read(region, offset, b[:])
	return le.Uint32(b[:]), err
}

// ReadUint64 reads a 64-bit register.
func (c *Client) ReadUint64(region uint32, offset uint64) (uint64, error) {
	var b [8]byte
	err := c.read(region, offset, b[:])
	return le.Uint64(b[:]), err
}

// WriteUint32 writes a 32-bit register.
func (c *Client) WriteUint32(region uint32, offset uint64, v uint32) error {
	var b [4]byte
	le.PutUint32(b[:], v)
	return c.write(region, offset, b[:], 0)
}

// WriteUint64 writes a 64-bit register.
func (c *Client) WriteUint64(region uint32, offset uint64, v uint64) error {
	var b [8]byte
	le.PutUint64(b[:], v)
	return c.write(region, offset, b[:], 0)
}

func (c *Client) pieceBytes() int {
	return int(min(max(c.caps.MaxDataBytes, 1), MaxDataBytes))
}

func (c *Client) read(region uint32, offset uint64, p []byte) error {
	n := SizeofRegionAccess + len(p)
	k, req, err := c.conn.begin(CmdRegionRead, SizeofRegionAccess, n)
	if err != nil {
		return err
	}
	defer c.conn.end(k)
	a := RegionAccess{Offset: offset, Region: region, Count: uint32(len(p))}
	a.MarshalBytes(req)
	if err := c.conn.roundTrip(k, nil); err != nil {
		return fmt.Errorf("read %d bytes at %#x of region %d: %w", len(p), offset, region, err)
	}
	if err := wantReply(CmdRegionRead, k.reply, n); err != nil {
		return c.broken(err)
	}
	copy(p, k.reply[SizeofRegionAccess:])
	return nil
}

func (c *Client) writeAll(region uint32, offset uint64, p []byte, flags uint32) error {
	for {
		n := min(len(p), c.pieceBytes())
		if err := c.write(region, offset, p[:n], flags); err != nil {
			return err
		}
		if p = p[n:]; len(p) == 0 {
			return nil
		}
		offset += uint64(n)
	}
}

func (c *Client) write(region uint32, offset uint64, p []byte, flags uint32) error {
	k, req, err := c.conn.begin(CmdRegionWrite, SizeofRegionAccess+len(p), SizeofRegionAccess)
	if err != nil {
		return err
	}
	defer c.conn.end(k)
	a := RegionAccess{Offset: offset, Region: region, Count: uint32(len(p))}
	a.MarshalBytes(req)
	copy(req[SizeofRegionAccess:], p)
	if flags&FlagNoReply != 0 {
		return c.conn.send(k, flags, nil)
	}
	if err := c.conn.roundTrip(k, nil); err != nil {
		return fmt.Errorf("write %d bytes at %#x of region %d: %w", len(p), offset, region, err)
	}
	return nil
}

// maxWrites is the maximum number of writes in one REGION_WRITE_MULTI that this client sends; QEMU
// packs up to 200.
const maxWrites = 256

// WriteMulti performs many small writes in order, in few messages. If posted is true it does not
// wait, like RegionWritePosted. A server without REGION_WRITE_MULTI gets them one by one. If it
// returns an error, the writes before the failed one have been performed.
func (c *Client) WriteMulti(writes []WriteMultiEntry, posted bool) error {
	flags := uint32(0)
	if posted {
		flags = FlagNoReply
	}
	for i := range writes {
		if writes[i].Count > 8 {
			return fmt.Errorf("write %d of many has %d bytes, at most 8 are possible", i, writes[i].Count)
		}
	}
	if !c.caps.WriteMultiple {
		for i := range writes {
			w := &writes[i]
			if err := c.write(w.Region, w.Offset, w.Data[:w.Count], flags); err != nil {
				return err
			}
		}
		return nil
	}
	for len(writes) > 0 {
		n := min(len(writes), maxWrites)
		if err := c.writeMulti(writes[:n], flags); err != nil {
			return err
		}
		writes = writes[n:]
	}
	return nil
}

func (c *Client) writeMulti(writes []WriteMultiEntry, flags uint32) error {
	k, req, err := c.conn.begin(CmdRegionWriteMulti, SizeofWriteMulti+len(writes)*SizeofWriteMultiEntry, SizeofWriteMulti)
	if err != nil {
		return err
	}
	defer c.conn.end(k)
	le.PutUint64(req, uint64(len(writes)))
	for i := range writes {
		writes[i].MarshalBytes(req[SizeofWriteMulti+i*SizeofWriteMultiEntry:])
	}
	if flags&FlagNoReply != 0 {
		return c.conn.send(k, flags, nil)
	}
	if err := c.conn.roundTrip(k, nil); err != nil {
		return fmt.Errorf("%d writes: %w", len(writes), err)
	}
	return nil
}
