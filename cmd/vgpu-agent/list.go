package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"syscall"
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
	var kernels, functions bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon's virtual GPUs, and the programs that share them",
		Long: `status shows the daemon's virtual GPUs, the programs that share each, with how many of
their contexts and channels are open, and the functions of CUDA's driver API that programs
have called and that are not built, most calls first. With --functions it shows those
alone.

With --kernels it shows the programs' kernels instead, the most recently used first: the
preemptible forms of each, or why there are none, and for each size of grid the form of
its launches, the reason, and the cost compared with the original.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			if functions {
				all, err := missingFunctions(o.socket)
				if err != nil {
					return err
				}
				if f.Kind == "json" {
					return output.JSON(c.OutOrStdout(), append([]allot.Missing{}, all...))
				}
				return printMissing(c.OutOrStdout(), &f, all)
			}
			if kernels {
				return printKernels(c.OutOrStdout(), o, &f)
			}
			return printStatus(c.OutOrStdout(), o, &f)
		},
	}
	f.Flags(c)
	c.Flags().BoolVar(&kernels, "kernels", false, "show kernels instead of devices")
	c.Flags().BoolVar(&functions, "functions", false, "show functions that are not built instead of devices")
	c.MarkFlagsMutuallyExclusive("kernels", "functions")
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
	missing, err := missingFunctions(o.socket)
	if err != nil {
		return err
	}
	if err := printDevices(w, f, all); err != nil {
		return err
	}
	if err := printPrograms(w, f, all); err != nil || len(missing) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return printMissing(w, f, missing)
}

func printDevices(w io.Writer, f *output.Format, all []agent.Device) error {
	var rows [][]string
	for _, d := range all {
		gpu, launch := "", ""
		if d.Check != nil {
			gpu = d.Check.GPU
			if d.Check.Launch != nil {
				launch = d.Check.Launch.P50.Round(100 * time.Nanosecond).String()
			}
		}
		rows = append(rows, []string{d.Address, stateOf(&d), output.OrDash(gpu), output.OrDash(launch), strconv.Itoa(len(d.Tenants)), output.OrDash(d.Problem)})
	}
	return f.Table(w, []string{"DEVICE", "STATE", "GPU", "LAUNCH", "PROGRAMS", "PROBLEM"}, rows)
}

// starting is the state of a device that was never ready, in tables.
const starting = "starting"

// stateOf returns the state of a device for people.
func stateOf(d *agent.Device) string {
	if d.State == agent.StatePreparing && d.Check == nil {
		return starting
	}
	return d.State
}

// printPrograms prints the programs that share devices, if there are any.
func printPrograms(w io.Writer, f *output.Format, all []agent.Device) error {
	var rows [][]string
	for _, d := range all {
		for _, t := range d.Tenants {
			rows = append(rows, []string{
				strconv.Itoa(t.PID), output.OrDash(t.Program), userName(t.UID), d.Address,
				of(t.Contexts, len(t.Allotment.Contexts)), of(t.Channels, len(t.Allotment.Channels)),
				fmt.Sprintf("%d MiB", t.Allotment.Shared.Size>>20), t.Since.Format(time.DateTime),
			})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return f.Table(w, []string{"PID", "PROGRAM", "USER", "DEVICE", "CONTEXTS", "CHANNELS", "WINDOWS", "SINCE"}, rows)
}

// of formats how many of all are open.
func of(open, all int) string {
	if open < 0 {
		return fmt.Sprintf("?/%d", all)
	}
	return fmt.Sprintf("%d/%d", open, all)
}

// userName returns a user's name, or the number if there is none.
func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// printMissing prints functions of CUDA that programs have called and that are not built.
func printMissing(w io.Writer, f *output.Format, all []allot.Missing) error {
	var rows [][]string
	for _, m := range all {
		rows = append(rows, []string{m.Function, strconv.FormatUint(m.Calls, 10), strconv.Itoa(m.Programs), output.OrDash(m.Last)})
	}
	return f.Table(w, []string{"NOT BUILT", "CALLS", "PROGRAMS", "LAST"}, rows)
}

// missingFunctions queries the daemon's list of functions that are not built.
func missingFunctions(socket string) (all []allot.Missing, err error) {
	err = ask(socket, func(conn allot.Conn) error {
		reply, _, err := conn.Question(allot.Request{Op: allot.OpMissing}, askLimit)
		all = reply.Missing
		return err
	})
	return all, err
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

// errStarting is the error of questions while the daemon starts.
var errStarting = errors.New("vgpu-agent is starting, and checks its devices: try again (journalctl -u vgpu-agent shows how far it is)")

// askAgain is how long until a question is repeated that the daemon left without an answer.
const askAgain = 100 * time.Millisecond

// ask connects to the daemon and calls questions. A daemon that starts, or starts anew, may close
// the connection: then the questions are repeated, until askLimit.
func ask(socket string, questions func(allot.Conn) error) error {
	for begin := time.Now(); ; time.Sleep(askAgain) {
		err := askOnce(socket, questions)
		closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
		switch {
		case !closed && !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case time.Since(begin) >= askLimit:
			return errStarting
		}
	}
}

func askOnce(socket string, questions func(allot.Conn) error) error {
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
