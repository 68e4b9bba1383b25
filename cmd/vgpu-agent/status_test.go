package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/guestagent/allot"
)

// TestStatusWhileTheAgentStarts: a connection that a starting agent closes is no error, and a
// device that is checked for the first time is starting.
func TestStatusWhileTheAgentStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			u, err := l.AcceptUnix()
			if err != nil {
				done <- nil
				return
			}
			c := allot.Conn{UnixConn: u}
			var r allot.Request
			if n > 0 { // the first is closed without an answer
				if _, err = c.Receive(&r); err == nil {
					err = c.Send(allot.Reply{Status: []byte(`[{"address":"0000:00:10.0","state":"preparing"},{"address":"0000:00:11.0","state":"ready"}]`)})
				}
			}
			if err != nil {
				done <- err
				return
			}
			_ = c.Close()
		}
	}()
	f := newFormat()
	f.Kind = "table"
	var out strings.Builder
	if err := printStatus(&out, &options{socket: path}, &f); err != nil {
		t.Error(err)
	}
	want := `DEVICE         STATE      GPU   LAUNCH   PROGRAMS   PROBLEM
0000:00:10.0   starting   -     -        0          -
0000:00:11.0   ready      -     -        0          -
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
