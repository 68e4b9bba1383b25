package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"vgpud/mediator/api"
	"vgpud/mediator/libvirt/domain"
)

// daemon is what the hook asks the daemon.
type daemon interface {
	VMs(ctx context.Context) ([]api.VM, error)
	DomainVMs(ctx context.Context, domain string) ([]api.VM, error)
	CreateVM(ctx context.Context, s api.VMSpec) (api.VM, error)
	ForceDeleteVM(ctx context.Context, name string) error
}

// hook carries out one call.
type hook struct {
	config config
	daemon daemon
	warn   func(error)
}

// operation is one of libvirt's.
type operation struct {
	act func(h *hook, ctx context.Context, xml []byte) error
	// binding is whether an error refuses what is going on. Where it would end a
	// domain that runs, or can't change anything any more, it is a warning.
	binding bool
	// ends is whether the domain has ended. Then it can have virtual GPUs though its
	// XML has nothing of ours: `vgpuctl attach` plugs them in behind libvirt's back.
	ends bool
}

// operations are by libvirt's names for them, in the order of a domain's life.
var operations = map[string]operation{
	"migrate": {ofDomain((*hook).refuseMigrate), true, false},
	"restore": {ofDomain((*hook).refuseRestore), true, false},
	"prepare": {ofDomain((*hook).prepare), true, false},
	"start":   {ofDomain((*hook).start), true, false},
	"started": {ofDomain((*hook).started), false, false},
	// libvirt's own daemon has started anew. It would kill a QEMU that is refused.
	"reconnect": {ofDomain((*hook).reconnect), false, false},
	"stopped":   {(*hook).release, false, true},
	"release":   {(*hook).release, false, true},
}

// ofDomain is an operation on domains that have something of ours.
func ofDomain(act func(h *hook, ctx context.Context, v *domain.Domain) error) func(*hook, context.Context, []byte) error {
	return func(h *hook, ctx context.Context, xml []byte) error {
		v, err := domain.Parse(xml)
		if err != nil {
			return err
		}
		if len(v.GPUs) == 0 && len(v.Devices) == 0 {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, h.config.limit(max(len(v.GPUs), len(v.Devices))))
		defer cancel()
		return act(h, ctx, v)
	}
}

func (h *hook) refuseMigrate(context.Context, *domain.Domain) error {
	return errors.New("a domain with a virtual GPU can't be migrated while it runs: what is on the GPU stays there; shut it down, and start it on the other host")
}

var errSaved = errors.New("a domain with a virtual GPU can't be restored from a saved state: what was on the GPU was not saved; start it anew (virsh managedsave-remove, or start --force-boot)")

// refuseRestore refuses what `virsh restore` does. What `virsh start` does with a
// managed save is refused by prepare: refused here, libvirt (11.3) would remove
// the save, report success, and start nothing.
func (h *hook) refuseRestore(_ context.Context, v *domain.Domain) error {
	if h.saved(v.Name) {
		return nil
	}
	return errSaved
}

// saved is whether libvirt has a managed save of a domain, from which it starts
// the domain unless it is told not to, and then has removed it.
func (h *hook) saved(name string) bool {
	_, err := os.Stat(filepath.Join(h.config.SaveDir, name+".save"))
	return err == nil
}

// prepare makes the domain's virtual GPUs, or none of them.
func (h *hook) prepare(ctx context.Context, v *domain.Domain) error {
	if err := v.Check(); err != nil {
		return err
	}
	if h.saved(v.Name) {
		return errSaved
	}
	uid, gid, err := h.config.owner(v.Owner)
	if err != nil {
		return err
	}
	vms, err := h.daemon.VMs(ctx)
	if err != nil {
		return err
	}
	taken := make(map[string]bool)
	for _, vm := range vms {
		if vm.DomainUUID != v.UUID {
			taken[vm.Name] = true
		}
	}
	// libvirt starts a domain that it believes not to run, so what there is was
	// left behind when libvirt or the host's QEMU broke down.
	if err := h.remove(ctx, v.UUID, vms); err != nil {
		return err
	}
	for n := range v.GPUs {
		s := v.Spec(n, domain.GuestName(v.Name, v.UUID, n, false))
		s.UID, s.GID = &uid, &gid
		s.Peer = &api.Peer{PIDFile: filepath.Join(h.config.PIDDir, v.Name+".pid")}
		if err := h.create(ctx, s, n, taken); err != nil {
			h.undo(v.UUID)
			return fmt.Errorf("virtual GPU %d: %w", n, err)
		}
	}
	return nil
}

// create makes a virtual GPU, under another name where that is another domain's.
func (h *hook) create(ctx context.Context, s api.VMSpec, n int, taken map[string]bool) error {
	if !taken[s.Name] {
		_, err := h.daemon.CreateVM(ctx, s)
		if !errors.Is(err, api.ErrExists) {
			return err
		}
		// Somebody was faster.
	}
	s.Name = domain.GuestName(s.Domain, s.DomainUUID, n, true)
	_, err := h.daemon.CreateVM(ctx, s)
	return err
}

