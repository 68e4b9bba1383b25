package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"vgpud/clock"
	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
	"vgpud/mediator/libvirt/domain"
	"vgpud/mediator/libvirt/qmp"
)

// hotplug is what attach and detach have in common: which running VM it is about.
type hotplug struct {
	*options
	socket  string // of QEMU's own monitor
	libvirt string // of libvirt's daemon
	pids    string // the directory of libvirt's files with QEMUs' process numbers
	pid     int    // QEMU's, 0 to find it
	wait    time.Duration
}

func (h *hotplug) flags(c *cobra.Command, wait string) {
	c.Flags().StringVar(&h.socket, "qmp", "", "the `socket` of a QEMU's monitor, for a VM without libvirt")
	c.Flags().StringVar(&h.libvirt, "libvirt-socket", "", "the `socket` of libvirt's daemon (default: where it is)")
	c.Flags().DurationVar(&h.wait, "wait", 15*time.Second, wait)
}

// target wants the name of a domain, or --qmp in its place, and no flag that is
// about the other: it would change nothing.
func (h *hotplug) target(c *cobra.Command, args []string) error {
	given := func(flags ...string) string {
		i := slices.IndexFunc(flags, c.Flags().Changed)
		if i < 0 {
			return ""
		}
		return flags[i]
	}
	others, with := given("pid"), "--qmp"
	if h.socket != "" {
		others, with = given("libvirt-socket", "pid-dir", "run-dir"), "DOMAIN"
	}
	switch {
	case h.socket == "" && len(args) != 1:
		return cli.Usagef("want DOMAIN or --qmp SOCKET; `%s --help` says more", c.CommandPath())
	case h.socket != "" && len(args) != 0:
		return cli.Usagef("want DOMAIN or --qmp SOCKET, got both")
	case others != "":
		return cli.Usagef("--%s goes with %s alone", others, with)
	case h.pid < 0 || h.pid == 0 && given("pid") != "":
		return cli.Usagef("--pid %d: want the number of a process", h.pid)
	case h.wait <= 0:
		return cli.Usagef("--wait %v: want more than 0", h.wait)
	}
	return nil
}

// dial connects to the VM's monitor.
func (h *hotplug) dial(ctx context.Context, args []string) (*qmp.Monitor, error) {
	if h.socket != "" {
		return qmp.Dial(ctx, h.socket)
	}
	sockets := qmp.LibvirtSockets()
	if h.libvirt != "" {
		sockets = []string{h.libvirt}
	}
	return qmp.DialDomain(ctx, sockets, args[0])
}

func newAttach(o *options) *cobra.Command {
	h := hotplug{options: o}
	var gpu domain.GPU
	var name, runDir string
	var a answer
	c := &cobra.Command{
		Use:   "attach {DOMAIN | --qmp SOCKET}",
		Short: "Plug a virtual GPU into a VM that runs",
		Long: `Plug a virtual GPU into a VM that runs, until it stops or "vgpuctl detach": make
it at the daemon, have QEMU plug it into a free PCI Express port that has room for
its memory, and see that the guest has given that an address. If the guest has
not, everything is taken back.

The VM needs shared memory and a port with room: "vgpuctl define" gives a domain
both.`,
		Example: "  vgpuctl attach web1 --weight 2\n  vgpuctl attach --qmp /run/web1.qmp --name web1",
		Args:    h.target,
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.check(); err != nil {
				return err
			}
			if err := (domain.Devices{gpu}).Check(); err != nil {
				return cli.UsageError{Err: err}
			}
			if h.pid != 0 {
				if err := qmp.CheckProcess(h.pid); err != nil {
					return fmt.Errorf("process %d (--pid) %w", h.pid, err)
				}
			}
			dir, err := o.runDir(runDir)
			if err != nil {
				return err
			}
			v, port, err := h.attach(c.Context(), args, gpu, name, dir)
			if err != nil {
				return err
			}
			if a.kind != "" { // what there is now, not what was made for QEMU to connect to
				ctx, cancel := asking(c)
				defer cancel()
				client := o.client()
				defer client.Close()
				if v, err = client.VM(ctx, v.Name); err != nil {
					return fmt.Errorf("attached to port %s; asked what it is now: %w", port.ID, err)
				}
			}
			return a.vm(c.OutOrStdout(), fmt.Sprintf("vm %s: attached to port %s, on GPU %s", v.Name, port.ID, v.GPU), v)
		},
	}
	gpuFlags(c, &gpu)
	a.flags(c)
	c.Flags().StringVar(&name, "name", "", "the guest's `name` (default: as the domain)")
	runDirFlag(c, &runDir)
	h.flags(c, "how long the guest may take")
	c.Flags().IntVar(&h.pid, "pid", 0, "with --qmp, the `number` of QEMU's process, which alone may connect (default: who made the monitor's socket)")
	c.Flags().StringVar(&h.pids, "pid-dir", "/run/libvirt/qemu", "the `directory` of libvirt's files with QEMUs' process numbers")
	c.ValidArgsFunction = (&definition{}).complete
	return c
}

