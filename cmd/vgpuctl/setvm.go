package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
	"vgpud/mediator/libvirt"
	"vgpud/mediator/libvirt/domain"
)

// setVM is `set vm`: it changes a running guest over the API, its libvirt domain's definition, or
// both.
type setVM struct {
	*options
	answer
	live, config bool
	uri          string
}

func newSetVM(o *options) *cobra.Command {
	s := setVM{options: o}
	c := &cobra.Command{
		Use:   "vm NAME KEY=VALUE...",
		Short: "Change a guest, at once or from its next start on",
		Long: `Change a guest's part of its GPU:

  weight=N              its part relative to the other guests' weights
  cap=PART              the largest part of the GPU's time that it gets; none
  guarantee=PART        the least part of the GPU's time that it gets while it has work; none
  priority=N            the highest priority that its launches may have, 0 to 15
  latency=TIME          the time within which kernels of lower priority should leave the GPU for
                        its own, such as 50us; default: the daemon's choice
  kernel-time-limit=T   end a kernel after this much GPU time, such as 10s; none: never;
                        default: the daemon's setting
  memory=SIZE           GPU memory that it may use, such as 4GiB; none
  budget=TIME/PERIOD    GPU time that it gets in a day, week or month, such as 10h/day; with
                        ,soft=TIME from when its use is reported, and ,at-hard=throttle to
                        have it get what others leave over in place of nothing; none

A PART is written 0.25 or 25%.

A lower limit of memory takes nothing away from programs; they get no more until they
have given enough back. A program that runs already stays within the limit it began with.

--live changes the running guest, at once, until it stops. --config changes the definition
of its libvirt domain, from the domain's next start on. Both together do both. Without
either, as with virsh, the running guest is changed, or, if it does not run, its domain's
definition.`,
		Example: `  vgpuctl set vm web1 weight=4
  vgpuctl set vm web1 cap=50% guarantee=10% --live --config`,
		Args:              atLeast("NAME", "KEY=VALUE..."),
		ValidArgsFunction: completeSettings(o),
		RunE:              s.run,
	}
	s.flags(c)
	c.Flags().BoolVar(&s.live, "live", false, "change the running guest, until it stops")
	c.Flags().BoolVar(&s.config, "config", false, "change the definition of its libvirt domain, from its next start on")
	c.Flags().StringVarP(&s.uri, "connect", "c", libvirt.DefaultURI, "with --config, libvirt's `URI`")
	return c
}

func (s *setVM) run(c *cobra.Command, args []string) error {
	if s.Kind != "" && s.config && !s.live {
		return cli.Usagef("-o shows the running guest, which --config alone does not change: leave it out, or add --live")
	}
	if err := s.check(); err != nil {
		return err
	}
	name := args[0]
	u, err := parseVMUpdate(args[1:])
	if err != nil {
		return err
	}
	remote, err := s.remote()
	if err != nil {
		return err
	}
	// The libvirt of this host knows nothing of another one's domains.
	elsewhere := remote != nil && !c.Flags().Changed("connect")
	if s.config && elsewhere {
		return cli.Usagef("--config changes a definition of libvirt's: with --host it wants the URI of that host's libvirt, too (--connect qemu+ssh://HOST/system)")
	}
	if s.config {
		v, err := s.guest(c, name)
		if err != nil && s.live {
			return err
		}
		if err == nil && v.DomainUUID == "" {
			return fmt.Errorf("guest %q has no libvirt domain, so it has no definition for --config to change; without --config it is changed until it is deleted", name)
		}
		return s.definition(c, definitionOf(name, &v), func() error {
			if !s.live {
				return nil
			}
			return s.guestNow(c, name, &u)
		}, &u)
	}
	err = s.guestNow(c, name, &u)
	if !errors.Is(err, api.ErrNotFound) || s.live || elsewhere {
		return err
	}
	if derr := s.definition(c, definitionOf(name, nil), func() error { return nil }, &u); !errors.Is(derr, libvirt.ErrNoDomain) && !errors.Is(derr, libvirt.ErrUnavailable) {
		return derr
	}
	return err
}

