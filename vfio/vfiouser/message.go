package vfiouser

import (
	"os"

	"golang.org/x/sys/unix"
)

// Bounds on what a peer can send or ask for.
const (
	// MaxDataBytes is the most that one region or DMA access moves; it is also what is negotiated (max_data_xfer_size).
	MaxDataBytes = 1 << 20
	// MaxMessageFDs is the most descriptors that one message may carry (max_msg_fds).
	MaxMessageFDs = 16
	// MaxMessageBytes is the largest message: the data and room for any header.
	MaxMessageBytes = MaxDataBytes + 4096
)

// message is a request that has arrived. Payload is valid until the next message is read. The descriptors are
// closed by closeFDs unless a handler takes them.
type message struct {
	Header
	payload []byte
	fds     []int
}

// takeFD hands over descriptor i; the caller closes it.
func (m *message) takeFD(i int) int {
	fd := m.fds[i]
	m.fds[i] = -1
	return fd
}

// takeFile is takeFD as a file, nil when there is no descriptor.
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

// grow returns b with length n, its old contents kept or not.
func grow(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	return make([]byte, n, max(n, 256))
}
