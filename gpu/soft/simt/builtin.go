package simt

import "vgpud/ptx"

// builtin compiles a call of a function that the GPU's runtime provides.
func (c *compiler) builtin(call ptx.Call) error {
	return c.unsupported("function %s is defined nowhere", call.Target.Name)
}
