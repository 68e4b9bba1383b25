package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"vgpud/mediator/ipc"
)

// devicesOf returns the device nodes that an executor on g needs. root is the host's file system.
func devicesOf(root fs.FS, g ipc.GPU) ([]string, error) {
	if g.Kind != "nvidia" {
		return nil, nil
	}
	// The driver has a directory here for each GPU, named by its PCI address.
	const gpus = "proc/driver/nvidia/gpus"
	entries, err := fs.ReadDir(root, gpus)
	if err != nil {
		return nil, fmt.Errorf("list NVIDIA GPUs (is the driver loaded?): %w", err)
	}
	nodes := []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}
	for _, e := range entries {
		text, err := fs.ReadFile(root, path.Join(gpus, e.Name(), "information"))
		if err != nil {
			return nil, fmt.Errorf("read about NVIDIA GPU %s: %w", e.Name(), err)
		}
		about := fields(string(text))
		if g.Device != "" && about["GPU UUID"] != g.Device {
			continue
		}
		minor := about["Device Minor"]
		if minor == "" {
			return nil, fmt.Errorf("NVIDIA GPU %s has no device minor in its information file", e.Name())
		}
		return append(nodes, "/dev/nvidia"+minor), nil
	}
	return nil, fmt.Errorf("the driver shows no NVIDIA GPU %s under /%s", g.Device, gpus)
}

// fields parses lines of "name: value".
func fields(text string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			m[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return m
}

// groupsOf returns the groups that own those nodes which are accessible to their group but not to
// all users.
func groupsOf(nodes []string) ([]uint32, error) {
	var groups []uint32
	for _, node := range nodes {
		st, err := os.Stat(node)
		if err != nil {
			return nil, fmt.Errorf("stat a device: %w", err)
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		const groupOnly, all = 0o060, 0o006
		if !ok || st.Mode().Perm()&all == all || st.Mode().Perm()&groupOnly != groupOnly || sys.Gid == 0 {
			continue
		}
		if !slices.Contains(groups, sys.Gid) {
			groups = append(groups, sys.Gid)
		}
	}
	return groups, nil
}
