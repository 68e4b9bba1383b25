// Package vfiouser implements vfio-user, the protocol with which a VMM forwards accesses to a PCI
// device to another process over a unix socket. It has both ends, and knows no particular device.
//
// # Serving a device
//
// A [Device] describes itself ([Description]: regions, some of which the client may map, and
// interrupts) and answers accesses; a [Server] does the rest. The server takes one client at a
// time, negotiates, checks every message, keeps the client's eventfds for [Session.Trigger], and
// drops all state of a client that disconnects before it accepts the next. Every descriptor that
// arrives is closed exactly once, whatever happens to its message.
//
// Everything a client sends is untrusted. Sizes are limited by [MaxDataBytes], descriptors by
// [MaxMessageFDs], ranges are checked for overflow, and a malformed message gets an error reply. If
// the framing itself is broken, the connection is closed after that reply.
//
// # Using a device
//
// [Dial] returns a [Client]: the device's registers, mappings and interrupts without a VMM, for
// programs that act as a guest and for tests. Register accesses are synchronous, may be made from
// several goroutines at once, and don't allocate.
//
// # How a connection is read
//
// Either end may send requests, so a goroutine that waits for a reply must also handle requests. A
// connection has no reading goroutine. The right to read is a token: a goroutine that waits for a
// message and finds the token free reads for all. So the common path, one request and its reply,
// wakes one goroutine at each end. See conn.go.
//
// # Names
//
// Layouts and numbers are those of libvfio-user's include/vfio-user.h and of Linux's
// include/uapi/linux/vfio.h; the doc comments have the C names. Behaviour that the specification
// leaves open follows QEMU 11.1.
package vfiouser
