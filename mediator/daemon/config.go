package daemon

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/internal/nearest"
	"vgpud/internal/strictyaml"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/sandbox"
	"vgpud/mediator/scheduler"
)

// Config is the daemon's configuration file, in YAML. A field that is left out has the default that
// its comment names.
type Config struct {
	// RunDir holds the sockets: /run/vgpud.
	RunDir string `yaml:"run_dir"`
	// StateDir holds what outlives a restart of the host: /var/lib/vgpud, or RunDir if that is not
	// the default.
	StateDir string `yaml:"state_dir,omitempty"`
	// Socket is the API's: vgpud.sock in RunDir.
	Socket string `yaml:"socket"`
	// Metrics is a TCP address, such as 127.0.0.1:19835, to serve /metrics on beside the API's
	// socket; empty is none.
	Metrics string `yaml:"metrics"`
	// Web is a TCP address of this machine alone, such as 127.0.0.1:9877, to serve the page on for
	// viewers; empty is none.
	Web string `yaml:"web,omitempty"`
	// MetricsWebConfig is a file of Prometheus' exporter-toolkit with certificates and passwords for
	// that address; empty is none.
	MetricsWebConfig string `yaml:"metrics_web_config,omitempty"`
	// Libvirt is the URI of the libvirt whose domains the daemon follows, or "off": qemu:///system,
	// if there is libvirt.
	Libvirt string `yaml:"libvirt,omitempty"`
	// PlacementAgent is the socket of vgpu-placement, which is asked whether a part of a GPU is
	// promised to an instance before a guest gets it that Nova did not place; empty asks nobody.
	PlacementAgent string `yaml:"placement_agent,omitempty"`
	// KernelTimeLimit is for guests that are created without one: 10s.
	KernelTimeLimit TimeLimit `yaml:"kernel_time_limit,omitempty"`
	// EvictionDeadline is how long an evictable kernel may take to leave the GPU when told to:
	// 500ms.
	EvictionDeadline TimeLimit         `yaml:"eviction_deadline,omitempty"`
	Confinement      ConfinementConfig `yaml:"confinement,omitempty"`
	// Access names the callers that may use the API: root and the daemon's own user.
	Access access.Config `yaml:"access,omitempty"`
	// Budgets are those of owners, and the calendar of all budgets.
	Budgets BudgetsConfig `yaml:"budgets,omitempty"`
	Usage   UsageConfig   `yaml:"usage,omitempty"`
	TLS     TLSConfig     `yaml:"tls,omitempty"`
	Audit   AuditConfig   `yaml:"audit,omitempty"`
	GPUs    []GPUConfig   `yaml:"gpus"`
}

// ConfinementConfig says how guests' processes are confined; see sandbox.Options.
type ConfinementConfig struct {
	// Mode is auto, required or off.
	Mode string `yaml:"mode,omitempty"`
	// UIDs is a range of users that are for guests alone: sandbox.DefaultUIDs.
	UIDs string `yaml:"uids,omitempty"`
	// Cgroup is a control group (version 2) to make the guests' groups in, or off: the one that
	// systemd delegates.
	Cgroup string `yaml:"cgroup,omitempty"`
	// MemoryBytes is the host memory of each guest: 16 GiB. Below 0 is no limit.
	MemoryBytes int64 `yaml:"memory_bytes,omitempty"`
	// Processes is the number of processes and threads of each guest: 4096. Below 0 is no limit.
	Processes int `yaml:"processes,omitempty"`
	// CPUWeight is the weight of each guest's processes beside other control groups: 100.
	CPUWeight int `yaml:"cpu_weight,omitempty"`
}

// By default a guest's processes may use this much together. A context on a GPU takes a few hundred
// megabytes and some dozen threads, and a guest has up to 32 of them, beside its BAR2.
const (
	DefaultGuestMemoryBytes = 16 << 30
	DefaultGuestProcesses   = 4096
)

// The least and the most that can be configured of that. Below the least no context can be made, which
// a guest would see as a GPU that does not work. Values beyond the most limit nothing: they exceed a
// host's memory and the kernel's own limit of PIDs.
const (
	minGuestMemoryBytes = 256 << 20
	maxGuestMemoryBytes = 1 << 50
	minGuestProcesses   = 64
	maxGuestProcesses   = 4 << 20
)

