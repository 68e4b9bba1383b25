package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"vgpud/clock"
	"vgpud/cmd/vgpud/workload"
	"vgpud/mediator/api"
	"vgpud/mediator/daemon"
	"vgpud/vfio/qemu"
)

// Options are what the demo works with.
type Options struct {
	// Program makes a process of this program.
	Program func(args ...string) (*exec.Cmd, error)
	// GPU is the kind of GPU: [Soft] or [NVIDIA].
	GPU string
	// Calibrate measures how fast the GPU is and makes the guests' kernels as long as
	// they are to be, where that is not known: on the machine's own.
	Calibrate bool
	// VMs has the guests be real VMs, under QEMU.
	VMs bool
	// Duration is how long each phase is, and longer where a guest has had no result
	// checked by then.
	Duration time.Duration
	// JSON prints the result for programs.
	JSON bool
	// Out gets the result, Progress what happens until then. Width is how many
	// columns Progress has where it is a terminal, on which a table can be drawn
	// over the last, and nil elsewhere.
	Out, Progress io.Writer
	Width         func() int
	// Keep leaves the logs behind and says where.
	Keep bool
}

// settle is how long the guests work under a policy before a phase is measured.
const settle = 2 * time.Second

// checkLimit is how much longer than it should be a phase may get: VMs can be slow to
// check results, most of all where the policy is none and others have the GPU.
const checkLimit = 15 * time.Minute

// startLimit is how long everything may take to start; VMs without KVM boot in 4
// to 9 seconds each, and in minutes where the processors have other work.
const startLimit = 20 * time.Minute

// demo is one run.
type demo struct {
	o         Options
	dir       string
	client    *api.Client
	members   []*member // at work now, or about to be
	rivals    func() (batch, urgent *member)
	retired   []*member // that were before
	processes []*process
	readers   sync.WaitGroup
	saying    sync.Mutex
	deps      qemu.Deps // where the guests are VMs
}

// Run runs the demo. The error is about what kept it from running, or about
// wrong results.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp("", "vgpud-demo-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	// Guests' processes have users of their own, and pass through it.
	if err := os.Chmod(dir, 0o711); err != nil {
		return errors.Join(fmt.Errorf("open the directory to guests' processes: %w", err), os.Remove(dir))
	}
	d := &demo{o: o, dir: dir, members: members(), rivals: rivals}
	if o.VMs {
		// Before anything is started: the likeliest to be missing.
		if d.deps, err = qemu.Find(""); err != nil {
			return errors.Join(err, os.Remove(dir))
		}
	}
	result, err := d.run(ctx)
	err = errors.Join(err, d.stop(), d.wrong())
	if o.Keep || err != nil {
		if _, perr := fmt.Fprintln(o.Progress, "logs are in", dir); perr != nil {
			err = errors.Join(err, perr)
		}
	} else if rerr := os.RemoveAll(dir); rerr != nil {
		err = errors.Join(err, rerr)
	}
	if result == nil {
		return err
	}
	show := result.print
	if o.JSON {
		show = result.printJSON
	}
	return errors.Join(err, show(o.Out), result.Err())
}

// wrong is what guests that have ended found wrong at any time, also after the
// last phase.
func (d *demo) wrong() error {
	var errs []error
	for _, m := range slices.Concat(d.retired, d.members) {
		if r := m.last(); r.Wrong > 0 || r.Error != "" {
			errs = append(errs, fmt.Errorf("guest %s: %d of %d cases wrong: %s", m.Name, r.Wrong, r.Cases, r.Error))
		}
	}
	return errors.Join(errs...)
}

// run starts everything and measures all phases.
func (d *demo) run(ctx context.Context) (*Result, error) {
	if err := d.startHost(ctx); err != nil {
		return nil, err
	}
	if d.o.Calibrate {
		if err := d.calibrate(ctx); err != nil {
			return nil, err
		}
	}
	if err := d.startGuests(ctx); err != nil {
		return nil, err
	}
	var r Result
	for _, policy := range []string{"none", "dfq"} {
		p, err := d.phase(ctx, policy)
		if err != nil {
			return nil, err
		}
		r.Phases = append(r.Phases, p)
	}
	var err error
	if r.Preemption, err = d.preemption(ctx); err != nil {
		return nil, err
	}
	return &r, nil
}

