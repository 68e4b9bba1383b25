package cuda

// Batches of copies. Their order among each other is free; here it is that of the list.

// MemcpyAttributes is CUmemcpyAttributes.
type MemcpyAttributes struct {
	Order    uint32
	Src, Dst MemLocation // hints: every place is known by its address
	Flags    uint32
}

// When a copy may read its source: in the stream's order, before the call returns, or any time.
const (
	orderStream = 1
	orderCall   = 2
	orderAny    = 3
)

// validOrder reports whether a copy's order and flags are known. Its flag, to prefer overlap with
// kernels, changes nothing.
func validOrder(order, flags uint32) bool {
	return order >= orderStream && order <= orderAny && flags&^1 == 0
}

// inOrder makes a copy whose source is read by when its order says. copy makes it, without async so
// that it has read the program's memory when it returns.
func (c *Call) inOrder(s *stream, order uint32, fromDevice bool, copy func(async bool) Result) Result {
	if order != orderCall {
		return copy(true)
	}
	return c.then(func() Result { return copy(false) }, func() Result {
		if !fromDevice {
			return Success
		}
		return c.drained(s, func() Result { return Success })
	})
}

// each calls f for the numbers from first to before end, until one fails.
func (c *Call) each(first, end uint64, f func(uint64) Result) Result {
	for i := first; i < end; i++ {
		switch r := f(i); r {
		case Success:
		case again:
			g := c.resume
			return c.later(func() Result {
				return c.then(g, func() Result { return c.each(i+1, end, f) })
			})
		default:
			return r
		}
	}
	return Success
}

// batch is each for a batch's operations. If the program wants it, failed is the number of the one
// that failed, or noOperation.
func (c *Call) batch(n uint64, failed *uint64, f func(uint64) Result) Result {
	if failed == nil {
		return c.each(0, n, f)
	}
	numbered := func(i uint64) Result {
		put(failed, i) // stays if it fails, now or when the call goes on
		return f(i)
	}
	return c.then(func() Result { return c.each(0, n, numbered) }, func() Result {
		put(failed, noOperation)
		return Success
	})
}

// noOperation is SIZE_MAX, for errors that are of no single operation.
const noOperation = ^uint64(0)

// mostBatch bounds the operations of a batch.
const mostBatch = 1 << 24

// batchStream returns the stream of a batch, which must not be the legacy one.
func (c *Call) batchStream(h Handle) (*stream, Result) {
	s, r := c.stream(h)
	if r == Success && s.legacy {
		return nil, ErrorInvalidValue
	}
	return s, r
}

// MemcpyBatchAsync is cuMemcpyBatchAsync.
func (c *Call) MemcpyBatchAsync(dsts, srcs, sizes *uint64, n uint64, attrs *MemcpyAttributes, first *uint64, kinds uint64, failed *uint64, h Handle) Result {
	if failed != nil {
		put(failed, noOperation)
	}
	s, r := c.batchStream(h)
	if r != Success {
		return r
	}
	if dsts == nil || srcs == nil || sizes == nil || attrs == nil || first == nil || n == 0 || n > mostBatch || kinds == 0 || kinds > n {
		return ErrorInvalidValue
	}
	to, from, size, a, starts := array(dsts, n), array(srcs, n), array(sizes, n), array(attrs, kinds), array(first, kinds)
	for k := range a {
		if !validOrder(a[k].Order, a[k].Flags) || starts[k] >= n || k == 0 && starts[k] != 0 || k > 0 && starts[k] <= starts[k-1] {
			return ErrorInvalidValue
		}
	}
	kind := 0
	return c.batch(n, failed, func(i uint64) Result {
		for kind+1 < len(starts) && starts[kind+1] <= i {
			kind++
		}
		return c.copyInOrder(s, to[i], from[i], size[i], a[kind].Order)
	})
}

