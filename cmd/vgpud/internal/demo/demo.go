package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"vgpud/clock"
	"vgpud/cmd/internal/output"
	"vgpud/cmd/vgpud/workload"
	"vgpud/mediator/api"
	"vgpud/mediator/daemon"
	"vgpud/vfio/qemu"
)

// Options configure the demo.
type Options struct {
	// Program returns a process of this program.
	Program func(args ...string) (*exec.Cmd, error)
	// GPU is the kind of GPU: [Soft] or [NVIDIA].
	GPU string
	// Calibrate measures the GPU's speed and sets the lengths of the guests' kernels by it. It is
	// needed on the machine's own GPU.
	Calibrate bool
	// VMs runs the guests in real VMs, under QEMU.
	VMs bool
	// CUDA runs CUDA programs as guests, over this project's libcuda.so.1 and shared runtime.
	CUDA bool
	// GPUs has a batch of jobs run on that many GPUs in software, up to [MaxGPUs], instead of guests
	// that share one: first with a GPU for each job, then floating. 0 is no batch.
	GPUs int
	// Events has a network card's stand-in launch event kernels beside a batch guest, in each way there
	// is.
	Events bool
	// Duration is the least length of each phase. A phase goes on until each guest has had a result
	// checked.
	Duration time.Duration
	// JSON prints the result as JSON.
	JSON bool
	// Out is for the result, Progress for messages until then. Width returns Progress's number of
	// columns if it is a terminal, on which a table can be redrawn, and is nil otherwise.
	Out, Progress io.Writer
	Width         func() int
	// Keep keeps the logs and says where they are.
	Keep bool
}

// settle is how long the guests work under a policy before a phase is measured.
const settle = 2 * time.Second

// checkLimit is how much longer than Duration a phase may get: VMs can be slow to check results,
// above all when others have the GPU under no policy.
const checkLimit = 15 * time.Minute

// startLimit bounds the start of everything. VMs without KVM boot in 4 to 9 seconds each, and in
// minutes on a busy machine.
const startLimit = 20 * time.Minute

// demo is one run.
type demo struct {
	o           Options
	dir         string
	client      *api.Client
	guests      []*guest // of the current phase
	urgencyPair func() (batch, urgent *guest)
	removed     []*guest // of earlier phases
	processes   []*process
	readers     sync.WaitGroup
	progressMu  sync.Mutex
	deps        qemu.Deps // if the guests are VMs
}

// Run runs the demo. It returns an error if the demo could not run or results were wrong.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp("", "vgpud-demo-")
	if err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	// Guests' processes have users of their own and must be able to traverse it.
	if err := os.Chmod(dir, 0o711); err != nil {
		return errors.Join(fmt.Errorf("open the directory to guests' processes: %w", err), os.Remove(dir))
	}
	d := &demo{o: o, dir: dir, guests: newGuests(), urgencyPair: urgencyPair}
	if o.GPUs > 0 || o.Events {
		d.guests = nil
	}
	if o.VMs {
		// Check first what is most likely to be missing.
		if d.deps, err = qemu.Find(""); err != nil {
			return errors.Join(err, os.Remove(dir))
		}
	}
	if o.CUDA {
		if _, _, err := findTenant(); err != nil {
			return errors.Join(err, os.Remove(dir))
		}
		d.guests, d.urgencyPair = cudaGuests(), cudaPair
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
	if o.JSON {
		err = errors.Join(err, output.JSON(o.Out, result))
	} else {
		err = errors.Join(err, result.print(o.Out))
	}
	return errors.Join(err, result.Err())
}

