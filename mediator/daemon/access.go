package daemon

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"vgpud/mediator/access"
	"vgpud/mediator/audit"
)

// AuditConfig says where changes over the API are recorded.
type AuditConfig struct {
	// File is an absolute path; empty means the daemon's log.
	File string `yaml:"file,omitempty"`
	// MaxBytes is the size at which the file is rotated: 16 MiB. Keep is how many older files are
	// kept: 4.
	MaxBytes int64 `yaml:"max_bytes,omitempty"`
	Keep     int   `yaml:"keep,omitempty"`
}

// The bounds of the audit file. A smaller one would not hold the largest record, of some kilobytes.
const (
	minAuditBytes = 64 << 10
	maxAuditBytes = 1 << 40
	maxAuditKeep  = 1000
)

func (c *AuditConfig) check() error {
	switch {
	case c.File != "" && !filepath.IsAbs(c.File):
		return fmt.Errorf("file %q: want an absolute path, or nothing for the daemon's log", c.File)
	case c.MaxBytes != 0 && (c.MaxBytes < minAuditBytes || c.MaxBytes > maxAuditBytes):
		return fmt.Errorf("max_bytes %d: want %d to %d", c.MaxBytes, minAuditBytes, int64(maxAuditBytes))
	case c.Keep < 0 || c.Keep > maxAuditKeep:
		return fmt.Errorf("keep %d: want 1 to %d", c.Keep, maxAuditKeep)
	}
	return nil
}

func (c *AuditConfig) options(log *slog.Logger) audit.Options {
	return audit.Options{
		File: c.File, MaxBytes: cmp.Or(c.MaxBytes, audit.DefaultMaxBytes), Keep: cmp.Or(c.Keep, audit.DefaultKeep), Log: log,
	}
}

// caller returns who sent a request, by the newest configuration.
func (s *Service) caller(r *http.Request) access.Caller { return s.access.Load().Caller(r) }

// setAccess looks up who may use the API. The socket, if it is there, is not changed.
func (s *Service) setAccess(c *access.Config) error {
	rules, err := c.Rules()
	if err != nil {
		return fmt.Errorf("access: %w", err)
	}
	s.access.Store(rules)
	return nil
}

// shareSocket lets the configured group, and nobody else, connect to the API's socket.
func (s *Service) shareSocket() error {
	gid, mode := os.Getegid(), os.FileMode(0o600)
	if group, ok := s.access.Load().SocketGroup(); ok {
		gid, mode = group, 0o660
	}
	path := s.o.Config.Socket
	// In between nobody but the owner may connect.
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("restrict the API's socket: %w", err)
	}
	if err := os.Chown(path, -1, gid); err != nil {
		return fmt.Errorf("give the API's socket to group %d: %w", gid, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("let group %d use the API's socket: %w", gid, err)
	}
	return nil
}
