package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Client uses the device of a vfio-user server. Its methods may be called from several goroutines
// at once. An error reply is an [*Error] and leaves the connection usable. After any other error,
// and after Close, every call fails with the first such error.
type Client struct {
	conn *conn
	caps Capabilities
	dma  DMAHandler
	out  []byte // reply to a request of the server; owned by the reader
}

// ClientOptions are options of a client. The zero value is usable.
type ClientOptions struct {
	// Timeout ends the connection if the server leaves a request unanswered for that long. 0 means
	// a minute, as with the QEMUs of our VMs.
	Timeout time.Duration

	// DMA answers the device's accesses to the client's memory. They are answered while a call of
	// this client waits for its reply, and at any time if [Client.Serve] runs. They are refused if
	// DMA is nil.
	DMA DMAHandler
}

// replyTimeout is how long a client waits for a server that has not closed the connection. The end
// of the server's process closes it, so the limit is only for one that is stopped or hangs, which
// nobody misses at once. A server that is merely slow must not reach it: on a host with ten busy
// processes a processor it took 7 s to answer, and a reset may wait for a GPU that is stuck.
const replyTimeout = time.Minute

// timeout returns Timeout, or the default.
func (o ClientOptions) timeout() time.Duration {
	if o.Timeout <= 0 {
		return replyTimeout
	}
	return o.Timeout
}

// DMAHandler is the memory of a client, which the device accesses by DMA_READ and DMA_WRITE. Its
// methods are called by the goroutine that reads the connection, so they must not call the client.
type DMAHandler interface {
	DMARead(addr uint64, p []byte) error
	DMAWrite(addr uint64, p []byte) error
}

// Dial connects to the server at path and negotiates. ctx limits only this.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to vfio-user device: %w", err)
	}
	return NewClient(ctx, c.(*net.UnixConn), ClientOptions{})
}

// NewClient negotiates over a connected socket. It takes over the socket, even if it returns an
// error.
func NewClient(ctx context.Context, sock *net.UnixConn, opt ClientOptions) (*Client, error) {
	cn, err := newConn(sock, opt.timeout())
	if err != nil {
		sock.Close()
		return nil, err
	}
	c := &Client{conn: cn, dma: opt.DMA}
	cn.onRequest = c.answer
	cn.onStrayReply = func(h Header) error {
		return protocolErrorf("reply %d to %s, which no call awaits", h.ID, commandName(h.Cmd))
	}
	stop := context.AfterFunc(ctx, func() { cn.fail(ctx.Err()) })
	defer stop()
	if err := c.negotiate(); err != nil {
		cn.fail(ErrClosed)
		return nil, fmt.Errorf("negotiate with vfio-user device: %w", err)
	}
	return c, nil
}

func (c *Client) negotiate() error {
	body, err := appendVersion(nil, ownCapabilities)
	if err != nil {
		return err
	}
	return c.do(CmdVersion, body, nil, maxVersionBytes, func(reply []byte, _ *[]int) error {
		c.caps, err = parseVersion(reply)
		return err
	})
}

// Capabilities returns what the server announced.
func (c *Client) Capabilities() Capabilities { return c.caps }

// Close ends the connection. Calls in progress return [ErrClosed].
func (c *Client) Close() error {
	c.conn.fail(ErrClosed)
	return nil
}

// Serve answers the server's requests until the connection ends, and returns the reason. It ends
// the connection when ctx ends. It is only needed if the device may access memory at any time, or
// to notice at once that the server is gone: a goroutine in Serve costs every other call a switch
// between goroutines.
func (c *Client) Serve(ctx context.Context) error {
	cn := c.conn
	stop := context.AfterFunc(ctx, func() { cn.fail(ctx.Err()) })
	defer stop()
	select {
	case <-cn.token:
	case <-cn.dead:
		return cn.err
	}
	err := cn.readFor(nil)
	cn.token <- struct{}{}
	cn.failRead(err)
	return cn.err
}

// Done returns a channel that is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.conn.dead }

// do sends a request with the given body. It passes the payload of the reply, of at most limit
// bytes, and its descriptors to use. Descriptors that use takes out belong to use.
func (c *Client) do(cmd uint16, body []byte, fds []int, limit int, use func(reply []byte, fds *[]int) error) error {
	k, req, err := c.conn.begin(cmd, len(body), limit)
	if err != nil {
		return err
	}
	defer c.conn.end(k)
	copy(req, body)
	if err := c.conn.roundTrip(k, fds); err != nil {
		return err
	}
	if use == nil {
		return nil
	}
	return c.broken(use(k.reply, &k.fds))
}

// broken ends the connection if err is a violation of the protocol.
func (c *Client) broken(err error) error {
	var p *protocolError
	if errors.As(err, &p) {
		c.conn.fail(err)
	}
	return err
}

func wantReply(cmd uint16, p []byte, n int) error {
	if len(p) < n {
		return protocolErrorf("reply to %s has %d bytes, want %d", commandName(cmd), len(p), n)
	}
	return nil
}

// ask sends a request whose body is one struct of the given size, and decodes the reply, which is
// that struct again.
func (c *Client) ask(cmd uint16, size int, v interface {
	MarshalBytes([]byte)
	UnmarshalBytes([]byte)
}) error {
	b := make([]byte, size)
	v.MarshalBytes(b)
	return c.do(cmd, b, nil, size, func(p []byte, _ *[]int) error {
		if err := wantReply(cmd, p, size); err != nil {
			return err
		}
		v.UnmarshalBytes(p)
		return nil
	})
}

// DeviceInfo requests the numbers of regions and interrupts.
func (c *Client) DeviceInfo() (DeviceInfo, error) {
	info := DeviceInfo{Argsz: SizeofDeviceInfo}
	err := c.ask(CmdDeviceGetInfo, SizeofDeviceInfo, &info)
	return info, err
}

// Reset resets the device.
func (c *Client) Reset() error { return c.do(CmdDeviceReset, nil, nil, 0, nil) }

// DMAMap announces memory to the device. file remains the caller's; it is nil for memory without a
// file.
func (c *Client) DMAMap(m DMAMap, file *os.File) error {
	m.Argsz = SizeofDMAMap
	var b [SizeofDMAMap]byte
	m.MarshalBytes(b[:])
	if file == nil {
		return c.do(CmdDMAMap, b[:], nil, 0, nil)
	}
	return withFD(file, func(fd int) error { return c.do(CmdDMAMap, b[:], []int{fd}, 0, nil) })
}

// DMAUnmap withdraws memory from the device.
func (c *Client) DMAUnmap(addr, size uint64) error { return c.dmaUnmap(0, addr, size) }

// DMAUnmapAll withdraws all memory.
func (c *Client) DMAUnmapAll() error { return c.dmaUnmap(DMAUnmapFlagAll, 0, 0) }

func (c *Client) dmaUnmap(flags uint32, addr, size uint64) error {
	return c.ask(CmdDMAUnmap, SizeofDMAUnmap, &DMAUnmap{Argsz: SizeofDMAUnmap, Flags: flags, Addr: addr, Size: size})
}

// withFD calls f with the descriptor of file.
func withFD(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("descriptor of %s: %w", file.Name(), err)
	}
	var e error
	if err := raw.Control(func(fd uintptr) { e = f(int(fd)) }); err != nil {
		return fmt.Errorf("descriptor of %s: %w", file.Name(), err)
	}
	return e
}
