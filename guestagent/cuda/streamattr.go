package cuda

// streamAttributes are the attributes that a stream may have: an access policy window, a policy of
// synchronization, a priority and domains of memory synchronization. Only the priority changes
// anything.
var streamAttributes = map[uint32]bool{
	LaunchAttributeAccessPolicyWindow: true, LaunchAttributeSynchronizationPolicy: true, LaunchAttributePriority: true,
	LaunchAttributeMemSyncDomainMap: true, LaunchAttributeMemSyncDomain: true,
}

// StreamSetAttribute is cuStreamSetAttribute.
func (c *Call) StreamSetAttribute(h Handle, attribute uint32, v *LaunchAttributeValue) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if v == nil || !streamAttributes[attribute] {
		return ErrorInvalidValue
	}
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	if attribute == LaunchAttributePriority {
		s.priority = max(min(int32(v.uint32(0)), leastPriority), greatestPriority)
		return Success
	}
	if s.attributes == nil {
		s.attributes = map[uint32]LaunchAttributeValue{}
	}
	s.attributes[attribute] = *v
	return Success
}

// StreamGetAttribute is cuStreamGetAttribute.
func (c *Call) StreamGetAttribute(h Handle, attribute uint32, v *LaunchAttributeValue) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if v == nil || !streamAttributes[attribute] {
		return ErrorInvalidValue
	}
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	w := s.attributes[attribute]
	if attribute == LaunchAttributePriority {
		for i := range 4 {
			w[i] = byte(uint32(s.priority) >> (8 * i))
		}
	}
	put(v, w)
	return Success
}

// StreamCopyAttributes is cuStreamCopyAttributes.
func (c *Call) StreamCopyAttributes(dst, src Handle) Result {
	to, r := c.stream(dst)
	if r != Success {
		return r
	}
	from, r := c.stream(src)
	if r != Success {
		return r
	}
	if to.x != from.x {
		return ErrorInvalidValue
	}
	to.x.mu.Lock()
	defer to.x.mu.Unlock()
	to.priority = from.priority
	to.attributes = map[uint32]LaunchAttributeValue{}
	for k, v := range from.attributes {
		to.attributes[k] = v
	}
	return Success
}

// StreamGetCtxV2 is cuStreamGetCtx_v2: no context is a green one.
func (c *Call) StreamGetCtxV2(h Handle, out, green *Handle) Result {
	if green != nil {
		put(green, 0)
	}
	return c.StreamGetCtx(h, out)
}

// ProfilerStart is cuProfilerStart: no profiler is there to be started.
func (c *Call) ProfilerStart() Result {
	_, r := c.context()
	return r
}

// ProfilerStop is cuProfilerStop.
func (c *Call) ProfilerStop() Result {
	_, r := c.context()
	return r
}
