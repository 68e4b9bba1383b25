package allot

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/internal/unixmsg"
)

// Messages are JSON objects over a unix socket that keeps message boundaries (SOCK_SEQPACKET), with
// descriptors. A tenant sends requests, the agent replies.

// DefaultSocket is the path of the agent's socket.
const DefaultSocket = "/run/vgpu-agent.sock"

// The requests.
const (
	// OpOpen asks for a part of a device, once per connection; the part lasts as long as the
	// connection.
	OpOpen = "open"
	// OpSet writes a register of the tenant's slots and returns the device's error code.
	OpSet = "set"
	// OpEvents asks for the descriptor of a device's event area, for what stands in for a network
	// card. It is that of the area alone, so the agent refuses where it has none: with vfio.
	OpEvents = "events"
	// OpStatus asks what the agent knows about its devices.
	OpStatus = "status"
	// OpKernels asks what the agent knows about kernels, in pages that start at From.
	OpKernels = "kernels"
	// OpRecall asks what the agent knows about the kernels with these keys, and OpLearn reports
	// what was learned about some.
	OpRecall = "recall"
	OpLearn  = "learn"
	// OpMissed reports how often the program has called functions of CUDA that are not built.
	// OpMissing asks which ones programs have called.
	OpMissed  = "missed"
	OpMissing = "missing"
)

// Request is a tenant's request.
type Request struct {
	Op string `json:"op"`
	// Address is the PCI address of the device to open; "" means the only one.
	Address string `json:"address,omitempty"`
	Ask     Ask    `json:"ask"`
	// Offset and Value name a register to set and its value.
	Offset uint32 `json:"offset,omitempty"`
	Value  uint32 `json:"value,omitempty"`
	// From is the index at which a page starts.
	From int `json:"from,omitempty"`
	// Keys name kernels; Learned is what was learned about some.
	Keys    []cache.Key   `json:"keys,omitempty"`
	Learned []cache.Entry `json:"learned,omitempty"`
	// Missed has the calls so far of each function that is not built and was called.
	Missed map[string]uint64 `json:"missed,omitempty"`
}

// Reply is the agent's answer.
type Reply struct {
	// Error says why the request failed; "" for success.
	Error string `json:"error,omitempty"`
	// Code is the device's error code for a register write.
	Code uint32 `json:"code,omitempty"`
	// Grant answers OpOpen.
	Grant *Grant `json:"grant,omitempty"`
	// Status answers OpStatus.
	Status json.RawMessage `json:"status,omitempty"`
	// Kernels answers OpKernels and OpRecall with as many as fit. Next is where the next page
	// starts: the index in the list, or in the request's keys; 0 if there are no more.
	Kernels []cache.Entry `json:"kernels,omitempty"`
	Next    int           `json:"next,omitempty"`
	// Missing answers OpMissing.
	Missing []Missing `json:"missing,omitempty"`
}

// Missing is a function of CUDA that programs have called and that is not built.
type Missing struct {
	Function string `json:"function"`
	Calls    uint64 `json:"calls"`
	// Programs is how many processes have called it, and Last the name of the last one.
	Programs int       `json:"programs"`
	Last     string    `json:"last"`
	At       time.Time `json:"at"`
}

// Grant is a tenant's part of a device. The descriptors with it are those to map BAR0 and BAR2,
// then an eventfd for each vector.
type Grant struct {
	Address   string    `json:"address"`
	Access    string    `json:"access"`
	Why       string    `json:"why,omitempty"`
	Allotment Allotment `json:"allotment"`
	// BARs are the places of BAR0 and BAR2 in their descriptors.
	BARs [2]Region `json:"bars"`
	// Events is the place of BAR4 in BAR0's descriptor, where that has all BARs.
	Events *Region `json:"events,omitempty"`
	// Preempt is the agent's setting for preemptible kernels; without one they are off.
	Preempt *Preempt `json:"preempt,omitempty"`
}

// Preempt is a setting for preemptible kernels. Zeros mean the defaults.
type Preempt struct {
	Off      bool          `json:"off,omitempty"`
	Latency  time.Duration `json:"latency_ns,omitempty"`
	Overhead float64       `json:"overhead,omitempty"`
}

// Fit returns how many of the entries fit a message together.
func Fit(entries []cache.Entry) int {
	const room = maxMessage * 3 / 4
	used := 0
	for i := range entries {
		b, err := json.Marshal(entries[i])
		if used += len(b) + 1; err != nil || used > room {
			return i
		}
	}
	return len(entries)
}

// Region is a part of a descriptor to map.
type Region struct {
	Offset int64 `json:"offset"`
	Bytes  int   `json:"bytes"`
}

// maxMessage bounds a message, and maxFiles the descriptors with it.
const (
	maxMessage = 64 << 10
	maxFiles   = 4
)

// Conn is a connection between a tenant and the agent. One goroutine at a time may send, and one
// may receive.
type Conn struct{ *net.UnixConn }

// Send sends a message with descriptors, which stay the sender's.
func (c Conn) Send(v any, fds ...int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	if len(b) > maxMessage {
		return fmt.Errorf("a message of %d bytes: want at most %d", len(b), maxMessage)
	}
	_, err = unixmsg.Write(c.UnixConn, b, fds...)
	return err
}

// Receive receives a message with its descriptors, which belong to the caller. The error is
// net.ErrClosed, io.EOF or says what is wrong with the message.
func (c Conn) Receive(v any) (files []*os.File, err error) {
	b := make([]byte, maxMessage)
	m, err := unixmsg.Read(c.UnixConn, b, make([]byte, unix.CmsgSpace(4*maxFiles)))
	switch {
	case err != nil:
	case m.Truncated:
		err = fmt.Errorf("a message of more than %d bytes or %d descriptors", maxMessage, maxFiles)
	case m.Bytes == 0:
		err = net.ErrClosed
	default:
		if err = json.Unmarshal(b[:m.Bytes], v); err != nil {
			err = fmt.Errorf("decode a message: %w", err)
		}
	}
	if err != nil {
		CloseAll(m.Files)
		return nil, err
	}
	return m.Files, nil
}

// CloseAll closes files and ignores errors.
func CloseAll(files []*os.File) {
	_ = unixmsg.CloseAll(files)
}

// Dial connects to an agent.
func Dial(path string) (Conn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return Conn{}, fmt.Errorf("connect to vgpu-agent: %w", err)
	}
	return Conn{c}, nil
}

// Question sends a request and returns its reply. A reply with an error in it is returned as an
// error.
func (c Conn) Question(r Request, limit time.Duration) (reply Reply, files []*os.File, err error) {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return reply, nil, err
	}
	defer func() { err = errors.Join(err, c.SetDeadline(time.Time{})) }()
	if err := c.Send(r); err != nil {
		return reply, nil, fmt.Errorf("ask vgpu-agent: %w", err)
	}
	if files, err = c.Receive(&reply); err != nil {
		return reply, nil, fmt.Errorf("answer of vgpu-agent: %w", err)
	}
	if reply.Error != "" {
		CloseAll(files)
		return reply, nil, errors.New(reply.Error)
	}
	return reply, files, nil
}
