package rm

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// DriverVersion reads the version of the loaded driver. root is the root of the file system.
func DriverVersion(root fs.FS) (string, error) {
	b, err := fs.ReadFile(root, "sys/module/nvidia/version")
	if err != nil {
		return "", fmt.Errorf("ask for the NVIDIA driver's version (is its kernel module loaded?): %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Lookup finds the node of the GPU at a PCI address. root is the root of the file system.
func Lookup(root fs.FS, pci string) (GPU, error) {
	if _, _, _, err := parsePCI(pci); err != nil {
		return GPU{}, err
	}
	b, err := fs.ReadFile(root, path.Join("proc/driver/nvidia/gpus", strings.ToLower(pci), "information"))
	if err != nil {
		return GPU{}, fmt.Errorf("look for the GPU at %s among the NVIDIA driver's: %w", pci, err)
	}
	for l := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(l, ":")
		if strings.TrimSpace(key) != "Device Minor" {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 8)
		if err != nil {
			return GPU{}, fmt.Errorf("the NVIDIA driver's number of the GPU at %s: %w", pci, err)
		}
		return GPU{PCI: pci, Minor: int(n)}, nil
	}
	return GPU{}, fmt.Errorf("the NVIDIA driver does not say which of its device nodes is the GPU at %s", pci)
}
