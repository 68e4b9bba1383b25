package soft

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"vgpud/gpu"
)

// ControlDriver is a [ContextDriver] whose context other processes can be put in
// control of.
type ControlDriver interface {
	// Control is what to hand them. The caller closes it.
	Control() (*os.File, error)
}

// Controller is a [Driver] that makes power over another process's context of what
// that handed over.
type Controller interface {
	// Control takes the files over, also where it fails.
	Control(h gpu.Handles) (gpu.Control, error)
}

var (
	_ gpu.Handled    = (*deviceContext)(nil)
	_ gpu.Controller = (*Device)(nil)
)

// Handles are the context's, once.
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

// Control makes power over another process's context of its handles.
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
