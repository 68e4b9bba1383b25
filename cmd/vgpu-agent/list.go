package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/guestagent/agent"
	"vgpud/guestagent/allot"
)

func newList(o *options) *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "list",
		Short: "List the virtual GPUs of this VM and how they can be reached",
		Long: `list shows the PCI functions that are virtual GPUs, without opening one and
without the daemon. Where PROBLEM says something it says what to do.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
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
			if f.kind == "json" {
				return printJSON(c.OutOrStdout(), all)
			}
			var rows [][]string
			for _, d := range all {
				rows = append(rows, []string{d.Address, orDash(d.Driver), orDash(d.Access), mebibytes(d.SharedBytes), orDash(d.Problem)})
			}
			return printTable(c.OutOrStdout(), &f, []string{"DEVICE", "DRIVER", "ACCESS", "BAR2", "PROBLEM"}, rows)
		},
	}
	f.flags(c)
	return c
}

// askLimit bounds how long the daemon may take to answer.
const askLimit = 10 * time.Second

func newStatus(o *options) *cobra.Command {
	var f format
	var kernels bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what the daemon knows of the virtual GPUs, and which programs share them",
		Long: `status shows the virtual GPUs that the daemon knows and how many programs share each.

With --kernels it shows the kernels that those programs have used in place of that, those
used last first: in which forms each can leave the GPU when asked, or why in none, and for
each size of grids how it is launched, why, and what that costs more than the original.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if kernels {
				return printKernels(c.OutOrStdout(), o, &f)
			}
			return printStatus(c.OutOrStdout(), o, &f)
		},
	}
	f.flags(c)
	c.Flags().BoolVar(&kernels, "kernels", false, "show kernels in place of devices")
	return c
}

func printStatus(w io.Writer, o *options, f *format) error {
	all, err := status(o.socket)
	if err != nil {
		return err
	}
	if f.kind == "json" {
		return printJSON(w, all)
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
		rows = append(rows, []string{d.Address, d.State, orDash(gpu), orDash(launch), strconv.Itoa(len(d.Tenants)), orDash(d.Problem)})
	}
	return printTable(w, f, []string{"DEVICE", "STATE", "GPU", "LAUNCH", "PROGRAMS", "PROBLEM"}, rows)
}

// status asks the daemon.
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

// ask connects to the daemon for some questions.
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
