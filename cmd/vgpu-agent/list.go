package main

import (
	"encoding/json"
	"fmt"
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
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what the daemon knows of the virtual GPUs, and which programs share them",
		Args:  cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			all, err := status(o.socket)
			if err != nil {
				return err
			}
			if f.kind == "json" {
				return printJSON(c.OutOrStdout(), all)
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
			return printTable(c.OutOrStdout(), &f, []string{"DEVICE", "STATE", "GPU", "LAUNCH", "PROGRAMS", "PROBLEM"}, rows)
		},
	}
	f.flags(c)
	return c
}

// status asks the daemon.
func status(socket string) (all []agent.Device, err error) {
	conn, err := allot.Dial(socket)
	if err != nil {
		return nil, fmt.Errorf("%w; is it running (systemctl status vgpu-agent)?", err)
	}
	reply, _, err := conn.Question(allot.Request{Op: allot.OpStatus}, askLimit)
	if e := conn.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = json.Unmarshal(reply.Status, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("ask vgpu-agent: %w", err)
	}
	return all, nil
}
