// Command vgpu-dra is vgpud's driver for Dynamic Resource Allocation: it tells Kubernetes what the
// GPUs of this node have to give, so that its scheduler, as it is, sends pods to nodes with room on a
// GPU, and has vgpud create the virtual GPUs that their claims were given.
//
// It is a module of its own, because Kubernetes' libraries would be more than half of what vgpud is
// built from.
//
//	vgpu-dra serve    the driver, a service
//	vgpu-dra doctor   what is right and wrong between this node, vgpud and the cluster
//
// Exit codes: 0, 1 failed, 2 bad usage.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"vgpud/clock"
	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/service"
	"vgpud/cmd/internal/version"
	"vgpud/mediator/api"
)

func main() { os.Exit(cli.Run(newRoot())) }

func newRoot() *cobra.Command {
	var path string
	root := &cobra.Command{
		Use:   "vgpu-dra",
		Short: "Tell Kubernetes what this node's GPUs have to give",
		Long: `vgpu-dra is a driver for Kubernetes' Dynamic Resource Allocation. It keeps one device for each
of this node's GPUs in a ResourceSlice, with the capacities share (100 a GPU) and memory. The
part of guests that Kubernetes did not place is not offered, nor is a GPU that is sick, cordoned
or being drained. For a claim that a pod on this node uses, it has vgpud create a virtual GPU.`,
		Version: version.String(),
		Args:    cli.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.PersistentFlags().StringVarP(&path, "config", "c", defaultConfig, "the configuration `file`")
	var dry bool
	serveCommand := &cobra.Command{
		Use:   "serve",
		Short: "Run the driver",
		Long: `Run the driver: it asks vgpud every second, and has the node's ResourceSlice follow within five.
It may start before the API server, the kubelet and vgpud, and they may come and go meanwhile.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := readConfig(path)
			if err != nil {
				return err
			}
			daemon := api.NewClientBy(config.Socket, "`socket` in "+path)
			defer daemon.Close()
			if dry {
				return dryRun(c.Context(), c.OutOrStdout(), config, daemon)
			}
			client, err := connect(config)
			if err != nil {
				return err
			}
			log := service.LogTo(os.Stderr)
			klog.SetSlogLogger(log)
			service.LimitMemory()
			return serve(c.Context(), config, client, daemon, log)
		},
	}
	serveCommand.Flags().BoolVar(&dry, "dry-run", false, "only print what would be published, and end")
	root.AddCommand(serveCommand, newDoctor(&path), cli.NewMan(root, "8"))
	return root
}

// dryRun prints what would be published now. It asks the daemon alone.
func dryRun(ctx context.Context, w io.Writer, c config, d daemon) error {
	p := publisher{config: c, daemon: d, clock: clock.Real{}, log: service.LogTo(os.Stderr)}
	devices, _, err := p.ask(ctx)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(slice(devices))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "# of node %s\n%s", c.Node, text)
	return err
}
