package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vgpud/internal/strictyaml"
	"vgpud/mediator/api"
	"vgpud/mediator/capacity"
	"vgpud/mediator/kubernetes"
	"vgpud/mediator/statefile"
)

const defaultConfig = "/etc/vgpud/kubernetes.yaml"

// config is the configuration file's content.
type config struct {
	// Kubeconfig is the file with the API server's address and the credential. If it is empty, both are
	// those of the pod that the driver runs in.
	Kubeconfig string `yaml:"kubeconfig"`
	// Node is this node's name; by default the host's, in lower case.
	Node string `yaml:"node"`
	// Socket is the daemon's socket.
	Socket string `yaml:"socket"`
	// KubeletDir is the kubelet's directory, and CDIDir is where the container runtime finds devices.
	KubeletDir string `yaml:"kubelet_dir"`
	CDIDir     string `yaml:"cdi_dir"`
	// UID and GID own the sockets of virtual GPUs: QEMU's user in the pod. By default nobody does, and
	// only root may connect.
	UID *int `yaml:"uid"`
	GID *int `yaml:"gid"`
	// Metrics is the address at which metrics are served, such as 127.0.0.1:9879; by default none.
	Metrics string `yaml:"metrics"`
	// Poll is how often the daemon is asked, and Timeout bounds each request.
	Poll    time.Duration `yaml:"poll"`
	Timeout time.Duration `yaml:"timeout"`
	// DaemonGrace is how long the daemon may not answer before its GPUs are taken out.
	DaemonGrace time.Duration `yaml:"daemon_grace"`
	// Keep is what of each GPU is never offered.
	Keep struct {
		Share     int    `yaml:"share"`
		MemoryMiB uint32 `yaml:"memory_mib"`
	} `yaml:"keep"`
}

const (
	maxFile  = 1 << 20
	maxEvery = time.Minute
)

// readConfig reads the configuration file. Unknown keys are errors. Without the file at the default
// place, everything is as by default.
func readConfig(path string) (c config, err error) {
	b, err := statefile.Read(path, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == defaultConfig:
	case err != nil:
		return c, fmt.Errorf("read the configuration: %w", err)
	default:
		if _, err := strictyaml.Unmarshal(b, &c); err != nil {
			return c, fmt.Errorf("configuration: %w", strictyaml.Named(path, err))
		}
	}
	if err := c.complete(); err != nil {
		return c, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// complete fills in defaults and checks.
func (c *config) complete() error {
	c.Socket = cmp.Or(c.Socket, api.DefaultSocket)
	c.KubeletDir = cmp.Or(c.KubeletDir, "/var/lib/kubelet")
	c.CDIDir = cmp.Or(c.CDIDir, "/var/run/cdi")
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Timeout = cmp.Or(c.Timeout, 2*time.Second)
	c.DaemonGrace = cmp.Or(c.DaemonGrace, 10*time.Second)
	if c.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find out this host's name, or set node: %w", err)
		}
		c.Node = strings.ToLower(host)
	}
	for what, d := range map[string]time.Duration{"poll": c.Poll, "timeout": c.Timeout, "daemon_grace": c.DaemonGrace} {
		if d <= 0 || d > maxEvery {
			return fmt.Errorf("%s %v: want a time above 0, at most %v", what, d, maxEvery)
		}
	}
	for what, s := range map[string]string{"socket": c.Socket, "kubelet_dir": c.KubeletDir, "cdi_dir": c.CDIDir} {
		if !filepath.IsAbs(s) {
			return fmt.Errorf("%s %q: want an absolute path", what, s)
		}
	}
	for what, id := range map[string]*int{"uid": c.UID, "gid": c.GID} {
		if id == nil {
			continue
		}
		if err := api.CheckID(what, *id); err != nil {
			return err
		}
	}
	if c.Keep.Share < 0 || c.Keep.Share > capacity.Shares {
		return fmt.Errorf("keep.share %d: want 0 to %d", c.Keep.Share, capacity.Shares)
	}
	if c.Keep.MemoryMiB > capacity.MaxAmount {
		return fmt.Errorf("keep.memory_mib %d: want at most %d", c.Keep.MemoryMiB, capacity.MaxAmount)
	}
	return nil
}

func (c *config) keep() capacity.Keep {
	return capacity.Keep{Share: c.Keep.Share, MemoryMiB: int(c.Keep.MemoryMiB)}
}

// registryDir is where the kubelet looks for drivers, and pluginDir is where this one has its sockets.
func (c *config) registryDir() string { return filepath.Join(c.KubeletDir, "plugins_registry") }

func (c *config) pluginDir() string { return filepath.Join(c.KubeletDir, "plugins", kubernetes.Driver) }
