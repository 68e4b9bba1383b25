// Package vfiouser speaks vfio-user, the protocol by which a VMM hands the accesses to one of its PCI
// devices to another process over a unix socket. It has both ends.
//
// # Serving a device
//
// A [Device] says what it consists of ([Description]: regions, some of which the client may map, and
// interrupts) and answers accesses; a [Server] does the rest. It takes one client at a time, negotiates, checks
// every message, keeps the client's eventfds for [Session.Trigger], and drops the whole state of a client when
// that goes away, after which the next may come. Descriptors that arrive are closed exactly once, whatever
// happens to the message they came with.
//
// Everything a client sends is untrusted: sizes are bounded by [MaxDataBytes], descriptors by [MaxMessageFDs],
// ranges are checked for overflow, and a message that cannot be understood gets an error reply. Where the
// framing itself can no longer be trusted, the connection is closed after that reply.
//
// # Using a device
//
// [Dial] gives a [Client]: the device's registers, mappings and interrupts without a VMM, for programs that act
// as a guest and for tests. Register accesses are synchronous, may be made from several goroutines at once, and
// allocate nothing.
//
// # How a connection is read
//
// Either end may send requests, so whoever waits for a reply must also be ready for a request. A connection has
// no reading goroutine of its own: the right to read is a token, and whoever waits for a message and finds the
// token free reads for everyone. So the common path, one request and its reply, wakes one goroutine at each end
// and no more. See conn.go.
//
// The layouts and numbers are those of libvfio-user's include/vfio-user.h and of Linux's include/uapi/linux/vfio.h;
// behaviour that the specification leaves open follows what QEMU 11.1 expects.
package vfiouser
