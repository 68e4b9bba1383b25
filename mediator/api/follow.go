package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"vgpud/mediator/events"
)

// Events returns the events that the daemon keeps, in order. If since is the id of one of them, it
// returns those after it.
func (c *Client) Events(ctx context.Context, since string) ([]events.Event, error) {
	return ask[[]events.Event](ctx, c, "GET", "/v1/events?since="+url.QueryEscape(since), nil)
}

// FollowEvents calls each with the events that the daemon keeps and with those that happen from
// then on, until ctx ends, each returns an error, or the connection does. If since is the id of an
// event, it starts after that one. missed, if not nil, is called with the reason if some are
// missing. The error is io.EOF if the daemon closed the connection.
func (c *Client) FollowEvents(ctx context.Context, since string, each func(events.Event) error, missed func(reason string)) (err error) {
	req, err := http.NewRequestWithContext(ctx, "GET", c.base+"/v1/events", nil)
	if err != nil {
		return fmt.Errorf("ask the daemon: %w", err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if since != "" {
		req.Header.Set("Last-Event-ID", since)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explain(err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	return readStream(resp.Body, func(kind, data string) error {
		if kind == missedKind {
			var m struct{ Reason string }
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				return fmt.Errorf("decode the daemon's message: %w", err)
			}
			if missed != nil {
				missed(m.Reason)
			}
			return nil
		}
		var e events.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("decode an event: %w", err)
		}
		return each(e)
	})
}

// maxMessage bounds a line of a stream, in bytes.
const maxMessage = 1 << 20

// readStream reads server-sent events and calls each with the kind and the data of every one. It
// returns io.EOF at the end of the stream.
func readStream(r io.Reader, each func(kind, data string) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxMessage)
	var kind string
	var data []string
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if len(data) > 0 {
				if err := each(kind, strings.Join(data, "\n")); err != nil {
					return err
				}
			}
			kind, data = "", nil
		case field == "event":
			kind = value
		case field == "data":
			data = append(data, value)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the daemon's events: %w", err)
	}
	return io.EOF
}
