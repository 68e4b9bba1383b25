// Package remote is a soft GPU in a process of its own, used by several at once.
//
// A [Server] offers an engine on a unix socket; [Dial] connects to it and is the GPU as a gpu.Device. The socket
// carries what is rare: contexts, memory, modules, channels. It is a SOCK_SEQPACKET socket, a request and its reply a
// packet of JSON each, with file descriptors beside it where a thing is shared: the register file, a context's memory,
// a channel's ring, the bell that wakes the GPU, and modules, which may be long. Launches and their ends go through
// the rings in shared memory and never through the socket.
//
// A connection's contexts end with it, however the program at its other end went: what it ran is ended, its memory
// freed, and the others notice nothing. A program is trusted with nothing but its own contexts. What it sends is
// bounded, the contexts of one label are limited and their modules compiled one at a time, and a program that
// sends what can't be understood is told so or, where the framing is lost, cut off.
package remote
