package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
)

// rs begins a frame. JSON contains no such byte, not even in strings.
const rs = 0x1e

// crcLen is the length of a frame's checksum.
const crcLen = 8

// appendFrame appends the frame of m.
func appendFrame(b []byte, m *Message) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return b, fmt.Errorf("console: encode a %s message: %w", m.Kind, err)
	}
	if n := 1 + crcLen + len(body) + 1; n > MaxFrame {
		return b, fmt.Errorf("console: a %s message of %d bytes is over the limit of %d", m.Kind, n, MaxFrame)
	}
	b = append(b, rs)
	b = fmt.Appendf(b, "%08x", crc32.ChecksumIEEE(body))
	b = append(b, body...)
	return append(b, '\n'), nil
}

// parseFrame parses a line without its LF. Bytes before the last RS are not part of the frame.
func parseFrame(line []byte) (m Message, before []byte, ok bool) {
	at := bytes.LastIndexByte(line, rs)
	if at < 0 || len(line) < at+1+crcLen {
		return m, nil, false
	}
	sum, err := strconv.ParseUint(string(line[at+1:at+1+crcLen]), 16, 32)
	body := line[at+1+crcLen:]
	if err != nil || uint32(sum) != crc32.ChecksumIEEE(body) || json.Unmarshal(body, &m) != nil {
		return Message{}, nil, false
	}
	return m, line[:at], true
}

// Reader reads messages from a line.
type Reader struct {
	r io.Reader
	// Noise, if set, is called with bytes that are not messages, at most MaxFrame at a time. They
	// are valid during the call.
	Noise func([]byte)

	buf     []byte // buf[start:end] has been read and not processed
	start   int
	end     int
	scanned int // there is no LF before this index
}

// NewReader returns a reader of the line r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: r, buf: make([]byte, 2*MaxFrame)}
}

// Next waits for the next message and returns it. It returns errors of the line only; bytes that
// are not messages are skipped.
func (r *Reader) Next() (Message, error) {
	for {
		line, err := r.line()
		if err != nil {
			return Message{}, err
		}
		// A terminal may have put a CR before the LF.
		m, before, ok := parseFrame(bytes.TrimRight(line, "\r\n"))
		if !ok {
			r.noise(line)
			continue
		}
		r.noise(before)
		return m, nil
	}
}

// line returns the next line with its LF, valid until the next call.
func (r *Reader) line() ([]byte, error) {
	for {
		if i := bytes.IndexByte(r.buf[r.scanned:r.end], '\n'); i >= 0 {
			line := r.buf[r.start : r.scanned+i+1]
			r.start += len(line)
			r.scanned = r.start
			return line, nil
		}
		r.scanned = r.end
		if r.end-r.start >= MaxFrame {
			r.shorten()
		}
		if r.start > 0 {
			r.end = copy(r.buf, r.buf[r.start:r.end])
			r.scanned -= r.start
			r.start = 0
		}
		n, err := r.r.Read(r.buf[r.end:])
		r.end += n
		if err != nil && n == 0 {
			r.noise(r.buf[r.start:r.end])
			r.start, r.scanned = r.end, r.end
			return nil, err
		}
	}
}

// shorten drops the beginning of a line that is too long for a frame: everything before the last
// RS, where a frame may begin, or else all of it.
func (r *Reader) shorten() {
	rest := r.buf[r.start:r.end]
	n := bytes.LastIndexByte(rest, rs)
	if n < 0 || len(rest)-n >= MaxFrame {
		n = len(rest)
	}
	r.noise(rest[:n])
	r.start += n
}

func (r *Reader) noise(p []byte) {
	for r.Noise != nil && len(p) > 0 {
		n := min(len(p), MaxFrame)
		r.Noise(p[:n])
		p = p[n:]
	}
}
