package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Client uses a device that a vfio-user server offers. Its methods may be called from several goroutines at once. An
// error reply is an [*Error] and leaves the connection usable; after any other error, and after Close, every call fails
// with the reason of the first.
type Client struct {
	conn *conn
	caps Capabilities
	dma  DMAHandler
	out  []byte // reply to a server's request; owned by the reader
}

// ClientOptions are what a client may choose; the zero value will do.
type ClientOptions struct {
	// Timeout ends the connection when the server leaves a request unanswered for that long. 0 means 5 s, as with QEMU.
	Timeout time.Duration

	// DMA answers the device's accesses to the client's memory. They are answered while a call of this client waits for its
	// reply, and all the time if [Client.Serve] runs. Without it they are refused.
	DMA DMAHandler
}

// DMAHandler is the memory of a client, as its device sees it by DMA_READ and DMA_WRITE. Its methods are called by whoever
// reads the connection, so they must not call the client.
type DMAHandler interface {
	DMARead(addr uint64, p []byte) error
	DMAWrite(addr uint64, p []byte) error
}

// Dial connects to the server at path and negotiates. ctx bounds that alone.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to vfio-user device: %w", err)
	}
	return NewClient(ctx, c.(*net.UnixConn), ClientOptions{})
}

// NewClient negotiates over a connected socket, which then belongs to the client, also on an error.
func NewClient(ctx context.Context, sock *net.UnixConn, opt ClientOptions) (*Client, error) {
	if opt.Timeout <= 0 {
		opt.Timeout = defaultTimeout
	}
	cn, err := newConn(sock, opt.Timeout)
	if err != nil {
		sock.Close()
		return nil, err
	}
	c := &Client{conn: cn, dma: opt.DMA}
	cn.deflect = c.answer
	cn.strayReply = func(h Header) error {
		return protocolErrorf("reply %d to %s, which nobody awaits", h.ID, commandName(h.Cmd))
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

// Capabilities says what the server negotiated.
func (c *Client) Capabilities() Capabilities { return c.caps }

// Close ends the connection; calls under way return [ErrClosed].
func (c *Client) Close() error {
	c.conn.fail(ErrClosed)
	return nil
}

// Serve answers the server's requests until the connection ends, and returns the reason; when ctx ends, it ends the
// connection. It is needed only where a device may reach for memory at any time, or to learn at once that the server is gone:
// a goroutine in Serve costs every other call a switch between goroutines.
func (c *Client) Serve(ctx context.Context) error {
	cn := c.conn
	stop := context.AfterFunc(ctx, func() { cn.fail(ctx.Err()) })
	defer stop()
	select {
	case <-cn.token:
	case <-cn.dead:
		return cn.err
	}
	err := cn.lead(nil)
	cn.token <- struct{}{}
	cn.failRead(err)
	return cn.err
}

// Done is closed when the connection has been found to have ended.
func (c *Client) Done() <-chan struct{} { return c.conn.dead }

// do makes a request whose body is given and hands its reply's payload, of at most limit bytes, to use, together with the
// descriptors; those that use takes out are its own.
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

// broken ends the connection when err is a breach of the protocol.
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

// DeviceInfo asks how many regions and interrupts the device has.
func (c *Client) DeviceInfo() (info DeviceInfo, err error) {
	var b [SizeofDeviceInfo]byte
	(&DeviceInfo{Argsz: SizeofDeviceInfo}).MarshalBytes(b[:])
	err = c.do(CmdDeviceGetInfo, b[:], nil, len(b), func(p []byte, _ *[]int) error {
		if err := wantReply(CmdDeviceGetInfo, p, SizeofDeviceInfo); err != nil {
			return err
		}
		info.UnmarshalBytes(p)
		return nil
	})
	return info, err
}

// Reset resets the device.
func (c *Client) Reset() error { return c.do(CmdDeviceReset, nil, nil, 0, nil) }

// DeviceFeature asks about or sets a feature: flags are its number and FeatureGet, FeatureSet or FeatureProbe. limit is the most
// data that the reply may have.
func (c *Client) DeviceFeature(flags uint32, data []byte, limit int) (reply []byte, err error) {
	limit = min(limit, MaxDataBytes)
	b := make([]byte, SizeofDeviceFeature+len(data))
	f := DeviceFeature{Argsz: uint32(SizeofDeviceFeature + max(limit, len(data))), Flags: flags}
	f.MarshalBytes(b)
	copy(b[SizeofDeviceFeature:], data)
	err = c.do(CmdDeviceFeature, b, nil, int(f.Argsz), func(p []byte, _ *[]int) error {
		if err := wantReply(CmdDeviceFeature, p, SizeofDeviceFeature); err != nil {
			return err
		}
		reply = append(reply, p[SizeofDeviceFeature:]...)
		return nil
	})
	return reply, err
}

// DMAMap tells the device of memory. file, which stays the caller's, is nil for memory that has none.
func (c *Client) DMAMap(m DMAMap, file *os.File) error {
	m.Argsz = SizeofDMAMap
	var b [SizeofDMAMap]byte
	m.MarshalBytes(b[:])
	if file == nil {
		return c.do(CmdDMAMap, b[:], nil, 0, nil)
	}
	return withFD(file, func(fd int) error { return c.do(CmdDMAMap, b[:], []int{fd}, 0, nil) })
}

// DMAUnmap takes memory back.
func (c *Client) DMAUnmap(addr, size uint64) error { return c.dmaUnmap(0, addr, size) }

// DMAUnmapAll takes all memory back.
func (c *Client) DMAUnmapAll() error { return c.dmaUnmap(DMAUnmapFlagAll, 0, 0) }

func (c *Client) dmaUnmap(flags uint32, addr, size uint64) error {
	var b [SizeofDMAUnmap]byte
	(&DMAUnmap{Argsz: SizeofDMAUnmap, Flags: flags, Addr: addr, Size: size}).MarshalBytes(b[:])
	return c.do(CmdDMAUnmap, b[:], nil, SizeofDMAUnmap, func(p []byte, _ *[]int) error {
		return wantReply(CmdDMAUnmap, p, SizeofDMAUnmap)
	})
}

// withFD lends a file's descriptor to f.
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
