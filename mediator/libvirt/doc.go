// Package libvirt is the daemon's and the tools' connection to libvirt, for domains' XML, their
// definition and their events.
//
// libvirt's client library is C, loads forty others, and has calls that can't be cancelled. So it
// runs in a program of its own, vgpu-libvirt, and the users of this package stay without it: a
// [Conn] starts that program and exchanges lines of JSON with it ([Serve] is the other end). If the
// library hangs or crashes, or the program is missing, the result is an error and nothing else.
// Only the program needs cgo; it uses package binding.
//
//	c, err := libvirt.Open(ctx, libvirt.Options{})
//	defer c.Close()
//	d, err := c.Domain(ctx, "web1", libvirt.Persistent)
//	ev, err := c.Next(ctx)
//
// [Follow] keeps such a connection over restarts of libvirt's daemon.
//
// Events say which domain changed, not how: the receiver asks for the domain's current state. So a
// thousand events about a domain are one, the queue is bounded by the number of domains, and a lost
// connection loses nothing that asking again does not find.
package libvirt
