package libvirt

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxLine bounds a line of the protocol, in bytes: a domain's XML, and half as much again for its
// encoding as JSON.
const maxLine = 4 << 20

// The operations.
const (
	opDomain  = "domain"
	opDefine  = "define"
	opDomains = "domains"
)

// request is a line to the program.
type request struct {
	ID   uint64 `json:"id"`
	Op   string `json:"op"`
	Key  string `json:"key,omitempty"`
	View View   `json:"view,omitempty"`
	XML  string `json:"xml,omitempty"`
}

// reply is a line from the program: the answer to a request, an event, or with neither the first
// line, which reports the connection, and the last, which reports its end.
type reply struct {
	ID      uint64   `json:"id,omitempty"`
	Event   *Event   `json:"event,omitempty"`
	Domain  *Domain  `json:"domain,omitempty"`
	Domains []Domain `json:"domains,omitempty"`
	Error   *problem `json:"error,omitempty"`
}

// problem is an error as it is sent.
type problem struct {
	Text string `json:"text"`
	Code string `json:"code,omitempty"`
}

var codes = []struct {
	code string
	err  error
}{{"unavailable", ErrUnavailable}, {"no-domain", ErrNoDomain}, {"closed", ErrClosed}}

func newProblem(err error) *problem {
	if err == nil {
		return nil
	}
	p := problem{Text: err.Error()}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			p.Code = c.code
			break
		}
	}
	return &p
}

// Error returns the text of the error that was sent.
func (p *problem) Error() string { return p.Text }

// Is matches the errors of this package.
func (p *problem) Is(target error) bool {
	for _, c := range codes {
		if target == c.err {
			return p.Code == c.code
		}
	}
	return false
}

// lines writes values as lines, from any goroutine.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a line: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.w.Write(append(b, '\n'))
	return err
}

// scan decodes lines and calls f with each, until the end or a line that can't be decoded.
func scan[T any](r io.Reader, f func(T) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		var v T
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			return fmt.Errorf("decode a line: %w", err)
		}
		if err := f(v); err != nil {
			return err
		}
	}
	return s.Err()
}