// guest returns the running guest.
func (s *setVM) guest(c *cobra.Command, name string) (api.VM, error) {
	return ask(c, s.options, func(d *api.Client, ctx context.Context) (api.VM, error) { return d.VM(ctx, name) })
}

// guestNow changes the running guest.
func (s *setVM) guestNow(c *cobra.Command, name string, u *api.VMUpdate) error {
	v, err := ask(c, s.options, func(d *api.Client, ctx context.Context) (api.VM, error) { return d.UpdateVM(ctx, name, *u) })
	if err != nil {
		return err
	}
	if !s.live && !s.config && v.DomainUUID != "" {
		if _, err := fmt.Fprintf(c.ErrOrStderr(), "%s: this holds until domain %s stops; with --config as well, also after its next start\n", c.Root().Name(), v.Domain); err != nil {
			return err
		}
	}
	return s.vm(c.OutOrStdout(), fmt.Sprintf("vm %s: %s", v.Name, updated(&v, u)), v)
}

// place is a virtual GPU in a domain's definition.
type place struct {
	domain string // its UUID or name
	number int
}

var (
	socketNumber = regexp.MustCompile(`^gpu([0-9]{1,2})\.sock$`)
	nameNumber   = regexp.MustCompile(`^(.+)-([1-9][0-9]?)$`)
)

// definitionOf returns where a guest's terms may be defined, likeliest first. Of a guest that is known
// to the daemon the domain is known, and its socket's name tells which virtual GPU it is; otherwise
// its name tells, which the hook derives from the domain's.
func definitionOf(name string, v *api.VM) []place {
	if v != nil && v.DomainUUID != "" {
		n := 0
		if m := socketNumber.FindStringSubmatch(filepath.Base(v.Socket)); m != nil {
			n, _ = strconv.Atoi(m[1]) // two digits
		}
		return []place{{v.DomainUUID, n}}
	}
	places := []place{{name, 0}}
	if m := nameNumber.FindStringSubmatch(name); m != nil {
		n, _ := strconv.Atoi(m[2]) // two digits
		places = append(places, place{m[1], n})
	}
	return places
}

// definition changes the terms in a domain's definition. before is called when the definition was
// found and the change is valid.
func (s *setVM) definition(c *cobra.Command, places []place, before func() error, u *api.VMUpdate) (err error) {
	d := definition{uri: s.uri}
	conn, ctx, cancel, err := d.connect(c)
	if err != nil {
		return err
	}
	defer cancel()
	defer func() { err = errors.Join(err, conn.Close()) }()
	var dom libvirt.Domain
	var number int
	for _, p := range places {
		number = p.number
		if dom, err = conn.Domain(ctx, p.domain, libvirt.Persistent); !errors.Is(err, libvirt.ErrNoDomain) {
			break
		}
	}
	if err != nil {
		return err
	}
	if !dom.Persistent {
		return fmt.Errorf("domain %s is transient: it has no definition to change", dom.Name)
	}
	src := []byte(dom.XML)
	after, err := domain.SetTerms(src, number, u.Apply)
	if err != nil {
		return fmt.Errorf("domain %s: %w", dom.Name, err)
	}
	if err := before(); err != nil {
		return err
	}
	text := "nothing to change"
	if !bytes.Equal(src, after) {
		if err := conn.Define(ctx, after); err != nil {
			return fmt.Errorf("domain %s: %w", dom.Name, err)
		}
		text = assigned(u) + " from its next start on"
	}
	which := ""
	if number > 0 {
		which = fmt.Sprintf(", virtual GPU %d", number)
	}
	if s.Kind != "" {
		return nil // the guest was shown
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "domain %s%s: %s\n", dom.Name, which, text)
	return err
}

// assigned formats what an update sets.
func assigned(u *api.VMUpdate) string {
	t := u.Apply(api.Terms{})
	v := api.VM{Weight: t.Weight, Cap: t.Cap, Guarantee: t.Guarantee, PriorityCeiling: t.PriorityCeiling, Latency: t.Latency, KernelTimeLimit: t.KernelTimeLimit, MemoryLimitBytes: t.MemoryLimitBytes}
	if u.Budget != nil {
		v.Budget = &budget.Status{Budget: t.Budget}
	}
	return updated(&v, u)
}
