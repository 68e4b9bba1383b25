package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/fairshare/quota"
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
)

func newDescribe(o *options) *cobra.Command {
	vm := &cobra.Command{
		Use:   "vm NAME...",
		Short: "Show all that there is about a guest",
		Long: `Show all that there is about a guest, in words. SHARE, ENTITLED, CAP and GUARANTEE are
parts of the GPU's time. Programs read "vgpuctl get vm NAME -o json".`,
		Args:              atLeast("NAME..."),
		ValidArgsFunction: completeSeveral(o, (*api.Client).VMs, vmName),
		RunE: func(c *cobra.Command, args []string) error {
			return describeEach(c, args, func(name string) ([]string, error) {
				v, err := ask(c, o, func(d *api.Client, ctx context.Context) (api.VM, error) { return d.VM(ctx, name) })
				return describeVM(&v), err
			})
		},
	}
	return cli.NewGroup("describe", "Show all that there is about a guest or a GPU", vm, newDescribeGPU(o))
}

// describeEach prints the lines that describe each of some names, with an empty line between two.
func describeEach(c *cobra.Command, names []string, describe func(name string) ([]string, error)) error {
	for i, name := range names {
		lines, err := describe(name)
		if err != nil {
			return err
		}
		text := strings.Join(lines, "\n") + "\n"
		if i > 0 {
			text = "\n" + text
		}
		if _, err := io.WriteString(c.OutOrStdout(), text); err != nil {
			return err
		}
	}
	return nil
}

// section is a part of a description.
type section struct {
	head  string
	lines [][2]string
}

func (s *section) add(name, value string) {
	if value != "" {
		s.lines = append(s.lines, [2]string{name, value})
	}
}

// describeVM returns the lines of a guest's description.
func describeVM(v *api.VM) []string {
	return linesOf(identityOf(v), timeOf(v), memoryOf(v), workOf(v), preemptionOf(v), controlOf(v), confinementOf(v))
}

// linesOf returns the lines of sections, of which those without lines are left out.
func linesOf(sections ...section) (lines []string) {
	for _, s := range sections {
		if len(s.lines) == 0 {
			continue
		}
		indent := ""
		if s.head != "" {
			lines = append(lines, s.head+":")
			indent = "  "
		}
		for _, l := range s.lines {
			lines = append(lines, fmt.Sprintf("%-22s %s", indent+l[0]+":", output.Printable(l[1])))
		}
	}
	return lines
}

func identityOf(v *api.VM) (s section) {
	s.add("Name", v.Name)
	is := state(*v)
	if v.HeldBack != nil && v.Lost == "" && v.Silent == "" { // which say it
		is += "; held back: " + v.HeldBack.Text
	}
	s.add("State", is)
	s.add("Lost", v.Lost)
	if v.LostAt != nil {
		s.add("Lost at", v.LostAt.UTC().Format(time.DateTime+" MST"))
	}
	s.add("Silent", v.Silent)
	s.add("GPU", vmGPU(*v))
	s.add("Owner", v.Owner)
	s.add("Project", v.Project)
	s.add("Placed by", v.Engine)
	s.add("Domain", v.Domain)
	s.add("Domain UUID", v.DomainUUID)
	s.add("Socket", v.Socket)
	if v.Peer != nil {
		s.add("May connect", cmp.Or(v.Peer.PIDFile, fmt.Sprintf("process %d", v.Peer.PID)))
	}
	if v.PID != 0 {
		s.add("Process", fmt.Sprint(v.PID))
	}
	return s
}

func timeOf(v *api.VM) section {
	s := section{head: "Time of the GPU"}
	s.add("Share", percent(v.BusyRatio)+" lately")
	s.add("Entitled", percent(v.Entitled)+" among the guests that have work")
	s.add("Weight", number(v.Weight))
	s.add("Cap", cmp.Or(strings.TrimPrefix(ratio(v.Cap), "-"), "none"))
	s.add("Guarantee", cmp.Or(strings.TrimPrefix(ratio(v.Guarantee), "-"), "none"))
	s.add("Budget", spent(v.Budget))
	s.add("Owner's budget", spent(v.OwnerBudget))
	s.add("Used", spell(v.GPUSeconds))
	if v.GPUSecondsOwn != nil {
		s.add("Used, by the GPU", spell(*v.GPUSecondsOwn))
	}
	for i := range v.OnGPUs {
		on := &v.OnGPUs[i]
		s.add("On "+on.GPU, fmt.Sprintf("%s, %s lately; %s", spell(on.GPUSeconds), percent(on.BusyRatio), contexts(on.Contexts)+" with "+size(on.MemoryUsedBytes)))
	}
	if v.UnaccountedSeconds != 0 {
		s.add("Unaccounted for", "up to "+spell(v.UnaccountedSeconds)+", while no daemon ran")
	}
	s.add("Suspended", fmt.Sprintf("%s, %d times", spell(v.SuspendedSeconds), v.Suspensions))
	return s
}