// birthLimit is how long the daemon may take to make a virtual GPU: longer than it
// itself gives one to be ready.
const birthLimit = 15 * time.Second

// create makes the virtual GPU in time of its own, and takes it back where the
// daemon may have made it without its answer having come.
func create(ctx context.Context, client *api.Client, spec api.VMSpec) (api.VM, error) {
	ctx = context.WithoutCancel(ctx)
	birth, cancel := context.WithTimeout(ctx, birthLimit)
	defer cancel()
	v, err := client.CreateVM(birth, spec)
	if _, answered := errors.AsType[*api.Error](err); err == nil || answered {
		return v, err
	}
	back, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if derr := client.DeleteVM(back, spec.Name); derr != nil && !errors.Is(derr, api.ErrNotFound) {
		err = errors.Join(err, derr)
	}
	return v, err
}

// attach makes the virtual GPU and plugs it in. Each question to the VM costs
// milliseconds, and so does making a virtual GPU: that begins as soon as it is
// known whose it is, while the VM says whether there is room for it.
func (h *hotplug) attach(whole context.Context, args []string, gpu domain.GPU, name, runDir string) (v api.VM, port qmp.Port, err error) {
	ctx, cancel := context.WithTimeout(whole, h.wait)
	defer cancel()
	client := h.client()
	defer client.Close()
	listed := begin(func() ([]api.VM, error) { return client.VMs(ctx) })
	m, err := h.dial(ctx, args)
	if err != nil {
		return v, port, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	who, err := m.Identity(ctx)
	if err != nil {
		return v, port, err
	}
	want := wanted{gpu: gpu, name: name, runDir: runDir, who: who}
	if want.vms, err = listed(); err != nil {
		return v, port, err
	}
	for {
		spec, id, err := h.spec(ctx, &want)
		if err != nil {
			return v, port, err
		}
		seen := begin(func() (*qmp.Machine, error) { return inspect(ctx, m) })
		v, err = create(ctx, client, spec)
		machine, serr := seen()
		if serr == nil {
			port, serr = machine.Port(gpu.Bar2(), domain.SparePort)
		}
		if err != nil {
			return v, port, cmp.Or(serr, err) // the VM's is to be mended first
		}
		if serr == nil && (h.socket != "" || !slices.Contains(machine.Devices, id)) {
			return v, port, h.plug(whole, m, client, &v, id, port)
		}
		if err := errors.Join(serr, takeBack(ctx, client, v.Name)); err != nil {
			return v, port, err
		}
		// A device of the domain's has that id, whose virtual GPU is gone: another id.
		want.devices = machine.Devices
	}
}

// begin calls f at once; what it returns waits for the answer.
func begin[T any](f func() (T, error)) (wait func() (T, error)) {
	var answer T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer, err = f()
	}()
	return func() (T, error) {
		<-done
		return answer, err
	}
}

// inspect asks what is in the VM, which must be able to have a virtual GPU.
func inspect(ctx context.Context, m *qmp.Monitor) (*qmp.Machine, error) {
	fits := begin(func() (struct{}, error) { return struct{}{}, qmp.Fit(ctx, m) })
	machine, err := qmp.Inspect(ctx, m)
	if _, ferr := fits(); err == nil {
		err = ferr
	}
	return machine, err
}

// plug plugs in a virtual GPU that was made, or takes it back.
func (h *hotplug) plug(whole context.Context, m *qmp.Monitor, client *api.Client, v *api.VM, id string, port qmp.Port) error {
	ctx, cancel := context.WithTimeout(whole, h.wait)
	defer cancel()
	err := qmp.Plug(ctx, m, clock.Real{}, id, port, v.Socket)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, qmp.ErrLeft):
		return left(whole, client, v.Name, err)
	}
	return errors.Join(err, takeBack(ctx, client, v.Name))
}

