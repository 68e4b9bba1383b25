package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vgpud/cmd/internal/cli"
	"vgpud/internal/nearest"
	"vgpud/internal/strictyaml"
	"vgpud/mediator/api"
)

// The environment variables that say which daemon is asked. A flag goes before its variable, and a
// variable before the configuration file.
const (
	socketVariable = "VGPUD_SOCKET"
	hostVariable   = "VGPUD_HOST"
	certVariable   = "VGPUD_CERT"
	keyVariable    = "VGPUD_KEY"
	caVariable     = "VGPUD_CA"
	configVariable = "VGPUCTL_CONFIG"
)

// clientConfigHelp is about the configuration file, in the help of vgpuctl.
const clientConfigHelp = `Settings that are the same each time can stand in
$XDG_CONFIG_HOME/vgpuctl/config.yaml, or in the file that VGPUCTL_CONFIG names:

  host: kvm7            # asked without --host; left out: this host
  cert: alice.pem       # paths are relative to the file
  key: alice.key
  ca: ca.pem
  hosts:
    kvm7: {address: "https://kvm7.example.org:9837"}
    kvm8: {address: "https://10.0.0.8:9837", ca: other-ca.pem}`

// connection says which daemon is asked, and how: this host's over its socket, or another's over
// TLS.
type connection struct {
	flags        *pflag.FlagSet
	socket, host string
	files        api.TLSFiles
}

// add adds the flags to all commands.
func (n *connection) add(root *cobra.Command) {
	n.flags = root.PersistentFlags()
	socket := api.DefaultSocket
	if s := os.Getenv(socketVariable); s != "" {
		socket = s
	}
	n.flags.StringVar(&n.socket, "socket", socket, "the daemon's socket (environment "+socketVariable+")")
	n.flags.StringVar(&n.host, "host", "", "ask the daemon of another `host` over TLS: https://NAME:PORT, or a name from the configuration file (environment "+hostVariable+")")
	n.flags.StringVar(&n.files.Cert, "cert", "", "with --host, your certificate, a PEM `file` (environment "+certVariable+")")
	n.flags.StringVar(&n.files.Key, "key", "", "with --host, your certificate's key, a PEM `file` (environment "+keyVariable+")")
	n.flags.StringVar(&n.files.CA, "ca", "", "with --host, the authorities of the daemon's certificate, a PEM `file` (environment "+caVariable+"; default: the system's)")
	if err := root.RegisterFlagCompletionFunc("host", completeHosts); err != nil {
		panic(err)
	}
}

// completeHosts completes the names of hosts in the configuration file.
func completeHosts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	file, err := readClientConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(file.Hosts)), cobra.ShellCompDirectiveNoFileComp
}

// client returns a client of the chosen daemon.
func (n *connection) client() (*api.Client, error) {
	remote, err := n.remote()
	if err != nil {
		return nil, err
	}
	if remote == nil {
		return api.NewClient(n.socket), nil
	}
	return remote.client()
}

// localClient returns a client of this host's daemon, for a command that works on this host alone.
//
// Preconditions: checkLocal returned nil.
func (n *connection) localClient() *api.Client { return api.NewClient(n.socket) }

// checkLocal returns a usage error if another host was named to a command that works on this host
// alone.
func (n *connection) checkLocal(c *cobra.Command) error {
	if !n.flags.Changed("host") {
		return nil
	}
	return cli.Usagef("%s works on the host that it runs on: run it there, without --host", c.CommandPath())
}

// remote is a daemon of another host.
type remote struct {
	address string // HOST:PORT
	files   api.TLSFiles
}

// remote returns the other host that was chosen, or nil for this one.
func (n *connection) remote() (*remote, error) {
	given := n.flags.Changed("host")
	if n.flags.Changed("socket") {
		if given {
			return nil, cli.Usagef("--socket and --host name two daemons: want one of them")
		}
		return nil, nil
	}
	name, from := n.host, "--host"
	if !given {
		name, from = os.Getenv(hostVariable), hostVariable
		socket := os.Getenv(socketVariable)
		if name != "" && socket != "" {
			return nil, cli.Usagef("%s and %s name two daemons: want one of them, or --socket or --host", hostVariable, socketVariable)
		}
		if socket != "" {
			return nil, nil
		}
	}
	config, err := readClientConfig()
	if err != nil {
		return nil, err
	}
	if !given && name == "" {
		if name, from = config.Host, config.path+": host"; name == "" {
			return nil, nil
		}
	}
	return n.named(&config, name, from)
}

