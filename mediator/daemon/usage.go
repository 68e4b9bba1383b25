package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/scheduler"
	"vgpud/mediator/usage"
)

// UsageConfig says where the record of what guests used is, and how long it is kept.
type UsageConfig struct {
	// Path is the SQLite database, or off: usage.sqlite in StateDir.
	Path string `yaml:"path,omitempty"`
	// Interval is the length of the finest rows; it divides an hour: 1m.
	Interval time.Duration `yaml:"interval,omitempty"`
	// KeepIntervals, KeepHours and KeepDays say how long rows are kept: 2d, 92d and 3660d.
	KeepIntervals KeepFor `yaml:"keep_intervals,omitempty"`
	KeepHours     KeepFor `yaml:"keep_hours,omitempty"`
	KeepDays      KeepFor `yaml:"keep_days,omitempty"`
	// MaxBytes bounds the database: 1 GiB. When it would be larger, the oldest intervals go, then
	// hours, then days.
	MaxBytes int64 `yaml:"max_bytes,omitempty"`
}

// usageOff is the path of no record.
const usageOff = "off"

// The bounds of the record's size. The least has room for some dozen guests' days.
const minUsageBytes, maxUsageBytes = 4 << 20, 1 << 40

// KeepFor is an age such as 2d; 0 is the default, and below 0 is for ever.
type KeepFor time.Duration

// UnmarshalYAML implements [yaml.Unmarshaler].
func (k *KeepFor) UnmarshalYAML(n *yaml.Node) error {
	text, err := scalar(n)
	if err != nil {
		return err
	}
	if text == "forever" {
		*k = -1
		return nil
	}
	age, ok := usage.ParseAge(text)
	if !ok || age < time.Hour {
		return fmt.Errorf("line %d: %q: want an age of at least 1h, such as 36h, 92d or 52w, or forever", n.Line, text)
	}
	*k = KeepFor(age)
	return nil
}

// MarshalYAML implements [yaml.Marshaler].
func (k KeepFor) MarshalYAML() (any, error) {
	if k < 0 {
		return "forever", nil
	}
	return fmt.Sprintf("%ds", time.Duration(k)/time.Second), nil
}

// check returns what is wrong with the configuration.
func (c *UsageConfig) check() error {
	if c.Path != "" && c.Path != usageOff && (!filepath.IsAbs(c.Path) || filepath.Clean(c.Path) != c.Path) {
		return fmt.Errorf("path %q: want an absolute path without \"..\", or %s", c.Path, usageOff)
	}
	if c.Interval != 0 {
		if err := usage.CheckInterval(c.Interval); err != nil {
			return err
		}
	}
	if c.MaxBytes != 0 && (c.MaxBytes < minUsageBytes || c.MaxBytes > maxUsageBytes) {
		return fmt.Errorf("max_bytes %d: want %d to %d", c.MaxBytes, int64(minUsageBytes), int64(maxUsageBytes))
	}
	return nil
}

// usagePath returns where the record is, "" for none.
func (c *Config) usagePath() string {
	switch c.Usage.Path {
	case usageOff:
		return ""
	case "":
		return filepath.Join(c.StateDir, "usage.sqlite")
	default:
		return c.Usage.Path
	}
}

// openUsage opens the record of what guests used.
func (s *Service) openUsage() {
	c := &s.o.Config
	path := c.usagePath()
	if path == "" {
		s.log.Info("usage is not recorded", "reason", "it is configured so")
		return
	}
	s.usage = usage.Open(usage.Options{
		Path: path, Interval: c.Usage.Interval, MaxBytes: c.Usage.MaxBytes,
		Keep:  usage.Keep{Intervals: time.Duration(c.Usage.KeepIntervals), Hours: time.Duration(c.Usage.KeepHours), Days: time.Duration(c.Usage.KeepDays)},
		Clock: s.clock, Boot: bootID(), SinceBoot: sinceBoot, Log: s.log, Samples: s.samples,
	})
}

// closeUsage records what guests have used up to now, and closes the record.
func (s *Service) closeUsage() error {
	if s.usage == nil {
		return nil
	}
	return s.usage.Close()
}

