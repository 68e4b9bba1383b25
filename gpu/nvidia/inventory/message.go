package inventory

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode"
)

// Bounds on the program's messages: the program is trusted to be ours, but the library in it is
// not.
const (
	maxLine = 256 << 10 // bytes
	maxGPUs = 64
	maxText = 128 // bytes of a name or a version
	maxList = 16
)

// Message is one line of the program, with one of its fields set. The first message is the
// inventory, or the error that prevents it.
type Message struct {
	Inventory *Inventory `json:"inventory,omitempty"`
	// Samples are of all GPUs. An empty list means only that the library answers.
	Samples []Sample  `json:"samples,omitzero"`
	Xid     *XidEvent `json:"xid,omitempty"`
	Error   *Problem  `json:"error,omitempty"`
}

// Problem is an error in the form in which it is sent.
type Problem struct {
	Text string `json:"text"`
	// Unavailable reports whether it is an [ErrUnavailable].
	Unavailable bool `json:"unavailable,omitempty"`
}

// Error returns the text of the error that was sent.
func (p *Problem) Error() string { return p.Text }

// Is matches [ErrUnavailable].
func (p *Problem) Is(target error) bool { return target == ErrUnavailable && p.Unavailable }

func newProblem(err error) *Problem {
	return &Problem{Text: err.Error(), Unavailable: errors.Is(err, ErrUnavailable)}
}

// Decode decodes a line. Its result is bounded, with finite numbers and printable strings. Any
// other line is an error.
func Decode(line []byte) (Message, error) {
	var m Message
	if len(line) > maxLine {
		return m, fmt.Errorf("a line of %d bytes: want at most %d", len(line), maxLine)
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return Message{}, fmt.Errorf("decode a line: %w", err)
	}
	if err := m.check(); err != nil {
		return Message{}, fmt.Errorf("a line of %s: %w", ProgramName, err)
	}
	return m, nil
}

func (m *Message) check() error {
	switch {
	case m.Error != nil:
		m.Error.Text = plain(m.Error.Text, 8*maxText)
		return nil
	case m.Inventory != nil:
		return m.Inventory.check()
	case m.Xid != nil:
		return checkUUID(m.Xid.UUID)
	case m.Samples == nil:
		return errors.New("it says nothing")
	case len(m.Samples) > maxGPUs:
		return fmt.Errorf("%d GPUs: want at most %d", len(m.Samples), maxGPUs)
	}
	for i := range m.Samples {
		if err := m.Samples[i].check(); err != nil {
			return fmt.Errorf("sample %d: %w", i, err)
		}
	}
	return nil
}

func (v *Inventory) check() error {
	if len(v.GPUs) > maxGPUs {
		return fmt.Errorf("%d GPUs: want at most %d", len(v.GPUs), maxGPUs)
	}
	v.Driver = plain(v.Driver, maxText)
	for i := range v.GPUs {
		g := &v.GPUs[i]
		if err := checkUUID(g.UUID); err != nil {
			return fmt.Errorf("GPU %d: %w", i, err)
		}
		for _, s := range []*string{&g.PCI, &g.Name, &g.MIG, &g.ComputeMode, &g.Persistence} {
			*s = plain(*s, maxText)
		}
	}
	return nil
}

func (s *Sample) check() error {
	if err := checkUUID(s.UUID); err != nil {
		return err
	}
	for _, f := range []*float64{s.TemperatureCelsius, s.PowerWatts, s.PowerLimitWatts, s.SMClockHertz, s.MemoryClockHertz, s.BusyRatio, s.MemoryBusyRatio} {
		if f != nil && (math.IsNaN(*f) || math.IsInf(*f, 0)) { // JSON has neither, a later encoding might
			return fmt.Errorf("a value of %v", *f)
		}
	}
	if len(s.Throttled) > maxList {
		return fmt.Errorf("%d reasons of throttling: want at most %d", len(s.Throttled), maxList)
	}
	for i := range s.Throttled {
		s.Throttled[i] = plain(s.Throttled[i], maxText)
	}
	s.Recovery = Recovery(plain(string(s.Recovery), maxText))
	return nil
}

// checkUUID checks the string that is used as a metrics label and a map key.
func checkUUID(uuid string) error {
	if uuid == "" || len(uuid) > maxText || plain(uuid, maxText) != uuid {
		return fmt.Errorf("UUID %q: want GPU-…, as the driver has it", plain(uuid, maxText))
	}
	return nil
}

// plain returns s without unprintable characters, cut to most bytes.
func plain(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	for len(s) > most {
		runes := []rune(s)
		s = string(runes[:min(len(runes)-1, most)])
	}
	return s
}

// scan decodes lines until the end or the first invalid message.
func scan(r io.Reader, f func(Message) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		m, err := Decode(s.Bytes())
		if err != nil {
			return err
		}
		if err := f(m); err != nil {
			return err
		}
	}
	return s.Err()
}
