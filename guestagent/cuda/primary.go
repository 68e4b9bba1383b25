package cuda

// primary is the state of the device's primary context.
type primary struct {
	x     *Context // nil while nobody has retained it
	refs  int
	flags uint32
}

// DevicePrimaryCtxRetain is cuDevicePrimaryCtxRetain.
func (c *Call) DevicePrimaryCtxRetain(out *Handle, dev int32) Result {
	d := c.d
	switch {
	case out == nil:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	d.mu.Lock()
	if d.primary.x == nil {
		d.mu.Unlock()
		if x := d.unbegun.Load(); x != nil { // see lazy.go
			return c.beginTask(x, func() Result { return c.DevicePrimaryCtxRetain(out, dev) })
		}
		if r := d.learnAlike(); r != Success {
			return r
		}
		d.making.Lock()
		defer d.making.Unlock()
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	p := &d.primary
	if p.x == nil {
		x, err := d.newContext(p.flags)
		if err != nil {
			return resultOnly(err)
		}
		x.primary = true
		p.x = x
	}
	p.refs++
	put(out, p.x.handle)
	return Success
}

// DevicePrimaryCtxReleaseV2 is cuDevicePrimaryCtxRelease_v2.
func (c *Call) DevicePrimaryCtxReleaseV2(dev int32) Result {
	d := c.d
	if dev != 0 {
		return ErrorInvalidDevice
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &d.primary
	if p.refs == 0 {
		return ErrorInvalidContext
	}
	if p.refs--; p.refs == 0 {
		p.x.destroy()
		p.x = nil
	}
	return Success
}

// DevicePrimaryCtxResetV2 is cuDevicePrimaryCtxReset_v2: the context is destroyed, whoever retains
// it, and made anew when it is next retained.
func (c *Call) DevicePrimaryCtxResetV2(dev int32) Result {
	d := c.d
	if dev != 0 {
		return ErrorInvalidDevice
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := &d.primary; p.x != nil {
		p.x.destroy()
		p.x, p.refs = nil, 0
	}
	return Success
}

// DevicePrimaryCtxSetFlagsV2 is cuDevicePrimaryCtxSetFlags_v2.
func (c *Call) DevicePrimaryCtxSetFlagsV2(dev int32, flags uint32) Result {
	d := c.d
	switch {
	case dev != 0:
		return ErrorInvalidDevice
	case !validContextFlags(flags):
		return ErrorInvalidValue
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.primary.flags = flags
	if x := d.primary.x; x != nil {
		x.mu.Lock()
		x.flags = flags
		x.mu.Unlock()
	}
	return Success
}

// DevicePrimaryCtxGetState is cuDevicePrimaryCtxGetState.
func (c *Call) DevicePrimaryCtxGetState(dev int32, flags *uint32, active *int32) Result {
	d := c.d
	switch {
	case flags == nil || active == nil:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	put(flags, d.primary.flags)
	put(active, int32(0))
	if d.primary.x != nil {
		put(active, int32(1))
	}
	return Success
}
