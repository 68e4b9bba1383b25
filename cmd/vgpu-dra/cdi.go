package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	cdi "tags.cncf.io/container-device-interface/specs-go"

	"vgpud/mediator/kubernetes"
	"vgpud/mediator/statefile"
)

// cdiKind is the kind of our devices for container runtimes.
const cdiKind = kubernetes.Driver + "/vgpu"

// socketIn returns where a container has the socket of its n-th virtual GPU.
func socketIn(n int) string { return fmt.Sprintf("/run/vgpud/vgpu%d.sock", n) }

// deviceID returns the name of a claim's n-th virtual GPU for container runtimes.
func deviceID(claim string, n int) string { return fmt.Sprintf("%s=%s-%d", cdiKind, claim, n) }

func cdiFile(dir, claim string) string {
	return filepath.Join(dir, kubernetes.Driver+"-vgpu-"+claim+".json")
}

// writeCDI tells container runtimes of the sockets of a claim's virtual GPUs. A container gets those
// of its claims, and no more of the host's.
func writeCDI(dir, claim string, sockets []string) error {
	spec := cdi.Spec{Version: "0.6.0", Kind: cdiKind}
	for n, s := range sockets {
		spec.Devices = append(spec.Devices, cdi.Device{
			Name: fmt.Sprintf("%s-%d", claim, n),
			ContainerEdits: cdi.ContainerEdits{
				Env:    []string{fmt.Sprintf("VGPUD_SOCKET_%d=%s", n, socketIn(n))},
				Mounts: []*cdi.Mount{{HostPath: s, ContainerPath: socketIn(n), Options: []string{"bind", "rw"}}},
			},
		})
	}
	b, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("tell container runtimes of the devices: %w", err)
	}
	return statefile.Files{}.Write(cdiFile(dir, claim), append(b, '\n'))
}

// removeCDI takes back what writeCDI has told.
func removeCDI(dir, claim string) error {
	if err := os.Remove(cdiFile(dir, claim)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the devices of claim %s: %w", claim, err)
	}
	return nil
}
