package cuda

import "context"

// occupancy returns how many blocks of a function an SM holds at once.
func (f *function) occupancy(threads uint32, shared uint64) (int, Result) {
	n, err := f.f.Occupancy(context.Background(), int(threads), shared)
	if err != nil {
		return 0, f.m.x.fail(err)
	}
	return n, Success
}

// OccupancyMaxActiveBlocksPerMultiprocessor is cuOccupancyMaxActiveBlocksPerMultiprocessor.
func (c *Call) OccupancyMaxActiveBlocksPerMultiprocessor(out *int32, h Handle, threads int32, shared uint64) Result {
	return c.OccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, h, threads, shared, 0)
}

// OccupancyMaxActiveBlocksPerMultiprocessorWithFlags is
// cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags.
func (c *Call) OccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out *int32, h Handle, threads int32, shared uint64, flags uint32) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if out == nil || threads <= 0 || flags > 1 {
		return ErrorInvalidValue
	}
	if uint32(threads) > f.maxThreads {
		put(out, 0)
		return Success
	}
	n, r := f.occupancy(uint32(threads), shared)
	if r == Success {
		put(out, int32(n))
	}
	return r
}

// OccupancyMaxPotentialBlockSize is cuOccupancyMaxPotentialBlockSize.
func (c *Call) OccupancyMaxPotentialBlockSize(grid, block *int32, h Handle, sharedOf Pointer, shared uint64, limit int32) Result {
	return c.OccupancyMaxPotentialBlockSizeWithFlags(grid, block, h, sharedOf, shared, limit, 0)
}

// OccupancyMaxPotentialBlockSizeWithFlags is cuOccupancyMaxPotentialBlockSizeWithFlags: of the block
// sizes with the most threads on an SM the largest.
func (c *Call) OccupancyMaxPotentialBlockSizeWithFlags(grid, block *int32, h Handle, sharedOf Pointer, shared uint64, limit int32, flags uint32) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if grid == nil || block == nil || limit < 0 || flags > 1 {
		return ErrorInvalidValue
	}
	var of [3]int32
	for i, a := range []uint32{DeviceAttributeWarpSize, DeviceAttributeMultiprocessorCount, DeviceAttributeMaxThreadsPerMultiprocessor} {
		if of[i], r = c.d.attribute(a); r != Success {
			return r
		}
	}
	warp, sms, full := of[0], of[1], of[2]
	most := int32(f.maxThreads)
	if limit > 0 {
		most = min(most, limit)
	}
	best, bestBlocks := int32(0), int32(0)
	for size := (most + warp - 1) / warp * warp; size > 0 && best*bestBlocks < full; size -= warp {
		threads := min(size, most)
		if sharedOf != nil {
			shared = c.d.o.Hooks.SharedBytes(sharedOf, int(threads))
		}
		n, r := f.occupancy(uint32(threads), shared)
		if r != Success {
			return r
		}
		if threads*int32(n) > best*bestBlocks {
			best, bestBlocks = threads, int32(n)
		}
	}
	if best == 0 {
		return ErrorInvalidValue
	}
	put(grid, bestBlocks*sms)
	put(block, best)
	return Success
}

// OccupancyAvailableDynamicSMemPerBlock is cuOccupancyAvailableDynamicSMemPerBlock.
func (c *Call) OccupancyAvailableDynamicSMemPerBlock(out *uint64, h Handle, blocks, threads int32) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	if out == nil || blocks <= 0 || threads <= 0 || uint32(threads) > f.maxThreads {
		return ErrorInvalidValue
	}
	most, r := c.d.attribute(DeviceAttributeMaxSharedMemoryPerBlockOptin)
	if r != Success {
		return r
	}
	low, high := uint64(0), uint64(0)
	if s := uint64(f.staticShared); uint64(most) > s {
		high = uint64(most) - s
	}
	if n, r := f.occupancy(uint32(threads), 0); r != Success {
		return r
	} else if n < int(blocks) {
		return ErrorInvalidValue
	}
	for low < high { // the largest with which that many blocks fit
		middle := (low + high + 1) / 2
		n, r := f.occupancy(uint32(threads), middle)
		if r != Success {
			return r
		}
		if n >= int(blocks) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	put(out, low)
	return Success
}
