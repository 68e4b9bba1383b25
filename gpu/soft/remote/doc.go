// Package remote is a soft GPU in a process of its own that several programs use at once.
//
// A [Server] serves an engine on a unix socket; [Dial] connects to it and returns a gpu.Device. The
// socket carries the control path: contexts, memory, modules, channels. It is a SOCK_SEQPACKET
// socket. Requests and replies are packets of JSON, with file descriptors for what is shared: the
// register file, a context's memory, a channel's ring, the doorbell of the GPU, and modules, which
// may be long. Launches and completions go through the rings in shared memory, never through the
// socket.
//
// A connection's contexts end with it, however the program exited: its kernels are ended, its
// memory is freed, and other programs are not affected. A program is trusted with nothing but its
// own contexts. Its messages are limited in size, the contexts of one label are limited, and their
// modules are compiled one at a time. An invalid request gets an error reply, and the connection is
// closed if the framing is broken.
//
// Locks: Server.mu guards the tables of users, owners and controls. A context is locked by its
// engine.
package remote
