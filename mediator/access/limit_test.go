package access

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestConnectionsAreLimited: one address gets no more than its part, and gets it back when it closes
// connections.
func TestConnectionsAreLimited(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Limit(inner)
	defer l.Close()
	accepted := make(chan net.Conn, MaxConns)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	first := dial("127.0.0.1")
	servers := []net.Conn{<-accepted}
	for range MaxConnsEach - 1 {
		dial("127.0.0.1")
		servers = append(servers, <-accepted)
	}
	resp, err := http.ReadResponse(bufio.NewReader(dial("127.0.0.1")), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "127.0.0.1 has 64 connections") {
		t.Errorf("one too many: %d %s, %v", resp.StatusCode, body, err)
	}
	dial("127.0.0.2") // another address has room
	other := <-accepted
	first.Close()
	servers[0].Close()
	servers[0].Close() // which counts once
	dial("127.0.0.1")
	servers[0] = <-accepted
	for _, c := range append(servers, other) {
		c.Close()
	}
	if m := l.(*limited); m.all != 0 || len(m.each) != 0 {
		t.Errorf("%d connections of %v are counted after all are closed", m.all, m.each)
	}
}

// TestAllConnectionsAreLimited: many users together have a limit, too.
func TestAllConnectionsAreLimited(t *testing.T) {
	l := limited{each: make(map[string]int)}
	for i := range MaxConns {
		if reason := l.admit(string(rune('a' + i/MaxConnsEach))); reason != "" {
			t.Fatal(reason)
		}
	}
	if l.admit("z") == "" {
		t.Error("there is no limit of all connections")
	}
	l.leave("a")
	if reason := l.admit("z"); reason != "" {
		t.Error(reason)
	}
}
