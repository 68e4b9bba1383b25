package placement

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vgpud/internal/strictyaml"
	"vgpud/mediator/api"
	"vgpud/mediator/statefile"
)

// DefaultConfig is the configuration file of vgpu-placement, which libvirt's hook reads too.
const DefaultConfig = "/etc/vgpud/placement.yaml"

// Config has the address of Placement, the credential, and which compute node this host is. The agent's own
// settings are in the same file.
type Config struct {
	Keystone Keystone `yaml:"keystone"`
	// Endpoint is Placement's URL, if it is not to be that of Keystone's catalog.
	Endpoint string `yaml:"endpoint"`
	// Timeout bounds each request.
	Timeout time.Duration `yaml:"timeout"`
	// CAFile has the authorities that may vouch for Keystone and Placement, if not the system's.
	CAFile string `yaml:"ca_file"`

	// ComputeNode is the UUID of the compute node's provider. If it is empty, that is read from
	// ComputeIDFile, where nova-compute keeps it, or else looked up by Host.
	ComputeNode   string `yaml:"compute_node"`
	ComputeIDFile string `yaml:"compute_id_file"`
	// Host is the hypervisor's host name, as `openstack hypervisor list` shows it.
	Host string `yaml:"host"`

	// Socket is the daemon's socket.
	Socket string `yaml:"socket"`
	// StateDir is where the agent keeps what it must know after a restart.
	StateDir string `yaml:"state_dir"`
	// AgentSocket is where the agent answers vgpud about guests that Nova does not place; empty for
	// nowhere.
	AgentSocket string `yaml:"agent_socket"`
	// Metrics is the address of the agent's metrics; empty for none.
	Metrics string `yaml:"metrics"`
	// Poll is how often the daemon is asked, and Heartbeat how often Placement is read without a
	// change.
	Poll      time.Duration `yaml:"poll"`
	Heartbeat time.Duration `yaml:"heartbeat"`
	// DaemonGrace is how long the daemon may not answer before its GPUs are taken out.
	DaemonGrace time.Duration `yaml:"daemon_grace"`
	// Keep is what of each GPU is never offered.
	Keep struct {
		Share     int    `yaml:"share"`
		MemoryMiB uint32 `yaml:"memory_mib"`
	} `yaml:"keep"`
}

// Keystone is the credential: of a user with a password, or of an application. Without a URL no
// token is asked for, which is for a Placement without Keystone: a test's.
type Keystone struct {
	URL           string `yaml:"url"`
	Username      string `yaml:"username"`
	UserDomain    string `yaml:"user_domain"`
	Project       string `yaml:"project"`
	ProjectDomain string `yaml:"project_domain"`
	// PasswordFile has the user's password, without a line's end.
	PasswordFile string `yaml:"password_file"`
	// ApplicationCredential is the id of an application credential, and SecretFile has its secret.
	ApplicationCredential string `yaml:"application_credential"`
	SecretFile            string `yaml:"secret_file"`
	Region                string `yaml:"region"`
	// Interface is the kind of endpoint: internal, public or admin.
	Interface string `yaml:"interface"`
}

// Limits of a configuration's times.
const (
	maxTimeout = time.Minute
	maxEvery   = time.Hour
)

// maxFile bounds the files that are read, in bytes.
const maxFile = 1 << 20

// ReadConfig reads a configuration file. Unknown keys are errors.
func ReadConfig(path string) (Config, error) {
	b, err := statefile.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, fmt.Errorf("no configuration %s: copy deploy/placement.yaml, and name Keystone's URL and a user in it", path)
	}
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	var c Config
	if _, err := strictyaml.Unmarshal(b, &c); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", strictyaml.Named(path, err))
	}
	if err := c.complete(); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// complete fills in defaults and checks.
func (c *Config) complete() error {
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, time.Minute)
	c.DaemonGrace = cmp.Or(c.DaemonGrace, 10*time.Second)
	c.Socket = cmp.Or(c.Socket, api.DefaultSocket)
	c.StateDir = cmp.Or(c.StateDir, "/var/lib/vgpu-placement")
	c.ComputeIDFile = cmp.Or(c.ComputeIDFile, "/var/lib/nova/compute_id")
	k := &c.Keystone
	k.Interface = cmp.Or(k.Interface, "internal")
	k.UserDomain = cmp.Or(k.UserDomain, "Default")
	k.Project = cmp.Or(k.Project, "service")
	k.ProjectDomain = cmp.Or(k.ProjectDomain, "Default")
	for what, d := range map[string]struct{ is, most time.Duration }{
		"timeout": {c.Timeout, maxTimeout}, "poll": {c.Poll, maxEvery}, "heartbeat": {c.Heartbeat, maxEvery}, "daemon_grace": {c.DaemonGrace, maxEvery},
	} {
		if d.is <= 0 || d.is > d.most {
			return fmt.Errorf("%s %v: want a time above 0, at most %v", what, d.is, d.most)
		}
	}
	switch {
	case k.URL == "" && c.Endpoint == "":
		return errors.New("keystone.url is missing: want Keystone's address, such as http://controller:5000/v3")
	case k.URL != "" && k.ApplicationCredential == "" && (k.Username == "" || k.PasswordFile == ""):
		return errors.New("keystone: want username and password_file, or application_credential and secret_file")
	case k.ApplicationCredential != "" && k.SecretFile == "":
		return errors.New("keystone.secret_file is missing: the file with the application credential's secret")
	case k.Interface != "internal" && k.Interface != "public" && k.Interface != "admin":
		return fmt.Errorf("keystone.interface %q: want internal, public or admin", k.Interface)
	case c.ComputeNode != "" && api.CheckUUID(c.ComputeNode) != nil:
		return fmt.Errorf("compute_node %q: want a UUID in lower case", c.ComputeNode)
	case c.Keep.Share < 0 || c.Keep.Share > 100:
		return fmt.Errorf("keep.share %d: want 0 to 100", c.Keep.Share)
	case c.Keep.MemoryMiB > 1<<31-1:
		return fmt.Errorf("keep.memory_mib %d: want less than 2^31", c.Keep.MemoryMiB)
	}
	for what, s := range map[string]string{"keystone.url": k.URL, "endpoint": c.Endpoint} {
		if u, err := url.Parse(s); s != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("%s %q: want an address such as https://controller:5000/v3", what, s)
		}
	}
	for what, s := range map[string]string{"socket": c.Socket, "state_dir": c.StateDir, "compute_id_file": c.ComputeIDFile} {
		if !filepath.IsAbs(s) {
			return fmt.Errorf("%s %q: want an absolute path", what, s)
		}
	}
	if c.AgentSocket != "" && !filepath.IsAbs(c.AgentSocket) {
		return fmt.Errorf("agent_socket %q: want an absolute path", c.AgentSocket)
	}
	if c.Host == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find out this host's name, or set host: %w", err)
		}
		c.Host = host
	}
	return nil
}

// secret reads a file with a secret, of which a last line's end is not part.
func secret(what, path string) (string, error) {
	b, err := statefile.Read(path, maxFile)
	if err != nil {
		return "", fmt.Errorf("read keystone.%s: %w", what, err)
	}
	s := strings.TrimRight(string(b), "\r\n")
	if s == "" {
		return "", fmt.Errorf("keystone.%s: %s is empty", what, path)
	}
	return s, nil
}
