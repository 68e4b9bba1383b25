package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"vgpud/mediator/api"
	"vgpud/mediator/libvirt/domain"
	"vgpud/mediator/nova/instance"
)

// daemon is the hook's interface to the daemon.
type daemon interface {
	VMs(ctx context.Context) ([]api.VM, error)
	GPUs(ctx context.Context) ([]api.GPU, error)
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

// operation is one of libvirt's operations.
type operation struct {
	act func(h *hook, ctx context.Context, xml []byte) error
	// instance is the same for an instance of Nova's; nil if there is nothing to do.
	instance func(h *hook, ctx context.Context, v *domain.Instance) error
	// refuses reports whether an error refuses the operation. If a refusal would end a running
	// domain, or can't change anything any more, the error is a warning.
	refuses bool
	// ends reports whether the domain has ended. It may then have virtual GPUs although its XML has
	// nothing of vgpud's, because `vgpuctl attach` plugs them in without libvirt.
	ends bool
}

// operations maps libvirt's names to the operations, in the order of a domain's life.
var operations = map[string]operation{
	"migrate": {onDomain((*hook).refuseMigrate), (*hook).migrateInstance, true, false},
	"restore": {onDomain((*hook).refuseRestore), (*hook).restoreInstance, true, false},
	"prepare": {onDomain((*hook).prepare), (*hook).prepareInstance, true, false},
	"start":   {onDomain((*hook).start), nil, true, false},
	"started": {onDomain((*hook).started), (*hook).startedInstance, false, false},
	// libvirt's own daemon has restarted. It would kill a QEMU that is refused.
	"reconnect": {onDomain((*hook).reconnect), nil, false, false},
	"stopped":   {(*hook).release, nil, false, true},
	"release":   {(*hook).release, nil, false, true},
}

// onDomain returns an operation on domains that have something of vgpud's.
func onDomain(act func(h *hook, ctx context.Context, v *domain.Domain) error) func(*hook, context.Context, []byte) error {
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
	return errors.New("a domain with a virtual GPU can't be migrated while it runs, since its state on the GPU can't be moved: shut it down, and start it on the other host")
}

var errSaved = errors.New("a domain with a virtual GPU can't be restored from a saved state, since its state on the GPU was not saved: boot it (virsh managedsave-remove, or start --force-boot)")

// refuseRestore refuses `virsh restore`. prepare refuses the restore of a managed save by `virsh
// start`: if it were refused here, libvirt (11.3) would remove the save, report success, and start
// nothing.
func (h *hook) refuseRestore(_ context.Context, v *domain.Domain) error {
	if h.saved(v.Name) {
		return nil
	}
	return errSaved
}

// saved reports whether libvirt has a managed save of a domain. libvirt starts the domain from it
// unless told not to, in which case it has removed the save before.
func (h *hook) saved(name string) bool {
	_, err := os.Stat(filepath.Join(h.config.SaveDir, name+".save"))
	return err == nil
}

// prepare creates all the domain's virtual GPUs, or none of them.
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
	specs := make([]api.VMSpec, len(v.GPUs))
	for n := range v.GPUs {
		specs[n] = v.Spec(n, domain.GuestName(v.Name, v.UUID, n, false))
	}
	return h.createAll(ctx, v.Name, v.UUID, specs, uid, gid)
}

// createAll creates a domain's virtual GPUs for a QEMU of this user and group, or none of them.
func (h *hook) createAll(ctx context.Context, name, uuid string, specs []api.VMSpec, uid, gid int) error {
	vms, err := h.daemon.VMs(ctx)
	if err != nil {
		return err
	}
	taken := make(map[string]bool)
	for _, vm := range vms {
		if vm.DomainUUID != uuid {
			taken[vm.Name] = true
		}
	}
	// libvirt starts only domains that it believes are not running, so existing virtual GPUs were
	// left behind when libvirt or the host's QEMU crashed.
	if err := h.remove(ctx, uuid, vms); err != nil {
		return err
	}
	for n, s := range specs {
		s.UID, s.GID = &uid, &gid
		s.Peer = &api.Peer{PIDFile: filepath.Join(h.config.PIDDir, name+".pid")}
		if err := h.create(ctx, s, n, taken); err != nil {
			h.undo(uuid)
			return fmt.Errorf("virtual GPU %d: %w", n, err)
		}
	}
	return nil
}

// create creates a virtual GPU, under a longer name if another domain has the name.
func (h *hook) create(ctx context.Context, s api.VMSpec, n int, taken map[string]bool) error {
	if !taken[s.Name] {
		_, err := h.daemon.CreateVM(ctx, s)
		if !errors.Is(err, api.ErrExists) {
			return err
		}
		// Another client created it meanwhile.
	}
	s.Name = domain.GuestName(s.Domain, s.DomainUUID, n, true)
	_, err := h.daemon.CreateVM(ctx, s)
	return err
}