// named returns a host by its name in the configuration, or its address. from says where the name is
// from.
func (n *connection) named(config *clientConfig, name, from string) (*remote, error) {
	r := remote{files: config.files()}
	if h, ok := config.Hosts[name]; ok {
		r.files = h.over(r.files)
		name, from = h.Address, config.path+": hosts: "+name+": address"
	}
	var err error
	if r.address, err = parseHost(name); err != nil {
		if near, ok := nearest.Name(name, slices.Sorted(maps.Keys(config.Hosts))); ok {
			err = fmt.Errorf("%w; %s has %s", err, config.path, near)
		}
		return nil, cli.Usagef("%s %q: %w", from, name, err)
	}
	r.files = api.TLSFiles{
		Cert: n.file("cert", n.files.Cert, certVariable, r.files.Cert), Key: n.file("key", n.files.Key, keyVariable, r.files.Key),
		CA: n.file("ca", n.files.CA, caVariable, r.files.CA),
	}
	return &r, nil
}

// fleet returns the hosts with these names, or all of the configuration.
func (n *connection) fleet(names []string) (map[string]*remote, error) {
	config, err := readClientConfig()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(config.Hosts))
	}
	if len(names) == 0 {
		return nil, cli.Usagef("no hosts: name them under `hosts` in %s, or with --hosts", config.path)
	}
	all := make(map[string]*remote, len(names))
	for _, name := range names {
		if all[name], err = n.named(&config, name, "--hosts"); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// file returns a file by its flag, else by its environment variable, else as configured.
func (n *connection) file(flag, value, variable, configured string) string {
	if n.flags.Changed(flag) {
		return value
	}
	if s := os.Getenv(variable); s != "" {
		return s
	}
	return configured
}

// client returns a client of that daemon.
func (r *remote) client() (*api.Client, error) {
	for _, f := range []struct{ what, flag, variable, value string }{
		{"certificate", "cert", certVariable, r.files.Cert}, {"certificate's key", "key", keyVariable, r.files.Key},
	} {
		if f.value == "" {
			return nil, cli.Usagef("the daemon on https://%s wants your %s: name the file with --%s, %s, or %s in %s", r.address, f.what, f.flag, f.variable, f.flag, clientConfigPath())
		}
	}
	return api.NewTLSClient(r.address, r.files)
}

// parseHost returns the host and port of https://HOST:PORT. Both the scheme and the port may be left
// out.
func parseHost(s string) (address string, err error) {
	if !strings.Contains(s, "://") {
		s = "https://" + s
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "", errors.New("want https://NAME:PORT")
	case u.Scheme != "https":
		return "", fmt.Errorf("want https://NAME:PORT: the daemon speaks TLS with other hosts, not %s", u.Scheme)
	case u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("want https://NAME:PORT and nothing else")
	}
	port := u.Port()
	if port == "" {
		port = api.DefaultTLSPort
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// clientConfig is the configuration file of vgpuctl.
type clientConfig struct {
	path string
	// Host is the host that is asked unless a flag or a variable says otherwise: a name in Hosts, or
	// https://NAME:PORT. Empty means this host, over the daemon's socket.
	Host string `yaml:"host,omitempty"`
	// Cert, Key and CA hold for hosts without their own. Paths are relative to the file.
	Cert  string                `yaml:"cert,omitempty"`
	Key   string                `yaml:"key,omitempty"`
	CA    string                `yaml:"ca,omitempty"`
	Hosts map[string]hostConfig `yaml:"hosts,omitempty"`
}

// hostConfig is a host with a daemon.
type hostConfig struct {
	Address string `yaml:"address"` // https://NAME:PORT
	Cert    string `yaml:"cert,omitempty"`
	Key     string `yaml:"key,omitempty"`
	CA      string `yaml:"ca,omitempty"`
}

// over returns the host's files, and for those that it has none of, others.
func (h *hostConfig) over(others api.TLSFiles) api.TLSFiles {
	if h.Cert != "" {
		others.Cert = h.Cert
	}
	if h.Key != "" {
		others.Key = h.Key
	}
	if h.CA != "" {
		others.CA = h.CA
	}
	return others
}

func (c *clientConfig) files() api.TLSFiles { return api.TLSFiles{Cert: c.Cert, Key: c.Key, CA: c.CA} }

// clientConfigPath returns the path of the configuration file, or "" if there is no place for one.
func clientConfigPath() string {
	if path := os.Getenv(configVariable); path != "" {
		return path
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "" // no home directory
	}
	return filepath.Join(dir, "vgpuctl", "config.yaml")
}

// readClientConfig reads the configuration file. Only one that was named must exist.
func readClientConfig() (clientConfig, error) {
	c := clientConfig{path: clientConfigPath()}
	if c.path == "" {
		return c, nil
	}
	b, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv(configVariable) == "" {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("configuration of vgpuctl: %w", err)
	}
	if _, err := strictyaml.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("configuration of vgpuctl: %w", strictyaml.Named(c.path, err))
	}
	dir := filepath.Dir(c.path)
	absolute := func(paths ...*string) {
		for _, p := range paths {
			if *p != "" && !filepath.IsAbs(*p) {
				*p = filepath.Join(dir, *p)
			}
		}
	}
	absolute(&c.Cert, &c.Key, &c.CA)
	for name, h := range c.Hosts {
		absolute(&h.Cert, &h.Key, &h.CA)
		c.Hosts[name] = h
	}
	return c, nil
}