// bootID names the present run of the host's kernel.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// sinceBoot returns the time since the host's boot, as process start times have it.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// ticksPerSecond is the unit of process start times: USER_HZ, which is 100 wherever Linux runs GPUs.
const ticksPerSecond = 100

// began returns when a process started, as time since the host's boot.
func began(ticks uint64) time.Duration {
	return time.Duration(min(ticks, 1<<40)) * (time.Second / ticksPerSecond)
}

// life identifies a guest by its process, in the record.
func life(pid int, ticks uint64) string { return fmt.Sprintf("%s/%d/%d", bootID(), pid, ticks) }

// samples returns what each guest has used up to now.
func (s *Service) samples() []usage.Sample {
	watts := make(map[*device]float64, len(s.devices))
	for _, d := range s.devices {
		watts[d] = d.watts()
	}
	s.mu.RLock() // so that pages stay open
	defer s.mu.RUnlock()
	all := make([]usage.Sample, 0, len(s.guests))
	for _, g := range s.guests {
		for _, p := range g.all() {
			all = append(all, g.sample(p, s.clock.Now(), watts[p.device]))
		}
	}
	return all
}

// watts returns the power that the GPU draws, or 0 if that is not known.
func (d *device) watts() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hardware == nil || !d.hardware.fresh {
		return 0
	}
	if w := d.hardware.health.Last().PowerWatts; w != nil {
		return *w
	}
	return 0
}

// sample returns what the guest has used of a GPU up to now.
//
// Preconditions: Service.mu is held, so that the page stays open.
func (g *guest) sample(p *presence, now time.Duration, watts float64) usage.Sample {
	st := p.sched.Status(now)
	g.mu.Lock()
	defer g.mu.Unlock()
	p.reportedWork = p.reportedWork.Max(st.Activity.Counters)
	return usage.Sample{
		Life: g.lifeOn(p), Began: began(g.started), Subject: g.subject(p),
		Used: st.Bill.Used - p.before.Used, Suspended: st.Bill.Suspended - p.before.Suspended, Unaccounted: p.unaccounted, Kernels: p.reportedWork.Kernels, Evictions: p.reportedWork.Evictions,
		MemoryBytes: g.memoryUsed(p, &st.Activity), Watts: watts,
	}
}

// subject returns the guest as its usage of a GPU is recorded.
//
// Preconditions: g.mu is held.
func (g *guest) subject(p *presence) usage.Subject {
	return usage.Subject{
		VM: g.spec.Name, Domain: g.domain.Name, DomainUUID: g.spec.DomainUUID, Owner: g.domain.Owner, Project: g.domain.Project, GPU: g.nameOf(p),
	}
}

// recordEnd records what a guest used that has ended.
//
// Preconditions: Service.mu is held, the page is still open, and the guest is not among s.guests.
func (s *Service) recordEnd(g *guest) {
	if s.usage == nil {
		return
	}
	for _, p := range g.all() {
		s.usage.Ended(g.sample(p, s.clock.Now(), p.device.watts()))
	}
}

// recordSilentEnd records what a guest was charged that has ended while no daemon governed it.
func (s *Service) recordSilentEnd(k *savedState) {
	if s.usage == nil {
		return
	}
	for i, p := range append([]savedPresence{k.on(k.Spec.GPU.Name)}, k.Away...) {
		used, unaccounted := s.unwatchedEnd(k, &p)
		name, before := life(k.PID, k.Began), k.Before
		if i > 0 {
			name, before = name+"@"+p.GPU, ipc.Bill{}
		}
		s.usage.Ended(usage.Sample{
			Life: name, Began: began(k.Began),
			Subject: usage.Subject{VM: k.Spec.Name, Domain: k.Spec.Domain, DomainUUID: k.Spec.DomainUUID, Owner: k.Spec.Owner, Project: k.Spec.Project, GPU: p.GPU},
			Used:    p.Bill.Used + used - before.Used, Suspended: p.Bill.Suspended - before.Suspended, Unaccounted: p.Unaccounted + unaccounted,
		})
	}
}

