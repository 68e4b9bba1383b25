package main

import (
	"context"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
	"vgpud/mediator/libvirt/domain"
)

func newCreate(o *options) *cobra.Command {
	var s api.VMSpec
	var gpu domain.GPU
	var uid, gid, pid int
	var pidFile string
	var a answer
	vm := &cobra.Command{
		Use:     "vm NAME",
		Short:   "Create a virtual GPU and print the socket for its VMM",
		Example: "  vgpuctl create vm web1 --weight 2 --memory 4GiB\n  vgpuctl create vm batch --float --memory 16GiB",
		Args:    exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.check(); err != nil {
				return err
			}
			s.Name = args[0]
			s.GPU, s.MemoryLimitBytes, s.KernelTimeLimit, s.BAR2Bytes, s.Budget = gpu.GPU, gpu.Memory, gpu.KernelTimeLimit, gpu.BAR2, gpu.Budget
			s.Float = gpu.Float
			s.Weight, s.Cap, s.Guarantee, s.PriorityCeiling, s.Latency = gpu.Weight, gpu.Cap, gpu.Guarantee, gpu.PriorityCeiling, gpu.Latency
			if err := gpu.Terms().Check(); err != nil {
				return cli.UsageError{Err: err}
			}
			if s.Float && s.GPU != "" && s.GPU != api.AnyGPU {
				return cli.Usagef("--float with --gpu %s: a guest that floats is on whichever GPU has room", s.GPU)
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
	gpuFlags(vm, o, &gpu)
	oldGPUFlags(vm, &gpu)
	f := vm.Flags()
	f.StringVar(&s.Domain, "domain", "", "the `name` of the guest's libvirt domain")
	f.StringVar(&s.DomainUUID, "domain-uuid", "", "the `UUID` of the guest's libvirt domain")
	f.StringVar(&s.Owner, "owner", "", "the `name` of the tenant that the guest belongs to")
	f.StringVar(&s.Socket, "vmm-socket", "", "the VMM's socket: RUN_DIR/domains/UUID/gpuN.sock (default RUN_DIR/vms/NAME/vfio-user.sock)")
	f.IntVar(&pid, "peer-pid", 0, "PID of the only process that may connect (default: any of the socket's owner)")
	f.StringVar(&pidFile, "peer-pid-file", "", "a `file` with the PID of the only process that may connect")
	f.IntVar(&uid, "uid", 0, "owner of the socket, the VMM's user (default: the daemon's)")
	f.IntVar(&gid, "gid", 0, "group of the socket (default: the daemon's)")
	a.flags(vm)
	return cli.NewGroup("create", "Create a guest's virtual GPU", vm)
}