// options returns the options of package sandbox.
func (c *ConfinementConfig) options() (o sandbox.Options, err error) {
	switch o.Mode = sandbox.Mode(c.Mode); o.Mode {
	case "":
		o.Mode = sandbox.Auto
	case sandbox.Auto, sandbox.Required, sandbox.Off:
	default:
		return o, fmt.Errorf("mode %q: want %s, %s or %s", c.Mode, sandbox.Auto, sandbox.Required, sandbox.Off)
	}
	if c.UIDs != "" {
		if o.UIDs, err = sandbox.ParseUIDs(c.UIDs); err != nil {
			return o, err
		}
	}
	if c.Cgroup != "" && c.Cgroup != sandbox.NoCgroup && !filepath.IsAbs(c.Cgroup) {
		return o, fmt.Errorf("cgroup %q: want the directory of a control group, or %s", c.Cgroup, sandbox.NoCgroup)
	}
	switch {
	case c.CPUWeight < 0 || c.CPUWeight > 10000:
		return o, fmt.Errorf("cpu_weight %d: want 1 to 10000", c.CPUWeight)
	case c.MemoryBytes > 0 && c.MemoryBytes < minGuestMemoryBytes || c.MemoryBytes > maxGuestMemoryBytes:
		return o, fmt.Errorf("memory_bytes %d: want %d to %d, or below 0 for no limit", c.MemoryBytes, int64(minGuestMemoryBytes), int64(maxGuestMemoryBytes))
	case c.Processes > 0 && c.Processes < minGuestProcesses || c.Processes > maxGuestProcesses:
		return o, fmt.Errorf("processes %d: want %d to %d, or below 0 for no limit", c.Processes, minGuestProcesses, maxGuestProcesses)
	}
	o.Cgroup = c.Cgroup
	o.Limits = sandbox.Limits{MemoryBytes: DefaultGuestMemoryBytes, Processes: DefaultGuestProcesses, CPUWeight: c.CPUWeight}
	if c.MemoryBytes != 0 {
		o.Limits.MemoryBytes = uint64(max(c.MemoryBytes, 0))
	}
	if c.Processes != 0 {
		o.Limits.Processes = max(c.Processes, 0)
	}
	return o, nil
}

// DefaultKernelTimeLimit is the GPU time after which a kernel is ended by default. Without a limit
// an endless kernel that can't be evicted would keep the GPU for good.
const DefaultKernelTimeLimit = 10 * time.Second

// DefaultEvictionDeadline is how long a kernel may take to leave when told to, by default. A kernel
// leaves between two of its tasks, which takes a small part of that.
const DefaultEvictionDeadline = 500 * time.Millisecond

// maxWait bounds the configured times of waiting for a kernel to leave the GPU. Other guests wait
// as long; to have them wait for the kernel's end, the value is none.
const maxWait = time.Minute

// checkWait returns what is wrong with a time that other guests wait.
func checkWait(name string, l TimeLimit) error {
	if time.Duration(l) > maxWait {
		return fmt.Errorf("%s %v: want at most %v, or none", name, time.Duration(l), maxWait)
	}
	return nil
}

// TimeLimit is a duration as api.ParseTimeLimit reads it; 0 is the default, and below 0 is none.
type TimeLimit time.Duration

// UnmarshalYAML implements [yaml.Unmarshaler].
func (l *TimeLimit) UnmarshalYAML(n *yaml.Node) error {
	text, err := scalar(n)
	if err != nil {
		return err
	}
	d, err := api.ParseTimeLimit(text)
	if err != nil {
		return err
	}
	*l = TimeLimit(d)
	return nil
}

// scalar returns the text of a value that is neither a list nor has keys.
func scalar(n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.SequenceNode:
		return "", errors.New("found a list, want one value")
	case yaml.MappingNode:
		return "", errors.New("found keys, want one value")
	}
	return n.Value, nil
}

// MarshalYAML implements [yaml.Marshaler].
func (l TimeLimit) MarshalYAML() (any, error) {
	if l < 0 {
		return "none", nil
	}
	return time.Duration(l).String(), nil
}

// kernelTimeLimit returns the limit of a guest that asks for one as in [api.VMSpec]. 0 is none.
func (c *Config) kernelTimeLimit(asked time.Duration) time.Duration {
	limit := DefaultKernelTimeLimit
	switch {
	case asked != 0:
		limit = asked
	case c.KernelTimeLimit != 0:
		limit = time.Duration(c.KernelTimeLimit)
	}
	return max(limit, 0)
}

