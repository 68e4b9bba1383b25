package vfiouser

import (
	"os"

	"golang.org/x/sys/unix"
)

// Limits on what a peer can send or request.
const (
	// MaxDataBytes is the maximum size of one region or DMA access. It is announced as
	// max_data_xfer_size.
	MaxDataBytes = 1 << 20
	// MaxMessageFDs is the maximum number of descriptors in a message (max_msg_fds).
	MaxMessageFDs = 16
	// MaxMessageBytes is the maximum size of a message: the data and any header.
	MaxMessageBytes = MaxDataBytes + 4096
)

// message is a received request. The payload is valid until the next message is read. closeFDs
// closes the descriptors that no handler took.
type message struct {
	Header
	payload []byte
	fds     []int
}

// takeFD returns descriptor i, which the caller then owns.
func (m *message) takeFD(i int) int {
	fd := m.fds[i]
	m.fds[i] = -1
	return fd
}

// takeFile returns the first descriptor as a file, or nil if there is none.
func (m *message) takeFile(name string) *os.File {
	if len(m.fds) == 0 {
		return nil
	}
	fd := m.takeFD(0)
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name)
}

func (m *message) closeFDs() {
	closeFDs(m.fds)
	m.fds = nil
}

func (m *message) wantsReply() bool { return m.Flags&FlagNoReply == 0 }

// grow returns b with length n. Its contents are undefined.
func grow(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	return make([]byte, n, max(n, 256))
}
