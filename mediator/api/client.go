package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
)

// DefaultSocket is the daemon's socket unless configured otherwise.
const DefaultSocket = "/run/vgpud/vgpud.sock"

// Client sends requests to a daemon. It is safe for concurrent use.
type Client struct {
	where   string       // the daemon's socket or address, for messages
	setting string       // names the socket, for messages
	base    string       // of its URLs
	tls     *tlsIdentity // nil for a socket
	http    http.Client
}

// NewClient returns a client of the daemon that listens on socket. It connects at the first
// request.
func NewClient(socket string) *Client { return NewClientBy(socket, "--socket") }

// NewClientBy is [NewClient] for a program where something else than a flag, --socket, names the
// socket. Errors say so.
func NewClientBy(socket, setting string) *Client {
	return &Client{where: socket, setting: setting, base: "http://vgpud", http: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}}
}

// Socket returns the daemon's socket, or its address over TLS.
func (c *Client) Socket() string { return c.where }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// VMs lists all guests by name.
func (c *Client) VMs(ctx context.Context) ([]VM, error) {
	return ask[[]VM](ctx, c, "GET", "/v1/vms", nil)
}

// DomainVMs lists the guests of a libvirt domain, given by UUID or name.
func (c *Client) DomainVMs(ctx context.Context, domain string) ([]VM, error) {
	return ask[[]VM](ctx, c, "GET", "/v1/vms?domain="+url.QueryEscape(domain), nil)
}

// VM returns one guest.
func (c *Client) VM(ctx context.Context, name string) (VM, error) {
	return ask[VM](ctx, c, "GET", "/v1/vms/"+url.PathEscape(name), nil)
}

// CreateVM creates a guest's virtual GPU.
func (c *Client) CreateVM(ctx context.Context, s VMSpec) (VM, error) {
	return ask[VM](ctx, c, "POST", "/v1/vms", s)
}

// UpdateVM changes a guest, at once.
func (c *Client) UpdateVM(ctx context.Context, name string, u VMUpdate) (VM, error) {
	return ask[VM](ctx, c, "PATCH", "/v1/vms/"+url.PathEscape(name), u)
}

// DeleteVM deletes a guest's virtual GPU. It fails with [ErrInUse] while its VMM is connected.
func (c *Client) DeleteVM(ctx context.Context, name string) error {
	_, err := ask[struct{}](ctx, c, "DELETE", "/v1/vms/"+url.PathEscape(name), nil)
	return err
}

// ForceDeleteVM deletes a guest's virtual GPU even while a VMM is connected: QEMU 11.1 may end
// then, and the VM with it.
func (c *Client) ForceDeleteVM(ctx context.Context, name string) error {
	_, err := ask[struct{}](ctx, c, "DELETE", "/v1/vms/"+url.PathEscape(name)+"?force=true", nil)
	return err
}

// GPUs lists the physical GPUs by name.
func (c *Client) GPUs(ctx context.Context) ([]GPU, error) {
	return ask[[]GPU](ctx, c, "GET", "/v1/gpus", nil)
}

// Tasks returns the contexts of guests that float.
func (c *Client) Tasks(ctx context.Context) (Tasks, error) {
	return ask[Tasks](ctx, c, "GET", "/v1/tasks", nil)
}

// EventKernels returns the event kernels of all guests.
func (c *Client) EventKernels(ctx context.Context) ([]EventKernel, error) {
	return ask[[]EventKernel](ctx, c, "GET", "/v1/event-kernels", nil)
}

// UpdateGPU changes how a GPU is shared, at once.
func (c *Client) UpdateGPU(ctx context.Context, name string, u GPUUpdate) (GPU, error) {
	return ask[GPU](ctx, c, "PATCH", "/v1/gpus/"+url.PathEscape(name), u)
}

// Health returns the daemon's state.
func (c *Client) Health(ctx context.Context) (Health, error) {
	return ask[Health](ctx, c, "GET", "/v1/health", nil)
}

// Error is the daemon's refusal of a request.
type Error struct {
	Status  int // of HTTP
	Message string
	code    string
}

// Error returns the daemon's message.
func (e *Error) Error() string { return e.Message }

// Is matches the errors of this package.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Status == http.StatusNotFound
	case ErrExists:
		return e.Status == http.StatusConflict && e.code == ""
	case ErrInUse:
		return e.Status == http.StatusConflict && e.code == codeInUse
	case ErrInvalid:
		return e.Status == http.StatusBadRequest
	case ErrBusy:
		return e.Status == http.StatusServiceUnavailable
	case ErrForbidden:
		return e.Status == http.StatusForbidden
	case ErrNoRoom:
		return e.Status == http.StatusInsufficientStorage && e.code == ""
	case ErrNotSaved:
		return e.Status == http.StatusInsufficientStorage && e.code == codeNotSaved
	}
	return false
}

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 64 << 20

func ask[T any](ctx context.Context, c *Client, method, path string, body any) (v T, err error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return v, fmt.Errorf("encode a request: %w", err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, r)
	if err != nil {
		return v, fmt.Errorf("ask the daemon: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return v, c.explain(err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return v, refusal(resp)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return v, fmt.Errorf("read the daemon's answer: %w", err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("decode the daemon's answer: %w", err)
	}
	return v, nil
}

// refusal returns the error that an unsuccessful answer tells.
func refusal(resp *http.Response) error {
	p := problem{Error: resp.Status}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	if err := json.Unmarshal(b, &p); err != nil {
		p.Error = resp.Status
	}
	return &Error{Status: resp.StatusCode, Message: p.Error, code: p.Code}
}

// explain adds what to do if the daemon can't be reached.
func (c *Client) explain(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the URL, whose host has no meaning
	}
	if c.tls != nil {
		return c.tls.explain(c.where, err)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no daemon listens on %s; start it with `vgpud serve` (systemctl start vgpud), or name its socket with %s: %w", c.where, c.setting, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("not allowed to use %s; run as root, or as a member of its group, which access.group of the daemon's configuration names: %w", c.where, err)
	default:
		return fmt.Errorf("ask the daemon on %s: %w", c.where, err)
	}
}
