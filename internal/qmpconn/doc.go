// Package qmpconn is a client of the QEMU Machine Protocol over a connection (QEMU's
// docs/interop/qmp-spec.rst): it runs commands, and passes on events. It knows no command but
// qmp_capabilities, which ends the handshake.
//
// One goroutine reads a connection. QEMU answers commands in the order in which it gets them, so each
// answer is for the oldest command that waits for one, also if its caller has given up. Locks are
// taken in this order: Conn.sending, Conn.mu.
package qmpconn
