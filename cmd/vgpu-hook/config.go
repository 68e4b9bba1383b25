package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"vgpud/internal/strictyaml"
	"vgpud/mediator/api"
	"vgpud/mediator/nova/instance"
	"vgpud/mediator/nova/placement"
)

// Environment variables, for callers other than libvirt, which passes none on.
const (
	socketVariable = "VGPUD_SOCKET"      // the daemon's socket
	configVariable = "VGPUD_HOOK_CONFIG" // the configuration file
	noSyslog       = "VGPUD_NO_SYSLOG"   // if set, the system's log is not used
)

// config is the hook's configuration file, in YAML. All keys are optional, and so is the file.
type config struct {
	// Socket is the daemon's socket.
	Socket string `yaml:"socket"`
	// User and Group are QEMU's user and group, as names or numbers, if the domain does not give
	// them; empty means those of libvirt's configuration.
	User  string `yaml:"user"`
	Group string `yaml:"group"`
	// RunDir is the daemon's run_dir; by default the directory of its socket.
	RunDir string `yaml:"run_dir"`
	// Timeout bounds the daemon's answers, 10 minutes at most; see limit.
	Timeout time.Duration `yaml:"timeout"`
	// PIDDir is the directory of libvirt's PID files.
	PIDDir string `yaml:"pid_dir"`
	// SaveDir is the directory of libvirt's managed saves.
	SaveDir string `yaml:"save_dir"`
	// QEMUConf is libvirt's configuration of its QEMU driver.
	QEMUConf string `yaml:"qemu_conf"`
	// Nova, if it is there, gives Nova's instances what Placement granted them.
	Nova *novaConfig `yaml:"nova"`
}

// novaConfig is the configuration for hosts that OpenStack's Nova drives.
type novaConfig struct {
	// Placement is the configuration file of vgpu-placement, with Placement's address.
	Placement string `yaml:"placement"`
	// Share says what an instance's share gives.
	Share instance.Share `yaml:"share"`
	// EmulatorDir is the directory of the program that adds virtual GPUs to QEMU's command line.
	EmulatorDir string `yaml:"emulator_dir"`
	// StateDir has what Placement said last of each instance.
	StateDir string `yaml:"state_dir"`
	// Flavors are settings by flavor, for releases of Nova that do not tell extra specs.
	Flavors instance.Flavors `yaml:"flavors"`
}

// complete fills in defaults and checks.
func (c *novaConfig) complete() error {
	c.Placement = cmp.Or(c.Placement, placement.DefaultConfig)
	c.Share = cmp.Or(c.Share, instance.ShareBoth)
	c.EmulatorDir = cmp.Or(c.EmulatorDir, "/usr/local/bin")
	c.StateDir = cmp.Or(c.StateDir, "/var/lib/vgpud/nova")
	for what, path := range map[string]string{"placement": c.Placement, "emulator_dir": c.EmulatorDir, "state_dir": c.StateDir} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("nova: %s %q: want an absolute path", what, path)
		}
	}
	if err := errors.Join(c.Share.Check(), c.Flavors.Check()); err != nil {
		return fmt.Errorf("nova: %w", err)
	}
	return nil
}

const (
	defaultConfig = "/etc/vgpud/hook.yaml"
	// defaultTimeout is longer than the daemon's own limit of 30 s for a virtual GPU, so that the
	// daemon can report the error.
	defaultTimeout = 45 * time.Second
	// maxTimeout is shorter than anybody waits for a VM to start: libvirt waits for the hook, and
	// answers nothing else about the domain meanwhile.
	maxTimeout = 10 * time.Minute
)

// limit returns the time limit for that many virtual GPUs, which the daemon creates and deletes one
// after another: a third more for each further one.
func (c *config) limit(gpus int) time.Duration {
	return c.Timeout + c.Timeout/3*time.Duration(max(gpus-1, 0))
}

// readConfig reads the configuration. Unknown keys are errors.
func readConfig() (config, error) {
	path := cmp.Or(os.Getenv(configVariable), defaultConfig)
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return config{}, fmt.Errorf("read the hook's configuration: %w", err)
	}
	var c config
	if _, err := strictyaml.Unmarshal(b, &c); err != nil {
		return config{}, fmt.Errorf("configuration: %w", strictyaml.Named(path, err))
	}
	c.Socket = cmp.Or(os.Getenv(socketVariable), c.Socket, api.DefaultSocket)
	c.RunDir = cmp.Or(c.RunDir, filepath.Dir(c.Socket))
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.PIDDir = cmp.Or(c.PIDDir, "/run/libvirt/qemu")
	c.SaveDir = cmp.Or(c.SaveDir, "/var/lib/libvirt/qemu/save")
	c.QEMUConf = cmp.Or(c.QEMUConf, "/etc/libvirt/qemu.conf")
	if c.Timeout < 0 || c.Timeout > maxTimeout || !filepath.IsAbs(c.RunDir) || !filepath.IsAbs(c.PIDDir) || !filepath.IsAbs(c.SaveDir) {
		return config{}, fmt.Errorf("configuration %s: timeout %v, run_dir %s, pid_dir %s, save_dir %s: want a time above 0, at most 10m, and absolute paths", path, c.Timeout, c.RunDir, c.PIDDir, c.SaveDir)
	}
	if c.Nova != nil {
		if err := c.Nova.complete(); err != nil {
			return config{}, fmt.Errorf("configuration %s: %w", path, err)
		}
	}
	return c, nil
}
