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

// hotplug is the common part of attach and detach: the running VM.
type hotplug struct {
	*options
	socket  string // of QEMU's monitor
	libvirt string // of libvirt's daemon
	pids    string // the directory of libvirt's PID files
	pid     int    // QEMU's, 0 to find it
	wait    time.Duration
}

func (h *hotplug) flags(c *cobra.Command, wait string) {
	c.Flags().StringVar(&h.socket, "qmp", "", "the `socket` of QEMU's monitor, for a VM without libvirt")
	c.Flags().StringVar(&h.libvirt, "libvirt-socket", "", "the `socket` of libvirt's daemon (default: libvirt's own)")
	c.Flags().DurationVar(&h.wait, "wait", 15*time.Second, wait)
}

// target requires the name of a domain or --qmp, and refuses flags that belong to the other.
func (h *hotplug) target(c *cobra.Command, args []string) error {
	given := func(flags ...string) string {
		i := slices.IndexFunc(flags, c.Flags().Changed)
		if i < 0 {
			return ""
		}
		return flags[i]
	}
	if err := h.checkLocal(c); err != nil {
		return err
	}
	others, with := given("pid"), "--qmp"
	if h.socket != "" {
		others, with = given("libvirt-socket", "pid-dir", "run-dir"), "DOMAIN"
	}
	switch {
	case h.socket == "" && len(args) != 1:
		return cli.Usagef("want DOMAIN or --qmp SOCKET; see `%s --help`", c.CommandPath())
	case h.socket != "" && len(args) != 0:
		return cli.Usagef("want DOMAIN or --qmp SOCKET, got both")
	case others != "":
		return cli.Usagef("--%s needs %s", others, with)
	case h.pid < 0 || h.pid == 0 && given("pid") != "":
		return cli.Usagef("--pid %d: want a PID", h.pid)
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
	o = o.here()
	h := hotplug{options: o}
	var gpu domain.GPU
	var name, runDir string
	var a answer
	c := &cobra.Command{
		Use:   "attach {DOMAIN | --qmp SOCKET}",
		Short: "Plug a virtual GPU into a running VM",
		Long: `Plug a virtual GPU into a running VM, until it stops or "vgpuctl detach" is called. The
daemon creates the virtual GPU, QEMU plugs it into a free PCI Express port with room for
its memory, and the command waits until the guest has given that memory an address. If the
guest does not, everything is undone.

The VM needs a port with room, which "vgpuctl define" gives a domain.`,
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
			if a.Kind != "" { // the state changed when QEMU connected
				if v, err = ask(c, o, func(d *api.Client, ctx context.Context) (api.VM, error) { return d.VM(ctx, v.Name) }); err != nil {
					return fmt.Errorf("attached to port %s, but its state can't be read: %w", port.ID, err)
				}
			}
			return a.vm(c.OutOrStdout(), fmt.Sprintf("vm %s: attached to port %s, on GPU %s", v.Name, port.ID, v.GPU), v)
		},
	}
	gpuFlags(c, o, &gpu)
	a.flags(c)
	c.Flags().StringVar(&name, "name", "", "the guest's `name` (default: the domain's)")
	runDirFlag(c, &runDir)
	h.flags(c, "time limit for the guest")
	c.Flags().IntVar(&h.pid, "pid", 0, "with --qmp, the `PID` of QEMU, the only process that may connect (default: the creator of the monitor's socket)")
	c.Flags().StringVar(&h.pids, "pid-dir", "/run/libvirt/qemu", "the `directory` of libvirt's PID files")
	c.ValidArgsFunction = (&definition{}).complete
	return c
}

// createLimit bounds the creation of a virtual GPU; it is longer than the daemon's own limit.
const createLimit = 15 * time.Second

