package remote

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/gpu/soft"
	"vgpud/internal/unixmsg"
)

// Any packet gets a reply or ends its connection, and no other connection.
func FuzzServer(f *testing.F) {
	e, err := soft.Start(soft.Options{MemoryBytes: 16 << 20, Contexts: 8})
	if err != nil {
		f.Fatal(err)
	}
	s := NewServer(e, ServerOptions{})
	f.Cleanup(func() {
		if err := e.Close(); err != nil {
			f.Error(err)
		}
	})
	for _, seed := range []string{
		`{"op":"hello","version":1}`, `{"op":"new-context","memory_limit":1048576}`, `{"op":"alloc","context":1,"size":4096}`,
		`{"op":"free","context":1,"ptr":18446744073709551615}`, `{"op":"load","context":1}`, `{"op":"new-channel","context":1}`,
		`{"op":"slice","context":1,"slice":-1}`, `{"op":"printf","context":1,"max":-5}`, `{"op":"close-context","context":1}`,
		`{"op":"global","context":1,"id":4294967295,"name":"x"}`, `{"op":"set-limit","context":1,"limit":1,"size":18446744073709551615}`, `{"op":"limit","context":1,"limit":2}`,
		`{"op":"texture","context":1,"texture":{"Base":64,"Dims":1,"Size":[4,1,1],"Pitch":16,"Slice":16,"Texel":{"Format":32,"Channels":1}}}`, `{"op":"texture","context":1}`,
		`{"op":"drop-texture","context":1,"handle":4294967296}`, `{"op":"reference","context":1,"id":1,"name":"x"}`, `{"op":"alloc-at","context":1,"size":4096,"ptr":79164837199872}`, `{"op":"map-host","context":1,"size":4096,"offset":18446744073709547520,"ptr":4096}`,
		`{`, `[]`, `{"op":12}`,
	} {
		f.Add([]byte(seed), 1)
	}
	f.Fuzz(func(t *testing.T, packet []byte, files int) {
		a, b := pair(t)
		done := make(chan struct{})
		go func() { defer close(done); s.serve(b, &unix.Ucred{}) }()
		if len(packet) > maxPacket || len(packet) == 0 {
			packet = []byte("{}")
		}
		buf := make([]byte, maxPacket)
		ask := func(p []byte, with ...*os.File) bool {
			if err := send(a, p, with...); err != nil {
				return false
			}
			_, got, err := receive(a, buf)
			_ = unixmsg.CloseAll(got)
			return err == nil
		}
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		var with []*os.File
		for range min(max(files, 0), 5) {
			with = append(with, null)
		}
		ask(packet, with...)
		if ask([]byte(`{"op":"hello","version":1}`)) && ask([]byte(`{"op":"new-context","memory_limit":65536}`)) {
			ask(packet, with...)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		<-done
		if u, err := e.Usage(); err != nil || len(u.Groups) != 0 {
			t.Fatalf("%d contexts are left, %v", len(u.Groups), err)
		}
	})
}

// pair returns two ends of a connection.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}