// evictionDeadline returns how long a kernel may take to leave; 0 is no limit.
func (c *Config) evictionDeadline() time.Duration {
	if c.EvictionDeadline == 0 {
		return DefaultEvictionDeadline
	}
	return max(time.Duration(c.EvictionDeadline), 0)
}

// GPUConfig is one physical GPU.
type GPUConfig struct {
	Name string `yaml:"name"`
	// Kind is the driver: soft or nvidia.
	Kind string `yaml:"kind"`
	// Socket is the socket of a soft GPU.
	Socket string `yaml:"socket"`
	// Device is the UUID, PCI address or index of an NVIDIA GPU. Empty is the only one.
	Device string `yaml:"device,omitempty"`
	// AllowUnknownDriver goes on without the hardware's own abilities if the version of NVIDIA's
	// driver is not known.
	AllowUnknownDriver bool `yaml:"allow_unknown_driver,omitempty"`
	// Connections is how many hardware channels a context's streams share: 0 is CUDA's own choice,
	// 8.
	Connections int `yaml:"connections,omitempty"`
	// Policy is the name of a policy: dfq.
	Policy string `yaml:"policy"`
	// MaxOverhead is the part of the GPU's time that policy ffs may lose to evictions and to waits
	// for the host: 0.1.
	MaxOverhead float64          `yaml:"max_overhead,omitempty"`
	Accounting  AccountingConfig `yaml:"accounting"`
	// DisableAfter is how long a suspended guest's contexts may stay on the GPU until they are
	// disabled, if the GPU's driver can do that: 2ms.
	DisableAfter TimeLimit `yaml:"deep_after,omitempty"`
	// TimeSlices is auto, or off to leave time slices to the driver.
	TimeSlices string `yaml:"time_slices,omitempty"`
	// SliceLoss is the part of the GPU's time that switches between time slices may take: 0.02.
	SliceLoss float64 `yaml:"slice_loss,omitempty"`
	// BusyWait has executors and the daemon poll, rather than sleep, while a kernel may be told to
	// leave, and for the most urgent guest's launches: true, false, or auto, which does so for a
	// second after a kernel was told to leave, on a host with at least four processors.
	BusyWait string `yaml:"spin,omitempty"`
	// UrgentPoll is how long in a wait an executor of a guest whose priority is above another's may
	// poll before it sleeps, under a policy by priority and unless BusyWait is false: 5ms, or none.
	// Executors poll for as long as lately saved them from sleeping.
	UrgentPoll TimeLimit `yaml:"urgent_poll,omitempty"`
	// WarmExecutors has each guest that uses the GPU keep a spare executor, which has opened the GPU
	// for the guest's next context: true, false, or auto, which is true for NVIDIA's GPUs, where
	// opening takes 0.1 s.
	WarmExecutors string `yaml:"warm_executors,omitempty"`
}

// AccountingConfig says how a GPU is watched; see accounting.Config.
type AccountingConfig struct {
	// Source is registers, events or launches, or auto: see scheduler.SourceAuto.
	Source string `yaml:"source"`
	// Interval is how often a GPU's own record of context switches is read: 20ms. The rest is for
	// registers.
	Interval time.Duration `yaml:"interval"`

	Poll  time.Duration `yaml:"poll"`  // 1ms, for each active guest
	Quiet time.Duration `yaml:"quiet"` // 5ms, for each active guest; with over 4 GPUs a quarter of that for each GPU
	Round time.Duration `yaml:"round"` // at most 24ms
	// Piece is 100µs: polling phases are cut into such pieces, which are spread over the round;
	// negative is one piece.
	Piece time.Duration `yaml:"piece"`
	// Jitter is the fraction of its part of the round in which a piece moves about: 1, and 0.5 if
	// polling phases are in one piece.
	Jitter float64 `yaml:"jitter"`
	// Full polls all the time.
	Full bool `yaml:"full"`
	// Idle is busy, entry or compared.
	Idle string `yaml:"idle"`
	// ByChannels scales the phases by allocated channels, as LoGA did.
	ByChannels bool `yaml:"by_channels"`
}

// manyGPUs is how many GPUs' polling threads have room on the one processor that they keep to: each
// polls a sixth of the time.
const manyGPUs = 4

