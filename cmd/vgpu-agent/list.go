package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/guestagent/agent"
	"vgpud/guestagent/allot"
)

func newList(o *options) *cobra.Command {
	f := newFormat()
	c := &cobra.Command{
		Use:   "list",
		Short: "List the virtual GPUs of this VM and how they can be reached",
		Long: `list shows the PCI functions that are virtual GPUs, without opening them and without the
daemon. PROBLEM includes what to do.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			p, err := o.pci()
			if err != nil {
				return err
			}
			all, err := agent.List(p)
			if err != nil {
				return err
			}
			if f.Kind == "json" {
				return output.JSON(c.OutOrStdout(), all)
			}
			var rows [][]string
			for _, d := range all {
				rows = append(rows, []string{d.Address, output.OrDash(d.Driver), output.OrDash(d.Access), fmt.Sprintf("%d MiB", d.SharedBytes>>20), output.OrDash(d.Problem)})
			}
			return f.Table(c.OutOrStdout(), []string{"DEVICE", "DRIVER", "ACCESS", "BAR2", "PROBLEM"}, rows)
		},
	}
	f.Flags(c)
	return c
}

// askLimit bounds the daemon's answer.
const askLimit = 10 * time.Second

func newStatus(o *options) *cobra.Command {
	f := newFormat()
	var kernels bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon's virtual GPUs, and how many programs share them",
		Long: `status shows the daemon's virtual GPUs and how many programs share each.

With --kernels it shows the programs' kernels instead, the most recently used first: the
preemptible forms of each, or why there are none, and for each size of grid the form of
its launches, the reason, and the cost compared with the original.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			if kernels {
				return printKernels(c.OutOrStdout(), o, &f)
			}
			return printStatus(c.OutOrStdout(), o, &f)
		},
	}
	f.Flags(c)
	c.Flags().BoolVar(&kernels, "kernels", false, "show kernels instead of devices")
	return c
}

func printStatus(w io.Writer, o *options, f *output.Format) error {
	all, err := status(o.socket)
	if err != nil {
		return err
	}
	if f.Kind == "json" {
		return output.JSON(w, all)
	}
	var rows [][]string
	for _, d := range all {
		gpu, launch := "", ""
		if d.Check != nil {
			gpu = d.Check.GPU
			if d.Check.Launch != nil {
				launch = d.Check.Launch.P50.Round(100 * time.Nanosecond).String()
			}
		}
		rows = append(rows, []string{d.Address, d.State, output.OrDash(gpu), output.OrDash(launch), strconv.Itoa(len(d.Tenants)), output.OrDash(d.Problem)})
	}
	return f.Table(w, []string{"DEVICE", "STATE", "GPU", "LAUNCH", "PROGRAMS", "PROBLEM"}, rows)
}

// status queries the daemon's devices.
func status(socket string) (all []agent.Device, err error) {
	err = ask(socket, func(conn allot.Conn) error {
		reply, _, err := conn.Question(allot.Request{Op: allot.OpStatus}, askLimit)
		if err != nil {
			return err
		}
		return json.Unmarshal(reply.Status, &all)
	})
	return all, err
}

// ask connects to the daemon and calls questions.
func ask(socket string, questions func(allot.Conn) error) error {
	conn, err := allot.Dial(socket)
	if err != nil {
		return fmt.Errorf("%w; is it running (systemctl status vgpu-agent)?", err)
	}
	err = questions(conn)
	if e := conn.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("ask vgpu-agent: %w", err)
	}
	return nil
}