// remove takes away a domain's virtual GPUs, none of which may be in use.
func (h *hook) remove(ctx context.Context, uuid string, vms []api.VM) error {
	for _, vm := range vms {
		if vm.DomainUUID == uuid && vm.Attached {
			return fmt.Errorf("its virtual GPU %s is in use: a QEMU of this domain still runs (process %d is the virtual GPU's)", vm.Name, vm.PID)
		}
	}
	return h.delete(ctx, uuid, vms)
}

// delete takes away a domain's virtual GPUs, with force: its QEMU has ended, or has
// not begun, or, in remove, was not connected. The daemon may have yet to see that
// one has ended.
func (h *hook) delete(ctx context.Context, uuid string, vms []api.VM) error {
	var errs []error
	for _, vm := range vms {
		if vm.DomainUUID != uuid {
			continue
		}
		if err := h.daemon.ForceDeleteVM(ctx, vm.Name); err != nil && !errors.Is(err, api.ErrNotFound) {
			errs = append(errs, fmt.Errorf("take away virtual GPU %s: %w", vm.Name, err))
		}
	}
	return errors.Join(errs...)
}

// undoTimeout is how long taking each virtual GPU back may take, and finding out
// what there is, in time of its own: what is to be taken back may be for want of
// time.
const undoTimeout = 5 * time.Second

// undo takes away what was made of a domain's virtual GPUs, also what the daemon
// may have made without its answer having come.
func (h *hook) undo(uuid string) {
	asking, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	vms, err := h.daemon.DomainVMs(asking, uuid)
	if err == nil {
		deleting, cancel := context.WithTimeout(context.Background(), undoTimeout*time.Duration(len(vms)))
		defer cancel()
		err = h.delete(deleting, uuid, vms)
	}
	if err != nil {
		h.warn(fmt.Errorf("its virtual GPUs are left until it starts again: %w", h.explain(err)))
	}
}

// start makes sure that what prepare made is there still.
func (h *hook) start(ctx context.Context, v *domain.Domain) error {
	missing, err := h.without(ctx, v, func(api.VM) bool { return true })
	if err != nil {
		h.warn(err) // the guests' processes go on without the daemon
		return nil
	}
	if missing != "" {
		return fmt.Errorf("the daemon has no virtual GPU at %s any more", missing)
	}
	return nil
}

func (h *hook) started(ctx context.Context, v *domain.Domain) error {
	missing, err := h.without(ctx, v, func(vm api.VM) bool { return vm.Attached })
	if err == nil && missing != "" {
		err = fmt.Errorf("its QEMU runs and is not connected to the virtual GPU at %s", missing)
	}
	return err
}

func (h *hook) reconnect(ctx context.Context, v *domain.Domain) error {
	missing, err := h.without(ctx, v, func(api.VM) bool { return true })
	if err == nil && missing != "" {
		err = fmt.Errorf("it runs, and the daemon has no virtual GPU at %s: it gets one when it is shut down and started", missing)
	}
	return err
}

// without finds the socket of the first of the domain's devices that has no
// virtual GPU such as is wanted.
func (h *hook) without(ctx context.Context, v *domain.Domain, wanted func(api.VM) bool) (socket string, err error) {
	vms, err := h.daemon.DomainVMs(ctx, v.UUID)
	if err != nil {
		return "", err
	}
	there := make(map[string]bool)
	for _, vm := range vms {
		there[vm.Socket] = there[vm.Socket] || wanted(vm)
	}
	for _, dev := range v.Devices {
		if !there[dev.Socket] {
			return dev.Socket, nil
		}
	}
	return "", nil
}

// served is whether the daemon has virtual GPUs for a domain, by whether there is
// a directory for its sockets: most that end without our element have none, and
// the daemon is not asked.
func (c *config) served(xml []byte) bool {
	_, uuid, err := domain.Identity(xml)
	if err != nil || api.CheckUUID(uuid) != nil {
		return false
	}
	_, err = os.Stat(filepath.Dir(domain.SocketPath(c.RunDir, uuid, 0)))
	return err == nil
}

// release takes the domain's virtual GPUs away, whatever its metadata has come
// to be meanwhile.
func (h *hook) release(ctx context.Context, xml []byte) error {
	_, uuid, err := domain.Identity(xml)
	if err != nil || uuid == "" {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, h.config.limit(1))
	defer cancel()
	vms, err := h.daemon.DomainVMs(asking, uuid)
	if err != nil {
		return err
	}
	deleting, cancel := context.WithTimeout(ctx, h.config.limit(len(vms)))
	defer cancel()
	return h.delete(deleting, uuid, vms)
}

// explain says what to do where the daemon did not answer.
func (h *hook) explain(err error) error {
	switch _, answered := errors.AsType[*api.Error](err); {
	case err == nil, answered:
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the daemon on %s did not answer in time (see `journalctl -u vgpud`)", h.config.Socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no daemon listens on %s: start it (systemctl start vgpud), or name its socket in %s", h.config.Socket, defaultConfig)
	}
	return err
}
