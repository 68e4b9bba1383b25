package placement

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"vgpud/mediator/api"
	"vgpud/mediator/nova"
	"vgpud/mediator/statefile"
)

// Namer finds providers by their names: see [Client.Named].
type Namer interface {
	Named(ctx context.Context, name string) (nova.Provider, error)
}

// FindNode returns the UUID of the compute node's provider: as configured, as nova-compute keeps it,
// or by the host's name.
func FindNode(ctx context.Context, c Config, p Namer) (string, error) {
	if node, err := LocalNode(c); node != "" || err != nil {
		return node, err
	}
	found, err := p.Named(ctx, c.Host)
	if err != nil {
		return "", err
	}
	return found.UUID, nil
}

// LocalNode returns the UUID of the compute node's provider if it is known on this host, or "".
func LocalNode(c Config) (string, error) {
	if c.ComputeNode != "" {
		return c.ComputeNode, nil
	}
	b, err := statefile.Read(c.ComputeIDFile, 128)
	switch {
	case err == nil:
		id := strings.ToLower(strings.TrimSpace(string(b)))
		if err := api.CheckUUID(id); err != nil {
			return "", fmt.Errorf("%s: %w", c.ComputeIDFile, err)
		}
		return id, nil
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("read the compute node's UUID: %w", err)
	}
	return "", nil
}