// wrong returns an error if guests found wrong results at any time, also after the last phase.
func (d *demo) wrong() error {
	var errs []error
	for _, m := range slices.Concat(d.removed, d.guests) {
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
	if d.o.GPUs > 0 {
		b, err := d.runJobs(ctx)
		if err != nil {
			return nil, err
		}
		return &Result{Batch: b}, nil
	}
	if d.o.Events {
		e, err := d.runEvents(ctx)
		if err != nil {
			return nil, err
		}
		return &Result{Events: e}, nil
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

// startGPUs starts or finds the GPUs, and returns the daemon's configuration for them.
func (d *demo) startGPUs(ctx context.Context) ([]daemon.GPUConfig, error) {
	if d.o.GPUs > 0 {
		return d.startSeveral(ctx)
	}
	gpu, err := d.startGPU(ctx)
	return []daemon.GPUConfig{gpu}, err
}

// startHost starts the GPUs and the daemon.
func (d *demo) startHost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	gpus, err := d.startGPUs(ctx)
	if err != nil {
		return err
	}
	config := filepath.Join(d.dir, "vgpud.yaml")
	page, err := unusedAddress()
	if err != nil {
		return err
	}
	c := daemon.Config{RunDir: d.dir, Socket: filepath.Join(d.dir, "vgpud.sock"), Web: page, GPUs: gpus}
	text, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the daemon's configuration: %w", err)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return fmt.Errorf("write the daemon's configuration: %w", err)
	}
	if err := d.progress("starting the daemon"); err != nil {
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
	if err := waitUntil(ctx, p, func() error { _, err := d.client.Health(ctx); return err }); err != nil {
		return err
	}
	return d.progress("watch it at http://%s/, or ask: vgpuctl --socket %s get vms", page, c.Socket)
}

// unusedAddress returns an address of this machine alone that nobody listens on.
func unusedAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find an address for the page: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// startGuests creates the guests' virtual GPUs, starts all guests, and waits until they work.
func (d *demo) startGuests(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for i, m := range d.guests {
		v, err := d.client.CreateVM(ctx, api.VMSpec{Name: m.Name, Weight: m.weight, PriorityCeiling: m.ceiling, BAR2Bytes: 64 << 20})
		if err != nil {
			return err
		}
		m.socket, m.Seed = v.Socket, uint64(1+i)
		if err := d.progress("starting guest %s, weight %g, at %s", m.Name, m.weight, m.describe()); err != nil {
			return err
		}
		start := d.startProcess
		switch {
		case d.o.VMs:
			start = d.startVM
		case d.o.CUDA:
			start = d.startCUDA
		}
		if m.instance, err = start(m); err != nil {
			return err
		}
	}
	for _, m := range d.guests {
		select {
		case <-m.ready:
		case <-m.instance.ended():
			return m.instance.endError()
		case <-ctx.Done():
			return fmt.Errorf("guest %s has not started to work: %w", m.Name, ctx.Err())
		}
	}
	return nil
}

// phase measures what the guests get under a policy.
func (d *demo) phase(ctx context.Context, policy string) (Phase, error) {
	if err := d.progress("policy %s: settling", policy); err != nil {
		return Phase{}, err
	}
	if _, err := d.client.UpdateGPU(ctx, gpuName, api.GPUUpdate{Policy: &policy}); err != nil {
		return Phase{}, err
	}
	if err := clock.Sleep(ctx, clock.Real{}, settle); err != nil {
		return Phase{}, err
	}
	begin, err := d.snapshot(ctx)
	if err != nil {
		return Phase{}, err
	}
	screen := newScreen(d.o.Progress, d.o.Width)
	for {
		now, err := d.snapshot(ctx)
		if err != nil {
			return Phase{}, err
		}
		p := phaseOf(policy, d.guests, begin, now)
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
		for _, m := range d.guests {
			select {
			case <-m.instance.ended():
				return Phase{}, m.instance.endError()
			default:
			}
		}
	}
}

// snapshot reads all counters at one instant.
func (d *demo) snapshot(ctx context.Context) (snapshot, error) {
	l := snapshot{vms: make(map[string]api.VM), reports: make(map[string]workload.Report)}
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
	for _, m := range d.guests {
		l.reports[m.Name] = m.last()
	}
	return l, nil
}

// endGuests ends the guests, all at once.
func (d *demo) endGuests() error {
	ends := make([]error, len(d.guests))
	var ending sync.WaitGroup
	for i, m := range d.guests {
		if m.instance != nil {
			ending.Go(func() { ends[i] = m.instance.end() })
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
		for _, m := range d.guests {
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

func (d *demo) progress(format string, args ...any) error {
	d.progressMu.Lock()
	defer d.progressMu.Unlock()
	_, err := fmt.Fprintf(d.o.Progress, format+"\n", args...)
	return err
}
