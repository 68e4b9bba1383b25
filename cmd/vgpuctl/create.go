package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

func newCreate(o *options) *cobra.Command {
	var s api.VMSpec
	var uid, gid int
	var limit, share, guarantee, pidFile string
	var pid int
	var a answer
	vm := &cobra.Command{
		Use:     "vm NAME",
		Short:   "Create a virtual GPU and print the socket for its VMM",
		Example: "  vgpuctl create vm web1 --weight 2",
		Args:    exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.check(); err != nil {
				return err
			}
			s.Name = args[0]
			if limit != "" {
				var err error
				if s.KernelTimeLimit, err = api.ParseTimeLimit(limit); err != nil {
					return cli.Usagef("--kernel-time-limit: %v", err)
				}
			}
			for _, p := range []struct {
				flag, text string
				part       *float64
			}{{"--cap", share, &s.Cap}, {"--guarantee", guarantee, &s.Guarantee}} {
				x, err := parseRatio(p.flag, p.text)
				if err != nil {
					return err
				}
				*p.part = *x
			}
			if err := s.Terms().Check(); err != nil {
				return cli.UsageError{Err: err}
			}
			if pid != 0 || pidFile != "" {
				s.Peer = &api.Peer{PID: pid, PIDFile: pidFile}
			}
			for _, id := range []struct {
				flag  string
				value *int
				spec  **int
			}{{"uid", &uid, &s.UID}, {"gid", &gid, &s.GID}} {
				if !c.Flags().Changed(id.flag) {
					continue
				}
				if err := api.CheckID("--"+id.flag, *id.value); err != nil {
					return cli.UsageError{Err: err}
				}
				*id.spec = id.value
			}
			v, err := ask(c, o, func(d *api.Client, ctx context.Context) (api.VM, error) { return d.CreateVM(ctx, s) })
			if err != nil {
				return err
			}
			return a.vm(c.OutOrStdout(), v.Socket, v)
		},
	}
	vm.Flags().StringVar(&s.GPU, "gpu", api.AnyGPU, "the physical GPU; any: of those with room, the one with the least sum of weights")
	vm.Flags().Float64Var(&s.Weight, "weight", 1, "the guest's part of the GPU relative to the other guests' weights")
	vm.Flags().StringVar(&share, "cap", "none", "the largest `part` of the GPU's time that the guest gets, such as 0.5 or 50%")
	vm.Flags().StringVar(&guarantee, "guarantee", "none", "the least `part` of the GPU's time that the guest gets while it has work")
	vm.Flags().IntVar(&s.PriorityCeiling, "priority-ceiling", 0, "the highest priority that the guest's launches may have")
	vm.Flags().StringVar(&s.Domain, "domain", "", "the `name` of the guest's libvirt domain")
	vm.Flags().StringVar(&s.DomainUUID, "domain-uuid", "", "the `UUID` of the guest's libvirt domain")
	vm.Flags().StringVar(&s.Socket, "vmm-socket", "", "the VMM's socket: RUN_DIR/domains/UUID/gpuN.sock (default RUN_DIR/vms/NAME/vfio-user.sock)")
	vm.Flags().IntVar(&pid, "peer-pid", 0, "PID of the only process that may connect (default: any of the socket's owner)")
	vm.Flags().StringVar(&pidFile, "peer-pid-file", "", "a `file` with the PID of the only process that may connect")
	vm.Flags().Uint64Var(&s.BAR2Bytes, "shared-bytes", 0, "memory shared with the guest, a power of two (default 256 MiB)")
	vm.Flags().Uint64Var(&s.MemoryLimitBytes, "memory-bytes", 0, "GPU memory that the guest may use (default: all)")
	vm.Flags().StringVar(&limit, "kernel-time-limit", "", "end a kernel after this much GPU `time`; none: never (default: the daemon's setting, 10s)")
	vm.Flags().IntVar(&uid, "uid", 0, "owner of the socket, the VMM's user (default: the daemon's)")
	vm.Flags().IntVar(&gid, "gid", 0, "group of the socket (default: the daemon's)")
	a.flags(vm)
	return cli.NewGroup("create", "Create a guest's virtual GPU", vm)
}

func newDelete(o *options) *cobra.Command {
	var missingOK, force bool
	vm := &cobra.Command{
		Use:   "vm NAME",
		Short: "Delete a guest's virtual GPU",
		Long: `Delete a guest's virtual GPU. While its VMM is connected this needs --force, since the VM
may not survive: QEMU 11.1 ends if its device's process ends during an access.
"vgpuctl detach" unplugs a virtual GPU that was attached.`,
		Args:              exactly("NAME"),
		ValidArgsFunction: completeVMs(o),
		RunE: func(c *cobra.Command, args []string) error {
			_, err := ask(c, o, func(d *api.Client, ctx context.Context) (struct{}, error) {
				if force {
					return struct{}{}, d.ForceDeleteVM(ctx, args[0])
				}
				return struct{}{}, d.DeleteVM(ctx, args[0])
			})
			if missingOK && errors.Is(err, api.ErrNotFound) {
				return nil
			}
			return err
		},
	}
	vm.Flags().BoolVar(&missingOK, "missing-ok", false, "succeed if there is no such guest")
	vm.Flags().BoolVar(&force, "force", false, "delete even if a VMM is connected, which may not survive")
	return cli.NewGroup("delete", "Delete a guest's virtual GPU", vm)
}
