package qmpconn

import (
	"encoding/json"
	"fmt"
)

// Error is QEMU's refusal of a command.
type Error struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

// Error returns QEMU's text.
func (e *Error) Error() string { return e.Desc }

// Event is an asynchronous message of QEMU's.
type Event struct {
	Event string         `json:"event"` // its name, such as "RESET"
	Data  map[string]any `json:"data"`
}

// message is any message of QEMU's.
type message struct {
	QMP    json.RawMessage `json:"QMP"` // of a greeting
	Return json.RawMessage `json:"return"`
	Error  *Error          `json:"error"`
	Event
}

// Encode returns the message that runs a command. args may be nil.
func Encode(command string, args any) ([]byte, error) {
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, args})
	if err != nil {
		return nil, fmt.Errorf("encode the command: %w", err)
	}
	return b, nil
}

// Decode decodes the answer to a command into result, which may be nil. It returns an [*Error] if
// QEMU refused the command.
func Decode(answer []byte, result any) error {
	var m message
	if err := json.Unmarshal(answer, &m); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	return m.decode(result)
}

// decode is [Decode] of a message that is an answer.
func (m *message) decode(result any) error {
	if m.Error != nil {
		return m.Error
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(m.Return, result); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	return nil
}
