// Package console runs programs in a guest over a serial port, with the guest's init at the other
// end. [Client] is the host's end, [Server] the guest's.
//
// # The line
//
// A serial line only carries bytes, in both directions. It has no connections and no end of stream,
// and may carry other output: firmware and kernel may write to it, a terminal that is not raw yet
// echoes, and a reset in the middle of a message leaves a part of it. So each message is a line of
// its own,
//
//	RS crc32 {json} LF
//
// which begins with a byte (RS, 0x1e) that JSON never contains, has at most [MaxFrame] bytes, and
// has a checksum of the JSON (eight hexadecimal digits, IEEE). [Reader] skips everything else.
//
// # A boot
//
// The guest begins with [Hello], which identifies this boot by a random number. Every later message
// of either end carries this number. A message with another number was sent before a reset and is
// skipped. Messages of a boot are numbered from 0 in each direction. A gap means that a message was
// lost, which ends running programs with an error instead of leaving them to wait.
//
// # Programs
//
// The host numbers the programs that it runs. Output arrives in the order in which it was written,
// at most [MaxChunk] bytes a message, with standard output and error separate. At most one message
// of a program's input may be unacknowledged: the line has no flow control, and a guest that
// doesn't read would lose the rest.
package console