// watching returns how a GPU is watched on a host with so many GPUs. Their polling threads take
// turns on one processor (LoGA §5.6), which would have no time left for anything else: with many of
// them, all have longer quiet phases.
func (c AccountingConfig) watching(gpus int) (w scheduler.Watching, err error) {
	if c.Quiet == 0 && gpus > manyGPUs {
		c.Quiet = (accounting.Config{}).WithDefaults().Quiet * time.Duration(gpus) / manyGPUs
	}
	idle, err := accounting.ParseIdleMode(c.Idle)
	if err != nil {
		return w, err
	}
	if math.IsNaN(c.Jitter) {
		return w, errors.New("jitter: want a number up to 1")
	}
	a := accounting.Config{
		Poll: c.Poll, Quiet: c.Quiet, Round: c.Round, Piece: c.Piece, Jitter: c.Jitter, Full: c.Full, Idle: idle,
		Seed: uint64(time.Now().UnixNano()),
	}
	if c.ByChannels {
		a.Scale = accounting.ByAllocated
	}
	w = scheduler.Watching{Source: c.Source, Registers: a.WithDefaults(), Records: accounting.RecorderConfig{Period: c.Interval}}
	return w, errors.Join(a.Validate(), w.Records.Validate())
}

// sources are the values of Source.
var sources = []string{scheduler.SourceAuto, scheduler.SourceRegisters, scheduler.SourceEvents, scheduler.SourceLaunches}

// check returns what is wrong with the configuration.
func (c AccountingConfig) check(gpus int) error {
	if c.Source != "" && !slices.Contains(sources, c.Source) {
		return fmt.Errorf("source %q: want one of %s: %w", c.Source, strings.Join(sources, ", "), api.ErrInvalid)
	}
	_, err := c.watching(gpus)
	return err
}

// ReadConfig reads a configuration file. Errors begin with FILE:LINE.
func ReadConfig(path string) (Config, error) {
	b, err := readBounded(path)
	if err != nil {
		return Config{}, fmt.Errorf("read the configuration: %w", err)
	}
	c, err := ParseConfig(b)
	if err != nil {
		// That each line is invalid goes without saying.
		lines := strings.ReplaceAll(strictyaml.Named(path, err).Error()+"\n", ": "+api.ErrInvalid.Error()+"\n", "\n")
		return Config{}, fmt.Errorf("configuration: %s", strings.TrimSuffix(lines, "\n"))
	}
	return c, nil
}

// maxConfigBytes is some hundred times what a configuration of many GPUs has.
const maxConfigBytes = 1 << 20

// readBounded is os.ReadFile for files no larger than a configuration, or pipes.
func readBounded(path string) (b []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if b, err = io.ReadAll(io.LimitReader(f, maxConfigBytes+1)); err == nil && len(b) > maxConfigBytes {
		err = fmt.Errorf("%s has more than %d bytes: is it the configuration?", path, maxConfigBytes)
	}
	return b, err
}

// ParseConfig parses and checks a configuration.
func ParseConfig(b []byte) (Config, error) {
	var c Config
	doc, err := strictyaml.Unmarshal(b, &c)
	if err != nil {
		return Config{}, err
	}
	c.setDefaults()
	return c, doc.Locate(c.check())
}

// defaultStateDir is what systemd makes of StateDirectory=vgpud.
const defaultStateDir = "/var/lib/vgpud"

func (c *Config) setDefaults() {
	if c.RunDir == "" {
		c.RunDir = filepath.Dir(api.DefaultSocket)
	}
	if c.StateDir == "" {
		if c.StateDir = c.RunDir; c.RunDir == filepath.Dir(api.DefaultSocket) {
			c.StateDir = defaultStateDir
		}
	}
	if c.Socket == "" {
		c.Socket = filepath.Join(c.RunDir, filepath.Base(api.DefaultSocket))
	}
	for i := range c.GPUs {
		g := &c.GPUs[i]
		if g.Kind == "" {
			g.Kind = kindSoft
		}
		if g.Policy == "" {
			g.Policy = "dfq"
		}
	}
}

