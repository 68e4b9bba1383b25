package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/vgpud/internal/demo"
	"vgpud/cmd/vgpud/workload"
	"vgpud/cmd/vgpud/workload/card"
)

func newDemo(o *options) *cobra.Command {
	var output string
	var d demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Share a GPU between three guests, on this machine",
		Long: `Start a GPU in software, the daemon and three guests of weights 1, 2 and 4 as
processes, each attached over vfio-user and running kernels with checked results.
Share the GPU first without a policy and then by weight, and show each guest's part.
Then run an urgent guest beside one with long kernels, first without evicting the
long kernels for the urgent ones, then with. The exit status is 1 if any result is
wrong. The daemon's page, whose address is printed, shows it live in a browser.

With --gpu nvidia the GPU is this machine's own, with NVIDIA's driver. The guests'
kernels are first timed alone and adjusted to the wanted lengths. A guest's accounted
time is compared with its number of kernels times the time of one kernel alone, since
the hardware keeps no account of its own.

With --vms the guests are real VMs under QEMU, with the files that "make vm-deps"
provides, and the GPU is slowed down to match: without KVM, QEMU translates their
instructions. Nothing else differs.

With --gpus several GPUs in software run a batch of jobs, each a process of its own that
computes on the host, allocates, launches and checks. First a job has a GPU for itself while
its process lives; then each floats, and its task goes to a GPU that has room for it. The
two are compared by how many jobs end in a second. It takes about half a minute.

With --events a process that stands in for a network card launches a guest's event kernels
by stores, 32 packets an event, beside a guest with long kernels: by ordinary launches
first, then one by one, then all the time. Every answer is checked. It takes three times
--duration.

With --cuda the guests are CUDA programs as they are, compiled from CUDA C++, which
load vgpud's libcuda.so.1 and shared runtime.`,
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
			if d.CUDA && (d.VMs || d.GPU != demo.Soft || d.Calibrate) {
				return cli.Usagef("--cuda goes with a GPU in software, and with neither --vms nor --calibrate")
			}
			if c.Flags().Changed("gpus") && (d.GPUs < 2 || d.GPUs > demo.MaxGPUs) {
				return cli.Usagef("gpus %d: want 2 to %d", d.GPUs, demo.MaxGPUs)
			}
			if d.GPUs > 0 && (d.VMs || d.CUDA || d.GPU != demo.Soft || d.Calibrate || c.Flags().Changed("duration")) {
				return cli.Usagef("--gpus goes with GPUs in software, and with none of --vms, --cuda, --calibrate and --duration")
			}
			if d.Events && (d.VMs || d.CUDA || d.GPU != demo.Soft || d.Calibrate || d.GPUs > 0) {
				return cli.Usagef("--events goes with a GPU in software, and with none of --vms, --cuda, --calibrate and --gpus")
			}
			d.Calibrate = d.Calibrate || d.GPU != demo.Soft
			d.JSON = output == "json"
			d.Out, d.Progress = os.Stdout, os.Stderr
			d.Width = terminalWidth(os.Stderr)
			d.Program = func(args ...string) (*exec.Cmd, error) { return o.selfCommand(args...) }
			return demo.Run(c.Context(), d)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "output: table, json")
	c.Flags().DurationVar(&d.Duration, "duration", 20*time.Second, "least length of each phase")
	c.Flags().StringVar(&d.GPU, "gpu", demo.Soft, "GPU to share: soft, nvidia")
	c.Flags().BoolVar(&d.Calibrate, "calibrate", false, "time the guests' kernels alone first, on a GPU in software too")
	c.Flags().BoolVar(&d.VMs, "vms", false, "run the guests in real VMs")
	c.Flags().BoolVar(&d.CUDA, "cuda", false, "run CUDA programs as guests")
	c.Flags().IntVar(&d.GPUs, "gpus", 0, "run a batch of jobs on so many GPUs, first a GPU for each job, then floating")
	c.Flags().BoolVar(&d.Events, "events", false, "launch event kernels as a network card does, beside a batch guest")
	c.Flags().BoolVar(&d.Keep, "keep-logs", false, "keep the processes' logs")
	return c
}

// terminalWidth returns a function that returns a terminal's width, or nil if f is no terminal.
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

func newDemoEvents(*options) *cobra.Command {
	return &cobra.Command{
		Use:    "demo-events SOCKET",
		Short:  "Register the event kernel of the demo's card, as its guest",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			return card.Serve(c.Context(), args[0], os.Stdin, os.Stdout)
		},
	}
}

func newDemoPackets(*options) *cobra.Command {
	return &cobra.Command{
		Use:    "demo-packets SOCKET DURATION GAP",
		Short:  "Answer packets by launches, as a guest of the demo",
		Args:   cobra.ExactArgs(3),
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			d, derr := time.ParseDuration(args[1])
			gap, gerr := time.ParseDuration(args[2])
			if err := errors.Join(derr, gerr); err != nil {
				return cli.Usagef("%v", err)
			}
			r, err := card.Commands(c.Context(), args[0], d, gap)
			if err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(r)
		},
	}
}

func newDemoCard(*options) *cobra.Command {
	return &cobra.Command{
		Use:    "demo-card PLAN",
		Short:  "Launch event kernels as the demo's card",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			var p card.Plan
			if err := json.Unmarshal([]byte(args[0]), &p); err != nil {
				return cli.Usagef("plan: %v", err)
			}
			r, err := card.Play(c.Context(), p)
			if err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(r)
		},
	}
}

func newDemoGuest(*options) *cobra.Command {
	return &cobra.Command{
		Use:    "demo-guest",
		Short:  "Work as a guest of the demo, by a plan on standard input",
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
