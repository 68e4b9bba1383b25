// Package reservation is what the daemon asks vgpu-placement before it gives a part of a GPU to a guest
// that Nova did not place: whether Placement has not promised that part to an instance. The agent has
// reserved it in Placement before it answers, so that nobody else gets it meanwhile.
//
// Both ends are here: [Client] for the daemon, and [Handler] for the agent. A request is JSON over
// HTTP on a unix socket.
package reservation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"vgpud/mediator/api"
)

// Request is what a guest is about to have of a GPU. See [api.Terms] for its fields.
type Request struct {
	Guest            string  `json:"guest"`
	GPU              string  `json:"gpu"`
	Float            bool    `json:"float,omitempty"`
	Weight           float64 `json:"weight"`
	Cap              float64 `json:"cap,omitempty"`
	Guarantee        float64 `json:"guarantee,omitempty"`
	MemoryLimitBytes uint64  `json:"memory_limit_bytes,omitempty"`
}

// check returns an error if the daemon could not have sent the request.
func (r *Request) check() error {
	t := api.Terms{Weight: r.Weight, Cap: r.Cap, Guarantee: r.Guarantee, MemoryLimitBytes: r.MemoryLimitBytes}
	return errors.Join(api.CheckName(r.Guest), api.CheckName(r.GPU), t.Check())
}

// ErrSold means that Placement has promised what a request asks for.
var ErrSold = errors.New("it is promised to instances of Nova's")

// Limit bounds an answer in time: a request may need several answers of Placement's.
const Limit = 10 * time.Second

// maxBody bounds a request and an answer, in bytes.
const maxBody = 16 << 10

// Client asks the agent on a socket.
type Client struct{ Socket string }

// Reserve returns nil once Placement has reserved what r asks for. The error wraps [ErrSold] if that
// is promised already, and another error means that it is not known.
func (c Client) Reserve(ctx context.Context, r Request) (err error) {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("ask vgpu-placement: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://vgpu-placement/v1/reserve", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask vgpu-placement: %w", err)
	}
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.Socket)
	}}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("what Placement has promised is not known: ask vgpu-placement on %s (systemctl status vgpu-placement): %w", c.Socket, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	text, rerr := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return nil
	case rerr != nil:
		return fmt.Errorf("read the answer of vgpu-placement: %w", rerr)
	case resp.StatusCode == http.StatusInsufficientStorage:
		return fmt.Errorf("%w: %s", ErrSold, api.CleanText(string(text)))
	}
	return fmt.Errorf("what Placement has promised is not known: %s", api.CleanText(string(text)))
}

// Handler returns the agent's handler. reserve does what [Client.Reserve] says.
func Handler(reserve func(ctx context.Context, r Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "POST" || r.URL.Path != "/v1/reserve" {
			http.NotFound(w, r)
			return
		}
		var ask Request
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		err := d.Decode(&ask)
		if err == nil {
			err = ask.check()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		switch err := reserve(r.Context(), ask); {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case errors.Is(err, ErrSold):
			http.Error(w, err.Error(), http.StatusInsufficientStorage)
		default:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}
