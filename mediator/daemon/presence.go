package daemon

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"vgpud/fairshare/quota"
	"vgpud/gpu"
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
	"vgpud/mediator/ipc"
	"vgpud/mediator/launchqueue"
	"vgpud/mediator/scheduler"
	"vgpud/mediator/suspend"
)

// presence is what a guest is on one GPU: to that GPU's scheduler a guest of its own, with the
// guest's weight, cap and guarantee there, a control page, and a bill.
type presence struct {
	// index is the GPU's, in ipc.Spec's Floats; 0 for a guest that does not float.
	index  int
	device *device
	page   *ipc.ControlPage
	sched  *scheduler.Guest
	// controller takes the guest's contexts off the hardware and puts them back.
	controller *suspend.Controller
	ownBefore  time.Duration // see savedState
	before     ipc.Bill      // see savedState; nothing on GPUs that are not the guest's own

	// guest.mu guards these. unaccounted is see api.VM. reportedWork has the largest counts that were
	// reported, since what a guest's page says may go back.
	unaccounted  time.Duration
	reportedWork ipc.Counters
}

// all returns what the guest is on each of its GPUs, its own first.
func (g *guest) all() []*presence { return append([]*presence{&g.presence}, g.away...) }

// on returns what the guest is on the GPU with an index, or nil.
func (g *guest) on(index int) *presence {
	for _, p := range g.all() {
		if p.index == index {
			return p
		}
	}
	return nil
}

// onDevice returns what the guest is on a GPU, or nil.
func (g *guest) onDevice(d *device) *presence {
	for _, p := range g.all() {
		if p.device == d {
			return p
		}
	}
	return nil
}

// floats reports whether the guest's contexts may be placed on any of the host's GPUs.
func (g *guest) floats() bool { return len(g.spec.Floats) > 0 }

// openPages takes over the control pages of a guest: of its own GPU, and of the others that it floats
// over.
func openPages(spec *ipc.Spec, files []*os.File) (home presence, away []*presence, err error) {
	own := 0
	if len(spec.Floats) > 0 {
		own = slices.Index(spec.Floats, spec.GPU)
	}
	for i, f := range files {
		if err != nil {
			err = errors.Join(err, f.Close())
			continue
		}
		var page *ipc.ControlPage
		if page, err = ipc.OpenControlPage(f); err != nil {
			continue
		}
		if i == own {
			home = presence{index: i, page: page}
		} else {
			away = append(away, &presence{index: i, page: page})
		}
	}
	if err == nil && home.page == nil {
		err = fmt.Errorf("the guest's own GPU %s is not among those that it floats over", spec.GPU.Name)
	}
	if err != nil {
		g := guest{presence: home, away: away}
		err = errors.Join(err, g.closePages())
	}
	return home, away, err
}

// closePages closes the guest's control pages.
func (g *guest) closePages() (err error) {
	for _, p := range g.all() {
		if p.page != nil {
			err = errors.Join(err, p.page.Close())
		}
	}
	return err
}

// findDevices finds the GPUs of a guest. A GPU that is not configured any more is the guest's no
// longer, unless it is its own.
func (s *Service) findDevices(g *guest) error {
	var err error
	if g.device, err = s.device(g.spec.GPU.Name); err != nil {
		return fmt.Errorf("guest %s is on a GPU that is not configured: %w", g.spec.Name, err)
	}
	var found []*presence
	for _, p := range g.away {
		name := g.spec.Floats[p.index].Name
		if p.device, err = s.device(name); err != nil {
			s.log.Warn("contexts of a guest on a GPU that is not configured any more are not governed", "guest", g.spec.Name, "gpu", name)
			if err := p.page.Close(); err != nil {
				s.log.Debug("close a guest's page", "guest", g.spec.Name, "err", err)
			}
			continue
		}
		found = append(found, p)
	}
	g.away = found
	return nil
}

// charges sums up what a guest is charged on its GPUs, for its budget.
type charges struct {
	budget *budget.Guest
	mu     sync.Mutex
	totals []quota.Measured // by presence
}

// presenceBudget is a guest's budget as the scheduler of one of its GPUs sees it.
type presenceBudget struct {
	*charges
	i      int
	before time.Duration // GPU time of lives before, which were charged themselves
}

// Charge implements [scheduler.Budget].
func (b presenceBudget) Charge(total quota.Measured, coming time.Duration) quota.Sanction {
	total.Charged -= b.before
	b.mu.Lock()
	b.totals[b.i] = total
	var sum quota.Measured
	for _, t := range b.totals {
		sum = sum.Add(t)
	}
	b.mu.Unlock()
	return b.budget.Charge(sum, coming)
}

// launchesOf sums up a guest's launches.
type launchesOf struct {
	counts    launchqueue.Counts
	accuracy  launchqueue.Accuracy
	evictions launchqueue.Histogram
}

