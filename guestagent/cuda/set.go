package cuda

import (
	"context"

	"vgpud/guestagent/driver"
)

// set fills rows of count elements of width bytes. Without async it returns when the program can read them
// in memory that it shares with kernels.
func (c *Call) set(s *stream, dst, pitch uint64, value uint32, width, count, rows uint64, async bool) Result {
	if count == 0 || rows == 0 {
		return Success
	}
	if count > 1<<46/width || dst%width != 0 || rows > 1 && (pitch%width != 0 || pitch < count*width || rows > 1<<62/pitch) {
		return ErrorInvalidValue
	}
	if r := s.x.deviceRange(dst, (rows-1)*pitch+count*width); r != Success {
		return r
	}
	if c.captures(s) {
		p := MemsetNodeParams{dst, pitch, value, uint32(width), count, rows}
		if r, done := c.capture(s, func() operation { return &setNode{p} }); done {
			return r
		}
	}
	if s.x.pending() {
		return c.recorded(s.x, func(t *task) error { return t.record.Set(dst, pitch, value, width, count, rows) },
			func() Result { return c.set(s, dst, pitch, value, width, count, rows, async) })
	}
	return c.write(s, dst, async, func(ctx context.Context, ch *driver.Channel) (*driver.Pending, error) {
		return ch.Set2D(ctx, driver.Ptr(dst), pitch, value, int(width), count, rows)
	})
}

func (c *Call) setDefault(dst, pitch uint64, value uint32, width, count, rows uint64) Result {
	s, r := c.defaultStream()
	if r != Success {
		return r
	}
	return c.set(s, dst, pitch, value, width, count, rows, false)
}

func (c *Call) setIn(h Handle, dst, pitch uint64, value uint32, width, count, rows uint64) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	return c.set(s, dst, pitch, value, width, count, rows, true)
}

// MemsetD8V2 is cuMemsetD8_v2.
func (c *Call) MemsetD8V2(dst uint64, v byte, n uint64) Result {
	return c.setDefault(dst, 0, uint32(v), 1, n, 1)
}

// MemsetD16V2 is cuMemsetD16_v2.
func (c *Call) MemsetD16V2(dst uint64, v uint16, n uint64) Result {
	return c.setDefault(dst, 0, uint32(v), 2, n, 1)
}

// MemsetD32V2 is cuMemsetD32_v2.
func (c *Call) MemsetD32V2(dst uint64, v uint32, n uint64) Result {
	return c.setDefault(dst, 0, v, 4, n, 1)
}

// MemsetD2D8V2 is cuMemsetD2D8_v2.
func (c *Call) MemsetD2D8V2(dst, pitch uint64, v byte, width, height uint64) Result {
	return c.setDefault(dst, pitch, uint32(v), 1, width, height)
}

// MemsetD2D16V2 is cuMemsetD2D16_v2.
func (c *Call) MemsetD2D16V2(dst, pitch uint64, v uint16, width, height uint64) Result {
	return c.setDefault(dst, pitch, uint32(v), 2, width, height)
}

// MemsetD2D32V2 is cuMemsetD2D32_v2.
func (c *Call) MemsetD2D32V2(dst, pitch uint64, v uint32, width, height uint64) Result {
	return c.setDefault(dst, pitch, v, 4, width, height)
}

// MemsetD8Async is cuMemsetD8Async.
func (c *Call) MemsetD8Async(dst uint64, v byte, n uint64, h Handle) Result {
	return c.setIn(h, dst, 0, uint32(v), 1, n, 1)
}

// MemsetD16Async is cuMemsetD16Async.
func (c *Call) MemsetD16Async(dst uint64, v uint16, n uint64, h Handle) Result {
	return c.setIn(h, dst, 0, uint32(v), 2, n, 1)
}

// MemsetD32Async is cuMemsetD32Async.
func (c *Call) MemsetD32Async(dst uint64, v uint32, n uint64, h Handle) Result {
	return c.setIn(h, dst, 0, v, 4, n, 1)
}

// MemsetD2D8Async is cuMemsetD2D8Async.
func (c *Call) MemsetD2D8Async(dst, pitch uint64, v byte, width, height uint64, h Handle) Result {
	return c.setIn(h, dst, pitch, uint32(v), 1, width, height)
}

// MemsetD2D16Async is cuMemsetD2D16Async.
func (c *Call) MemsetD2D16Async(dst, pitch uint64, v uint16, width, height uint64, h Handle) Result {
	return c.setIn(h, dst, pitch, uint32(v), 2, width, height)
}

// MemsetD2D32Async is cuMemsetD2D32Async.
func (c *Call) MemsetD2D32Async(dst, pitch uint64, v uint32, width, height uint64, h Handle) Result {
	return c.setIn(h, dst, pitch, v, 4, width, height)
}
