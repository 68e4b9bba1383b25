package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/internal/nearest"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
	usagerecord "vgpud/mediator/usage"
)

// reconnectEvery is the time between two attempts to follow events again.
const reconnectEvery = time.Second

func newEvents(o *options) *cobra.Command {
	f := newFormat()
	var chosen eventChoice
	var follow bool
	var since string
	c := &cobra.Command{
		Use:   "events",
		Short: "Show what happened to guests and GPUs",
		Long: `Show what happened to guests and GPUs, oldest first: the newest events, which the daemon
keeps in memory. Times are UTC.

With --follow, events are printed as they happen, until the command is interrupted. If the
connection ends, for example because the daemon is started anew, the command connects again
and goes on after the last event that it printed; what it missed is reported on standard
error.`,
		Example: `  vgpuctl events --since 1h
  vgpuctl events --follow --vm web1
  vgpuctl events --kind gpu-failed,gpu-recovered -o json`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			if err := chosen.setSince(since, time.Now()); err != nil {
				return err
			}
			if err := chosen.checkKinds(); err != nil {
				return err
			}
			all, err := ask(c, o, func(client *api.Client, ctx context.Context) ([]events.Event, error) { return client.Events(ctx, "") })
			if err != nil {
				return err
			}
			p := eventPrinter{streamPrinter: newStreamPrinter(c.OutOrStdout(), &f, &eventTable), chosen: &chosen}
			if !follow {
				return eventTable.print(p.w, &f, slices.DeleteFunc(all, func(e events.Event) bool { return !chosen.has(&e) }))
			}
			return p.follow(c, o, all)
		},
	}
	f.Flags(c)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "after the list, print events as they happen")
	c.Flags().StringVar(&since, "since", "", "only events since a `time`: an age such as 1h or 7d, or a time such as 2026-11-01T08:00")
	c.Flags().StringSliceVar(&chosen.kinds, "kind", nil, "only events of these `kinds`, separated by commas, such as guest-created")
	c.Flags().StringVar(&chosen.vm, "vm", "", "only events of a guest, by its `name` or its libvirt domain's")
	completeFlag(c, "vm", completeVMs(o))
	cli.CompleteFlag(c, "kind", events.Kinds...)
	cli.CompleteFlag(c, "since", "10m", "1h", "1d", "7d")
	return c
}

// eventChoice is the choice of the flags --since, --kind and --vm.
type eventChoice struct {
	from  time.Time
	kinds []string
	vm    string
}

func (c *eventChoice) setSince(since string, now time.Time) (err error) {
	if since == "" {
		return nil
	}
	if c.from, err = usagerecord.ParseTime(since, now); err != nil {
		return cli.Usagef("--since %w", err)
	}
	return nil
}

// checkKinds returns a usage error if there is no such kind.
func (c *eventChoice) checkKinds() error {
	for _, kind := range c.kinds {
		if !slices.Contains(events.Kinds, kind) {
			near, ok := nearest.Name(kind, events.Kinds)
			if !ok {
				near = strings.Join(events.Kinds, ", ")
			}
			return cli.Usagef("--kind %q: no such kind; want %s", kind, near)
		}
	}
	return nil
}

// has reports whether an event was chosen.
func (c *eventChoice) has(e *events.Event) bool {
	return !e.Time.Before(c.from) &&
		(len(c.kinds) == 0 || slices.Contains(c.kinds, e.Kind)) &&
		(c.vm == "" || e.VM == c.vm || e.Domain == c.vm)
}

// eventTable prints events.
var eventTable = table[events.Event]{
	columns: func([]events.Event) []column[events.Event] { return eventColumns },
	name:    func(e events.Event) string { return e.ID },
}

var eventColumns = slices.Concat([]column[events.Event]{
	textColumn("TIME", func(e events.Event) string { return e.Time.UTC().Format(time.RFC3339) }),
	textColumn("SEVERITY", func(e events.Event) string { return e.Severity }),
	textColumn("KIND", func(e events.Event) string { return e.Kind }),
	textColumn("GPU", func(e events.Event) string { return e.GPU }),
	textColumn("VM", func(e events.Event) string { return e.VM }),
	textColumn("MESSAGE", message),
}, inWide(
	textColumn("ID", func(e events.Event) string { return e.ID }),
	textColumn("DOMAIN", func(e events.Event) string { return e.Domain }),
	textColumn("BY", func(e events.Event) string { return e.By }),
	textColumn("DETAILS", details),
))

// message shows what happened, and what of a guest's settings is different now.
func message(e events.Event) string {
	if now := details(e); (e.Kind == events.SettingsChanged || e.Kind == events.PolicyChanged) && now != "" {
		return e.Message + ": " + now
	}
	return e.Message
}

// details shows an event's other values as KEY=VALUE, in order.
func details(e events.Event) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(e.Details)) {
		all = append(all, key+"="+e.Details[key])
	}
	return strings.Join(all, " ")
}

// eventPrinter prints events that are followed.
type eventPrinter struct {
	streamPrinter[events.Event]
	chosen *eventChoice
	last   string // the id of the last event, printed or not
	err    error  // of printing
}

// print prints those of the events that were chosen.
func (p *eventPrinter) print(all ...events.Event) error {
	for _, e := range all {
		p.last = e.ID
	}
	all = slices.DeleteFunc(slices.Clone(all), func(e events.Event) bool { return !p.chosen.has(&e) })
	heads, rows := eventTable.rows(p.f, eventColumns, all)
	return p.streamPrinter.print(heads, rows, all)
}

// follow prints the events and those that happen after them, until ctx ends. It connects again if
// the connection ends.
func (p *eventPrinter) follow(c *cobra.Command, o *options, all []events.Event) error {
	if err := p.print(all...); err != nil {
		return err
	}
	ctx, stderr := c.Context(), c.ErrOrStderr()
	client, err := o.client(c)
	if err != nil {
		return err
	}
	defer client.Close()
	away := false
	for {
		err := client.FollowEvents(ctx, p.last, func(e events.Event) error {
			away = false
			p.err = p.print(e)
			return p.err
		}, func(reason string) { fmt.Fprintf(stderr, "some events were missed: %s\n", output.Printable(reason)) })
		switch refused, ok := errors.AsType[*api.Error](err); {
		case ctx.Err() != nil:
			return nil
		case p.err != nil:
			return p.err
		case ok && refused.Status != http.StatusServiceUnavailable:
			return err
		}
		if !away {
			fmt.Fprintf(stderr, "no connection to the daemon, connecting again: %s\n", output.Printable(reasonOf(err)))
			away = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reconnectEvery):
		}
	}
}

// reasonOf says why a stream ended.
func reasonOf(err error) string {
	if errors.Is(err, io.EOF) {
		return "it closed the connection"
	}
	return err.Error()
}
