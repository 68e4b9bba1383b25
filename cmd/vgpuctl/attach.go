package main

import (
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
	"vgpud/mediator/domain"
	"vgpud/mediator/domain/qmp"
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

// attach makes the virtual GPU and plugs it in.
func (h *hotplug) attach(whole context.Context, args []string, gpu domain.GPU, name, runDir string) (v api.VM, port qmp.Port, err error) {
	ctx, cancel := context.WithTimeout(whole, h.wait)
	defer cancel()
	m, err := h.dial(ctx, args)
	if err != nil {
		return v, port, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	machine, err := h.inspect(ctx, m, args)
	if err != nil {
		return v, port, err
	}
	if port, err = machine.Port(gpu.Bar2(), domain.SparePort); err != nil {
		return v, port, err
	}
	client := h.client()
	defer client.Close()
	spec, id, err := h.spec(ctx, client, machine, gpu, name, runDir)
	if err != nil {
		return v, port, err
	}
	fits := make(chan error, 1)
	go func() { fits <- qmp.Fit(ctx, m) }()
	v, err = create(ctx, client, spec)
	ferr := <-fits
	takeBack := func() error {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
		defer cancel()
		if err := client.ForceDeleteVM(back, v.Name); err != nil && !errors.Is(err, api.ErrNotFound) {
			return err
		}
		return nil
	}
	switch {
	case err != nil && ferr != nil:
		return v, port, ferr // which is to be mended first
	case err != nil:
		return v, port, err
	case ferr != nil:
		return v, port, errors.Join(ferr, takeBack())
	}
	plugging, cancel := context.WithTimeout(whole, h.wait)
	defer cancel()
	if err := qmp.Plug(plugging, m, clock.Real{}, id, port, v.Socket); err != nil {
		if errors.Is(err, qmp.ErrLeft) {
			return v, port, left(whole, client, v.Name, err)
		}
		return v, port, errors.Join(err, takeBack())
	}
	return v, port, nil
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

// inspect asks the VM what it is. The name of libvirt's domain is the caller's
// to say.
func (h *hotplug) inspect(ctx context.Context, m *qmp.Monitor, args []string) (*qmp.Machine, error) {
	name := ""
	if h.socket == "" {
		name = args[0]
	}
	return qmp.Inspect(ctx, m, name)
}

// spec is what to ask the daemon for, and QEMU's id for it.
func (h *hotplug) spec(ctx context.Context, client *api.Client, m *qmp.Machine, gpu domain.GPU, name, runDir string) (api.VMSpec, string, error) {
	vms, err := client.VMs(ctx)
	if err != nil {
		return api.VMSpec{}, "", err
	}
	v := domain.Domain{Name: m.Name, UUID: strings.ToLower(m.UUID), GPUs: domain.Devices{gpu}}
	spec := v.Spec(0, name)
	if h.socket != "" {
		// No domain of libvirt's, whatever QEMU calls itself.
		spec.Domain, spec.DomainUUID = "", ""
		if spec.Name == "" {
			spec.Name = domain.GuestName(m.Name, "", 0, false)
		}
		if m.Name == "" && name == "" {
			return spec, "", cli.Usagef("the VM has no name: want --name")
		}
		if slices.ContainsFunc(vms, func(v api.VM) bool { return v.Name == spec.Name }) {
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
	n, err := free(m, vms, runDir, v.UUID)
	if err != nil {
		return spec, "", err
	}
	spec.Socket = domain.SocketPath(runDir, v.UUID, n)
	if spec.Name == "" {
		taken := func(name string) bool {
			return slices.ContainsFunc(vms, func(v api.VM) bool { return v.Name == name })
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
func free(m *qmp.Machine, vms []api.VM, runDir, uuid string) (int, error) {
	for n := range maxNumbers {
		socket := domain.SocketPath(runDir, uuid, n)
		if !slices.Contains(m.Devices, domainID(n)) && !slices.ContainsFunc(vms, func(v api.VM) bool { return v.Socket == socket }) {
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
	machine, err := h.inspect(ctx, m, args)
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
		if i := slices.IndexFunc(vms, func(v api.VM) bool { return h.is(machine, &v, p.Device) }); p.Device != "" && i >= 0 {
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
	if err := client.ForceDeleteVM(ctx, a.guest); err != nil && !errors.Is(err, api.ErrNotFound) {
		return "", err
	}
	return a.guest, nil
}

// attached is a virtual GPU in a port: QEMU's id and the daemon's name.
type attached struct{ id, guest string }

// is whether QEMU's device of an id is that guest.
func (h *hotplug) is(m *qmp.Machine, v *api.VM, id string) bool {
	if h.socket != "" {
		return v.DomainUUID == "" && id == plainID(v.Name)
	}
	n, ok := strings.CutPrefix(id, "vgpu")
	return ok && strings.EqualFold(v.DomainUUID, m.UUID) && filepath.Base(v.Socket) == "gpu"+n+".sock"
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
