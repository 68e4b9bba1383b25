package cuda

// userObject is a CUuserObject: something of the program's that graphs keep. Its destructor is
// called when nothing refers to it any more.
type userObject struct {
	handle        Handle
	data, destroy Pointer
	refs          uint64
}

// UserObjectCreate is cuUserObjectCreate.
func (c *Call) UserObjectCreate(out *Handle, data, destroy Pointer, refs, flags uint32) Result {
	const noDestructorSync = 1 // which programs must set
	if out == nil || destroy == nil || refs == 0 || flags != noDestructorSync {
		return ErrorInvalidValue
	}
	if c.d.work.start(c.d.o.Hooks) != nil {
		return ErrorOperatingSystem
	}
	o := &userObject{data: data, destroy: destroy, refs: uint64(refs)}
	if o.handle = c.d.objects.add(o); o.handle == 0 {
		return ErrorOutOfMemory
	}
	put(out, o.handle)
	return Success
}

// release gives up references to an object. The graphs' lock is held.
func (d *Driver) release(o *userObject, count uint32) {
	o.refs -= min(o.refs, uint64(count))
	if o.refs > 0 || !d.objects.remove(o.handle) {
		return
	}
	d.work.add(&hostCall{callback: Callback{Function: o.destroy, Data: o.data, Kind: hostFunction}, done: make(chan struct{})})
}

// change calls f with an object.
func (c *Call) changeObject(h Handle, count uint32, f func(*userObject) Result) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	o := get[userObject](&c.d.objects, h)
	if o == nil || count == 0 {
		return ErrorInvalidValue
	}
	return f(o)
}

// UserObjectRetain is cuUserObjectRetain.
func (c *Call) UserObjectRetain(h Handle, count uint32) Result {
	return c.changeObject(h, count, func(o *userObject) Result {
		o.refs += uint64(count)
		return Success
	})
}

// UserObjectRelease is cuUserObjectRelease.
func (c *Call) UserObjectRelease(h Handle, count uint32) Result {
	return c.changeObject(h, count, func(o *userObject) Result {
		c.d.release(o, count)
		return Success
	})
}

// keep has a graph hold references that were counted.
func (g *graph) keep(o *userObject, count uint32) {
	if g.objects == nil {
		g.objects = map[*userObject]uint32{}
	}
	g.objects[o] += count
}

// GraphRetainUserObject is cuGraphRetainUserObject.
func (c *Call) GraphRetainUserObject(gh, h Handle, count, flags uint32) Result {
	const move = 1 // the caller's references
	return c.changeObject(h, count, func(o *userObject) Result {
		g := c.graph(gh)
		if g == nil || flags&^move != 0 {
			return ErrorInvalidValue
		}
		if flags&move == 0 {
			o.refs += uint64(count)
		}
		g.keep(o, count)
		return Success
	})
}

// GraphReleaseUserObject is cuGraphReleaseUserObject.
func (c *Call) GraphReleaseUserObject(gh, h Handle, count uint32) Result {
	return c.changeObject(h, count, func(o *userObject) Result {
		g := c.graph(gh)
		if g == nil || g.objects[o] < count {
			return ErrorInvalidValue
		}
		if g.objects[o] -= count; g.objects[o] == 0 {
			delete(g.objects, o)
		}
		c.d.release(o, count)
		return Success
	})
}
