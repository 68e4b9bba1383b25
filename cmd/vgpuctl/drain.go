package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vgpud/clock"
	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
)

// drain is a GPU's drain.
type drain struct {
	c          *cobra.Command
	o          *options
	gpu        string
	timeout    time.Duration // 0: no limit
	every      time.Duration
	force, yes bool
}

func newDrain(o *options) *cobra.Command {
	d := drain{o: o}
	c := &cobra.Command{
		Use:   "gpu NAME",
		Short: "Take a GPU out of use, and wait until no guest computes on it",
		Long: `Take a GPU out of use, for maintenance: no guest is created on it, no guest gets a context
there, and guests without a VMM are moved to other GPUs. The command waits until no guest
has a context left and prints whom it waits for. The GPU stays drained, also after the
daemon starts anew, until "vgpuctl uncordon".

After --timeout the command fails, and the guests go on; with --force it ends the contexts
that are left instead, at once if there is no --timeout. Their programs' calls fail then,
and the VMs go on.`,
		Example:           "  vgpuctl drain gpu gpu0 --timeout 10m\n  vgpuctl drain gpu gpu0 --timeout 10m --force --yes",
		Args:              exactly("NAME"),
		ValidArgsFunction: completeGPUs(o),
		RunE: func(c *cobra.Command, args []string) error {
			d.c, d.gpu = c, args[0]
			if d.timeout < 0 || d.every <= 0 {
				return cli.Usagef("--timeout %v, --interval %v: want times above 0", d.timeout, d.every)
			}
			return d.run(c.Context())
		},
	}
	c.Flags().DurationVar(&d.timeout, "timeout", 0, "how long to wait (default: no limit)")
	c.Flags().DurationVar(&d.every, "interval", time.Second, "time between two looks")
	c.Flags().BoolVar(&d.force, "force", false, "end the contexts that are left after --timeout")
	c.Flags().BoolVarP(&d.yes, "yes", "y", false, "with --force: do not ask")
	return cli.NewGroup("drain", "Take a GPU out of use", c)
}

// errLeft says that guests still have contexts.
var errLeft = errors.New("guests still have contexts there; no new ones come until vgpuctl uncordon: wait with the same command, or end their contexts with --force")

func (d *drain) run(ctx context.Context) error {
	g, err := updateGPU(d.c, d.o, d.gpu, api.GPUUpdate{Draining: new(true)})
	if err != nil {
		return err
	}
	if err := d.say("%s", gpuStatus(g)); err != nil {
		return err
	}
	if !d.force || d.timeout > 0 {
		left, err := d.wait(ctx, d.timeout)
		if err != nil || left == 0 {
			return err
		}
		if !d.force {
			return fmt.Errorf("gpu %s: %w", d.gpu, errLeft)
		}
	}
	left, err := d.left()
	if err != nil {
		return err
	}
	if len(left) == 0 {
		return d.say("drained: no guest has a context there")
	}
	if !d.yes {
		if ok, err := d.confirm(left); err != nil || !ok {
			return errors.Join(err, fmt.Errorf("gpu %s: nothing was ended: %w", d.gpu, errLeft))
		}
	}
	if _, err := updateGPU(d.c, d.o, d.gpu, api.GPUUpdate{EndContexts: true}); err != nil {
		return err
	}
	if err := d.say("ending the contexts of %s", strings.Join(left, ", ")); err != nil {
		return err
	}
	n, err := d.wait(ctx, endLimit)
	if err == nil && n > 0 {
		err = fmt.Errorf("gpu %s: %w", d.gpu, errLeft)
	}
	return err
}

// endLimit bounds the time in which contexts end that are ended. An executor with a kernel that
// can't be stopped takes some seconds.
const endLimit = time.Minute

// say prints a line about the GPU.
func (d *drain) say(format string, args ...any) error {
	_, err := fmt.Fprintf(d.c.OutOrStdout(), "gpu %s: %s\n", d.gpu, fmt.Sprintf(format, args...))
	return err
}

// left describes the guests that have contexts on the GPU, or may have some.
func (d *drain) left() (guests []string, err error) {
	vms, err := ask(d.c, d.o, (*api.Client).VMs)
	for i := range vms {
		v := &vms[i]
		switch contexts, there := v.On(d.gpu); {
		case there && v.Silent != "":
			guests = append(guests, v.Name+" (does not answer)")
		case contexts == 1:
			guests = append(guests, v.Name+" (1 context)")
		case contexts > 0:
			guests = append(guests, fmt.Sprintf("%s (%d contexts)", v.Name, contexts))
		}
	}
	return guests, err
}

// wait waits until no guest has a context, for limit at most if that is not 0, and says whom it
// waits for whenever that changes. It returns how many guests are left.
func (d *drain) wait(ctx context.Context, limit time.Duration) (int, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	said := ""
	for {
		left, err := d.left()
		if err != nil {
			return 0, err
		}
		if len(left) == 0 {
			return 0, d.say("drained: no guest has a context there")
		}
		if now := strings.Join(left, ", "); now != said {
			if err := d.say("waiting for %s", now); err != nil {
				return 0, err
			}
			said = now
		}
		if clock.Sleep(ctx, clock.Real{}, d.every) != nil {
			return len(left), context.Cause(d.c.Context())
		}
	}
}

// confirm asks whether contexts are to be ended.
func (d *drain) confirm(left []string) (bool, error) {
	if _, err := fmt.Fprintf(d.c.OutOrStdout(), "gpu %s: end the contexts of %s? Their programs' calls will fail. [y/N] ", d.gpu, strings.Join(left, ", ")); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(d.c.InOrStdin()).ReadString('\n')
	if err != nil && line == "" {
		return false, errors.New("there is no answer: confirm with --yes")
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}