// create creates the virtual GPU within createLimit, and deletes it if the daemon may have created
// it without answering.
func create(ctx context.Context, client *api.Client, spec api.VMSpec) (api.VM, error) {
	ctx = context.WithoutCancel(ctx)
	creation, cancel := context.WithTimeout(ctx, createLimit)
	defer cancel()
	v, err := client.CreateVM(creation, spec)
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

// attach creates the virtual GPU and plugs it in. Each query to the VM takes milliseconds, and so
// does the creation, so the creation starts as soon as the VM is known, while the VM is still
// inspected.
func (h *hotplug) attach(parent context.Context, args []string, gpu domain.GPU, name, runDir string) (v api.VM, port qmp.Port, err error) {
	ctx, cancel := context.WithTimeout(parent, h.wait)
	defer cancel()
	client := h.localClient()
	defer client.Close()
	listed := async(func() ([]api.VM, error) { return client.VMs(ctx) })
	m, err := h.dial(ctx, args)
	if err != nil {
		return v, port, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	who, err := m.Identity(ctx)
	if err != nil {
		return v, port, err
	}
	req := request{gpu: gpu, name: name, runDir: runDir, who: who}
	if req.vms, err = listed(); err != nil {
		return v, port, err
	}
	for {
		spec, id, err := h.spec(ctx, &req)
		if err != nil {
			return v, port, err
		}
		seen := async(func() (*qmp.Machine, error) { return qmp.Inspect(ctx, m) })
		v, err = create(ctx, client, spec)
		machine, serr := seen()
		if serr == nil {
			port, serr = machine.Port(gpu.Bar2(), domain.SparePort)
		}
		if err != nil {
			return v, port, cmp.Or(serr, err) // a problem of the VM needs to be solved first
		}
		if serr == nil && (h.socket != "" || !slices.Contains(machine.Devices, id)) {
			return v, port, h.plug(parent, m, client, &v, id, port)
		}
		if err := errors.Join(serr, removeVM(ctx, client, v.Name)); err != nil {
			return v, port, err
		}
		// A device of the domain has that id, though its virtual GPU is gone: try another id.
		req.devices = machine.Devices
	}
}

// async starts f in a goroutine and returns a function that waits for its result.
func async[T any](f func() (T, error)) (wait func() (T, error)) {
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

// plug plugs in a virtual GPU, and removes it on failure.
func (h *hotplug) plug(parent context.Context, m *qmp.Monitor, client *api.Client, v *api.VM, id string, port qmp.Port) error {
	ctx, cancel := context.WithTimeout(parent, h.wait)
	defer cancel()
	err := qmp.Plug(ctx, m, clock.Real{}, id, port, v.Socket)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, qmp.ErrStillPlugged):
		return stillPlugged(parent, client, v.Name, err)
	}
	return errors.Join(err, removeVM(ctx, client, v.Name))
}

// removeVM deletes a virtual GPU that no VM has.
func removeVM(ctx context.Context, client *api.Client, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	if err := client.ForceDeleteVM(ctx, name); err != nil && !errors.Is(err, api.ErrNotFound) {
		return err
	}
	return nil
}

// stillPlugged returns the error about a virtual GPU whose device may still be in the VM. If no VMM
// is connected to it, for example because QEMU has ended, it deletes the virtual GPU.
func stillPlugged(ctx context.Context, client *api.Client, name string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	switch err := client.DeleteVM(ctx, name); {
	case err == nil || errors.Is(err, api.ErrNotFound):
		return fmt.Errorf("%w; its virtual GPU %s was not connected and has been deleted", why, name)
	case errors.Is(err, api.ErrInUse):
		return fmt.Errorf("%w; its virtual GPU %s stays until then: run `vgpuctl detach` when the guest can release devices", why, name)
	default:
		return errors.Join(why, err)
	}
}

// request is a request to attach a virtual GPU.
type request struct {
	gpu    domain.GPU
	name   string // "": the domain's
	runDir string
	who    qmp.Identity // the VM
	vms    []api.VM     // of the daemon
	// devices are the ids of the VM's devices, as far as known.
	devices []string
}

// spec returns the request to the daemon, and QEMU's id for the device.
func (h *hotplug) spec(ctx context.Context, r *request) (api.VMSpec, string, error) {
	v := domain.Domain{Name: r.who.Name, UUID: strings.ToLower(r.who.UUID), GPUs: domain.Devices{r.gpu}}
	spec := v.Spec(0, r.name)
	if h.socket != "" {
		// It is no domain of libvirt's, whatever name QEMU has.
		spec.Domain, spec.DomainUUID = "", ""
		if spec.Name == "" {
			spec.Name = domain.GuestName(r.who.Name, "", 0, false)
		}
		if r.who.Name == "" && r.name == "" {
			return spec, "", cli.Usagef("the VM has no name: give one with --name")
		}
		if slices.ContainsFunc(r.vms, func(v api.VM) bool { return v.Name == spec.Name }) {
			return spec, "", fmt.Errorf("guest %q: %w: choose another --name", spec.Name, api.ErrExists)
		}
		pid, err := h.pid, error(nil)
		if pid == 0 {
			if pid, err = qmp.Process(ctx, h.socket); err != nil {
				return spec, "", fmt.Errorf("%w: give QEMU's PID with --pid", err)
			}
		}
		spec.Peer = &api.Peer{PID: pid}
		err = owner(&spec, h.socket)
		return spec, plainID(spec.Name), err
	}
	n, err := r.free(v.UUID)
	if err != nil {
		return spec, "", err
	}
	spec.Socket = domain.SocketPath(r.runDir, v.UUID, n)
	if spec.Name == "" {
		taken := func(name string) bool {
			return slices.ContainsFunc(r.vms, func(v api.VM) bool { return v.Name == name })
		}
		spec.Name = domain.GuestName(v.Name, v.UUID, n, false)
		if taken(spec.Name) {
			spec.Name = domain.GuestName(v.Name, v.UUID, n, true)
		}
	}
	file := filepath.Join(h.pids, v.Name+".pid")
	b, err := os.ReadFile(file)
	if err != nil {
		return spec, "", fmt.Errorf("find the domain's QEMU, the only process that may connect: %w", err)
	}
	spec.Peer = &api.Peer{PIDFile: file}
	err = owner(&spec, filepath.Join("/proc", strings.TrimSpace(string(b))))
	return spec, domainID(n), err
}

// domainID returns QEMU's id for virtual GPU n of a domain, and plainID the one for a guest without
// a domain.
func domainID(n int) string { return "vgpu" + strconv.Itoa(n) }

func plainID(guest string) string { return "vgpu-" + guest }

// maxNumbers bounds the numbers of a domain's virtual GPUs.
const maxNumbers = 100

// free returns an unused number for another virtual GPU of the domain.
func (r *request) free(uuid string) (int, error) {
	for n := range maxNumbers {
		socket := domain.SocketPath(r.runDir, uuid, n)
		if !slices.Contains(r.devices, domainID(n)) && !slices.ContainsFunc(r.vms, func(v api.VM) bool { return v.Socket == socket }) {
			return n, nil
		}
	}
	return 0, fmt.Errorf("the domain has %d virtual GPUs already", maxNumbers)
}

// owner makes the owner of a file, QEMU's user, the owner of the guest's socket.
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
	o = o.here()
	h := hotplug{options: o}
	var name string
	c := &cobra.Command{
		Use:   "detach {DOMAIN | --qmp SOCKET}",
		Short: "Unplug a virtual GPU from a running VM",
		Long: `Unplug a virtual GPU that "vgpuctl attach" has plugged into a VM: the guest is asked to
release it, and when it has, the daemon deletes the virtual GPU. The guest's work on it
fails. Virtual GPUs that a VM was started with stay until it stops.`,
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
	c.Flags().StringVar(&name, "name", "", "the guest's `name`, if there are several")
	h.flags(c, "time limit for the guest to release the device")
	c.ValidArgsFunction = (&definition{}).complete
	return c
}

// detach unplugs a virtual GPU and makes the daemon delete it.
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
	client := h.localClient()
	defer client.Close()
	vms, err := client.VMs(ctx)
	if err != nil {
		return "", err
	}
	var found []attached
	for _, p := range machine.Ports {
		if i := slices.IndexFunc(vms, func(v api.VM) bool { return h.matches(who, &v, p.Device) }); p.Device != "" && i >= 0 {
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
	// h.wait is for the guest; the daemon has a limit of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	awaitDisconnect(ctx, client, clock.Real{}, a.guest)
	if err := client.ForceDeleteVM(ctx, a.guest); err != nil && !errors.Is(err, api.ErrNotFound) {
		return "", err
	}
	return a.guest, nil
}

// A device disappears from the machine shortly before QEMU disconnects from it. QEMU 11.1 sometimes
// aborts (error_setv: Assertion `*errp == NULL') if the device's process has ended by then and
// another device is plugged in.
const (
	disconnectLimit = time.Second
	disconnectPoll  = 2 * time.Millisecond
)

// awaitDisconnect waits until QEMU has disconnected from a virtual GPU, or for disconnectLimit.
func awaitDisconnect(ctx context.Context, client *api.Client, c clock.Clock, name string) {
	ctx, cancel := context.WithTimeout(ctx, disconnectLimit)
	defer cancel()
	for {
		v, err := client.VM(ctx, name)
		if err != nil || !v.Attached || clock.Sleep(ctx, c, disconnectPoll) != nil {
			return
		}
	}
}

// attached is a virtual GPU in a port: QEMU's id and the daemon's name.
type attached struct{ id, guest string }

// matches reports whether QEMU's device with an id is that guest's.
func (h *hotplug) matches(who qmp.Identity, v *api.VM, id string) bool {
	if h.socket != "" {
		return v.DomainUUID == "" && id == plainID(v.Name)
	}
	n, ok := strings.CutPrefix(id, "vgpu")
	return ok && strings.EqualFold(v.DomainUUID, who.UUID) && filepath.Base(v.Socket) == "gpu"+n+".sock"
}

// choose returns the only one found, or the one with that name.
func choose(found []attached, name string) (attached, error) {
	if name != "" {
		found = slices.DeleteFunc(found, func(a attached) bool { return a.guest != name })
	}
	switch len(found) {
	case 0:
		return attached{}, errors.New("the VM has no such virtual GPU in a port; virtual GPUs that it was started with stay until it stops")
	case 1:
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, a := range found {
		names[i] = a.guest
	}
	return attached{}, cli.Usagef("the VM has %s in its ports: choose one with --name", strings.Join(names, ", "))
}