// recorded returns a bill that is at least what is recorded of the guest under a name: a suspension
// that lasted when the daemon before was killed is not on the guest's page. before is what is recorded
// under other names.
func (s *Service) recorded(life string, before ipc.Bill, o scheduler.GuestOptions) scheduler.GuestOptions {
	if s.usage == nil {
		return o
	}
	if m, ok := s.usage.Mark(life); ok {
		o.Bill.Used, o.Bill.Suspended = max(o.Bill.Used, before.Used+m.Used), max(o.Bill.Suspended, before.Suspended+m.Suspended)
	}
	return o
}

// errNoUsage is returned where usage is not recorded.
func errNoUsage() error {
	return fmt.Errorf("usage is not recorded: the configuration's usage.path is %s: %w", usageOff, api.ErrNotFound)
}

// query returns a query of the API's as the record has it.
func query(q *api.UsageQuery, now time.Time) (u usage.Query, err error) {
	invalid := func(what string, err error) error { return fmt.Errorf("%s %w: %w", what, err, api.ErrInvalid) }
	if u.From, err = usage.ParseTime(cmp.Or(q.From, "30d"), now); err != nil {
		return u, invalid("from", err)
	}
	if u.To, err = usage.ParseTime(cmp.Or(q.To, "now"), now); err != nil {
		return u, invalid("to", err)
	}
	if u.By, err = usage.ParseBy(q.By); err != nil {
		return u, invalid("by", err)
	}
	if !u.From.Before(u.To) {
		return u, fmt.Errorf("from %s, to %s: want from before to: %w", u.From.Format(time.RFC3339), u.To.Format(time.RFC3339), api.ErrInvalid)
	}
	u.Only = usage.Subject{VM: q.VM, Domain: q.Domain, Owner: q.Owner, Project: q.Project, GPU: q.GPU}
	return u, nil
}

// Usage implements [api.Host].
func (s *Service) Usage(ctx context.Context, q api.UsageQuery) (api.Usage, error) {
	u, err := query(&q, time.Now())
	if err != nil {
		return api.Usage{}, err
	}
	if s.usage == nil {
		return api.Usage{}, errNoUsage()
	}
	rep, err := s.usage.Report(ctx, u)
	if err != nil {
		return api.Usage{}, err
	}
	a := api.Usage{From: rep.From, To: rep.To, By: string(rep.By), Rows: make([]api.UsageRow, len(rep.Rows)), Total: usageSums(rep.Total)}
	for i := range rep.Rows {
		row := &rep.Rows[i]
		x := &row.Subject
		a.Rows[i] = api.UsageRow{
			Day: row.Day, VM: x.VM, Domain: x.Domain, DomainUUID: x.DomainUUID, Owner: x.Owner, Project: x.Project, GPU: x.GPU, UsageSums: usageSums(row.Sums),
		}
	}
	return a, nil
}

func usageSums(u usage.Sums) api.UsageSums {
	a := api.UsageSums{
		GPUSeconds: float64(u.GPUMicros) / 1e6, Kernels: uint64(u.Kernels), Evictions: uint64(u.Evictions),
		SuspendedSeconds: float64(u.SuspendedMicros) / 1e6, UnaccountedSeconds: float64(u.UnaccountedMicros) / 1e6, MemoryByteSeconds: float64(u.MemoryKiBSeconds) * 1024,
	}
	if u.EnergyKnown {
		joules := float64(u.EnergyMillijoules) / 1000
		a.EnergyJoules = &joules
	}
	return a
}

// UsageCosts implements [api.Host].
func (s *Service) UsageCosts(ctx context.Context, q api.UsageQuery) (any, error) {
	u, err := query(&q, time.Now())
	if err != nil {
		return nil, err
	}
	if !(q.GPUHourPrice >= 0 && q.GPUHourPrice <= 1e9) {
		return nil, fmt.Errorf("gpu_hour_price %v: want a price from 0 to 1e9: %w", q.GPUHourPrice, api.ErrInvalid)
	}
	if q.Resolution != "" && q.Resolution != "day" && q.Resolution != "hour" {
		return nil, fmt.Errorf("resolution %q: want day or hour: %w", q.Resolution, api.ErrInvalid)
	}
	if s.usage == nil {
		return nil, errNoUsage()
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return s.usage.Costs(ctx, u, q.Resolution == "hour", host, usage.Price{GPUHour: q.GPUHourPrice, Currency: cmp.Or(api.CleanText(q.Currency), "USD")})
}