// startHost starts the GPU and the daemon.
func (d *demo) startHost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	gpu, err := d.startGPU(ctx)
	if err != nil {
		return err
	}
	config := filepath.Join(d.dir, "vgpud.yaml")
	c := daemon.Config{RunDir: d.dir, Socket: filepath.Join(d.dir, "vgpud.sock"), GPUs: []daemon.GPUConfig{gpu}}
	text, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the daemon's configuration: %w", err)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return fmt.Errorf("write the daemon's configuration: %w", err)
	}
	if err := d.say("starting the daemon"); err != nil {
		return err
	}
	cmd, err := d.o.Program("serve", "--config", config)
	if err != nil {
		return err
	}
	p, err := d.start("serve", cmd)
	if err != nil {
		return err
	}
	d.client = api.NewClient(c.Socket)
	return until(ctx, p, func() error { _, err := d.client.Health(ctx); return err })
}

// startGuests makes the guests' virtual GPUs, starts the guests all at once, and
// waits until all are at work.
func (d *demo) startGuests(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for i, m := range d.members {
		v, err := d.client.CreateVM(ctx, api.VMSpec{Name: m.Name, Weight: m.weight, PriorityCeiling: m.ceiling, BAR2Bytes: 64 << 20})
		if err != nil {
			return err
		}
		m.socket, m.Seed = v.Socket, uint64(1+i)
		if err := d.say("starting guest %s, weight %g, at %s", m.Name, m.weight, m.describe()); err != nil {
			return err
		}
		start := d.startProcess
		if d.o.VMs {
			start = d.startVM
		}
		if m.guest, err = start(m); err != nil {
			return err
		}
	}
	for _, m := range d.members {
		select {
		case <-m.ready:
		case <-m.guest.ended():
			return m.guest.why()
		case <-ctx.Done():
			return fmt.Errorf("guest %s does not begin: %w", m.Name, ctx.Err())
		}
	}
	return nil
}

// phase measures what the guests get under a policy.
func (d *demo) phase(ctx context.Context, policy string) (Phase, error) {
	if err := d.say("policy %s: settling", policy); err != nil {
		return Phase{}, err
	}
	if _, err := d.client.UpdateGPU(ctx, gpuName, api.GPUUpdate{Policy: &policy}); err != nil {
		return Phase{}, err
	}
	if err := clock.Sleep(ctx, clock.Real{}, settle); err != nil {
		return Phase{}, err
	}
	begin, err := d.look(ctx)
	if err != nil {
		return Phase{}, err
	}
	screen := newScreen(d.o.Progress, d.o.Width)
	for {
		now, err := d.look(ctx)
		if err != nil {
			return Phase{}, err
		}
		p := phaseOf(policy, d.members, begin, now)
		rest := d.o.Duration - now.at.Sub(begin.at)
		if rest <= 0 && (p.checked() || rest <= -checkLimit) {
			return p, screen.clear()
		}
		if rest <= 0 {
			rest = settle
		}
		if err := screen.draw(&p, d.o.Duration); err != nil {
			return Phase{}, err
		}
		if err := clock.Sleep(ctx, clock.Real{}, min(rest, screen.every())); err != nil {
			return Phase{}, err
		}
		for _, m := range d.members {
			select {
			case <-m.guest.ended():
				return Phase{}, m.guest.why()
			default:
			}
		}
	}
}

// look asks for everything at one instant.
func (d *demo) look(ctx context.Context) (look, error) {
	l := look{vms: make(map[string]api.VM), reports: make(map[string]workload.Report)}
	vms, err := d.client.VMs(ctx)
	if err != nil {
		return l, err
	}
	gpus, err := d.client.GPUs(ctx)
	if err != nil {
		return l, err
	}
	l.at = time.Now()
	for _, v := range vms {
		l.vms[v.Name] = v
	}
	l.gpu = gpus[0]
	for _, m := range d.members {
		l.reports[m.Name] = m.last()
	}
	return l, nil
}

// endGuests ends the guests, all at a time.
func (d *demo) endGuests() error {
	ends := make([]error, len(d.members))
	var ending sync.WaitGroup
	for i, m := range d.members {
		if m.guest != nil {
			ending.Go(func() { ends[i] = m.guest.end() })
		}
	}
	ending.Wait()
	return errors.Join(ends...)
}

// stop ends everything: guests first, the GPU last.
func (d *demo) stop() error {
	errs := []error{d.endGuests()}
	if d.client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		for _, m := range d.members {
			if m.socket != "" {
				errs = append(errs, d.client.ForceDeleteVM(ctx, m.Name))
			}
		}
		d.client.Close()
	}
	for i := len(d.processes) - 1; i >= 0; i-- {
		errs = append(errs, d.processes[i].end())
	}
	d.readers.Wait()
	return errors.Join(errs...)
}

func (d *demo) say(format string, args ...any) error {
	d.saying.Lock()
	defer d.saying.Unlock()
	_, err := fmt.Fprintf(d.o.Progress, format+"\n", args...)
	return err
}