// copyInOrder copies between any two addresses, in an order.
func (c *Call) copyInOrder(s *stream, dst, src, n uint64, order uint32) Result {
	if n == 0 {
		return ErrorInvalidValue
	}
	return c.inOrder(s, order, s.x.isDevice(src), func(async bool) Result { return c.copyAny(s, dst, src, n, async) })
}

// MemcpyBatchAsyncV2 is cuMemcpyBatchAsync_v2.
func (c *Call) MemcpyBatchAsyncV2(dsts, srcs, sizes *uint64, n uint64, attrs *MemcpyAttributes, first *uint64, kinds uint64, h Handle) Result {
	return c.MemcpyBatchAsync(dsts, srcs, sizes, n, attrs, first, kinds, nil, h)
}

// MemcpyWithAttributesAsync is cuMemcpyWithAttributesAsync.
func (c *Call) MemcpyWithAttributesAsync(dst, src, n uint64, a *MemcpyAttributes, h Handle) Result {
	s, r := c.batchStream(h)
	if r != Success {
		return r
	}
	if a == nil || !validOrder(a.Order, a.Flags) {
		return ErrorInvalidValue
	}
	return c.copyInOrder(s, dst, src, n, a.Order)
}

// Operand3D is CUmemcpy3DOperand, for pointers.
type Operand3D struct {
	Type            uint32
	_               uint32
	At, Pitch, Rows uint64
	_               MemLocation
}

// BatchOp3D is CUDA_MEMCPY3D_BATCH_OP.
type BatchOp3D struct {
	Src, Dst             Operand3D
	Width, Height, Depth uint64
	Order, Flags         uint32
}

// operandPointer is CU_MEMCPY_OPERAND_TYPE_POINTER.
const operandPointer = 1

// copyOp copies a box of a batch.
func (c *Call) copyOp(s *stream, o *BatchOp3D) Result {
	switch {
	case o.Src.Type != operandPointer && o.Src.Type != operandPointer+1, o.Dst.Type != operandPointer && o.Dst.Type != operandPointer+1,
		!validOrder(o.Order, o.Flags):
		return ErrorInvalidValue
	case o.Src.Type != operandPointer, o.Dst.Type != operandPointer: // an array
		return ErrorNotSupported
	}
	p := &Memcpy3D{
		SrcMemoryType: placeUnified, SrcDevice: o.Src.At, SrcPitch: o.Src.Pitch, SrcHeight: o.Src.Rows,
		DstMemoryType: placeUnified, DstDevice: o.Dst.At, DstPitch: o.Dst.Pitch, DstHeight: o.Dst.Rows,
		Width: o.Width, Height: o.Height, Depth: o.Depth,
	}
	return c.inOrder(s, o.Order, s.x.isDevice(o.Src.At), func(async bool) Result { return c.copyBox(s, p, async) })
}

// Memcpy3DBatchAsync is cuMemcpy3DBatchAsync.
func (c *Call) Memcpy3DBatchAsync(n uint64, ops *BatchOp3D, failed *uint64, flags uint64, h Handle) Result {
	if failed != nil {
		put(failed, noOperation)
	}
	s, r := c.batchStream(h)
	if r != Success {
		return r
	}
	if ops == nil || n == 0 || n > mostBatch || flags != 0 {
		return ErrorInvalidValue
	}
	list := array(ops, n)
	return c.batch(n, failed, func(i uint64) Result { return c.copyOp(s, &list[i]) })
}

// Memcpy3DBatchAsyncV2 is cuMemcpy3DBatchAsync_v2.
func (c *Call) Memcpy3DBatchAsyncV2(n uint64, ops *BatchOp3D, flags uint64, h Handle) Result {
	return c.Memcpy3DBatchAsync(n, ops, nil, flags, h)
}

// Memcpy3DWithAttributesAsync is cuMemcpy3DWithAttributesAsync.
func (c *Call) Memcpy3DWithAttributesAsync(op *BatchOp3D, flags uint64, h Handle) Result {
	return c.Memcpy3DBatchAsync(1, op, nil, flags, h)
}
