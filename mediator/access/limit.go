package access

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Limits of connections to one listener.
const (
	// MaxConns is how many connections there are at a time, beside those of root's processes.
	MaxConns = 512
	// MaxConnsEach is how many of them one user has over a unix socket, or one address over TCP.
	MaxConnsEach = 64
)

// Limit returns a listener that answers connections beyond the limits with HTTP's status 503. So no
// user or address keeps others from connecting. Root's processes have no limit.
func Limit(l net.Listener) net.Listener { return &limited{Listener: l, each: make(map[string]int)} }

type limited struct {
	net.Listener

	mu   sync.Mutex
	all  int
	each map[string]int
}

// Accept implements [net.Listener].
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		who := sender(c)
		if who == root {
			return c, nil
		}
		if reason := l.admit(who); reason != "" {
			go turnAway(c, reason)
			continue
		}
		return &limitedConn{Conn: c, done: sync.OnceFunc(func() { l.leave(who) })}, nil
	}
}

// root is the sender of connections without limits.
const root = "uid 0"

// sender returns what a connection is counted by.
func sender(c net.Conn) string {
	if p, err := Peer(c); err == nil {
		return fmt.Sprintf("uid %d", p.UID)
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return "unknown"
	}
	return host
}

// admit counts a connection, or returns why there is no room for it.
func (l *limited) admit(who string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.each[who] >= MaxConnsEach:
		return fmt.Sprintf("%s has %d connections already: close some", who, MaxConnsEach)
	case l.all >= MaxConns:
		return fmt.Sprintf("there are %d connections already: try again later", MaxConns)
	}
	l.all++
	l.each[who]++
	return ""
}

func (l *limited) leave(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.each[who]--; l.each[who] == 0 {
		delete(l.each, who)
	}
}

// turnAway answers a connection that there is no room for. Under TLS the client sees only that it is
// closed.
func turnAway(c net.Conn, reason string) {
	body := fmt.Sprintf("{\"error\":%q}\n", reason)
	if err := c.SetDeadline(time.Now().Add(time.Second)); err == nil {
		fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	c.Close()
}

// limitedConn is a connection that is counted until it is closed.
type limitedConn struct {
	net.Conn
	done func()
}

// Close implements [net.Conn].
func (c *limitedConn) Close() error {
	defer c.done()
	return c.Conn.Close()
}

// NetConn returns the connection underneath.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }
