package nvidia

// handles finds the context's handles of the driver beneath CUDA.
func (c *Context) handles() error { return nil }
