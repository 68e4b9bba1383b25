package soft

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"vgpud/gpu"
)

// ControlDriver is a [ContextDriver] that can give other processes control of its context.
type ControlDriver interface {
	// Control returns the files to pass to the other process. The caller closes them.
	Control() (*os.File, error)
}

// Controller is a [Driver] that controls another process's context through passed files.
type Controller interface {
	// Control takes over the files, even if it fails.
	Control(h gpu.Handles) (gpu.Control, error)
}

var (
	_ gpu.Handled    = (*deviceContext)(nil)
	_ gpu.Controller = (*Device)(nil)
)

// Handles returns the context's files, once.
func (c *deviceContext) Handles() (gpu.Handles, error) {
	cd, ok := c.cd.(ControlDriver)
	if !ok {
		return gpu.Handles{}, fmt.Errorf("handles of a context of a soft GPU in this process: %w", gpu.ErrUnsupported)
	}
	f, err := cd.Control()
	if err != nil {
		return gpu.Handles{}, err
	}
	return gpu.Handles{Files: []*os.File{f}, Names: json.RawMessage(`{}`)}, nil
}

// Control returns control of another process's context, given its files.
func (d *Device) Control(h gpu.Handles) (gpu.Control, error) {
	if dd, ok := d.d.(Controller); ok {
		return dd.Control(h)
	}
	err := fmt.Errorf("control of a context of a soft GPU in this process: %w", gpu.ErrUnsupported)
	for _, f := range h.Files {
		err = errors.Join(err, f.Close())
	}
	return nil, err
}