// contexts counts contexts for people.
func contexts(n int) string {
	if n == 1 {
		return "1 context"
	}
	return fmt.Sprintf("%d contexts", n)
}

// spent describes a budget and what is used of it; "" is no budget.
func spent(b *budget.Status) string {
	if b == nil {
		return ""
	}
	used := fmt.Sprintf("%s; %s used", b.Budget, spell(b.Used.Seconds()))
	if b.Level != quota.Within {
		used += fmt.Sprintf(", past the %s limit", b.Level)
	}
	return used + ", until " + b.Ends.UTC().Format(time.DateTime+" MST")
}

func memoryOf(v *api.VM) section {
	s := section{head: "Memory of the GPU"}
	s.add("In use", size(v.MemoryUsedBytes))
	limit := "none"
	if v.MemoryLimitBytes > 0 {
		limit = fmt.Sprintf("%s (%s used)", size(v.MemoryLimitBytes), percent(float64(v.MemoryUsedBytes)/float64(v.MemoryLimitBytes)))
	}
	s.add("Limit", limit)
	return s
}

func workOf(v *api.VM) section {
	s := section{head: "Work"}
	s.add("Contexts", fmt.Sprint(v.Contexts))
	s.add("Kernels", fmt.Sprint(v.Kernels))
	s.add("Kernel time limit", timeOr(v.KernelTimeLimit, "none"))
	s.add("Commands", fmt.Sprintf("%d, of which %d failed", v.Commands, v.Errors))
	s.add("Failed, by reason", failures(&v.ErrorReasons))
	if len(v.EventKernels) > 0 || v.Events+v.EventsDropped+v.EventsStray > 0 {
		s.add("Event kernels", fmt.Sprintf("%d; %d events, %d dropped, %d stray", len(v.EventKernels), v.Events, v.EventsDropped, v.EventsStray))
	}
	s.add("Copied", size(v.CopiedBytes))
	s.add("Doorbells", fmt.Sprint(v.Doorbells))
	return s
}

// failures lists the reasons for which commands failed, with how many did.
func failures(r *api.ErrorReasons) string {
	var all []string
	for _, f := range []struct {
		count  uint64
		reason string
	}{
		{r.Request, "request"}, {r.Memory, "memory"}, {r.Module, "module"}, {r.Fault, "fault"},
		{r.TimeLimit, "time-limit"}, {r.Canceled, "canceled"}, {r.Other, "other"},
	} {
		if f.count > 0 {
			all = append(all, fmt.Sprintf("%d %s", f.count, f.reason))
		}
	}
	return strings.Join(all, ", ")
}

func preemptionOf(v *api.VM) section {
	s := section{head: "Preemption"}
	p := &v.Preemption
	s.add("Priority", fmt.Sprintf("up to %d; %d launches asked for more", v.PriorityCeiling, p.IgnoredPriorities))
	s.add("Latency", timeOr(v.Latency, "default"))
	s.add("Launches", fmt.Sprintf("%d wait, %d run, %d leave", p.Launches.Waiting, p.Launches.Running, p.Launches.Leaving))
	s.add("Evictions", fmt.Sprintf("%d, mean time %s", p.Evictions, mean(p.EvictionSeconds, p.Evictions)))
	s.add("Caused", fmt.Sprintf("%d evictions, charged %s", p.Caused, spell(p.ChargedSeconds)))
	s.add("Unresponsive", fmt.Sprintf("%d kernels", p.Unresponsive))
	if p.Prediction.Launches > 0 {
		s.add("Prediction error", fmt.Sprintf("%s over %d launches", percent(p.Prediction.ErrorRatio), p.Prediction.Launches))
	}
	return s
}

func controlOf(v *api.VM) section {
	s := section{head: "Control by the driver"}
	c := &v.Control
	if c.Contexts == 0 && c.Disables == 0 && c.Errors == 0 {
		return s
	}
	s.add("Contexts", fmt.Sprintf("%d, of which %d are off the GPU", c.Contexts, c.Disabled))
	s.add("Disables", fmt.Sprintf("%d, mean time %s", c.Disables, mean(c.DisableSeconds, c.Disables)))
	slice := "the driver's own"
	if c.TimeSliceSeconds > 0 {
		slice = brief(c.TimeSliceSeconds)
	}
	s.add("Time slice", slice)
	s.add("Errors", fmt.Sprint(c.Errors))
	s.add("Problem", c.Problem)
	return s
}

func confinementOf(v *api.VM) section {
	s := section{head: "Confinement"}
	c := v.Confinement
	if c == nil {
		return s
	}
	if c.UID != 0 {
		s.add("User", fmt.Sprint(c.UID))
	}
	s.add("Private devices", yesNo(c.PrivateDevices))
	s.add("Devices", strings.Join(c.Devices, ", "))
	s.add("Private network", yesNo(c.PrivateNetwork))
	s.add("Control group", c.Cgroup)
	return s
}

// spell formats a time in seconds for people.
func spell(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}
