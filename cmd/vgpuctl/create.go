package main

import (
	"errors"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

func newCreate(o *options) *cobra.Command {
	create := &cobra.Command{
		Use:   "create",
		Short: "Make a guest's virtual GPU",
		Args:  cli.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var s api.VMSpec
	var uid, gid int
	var limit, share, guarantee, pidFile string
	var pid int
	var a answer
	vm := &cobra.Command{
		Use:     "vm NAME",
		Short:   "Make a virtual GPU and print the socket that its VMM connects to",
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
				x, err := parsePart(p.flag, p.text)
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
			ctx, cancel := asking(c)
			defer cancel()
			client := o.client()
			defer client.Close()
			v, err := client.CreateVM(ctx, s)
			if err != nil {
				return err
			}
			return a.vm(c.OutOrStdout(), v.Socket, v)
		},
	}
	vm.Flags().StringVar(&s.GPU, "gpu", api.AnyGPU, "the physical GPU; any: the one with the least sum of weights that has room")
	vm.Flags().Float64Var(&s.Weight, "weight", 1, "the guest's part of the GPU relative to other guests'")
	vm.Flags().StringVar(&share, "cap", "none", "the `part` of the GPU's time, 0.5 or 50%, that the guest never gets more than")
	vm.Flags().StringVar(&guarantee, "guarantee", "none", "the `part` of the GPU's time that the guest gets while it has work")
	vm.Flags().IntVar(&s.PriorityCeiling, "priority-ceiling", 0, "the highest priority that the guest's launches may have")
	vm.Flags().StringVar(&s.Domain, "domain", "", "the `name` of the libvirt domain that the guest is")
	vm.Flags().StringVar(&s.DomainUUID, "domain-uuid", "", "the libvirt domain's `UUID`")
	vm.Flags().StringVar(&s.Socket, "vmm-socket", "", "where the VMM connects: RUN_DIR/domains/UUID/gpuN.sock (default RUN_DIR/vms/NAME/vfio-user.sock)")
	vm.Flags().IntVar(&pid, "peer-pid", 0, "the only process that may connect (default: any of the socket's owner)")
	vm.Flags().StringVar(&pidFile, "peer-pid-file", "", "a `file` with the number of the only process that may connect")
	vm.Flags().Uint64Var(&s.BAR2Bytes, "shared-bytes", 0, "memory shared with the guest, a power of two (default 256 MiB)")
	vm.Flags().Uint64Var(&s.MemoryLimitBytes, "memory-bytes", 0, "GPU memory the guest may use (default: the GPU's)")
	vm.Flags().StringVar(&limit, "kernel-time-limit", "", "end a kernel after this much GPU `time`; none: never (default: as the daemon is configured, 10s)")
	vm.Flags().IntVar(&uid, "uid", 0, "user that the socket belongs to, the VMM's (default: the daemon's)")
	vm.Flags().IntVar(&gid, "gid", 0, "group that the socket belongs to (default: the daemon's)")
	a.flags(vm)
	create.AddCommand(vm)
	return create
}

func newDelete(o *options) *cobra.Command {
	del := &cobra.Command{
		Use:   "delete",
		Short: "Take a guest's virtual GPU away",
		Args:  cli.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var missingOK, force bool
	vm := &cobra.Command{
		Use:   "vm NAME",
		Short: "Take a guest's virtual GPU away",
		Long: `Take a guest's virtual GPU away. While its VMM is connected that takes --force,
since the VM may not survive it: QEMU 11.1 ends when its device's process does in
the middle of an access. "vgpuctl detach" unplugs one that was attached.`,
		Args:              exactly("NAME"),
		ValidArgsFunction: completeVMs(o),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := asking(c)
			defer cancel()
			client := o.client()
			defer client.Close()
			remove := client.DeleteVM
			if force {
				remove = client.ForceDeleteVM
			}
			err := remove(ctx, args[0])
			if missingOK && errors.Is(err, api.ErrNotFound) {
				return nil
			}
			return err
		},
	}
	vm.Flags().BoolVar(&missingOK, "missing-ok", false, "succeed where there is no such guest")
	vm.Flags().BoolVar(&force, "force", false, "also from under a VMM, which may not survive it")
	del.AddCommand(vm)
	return del
}
