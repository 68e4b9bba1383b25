// Package libvirt is the daemon's and the tools' connection to libvirt: domains'
// XML, defining them, and what happens to them.
//
// libvirt's client library is C, brings forty others with it, and its calls
// can't be given up. So it runs in a program of its own, vgpu-libvirt, and what
// asks stays without it: a [Conn] starts that program and talks to it in lines of
// JSON ([Serve] is the other end). When the library hangs or crashes, or the
// program is missing, an error says so and nothing else happens. Only the program
// needs cgo; package binding is what it calls the library by.
//
//	c, err := libvirt.Open(ctx, libvirt.Options{})
//	defer c.Close()
//	d, err := c.Domain(ctx, "web1", libvirt.Persistent)
//	ev, err := c.Next(ctx)
//
// [Follow] keeps such a connection over restarts of libvirt's daemon.
//
// Events say which domain something happened to, not what: whoever gets one asks
// for the domain as it is then. So a thousand events about a domain are one, what
// is kept is bounded by the domains, and a lost connection loses nothing that
// asking again doesn't find.
package libvirt
