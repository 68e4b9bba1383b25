package main

import (
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal creates a pair of pseudo-terminals: what is written to one arrives at the other as over
// a serial line.
func terminal(t *testing.T) (host *os.File, path string) {
	t.Helper()
	host, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	if err := unix.IoctlSetPointerInt(int(host.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(host.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return host, fmt.Sprintf("/dev/pts/%d", n)
}

// TestSerialIsTransparent checks that every byte arrives as it was sent, in both directions, and
// none is echoed.
func TestSerialIsTransparent(t *testing.T) {
	host, path := terminal(t)
	guest, err := openSerial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	// If the terminal echoed what goes to the guest, the host would read that first.
	for _, way := range []struct {
		name     string
		from, to *os.File
	}{{"to the guest", host, guest}, {"to the host", guest, host}} {
		if _, err := way.from.Write(all[:]); err != nil {
			t.Fatal(err)
		}
		var got [256]byte
		if _, err := io.ReadFull(way.to, got[:]); err != nil {
			t.Fatal(err)
		}
		if got != all {
			t.Errorf("%s: %q", way.name, got)
		}
	}
	if _, err := openSerial("/dev/null"); err == nil {
		t.Error("/dev/null is taken for a serial port")
	}
}

// TestSerialBeginsEmpty checks that what arrived before the port was opened, from another boot, is
// discarded.
func TestSerialBeginsEmpty(t *testing.T) {
	host, path := terminal(t)
	if _, err := host.Write([]byte("old\n")); err != nil {
		t.Fatal(err)
	}
	guest, err := openSerial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	if _, err := host.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 3)
	if _, err := io.ReadFull(guest, got); err != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
}