// takeBack has the daemon end a virtual GPU that no VM has.
func takeBack(ctx context.Context, client *api.Client, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	if err := client.ForceDeleteVM(ctx, name); err != nil && !errors.Is(err, api.ErrNotFound) {
		return err
	}
	return nil
}

// left is about a virtual GPU whose device may still be in the VM. One that no VMM
// is connected to is in none, as where QEMU has ended meanwhile, and goes.
func left(ctx context.Context, client *api.Client, name string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	switch err := client.DeleteVM(ctx, name); {
	case err == nil || errors.Is(err, api.ErrNotFound):
		return fmt.Errorf("%w; its virtual GPU %s was not connected, and is taken away", why, name)
	case errors.Is(err, api.ErrInUse):
		return fmt.Errorf("%w; its virtual GPU %s stays until then: run `vgpuctl detach` once the guest lets go of devices", why, name)
	default:
		return errors.Join(why, err)
	}
}

// wanted is a virtual GPU that is to be attached.
type wanted struct {
	gpu    domain.GPU
	name   string // empty: as the domain
	runDir string
	who    qmp.Identity // the VM
	vms    []api.VM     // all that the daemon has
	// devices are the ids of the VM's, as far as they are known yet.
	devices []string
}

// spec is what to ask the daemon for, and QEMU's id for it.
func (h *hotplug) spec(ctx context.Context, w *wanted) (api.VMSpec, string, error) {
	v := domain.Domain{Name: w.who.Name, UUID: strings.ToLower(w.who.UUID), GPUs: domain.Devices{w.gpu}}
	spec := v.Spec(0, w.name)
	if h.socket != "" {
		// No domain of libvirt's, whatever QEMU calls itself.
		spec.Domain, spec.DomainUUID = "", ""
		if spec.Name == "" {
			spec.Name = domain.GuestName(w.who.Name, "", 0, false)
		}
		if w.who.Name == "" && w.name == "" {
			return spec, "", cli.Usagef("the VM has no name: want --name")
		}
		if slices.ContainsFunc(w.vms, func(v api.VM) bool { return v.Name == spec.Name }) {
			return spec, "", fmt.Errorf("guest %q: %w: want another --name", spec.Name, api.ErrExists)
		}
		pid, err := h.pid, error(nil)
		if pid == 0 {
			if pid, err = qmp.Process(ctx, h.socket); err != nil {
				return spec, "", fmt.Errorf("%w: say which process is QEMU's with --pid", err)
			}
		}
		spec.Peer = &api.Peer{PID: pid}
		err = owner(&spec, h.socket)
		return spec, plainID(spec.Name), err
	}
	n, err := w.free(v.UUID)
	if err != nil {
		return spec, "", err
	}
	spec.Socket = domain.SocketPath(w.runDir, v.UUID, n)
	if spec.Name == "" {
		taken := func(name string) bool {
			return slices.ContainsFunc(w.vms, func(v api.VM) bool { return v.Name == name })
		}
		spec.Name = domain.GuestName(v.Name, v.UUID, n, false)
		if taken(spec.Name) {
			spec.Name = domain.GuestName(v.Name, v.UUID, n, true)
		}
	}
	file := filepath.Join(h.pids, v.Name+".pid")
	b, err := os.ReadFile(file)
	if err != nil {
		return spec, "", fmt.Errorf("find the domain's QEMU, which alone may connect: %w", err)
	}
	spec.Peer = &api.Peer{PIDFile: file}
	err = owner(&spec, filepath.Join("/proc", strings.TrimSpace(string(b))))
	return spec, domainID(n), err
}

// domainID is QEMU's id for virtual GPU n of a domain, and plainID for a guest of
// no domain.
func domainID(n int) string { return "vgpu" + strconv.Itoa(n) }

func plainID(guest string) string { return "vgpu-" + guest }

// maxNumbers is how many numbers there are for a domain's virtual GPUs.
const maxNumbers = 100

// free finds a number for one more of a domain's.
func (w *wanted) free(uuid string) (int, error) {
	for n := range maxNumbers {
		socket := domain.SocketPath(w.runDir, uuid, n)
		if !slices.Contains(w.devices, domainID(n)) && !slices.ContainsFunc(w.vms, func(v api.VM) bool { return v.Socket == socket }) {
			return n, nil
		}
	}
	return 0, fmt.Errorf("the domain has %d virtual GPUs already", maxNumbers)
}

