// Package console is how a host runs programs in a guest over a serial port,
// with the guest's init at the other end. [Client] is the host's side, [Server]
// the guest's.
//
// # The line
//
// A serial line carries bytes, in both directions, and nothing else: no
// connections, no ends, no promise that what is read was meant. Firmware and
// kernel may write to it, a terminal that is not raw yet echoes, and a reset in
// the middle of a message leaves half of it. So a message travels as a line of
// its own,
//
//	RS crc32 {json} LF
//
// which begins with a byte (RS, 0x1e) that no JSON contains, is at most
// [MaxFrame] long, and whose checksum (eight hexadecimal digits, IEEE) covers
// the JSON. [Reader] passes over whatever is not such a line.
//
// # A boot
//
// The guest begins with [Hello], which names this boot by a random number; every
// later message of either side carries it, and one that carries another is left
// over from before a reset and is passed over. Messages of a boot are numbered
// from 0 in each direction. A gap means that one was lost, which ends what was
// going on with an error rather than leaving it to wait.
//
// # Programs
//
// The host numbers the programs it runs. Output arrives in the order it was
// written, at most [MaxChunk] bytes a message, standard output and error apart.
// Of a program's input one message may be on its way at a time: the line has no
// flow control, and a guest that doesn't read would lose the rest.
package console
