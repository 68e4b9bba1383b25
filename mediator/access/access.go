// Package access decides what a caller of the daemon's API may do. A caller is the process at the
// other end of a unix socket, by the kernel's word, or the holder of a client certificate; the
// configuration maps both to roles.
//
// [Config] names users, groups and certificates, [Config.Rules] looks their numbers up, and
// [Rules.Caller] answers for a request whose connection has been through [ConnContext].
package access

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Role is what a caller may do. A greater role may do all that a smaller one may.
type Role int

// The roles.
const (
	None     Role = iota
	Viewer        // may read
	Operator      // may change
)

// String returns the role's name in the configuration and in messages.
func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	default:
		return "none"
	}
}

// Caller is the sender of a request, or a part of the daemon that acts by itself.
type Caller struct {
	Role Role
	// Process is set for a request over a unix socket.
	Process *Process
	// Certificate is the subject of the client's certificate, and Serial its serial number, for a
	// request over TLS. Address is the client's.
	Certificate string
	Serial      string
	Address     string
	// Part names the part of the daemon that acts by itself, such as libvirt, whose domains it
	// follows.
	Part string
}

// Process is the process at the other end of a unix socket when it connected.
type Process struct {
	PID int
	UID uint32
	// GIDs are its groups.
	GIDs []uint32
	// User is the name of its user; "" if the user has none.
	User string
}

// Self returns a part of the daemon as the caller.
func Self(part string) Caller { return Caller{Role: Operator, Part: part} }

// As returns a function that gives every request the role, for servers in front of which somebody
// else decides.
func As(r Role) func(*http.Request) Caller {
	return func(*http.Request) Caller { return Caller{Role: r, Part: "test"} }
}

// String describes the caller in one line. A name or a subject in it is quoted if it has other
// characters than those of ordinary names.
func (c Caller) String() string {
	switch {
	case c.Process != nil && c.Process.User != "":
		return fmt.Sprintf("user %s (uid %d, pid %d)", plain(c.Process.User), c.Process.UID, c.Process.PID)
	case c.Process != nil:
		return fmt.Sprintf("uid %d (pid %d)", c.Process.UID, c.Process.PID)
	case c.Certificate != "":
		return fmt.Sprintf("certificate %s from %s", plain(c.Certificate), c.Address)
	case c.Part != "":
		return c.Part
	default:
		return "unknown"
	}
}

// Identity returns the user, the certificate or the address that requests are counted by: all
// processes of a user have one, as have all connections with a certificate, or from an address.
func (c Caller) Identity() string {
	switch {
	case c.Process != nil:
		return fmt.Sprintf("uid %d", c.Process.UID)
	case c.Certificate != "":
		return "certificate " + plain(c.Certificate)
	}
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		host = c.Address
	}
	return strings.TrimSpace(c.Part + " " + host)
}

// plain returns s as it is if that can't be mistaken for more than a name, and quoted otherwise.
func plain(s string) string {
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case r == '-', r == '_', r == '.', r == '@', r == '=', r == ',', r == '/', r == '+':
		default:
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}