func (c *Config) check() error {
	if len(c.GPUs) == 0 {
		return errors.New("gpus: want at least one, with a name and a socket")
	}
	if _, err := c.Confinement.options(); err != nil {
		return fmt.Errorf("confinement: %w", err)
	}
	if err := c.Budgets.check(); err != nil {
		return fmt.Errorf("budgets: %w", err)
	}
	if err := c.Usage.check(); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	if _, err := c.Access.Rules(); err != nil {
		return fmt.Errorf("access: %w", err)
	}
	if err := checkWeb(c.Web); err != nil {
		return err
	}
	if err := checkWebConfig(c.MetricsWebConfig); err != nil {
		return err
	}
	if err := c.TLS.check(); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	if err := c.Audit.check(); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := checkWait("eviction_deadline", c.EvictionDeadline); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for i := range c.GPUs {
		g := &c.GPUs[i]
		if err := api.CheckName(g.Name); err != nil {
			return fmt.Errorf("gpus[%d]: %w", i, err)
		}
		if g.Name == api.AnyGPU {
			return fmt.Errorf("gpus[%d]: name %q: it leaves the choice of a GPU to the daemon, so none can have it", i, g.Name)
		}
		if seen[g.Name] {
			return fmt.Errorf("gpus[%d]: a second GPU named %q", i, g.Name)
		}
		seen[g.Name] = true
		if err := g.checkKind(); err != nil {
			return fmt.Errorf("gpus[%d] (%s): %w", i, g.Name, err)
		}
		if err := checkPolicy(g.Policy); err != nil {
			return fmt.Errorf("gpus[%d] (%s): %w", i, g.Name, err)
		}
		if o := g.MaxOverhead; o != 0 && !(o >= minOverhead && o <= maxOverhead) {
			return fmt.Errorf("gpus[%d] (%s): max_overhead %v: want %v to %v", i, g.Name, o, minOverhead, maxOverhead)
		}
		if err := g.checkControl(); err != nil {
			return fmt.Errorf("gpus[%d] (%s): %w", i, g.Name, err)
		}
		if err := g.Accounting.check(len(c.GPUs)); err != nil {
			return fmt.Errorf("gpus[%d] (%s): accounting: %w", i, g.Name, err)
		}
	}
	return nil
}

// The bounds of max_overhead: with less, turns would last for seconds.
const minOverhead, maxOverhead = 0.005, 0.5

// With fewer than minConnections, the stream that tells a kernel to leave could wait for that
// kernel's end. maxConnections is CUDA's limit.
const minConnections, maxConnections = 2, 32

// checkKind returns what is wrong with how a GPU of its kind is to be opened.
func (g *GPUConfig) checkKind() error {
	nvidia := g.Device != "" || g.AllowUnknownDriver || g.Connections != 0
	switch {
	case g.Kind == kindSoft && g.Socket == "":
		return errors.New("socket: want the path that `vgpud softgpu` listens on")
	case g.Kind == kindSoft && nvidia:
		return fmt.Errorf("device, allow_unknown_driver and connections are for kind %q", kindNVIDIA)
	case g.Connections != 0 && (g.Connections < minConnections || g.Connections > maxConnections):
		return fmt.Errorf("connections %d: want %d to %d, or 0 for CUDA's own choice", g.Connections, minConnections, maxConnections)
	case g.Kind == kindNVIDIA && g.Socket != "":
		return fmt.Errorf("socket: a GPU of kind %q has none; device says which it is", g.Kind)
	case g.Kind != kindSoft && g.Kind != kindNVIDIA:
		return fmt.Errorf("kind %q: want %q or %q", g.Kind, kindSoft, kindNVIDIA)
	}
	return nil
}

// ipcGPU returns the GPU as other processes are told of it.
func (g *GPUConfig) ipcGPU() ipc.GPU {
	return ipc.GPU{
		Name: g.Name, Kind: g.Kind, Socket: g.Socket, Device: g.Device, AllowUnknownDriver: g.AllowUnknownDriver,
		Connections: g.Connections, WarmExecutors: warmExecutors(g.WarmExecutors, g.Kind),
	}
}

// checkPolicy returns an error that names the policies if there is none with that name.
func checkPolicy(name string) error {
	if slices.Contains(fairshare.Names(), name) {
		return nil
	}
	meant := ""
	if n, ok := nearest.Name(name, fairshare.Names()); ok {
		meant = "; do you mean " + n + "?"
	}
	return fmt.Errorf("policy %q: want one of %s%s: %w", name, strings.Join(fairshare.Names(), ", "), meant, api.ErrInvalid)
}