// remove deletes a domain's virtual GPUs, none of which may be in use.
func (h *hook) remove(ctx context.Context, uuid string, vms []api.VM) error {
	for _, vm := range vms {
		if vm.DomainUUID == uuid && vm.Attached {
			return fmt.Errorf("its virtual GPU %s is in use: a QEMU of this domain still runs (process %d serves the virtual GPU)", vm.Name, vm.PID)
		}
	}
	return h.delete(ctx, uuid, vms)
}

// delete deletes a domain's virtual GPUs with force: its QEMU has ended, or has not started, or, in
// remove, was not connected. The daemon may not have noticed yet that QEMU has ended.
func (h *hook) delete(ctx context.Context, uuid string, vms []api.VM) error {
	var errs []error
	for _, vm := range vms {
		if vm.DomainUUID != uuid {
			continue
		}
		if err := h.daemon.ForceDeleteVM(ctx, vm.Name); err != nil && !errors.Is(err, api.ErrNotFound) {
			errs = append(errs, fmt.Errorf("delete virtual GPU %s: %w", vm.Name, err))
		}
	}
	return errors.Join(errs...)
}

// undoTimeout bounds the query in undo, and each deletion. undo has time limits of its own, because
// it may be called after a timeout.
const undoTimeout = 5 * time.Second

// undo deletes a domain's new virtual GPUs, including those that the daemon may have created
// without answering.
func (h *hook) undo(uuid string) {
	queryCtx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	vms, err := h.daemon.DomainVMs(queryCtx, uuid)
	if err == nil {
		deleteCtx, cancel := context.WithTimeout(context.Background(), undoTimeout*time.Duration(len(vms)))
		defer cancel()
		err = h.delete(deleteCtx, uuid, vms)
	}
	if err != nil {
		h.warn(fmt.Errorf("its virtual GPUs remain until it starts again: %w", err))
	}
}

// start checks that the virtual GPUs of prepare still exist.
func (h *hook) start(ctx context.Context, v *domain.Domain) error {
	missing, err := h.firstMissing(ctx, v, func(api.VM) bool { return true })
	if err != nil {
		h.warn(err) // guests go on without the daemon
		return nil
	}
	if missing != "" {
		return fmt.Errorf("the daemon no longer has a virtual GPU at %s", missing)
	}
	return nil
}

func (h *hook) started(ctx context.Context, v *domain.Domain) error {
	missing, err := h.firstMissing(ctx, v, func(vm api.VM) bool { return vm.Attached })
	if err == nil && missing != "" {
		err = fmt.Errorf("its QEMU runs but is not connected to the virtual GPU at %s", missing)
	}
	return err
}

func (h *hook) reconnect(ctx context.Context, v *domain.Domain) error {
	missing, err := h.firstMissing(ctx, v, func(api.VM) bool { return true })
	if err == nil && missing != "" {
		err = fmt.Errorf("it runs, but the daemon has no virtual GPU at %s: shut it down and start it to get one", missing)
	}
	return err
}

// firstMissing returns the socket of the domain's first device without a matching virtual GPU, or
// "".
func (h *hook) firstMissing(ctx context.Context, v *domain.Domain, matches func(api.VM) bool) (socket string, err error) {
	vms, err := h.daemon.DomainVMs(ctx, v.UUID)
	if err != nil {
		return "", err
	}
	there := make(map[string]bool)
	for _, vm := range vms {
		there[vm.Socket] = there[vm.Socket] || matches(vm)
	}
	for _, dev := range v.Devices {
		if !there[dev.Socket] {
			return dev.Socket, nil
		}
	}
	return "", nil
}

// served reports whether the daemon may have virtual GPUs for a domain: whether there is a
// directory for its sockets. Most domains without vgpud's element have none, and the daemon is not
// asked.
func (c *config) served(xml []byte) bool {
	_, uuid, err := domain.Identity(xml)
	if err != nil || api.CheckUUID(uuid) != nil {
		return false
	}
	_, err = os.Stat(filepath.Dir(domain.SocketPath(c.RunDir, uuid, 0)))
	return err == nil
}

// release deletes the domain's virtual GPUs, whatever its metadata says by now.
func (h *hook) release(ctx context.Context, xml []byte) error {
	_, uuid, err := domain.Identity(xml)
	if err != nil || uuid == "" {
		return err
	}
	// Before the daemon removes the directory that it is in.
	rerr := instance.Arguments{RunDir: h.config.RunDir, UUID: uuid}.Remove()
	queryCtx, cancel := context.WithTimeout(ctx, h.config.limit(1))
	defer cancel()
	vms, err := h.daemon.DomainVMs(queryCtx, uuid)
	if err != nil {
		return errors.Join(rerr, err)
	}
	deleteCtx, cancel := context.WithTimeout(ctx, h.config.limit(len(vms)))
	defer cancel()
	return errors.Join(rerr, h.delete(deleteCtx, uuid, vms))
}
