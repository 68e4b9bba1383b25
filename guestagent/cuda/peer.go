package cuda

import (
	"context"

	"vgpud/guestagent/driver"
)

// MemcpyPeer is cuMemcpyPeer.
func (c *Call) MemcpyPeer(dst uint64, to Handle, src uint64, from Handle, n uint64) Result {
	s, r := c.defaultStream()
	if r != Success {
		return r
	}
	return c.copyPeer(s, dst, to, src, from, n)
}

// MemcpyPeerAsync is cuMemcpyPeerAsync. Between two contexts it returns when it is complete.
func (c *Call) MemcpyPeerAsync(dst uint64, to Handle, src uint64, from Handle, n uint64, h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	return c.copyPeer(s, dst, to, src, from, n)
}

// copyPeer copies between the memories of two contexts, which are of separate processes on the host,
// through this one.
func (c *Call) copyPeer(s *stream, dst uint64, to Handle, src uint64, from Handle, n uint64) Result {
	a, r := c.contextOf(from)
	if r != Success {
		return r
	}
	b, r := c.contextOf(to)
	if r != Success {
		return r
	}
	if n == 0 {
		return Success
	}
	if r := a.deviceRange(src, n); r != Success {
		return r
	}
	if r := b.deviceRange(dst, n); r != Success {
		return r
	}
	if a == b && a == s.x {
		return c.copyAcross(s, dst, src, n, true)
	}
	goals := append(a.everything(), b.everything()...)
	return c.drained(s, func() Result {
		return c.waitFor(goals, func() Result { return bounce(b, dst, a, src, n) })
	})
}

// bouncePart is how much is copied between contexts at once.
const bouncePart = 4 << 20

func bounce(to *Context, dst uint64, from *Context, src, n uint64) Result {
	ctx := context.Background()
	part := make([]byte, min(n, bouncePart))
	for n > 0 {
		part = part[:min(n, bouncePart)]
		if err := from.gpu.CopyOut(ctx, part, driver.Ptr(src)); err != nil {
			return from.fail(err)
		}
		if err := to.gpu.CopyIn(ctx, driver.Ptr(dst), part); err != nil {
			return to.fail(err)
		}
		dst, src, n = dst+uint64(len(part)), src+uint64(len(part)), n-uint64(len(part))
	}
	return Success
}

// Memcpy3DPeer is cuMemcpy3DPeer.
func (c *Call) Memcpy3DPeer(p *Memcpy3DPeer) Result {
	s, r := c.defaultStream()
	if r != Success {
		return r
	}
	return c.copyPeerBox(s, p, false)
}

// Memcpy3DPeerAsync is cuMemcpy3DPeerAsync.
func (c *Call) Memcpy3DPeerAsync(p *Memcpy3DPeer, h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	return c.copyPeerBox(s, p, true)
}

// copyPeerBox copies a box within one context.
func (c *Call) copyPeerBox(s *stream, p *Memcpy3DPeer, async bool) Result {
	if p == nil {
		return ErrorInvalidValue
	}
	a, r := c.contextOf(p.SrcContext)
	if r != Success {
		return r
	}
	b, r := c.contextOf(p.DstContext)
	if r != Success {
		return r
	}
	if a != b || a != s.x {
		return ErrorNotSupported
	}
	return c.copyBox(s, p, async)
}
