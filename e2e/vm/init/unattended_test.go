package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// TestPowerButton checks which input events are a press of the power button.
func TestPowerButton(t *testing.T) {
	event := func(kind, code uint16, value uint32) []byte {
		e := make([]byte, 16, inputEventSize)
		e = binary.LittleEndian.AppendUint16(e, kind)
		e = binary.LittleEndian.AppendUint16(e, code)
		return binary.LittleEndian.AppendUint32(e, value)
	}
	other := bytes.Join([][]byte{event(evKey, 30, 1), event(evKey, keyPower, 0), event(0, keyPower, 1)}, nil)
	if err := awaitPress(bytes.NewReader(other)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("without a press: %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if err := awaitPress(bytes.NewReader(append(other, event(evKey, keyPower, 1)...))); err != nil {
		t.Errorf("with a press: %v", err)
	}
}
