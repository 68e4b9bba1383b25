package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestOpenPowerButton checks that the power button is told from other input devices.
func TestOpenPowerButton(t *testing.T) {
	root := t.TempDir()
	if f, err := openPowerButton(root); err == nil {
		t.Errorf("without input devices %s is opened", f.Name())
	}
	for event, name := range map[string]string{"event0": "AT Translated Set 2 keyboard", "event1": "Power Button"} {
		dir := filepath.Join(root, "sys", "class", "input", event, "device")
		err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(filepath.Join(root, "dev", "input"), 0o755),
			os.WriteFile(filepath.Join(dir, "name"), []byte(name+"\n"), 0o644), os.WriteFile(filepath.Join(root, "dev", "input", event), nil, 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := openPowerButton(root)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, want := f.Name(), filepath.Join(root, "dev", "input", "event1"); got != want {
		t.Errorf("%s is opened, want %s", got, want)
	}
}

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
