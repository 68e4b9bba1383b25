package access

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// Config names the callers that may use the API. Root and the daemon's own user are always
// operators.
type Config struct {
	// Group owns the API's socket and may connect to it. Its members are viewers, unless they are
	// named as operators. Empty means that only root and the daemon's user may connect.
	Group     string   `yaml:"group,omitempty"`
	Operators Subjects `yaml:"operators,omitempty"`
	Viewers   Subjects `yaml:"viewers,omitempty"`
}

// Subjects are callers that have a role. Users and groups are names or numbers.
type Subjects struct {
	Users  []string `yaml:"users,omitempty"`
	Groups []string `yaml:"groups,omitempty"`
	// Certificates are subject:CN=NAME,O=ORGANISATION (the whole subject), cn:NAME, dns:NAME,
	// email:ADDRESS or uri:URI.
	Certificates []string `yaml:"certificates,omitempty"`
}

// Rules is a configuration whose names have been looked up. It is immutable.
type Rules struct {
	operators, viewers members
	gid                int // of the socket's group, -1 without one
}

// members are the callers that have one role.
type members struct {
	uids, gids   []uint32
	certificates []certificate
}

// certificate matches certificates by one of their names.
type certificate struct{ kind, name string }

// The kinds of a certificate's names.
const (
	bySubject = "subject"
	byCN      = "cn"
	byDNS     = "dns"
	byEmail   = "email"
	byURI     = "uri"
)

// certificateKinds are the kinds in the order in which messages name them.
var certificateKinds = []string{bySubject, byCN, byDNS, byEmail, byURI}

// Rules looks up the names of users and groups.
func (c *Config) Rules() (*Rules, error) {
	r := &Rules{gid: -1}
	var errs [3]error
	if c.Group != "" {
		var gid uint32
		gid, errs[0] = lookupGroup(c.Group)
		r.gid = int(gid)
		r.viewers.gids = append(r.viewers.gids, gid)
	} else if len(c.Operators.Users)+len(c.Operators.Groups)+len(c.Viewers.Users)+len(c.Viewers.Groups) > 0 {
		errs[0] = errors.New("group: want the group that may connect to the socket, of which the named users and groups must be members: without it nobody but root can")
	}
	errs[1] = r.operators.add("operators", &c.Operators)
	errs[2] = r.viewers.add("viewers", &c.Viewers)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return r, nil
}

func (m *members) add(what string, s *Subjects) error {
	var errs []error
	for i, name := range s.Users {
		id, err := lookupUser(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.users[%d]: %w", what, i, err))
		}
		m.uids = append(m.uids, id)
	}
	for i, name := range s.Groups {
		id, err := lookupGroup(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.groups[%d]: %w", what, i, err))
		}
		m.gids = append(m.gids, id)
	}
	for i, text := range s.Certificates {
		kind, name, ok := strings.Cut(text, ":")
		if !ok || name == "" || !slices.Contains(certificateKinds, kind) {
			errs = append(errs, fmt.Errorf("%s.certificates[%d]: %q: want one of %s: and a name, such as cn:alice", what, i, text, strings.Join(certificateKinds, ":, ")))
		}
		m.certificates = append(m.certificates, certificate{kind, name})
	}
	return errors.Join(errs...)
}

// lookupUser returns the number of a user that is given by name or number.
func lookupUser(name string) (uint32, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(id), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("user %q: want a user of this host's /etc/passwd, or a number: %w", name, err)
	}
	return parseID(u.Uid)
}

// lookupGroup returns the number of a group that is given by name or number.
func lookupGroup(name string) (uint32, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(id), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("group %q: want a group of this host's /etc/group, or a number: %w", name, err)
	}
	return parseID(g.Gid)
}

func parseID(s string) (uint32, error) {
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err
}

// SocketGroup returns the group that may connect to the socket; false if none may.
func (r *Rules) SocketGroup() (gid int, ok bool) { return r.gid, r.gid >= 0 }

// Caller returns the sender of a request that came over a unix socket, or over TLS with a client
// certificate that has been verified. Any other has no role.
func (r *Rules) Caller(req *http.Request) Caller {
	if req.TLS != nil {
		if len(req.TLS.VerifiedChains) == 0 {
			return Caller{Address: req.RemoteAddr}
		}
		return r.certified(req.TLS.PeerCertificates[0], req.RemoteAddr)
	}
	p, ok := req.Context().Value(contextKey{}).(*Process)
	if !ok {
		return Caller{Address: req.RemoteAddr}
	}
	return Caller{Process: p, Role: r.role(func(m *members) bool { return m.process(p) }, p.UID == 0 || int(p.UID) == os.Geteuid())}
}

// certified returns the holder of a verified certificate.
func (r *Rules) certified(c *x509.Certificate, address string) Caller {
	return Caller{
		Certificate: c.Subject.String(), Serial: fmt.Sprintf("%x", c.SerialNumber), Address: address,
		Role: r.role(func(m *members) bool { return m.certified(c) }, false),
	}
}

func (r *Rules) role(among func(*members) bool, operator bool) Role {
	switch {
	case operator || among(&r.operators):
		return Operator
	case among(&r.viewers):
		return Viewer
	default:
		return None
	}
}

func (m *members) process(p *Process) bool {
	return slices.Contains(m.uids, p.UID) || slices.ContainsFunc(p.GIDs, func(id uint32) bool { return slices.Contains(m.gids, id) })
}

func (m *members) certified(c *x509.Certificate) bool {
	return slices.ContainsFunc(m.certificates, func(want certificate) bool { return want.matches(c) })
}

func (want certificate) matches(c *x509.Certificate) bool {
	switch want.kind {
	case bySubject:
		return c.Subject.String() == want.name
	case byCN:
		return c.Subject.CommonName == want.name
	case byDNS:
		return slices.Contains(c.DNSNames, want.name)
	case byEmail:
		return slices.Contains(c.EmailAddresses, want.name)
	default:
		for _, u := range c.URIs {
			if u.String() == want.name {
				return true
			}
		}
		return false
	}
}