// owner has the guest's socket belong to whom a file belongs to: QEMU's user.
func owner(spec *api.VMSpec, path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("find the user that QEMU runs as: %w", err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		uid, gid := int(sys.Uid), int(sys.Gid)
		spec.UID, spec.GID = &uid, &gid
	}
	return nil
}

func newDetach(o *options) *cobra.Command {
	h := hotplug{options: o}
	var name string
	c := &cobra.Command{
		Use:   "detach {DOMAIN | --qmp SOCKET}",
		Short: "Unplug a virtual GPU from a VM that runs",
		Long: `Unplug a virtual GPU that "vgpuctl attach" has plugged into a VM: the guest is
asked to let go of it, and when it has, the daemon takes the virtual GPU away. The
guest's work on it fails. Those that a VM was started with stay until it stops.`,
		Example: "  vgpuctl detach web1",
		Args:    h.target,
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), h.wait)
			defer cancel()
			v, err := h.detach(ctx, args, name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "vm %s: detached\n", v)
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "", "the guest's `name`, where there are several")
	h.flags(c, "how long the guest may take to let go")
	c.ValidArgsFunction = (&definition{}).complete
	return c
}

// detach unplugs a virtual GPU and has the daemon take it away.
func (h *hotplug) detach(ctx context.Context, args []string, name string) (_ string, err error) {
	m, err := h.dial(ctx, args)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	who, err := m.Identity(ctx)
	if err != nil {
		return "", err
	}
	machine, err := qmp.Inspect(ctx, m)
	if err != nil {
		return "", err
	}
	client := h.client()
	defer client.Close()
	vms, err := client.VMs(ctx)
	if err != nil {
		return "", err
	}
	var found []attached
	for _, p := range machine.Ports {
		if i := slices.IndexFunc(vms, func(v api.VM) bool { return h.is(who, &v, p.Device) }); p.Device != "" && i >= 0 {
			found = append(found, attached{p.Device, vms[i].Name})
		}
	}
	a, err := choose(found, name)
	if err != nil {
		return "", err
	}
	if err := qmp.Unplug(ctx, m, clock.Real{}, a.id); err != nil {
		return "", err
	}
	// The wait is the guest's; the daemon has time of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	awaitHangUp(ctx, client, clock.Real{}, a.guest)
	if err := client.ForceDeleteVM(ctx, a.guest); err != nil && !errors.Is(err, api.ErrNotFound) {
		return "", err
	}
	return a.guest, nil
}

// A device has gone from the machine a little before QEMU is done with it, which is
// when it hangs up. QEMU 11.1 aborts now and then (error_setv: Assertion `*errp ==
// NULL') where the device's process has ended by then and another is plugged in.
const (
	hangUpLimit = time.Second
	hangUpLook  = 2 * time.Millisecond
)

// awaitHangUp waits until QEMU has let go of a virtual GPU, as it mostly does.
func awaitHangUp(ctx context.Context, client *api.Client, c clock.Clock, name string) {
	ctx, cancel := context.WithTimeout(ctx, hangUpLimit)
	defer cancel()
	for {
		v, err := client.VM(ctx, name)
		if err != nil || !v.Attached || clock.Sleep(ctx, c, hangUpLook) != nil {
			return
		}
	}
}

// attached is a virtual GPU in a port: QEMU's id and the daemon's name.
type attached struct{ id, guest string }

// is whether QEMU's device of an id is that guest.
func (h *hotplug) is(who qmp.Identity, v *api.VM, id string) bool {
	if h.socket != "" {
		return v.DomainUUID == "" && id == plainID(v.Name)
	}
	n, ok := strings.CutPrefix(id, "vgpu")
	return ok && strings.EqualFold(v.DomainUUID, who.UUID) && filepath.Base(v.Socket) == "gpu"+n+".sock"
}

// choose finds the one that is meant.
func choose(found []attached, name string) (attached, error) {
	if name != "" {
		found = slices.DeleteFunc(found, func(a attached) bool { return a.guest != name })
	}
	switch len(found) {
	case 0:
		return attached{}, errors.New("the VM has no such virtual GPU in a port; those that it was started with stay until it stops")
	case 1:
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, a := range found {
		names[i] = a.guest
	}
	return attached{}, cli.Usagef("the VM has %s in its ports: want one of them with --name", strings.Join(names, ", "))
}
