package cuda

// in3D returns a copy of two dimensions as one of three.
func (p *Memcpy2D) in3D() *Memcpy3D {
	if p == nil {
		return nil
	}
	return &Memcpy3D{
		SrcX: p.SrcX, SrcY: p.SrcY, SrcMemoryType: p.SrcMemoryType, SrcHost: p.SrcHost, SrcDevice: p.SrcDevice, SrcArray: p.SrcArray, SrcPitch: p.SrcPitch,
		DstX: p.DstX, DstY: p.DstY, DstMemoryType: p.DstMemoryType, DstHost: p.DstHost, DstDevice: p.DstDevice, DstArray: p.DstArray, DstPitch: p.DstPitch,
		Width: p.Width, Height: p.Height, Depth: 1,
	}
}

// Memcpy2DV2 is cuMemcpy2D_v2.
func (c *Call) Memcpy2DV2(p *Memcpy2D) Result { return c.Memcpy3DV2(p.in3D()) }

// Memcpy2DUnalignedV2 is cuMemcpy2DUnaligned_v2.
func (c *Call) Memcpy2DUnalignedV2(p *Memcpy2D) Result { return c.Memcpy3DV2(p.in3D()) }

// Memcpy2DAsyncV2 is cuMemcpy2DAsync_v2.
func (c *Call) Memcpy2DAsyncV2(p *Memcpy2D, h Handle) Result { return c.Memcpy3DAsyncV2(p.in3D(), h) }

// Memcpy3DV2 is cuMemcpy3D_v2.
func (c *Call) Memcpy3DV2(p *Memcpy3D) Result {
	s, r := c.defaultStream()
	if r != Success {
		return r
	}
	return c.copyBox(s, p, false)
}

// Memcpy3DAsyncV2 is cuMemcpy3DAsync_v2.
func (c *Call) Memcpy3DAsyncV2(p *Memcpy3D, h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	return c.copyBox(s, p, true)
}
