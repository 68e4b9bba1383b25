package main

import (
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/vgpud/internal/demo"
	"vgpud/cmd/vgpud/workload"
)

func newDemo(o *options) *cobra.Command {
	var output string
	var d demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Share a GPU between three guests, on this machine",
		Long: `Start a GPU in software, the daemon and three guests of weights 1, 2 and 4 as
processes of their own, each attached over vfio-user and working through kernels
with checked results; share the GPU first by no policy and then by weight; and
show who got what. Then an urgent guest works beside one with long kernels,
without these being taken off the GPU for it, and with. Exit status 1 when any
result is wrong.

With --gpu nvidia the GPU is this machine's own, with NVIDIA's driver. The guests'
kernels are first timed alone and made as long as they are to be; and what accounting
says of a guest is compared with the number of its kernels times what one takes alone,
since hardware keeps no account of its own.

With --vms the guests are real VMs under QEMU, from what "make vm-deps" has
put aside, and the GPU is slowed down with them: without KVM, QEMU translates
their instructions. Nothing else differs.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return cli.Usagef("output %q: want table or json", output)
			}
			if d.Duration <= 0 {
				return cli.Usagef("duration %v: want more than 0", d.Duration)
			}
			if d.GPU != demo.Soft && d.GPU != demo.NVIDIA {
				return cli.Usagef("gpu %q: want soft or nvidia", d.GPU)
			}
			d.Calibrate = d.Calibrate || d.GPU != demo.Soft
			d.JSON = output == "json"
			d.Out, d.Progress = os.Stdout, os.Stderr
			d.Width = terminalWidth(os.Stderr)
			d.Program = func(args ...string) (*exec.Cmd, error) { return o.again(args...) }
			return demo.Run(c.Context(), d)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "output: table, json")
	c.Flags().DurationVar(&d.Duration, "duration", 20*time.Second, "length of each phase, at least")
	c.Flags().StringVar(&d.GPU, "gpu", demo.Soft, "GPU to share: soft, nvidia")
	c.Flags().BoolVar(&d.Calibrate, "calibrate", false, "time the guests' kernels alone first, also on a GPU in software")
	c.Flags().BoolVar(&d.VMs, "vms", false, "have real VMs as the guests")
	c.Flags().BoolVar(&d.Keep, "keep-logs", false, "leave the processes' logs behind")
	return c
}

// terminalWidth asks how wide a terminal is; nil where f is none.
func terminalWidth(f *os.File) func() int {
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return func() int {
		const usual = 80
		ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
		if err != nil || ws.Col == 0 {
			return usual
		}
		return int(ws.Col)
	}
}

func newDemoGuest(*options) *cobra.Command {
	return &cobra.Command{
		Use:    "demo-guest",
		Short:  "Work as a guest of the demo, whose plan comes on standard input",
		Args:   cli.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := workload.ReadPlan(os.Stdin)
			if err != nil {
				return err
			}
			return workload.Run(c.Context(), p, os.Stdout)
		},
	}
}