// status returns what there is to report about the guest at now, over all of its GPUs. A value that
// only one GPU can tell, such as the guest's share, is that of the GPU that it used most lately.
//
// Preconditions: Service.mu is held, so that the pages stay open.
func (g *guest) status(now time.Duration) (sum scheduler.GuestStatus, launches launchesOf) {
	for i, p := range g.all() {
		counts, accuracy, evictions := p.device.loop.LaunchesOf(p.sched)
		launches.counts.Waiting += counts.Waiting
		launches.counts.Running += counts.Running
		launches.counts.Leaving += counts.Leaving
		launches.accuracy = launches.accuracy.Add(accuracy)
		launches.evictions.Merge(&evictions)
		st := p.sched.Status(now)
		if i == 0 {
			sum = st
			continue
		}
		if st.BusyRatio > sum.BusyRatio || st.Active && !sum.Active {
			sum.Share, sum.Entitled = st.Share, st.Entitled
		}
		if sum.HeldBack.Reason == "" {
			sum.HeldBack = st.HeldBack
		}
		sum.BusyRatio += st.BusyRatio
		sum.Active, sum.Suspended = sum.Active || st.Active, sum.Suspended || st.Suspended
		sum.Sanction = max(sum.Sanction, st.Sanction)
		sum.Bill = addBills(sum.Bill, st.Bill)
		sum.Activity = addActivity(sum.Activity, st.Activity)
		sum.Groups = append(sum.Groups, st.Groups...)
	}
	return sum, launches
}

// addBills returns the sum of what a guest was charged on two GPUs.
func addBills(a, b ipc.Bill) ipc.Bill {
	a.Used += b.Used
	a.Suspended += b.Suspended
	a.Suspensions += b.Suspensions
	a.Caused += b.Caused
	a.Charged += b.Charged
	return a
}

// addActivity returns the sum of what a guest's contexts do on two GPUs.
func addActivity(a, b scheduler.Activity) scheduler.Activity {
	a.Contexts += b.Contexts
	a.Grouped += b.Grouped
	a.Working += b.Working
	a.Outstanding += b.Outstanding
	a.Backlog = a.Backlog || b.Backlog
	a.Counters = a.Counters.Add(b.Counters)
	a.MemoryBytes += b.MemoryBytes
	a.Worked += b.Worked
	return a
}

// sums returns what of the guest's sums is reported: none of them goes back. st is its status.
//
// Preconditions: g.mu and Service.mu are held.
func (g *guest) sums(st *scheduler.GuestStatus) (work ipc.Counters, memory uint64, unaccounted time.Duration) {
	if len(g.away) == 0 {
		g.reportedWork = g.reportedWork.Max(st.Activity.Counters)
		return g.reportedWork, g.memoryUsed(&g.presence, &st.Activity), g.unaccounted
	}
	for _, p := range g.all() {
		a := p.sched.Activity()
		p.reportedWork = p.reportedWork.Max(a.Counters)
		work = work.Add(p.reportedWork)
		memory += g.memoryUsed(p, &a)
		unaccounted += p.unaccounted
	}
	return work, memory, unaccounted
}

// onGPUs returns what the guest has on each of its GPUs.
//
// Preconditions: g.mu and Service.mu are held.
func (g *guest) onGPUs(now time.Duration) []api.OnGPU {
	var all []api.OnGPU
	for _, p := range g.all() {
		st := p.sched.Status(now)
		all = append(all, api.OnGPU{
			GPU: p.device.config.Name, Contexts: st.Activity.Contexts, MemoryUsedBytes: g.memoryUsed(p, &st.Activity),
			GPUSeconds: st.Bill.Used.Seconds(), BusyRatio: st.BusyRatio,
		})
	}
	slices.SortFunc(all, func(a, b api.OnGPU) int { return strings.Compare(a.GPU, b.GPU) })
	return all
}

// control returns the state of the guest's contexts on the hardware.
func (g *guest) control() api.Control {
	sum := apiControl(g.controller.State())
	for _, p := range g.away {
		c := apiControl(p.controller.State())
		sum.Contexts += c.Contexts
		sum.Disabled += c.Disabled
		sum.Disables += c.Disables
		sum.DisableSeconds += c.DisableSeconds
		sum.EnableSeconds += c.EnableSeconds
		sum.DisabledSeconds += c.DisabledSeconds
		sum.TimeSlices += c.TimeSlices
		sum.Errors += c.Errors
		sum.TimeSliceSeconds = max(sum.TimeSliceSeconds, c.TimeSliceSeconds)
		if sum.Problem == "" {
			sum.Problem = c.Problem
		}
	}
	return sum
}

// ownSeconds returns what the guest used by its GPUs' own count, or nil if they keep none.
func (g *guest) ownSeconds(counts map[*device]gpu.Counts) *float64 {
	var sum *float64
	for _, p := range g.all() {
		busy := counts[p.device].Busy
		if busy == nil {
			continue
		}
		if sum == nil {
			sum = new(float64)
		}
		*sum += max(busy[g.spec.Name]-p.ownBefore, 0).Seconds()
	}
	return sum
}

// ownCounts returns the account of each of the guest's GPUs.
func (g *guest) ownCounts() map[*device]gpu.Counts {
	counts := make(map[*device]gpu.Counts)
	for _, p := range g.all() {
		counts[p.device] = p.device.loop.Counts()
	}
	return counts
}

// changed has the schedulers of all of the guest's GPUs decide anew.
func (g *guest) changed() {
	for _, p := range g.all() {
		p.device.loop.Changed(p.sched.ID())
	}
}

// lifeOn returns the name in the record of usage of what a guest is on a GPU.
func (g *guest) lifeOn(p *presence) string {
	if p == &g.presence {
		return g.life
	}
	return g.life + "@" + p.device.config.Name
}
