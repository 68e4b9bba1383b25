package vm

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"vgpud/clock"
	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/mediator/api"
	"vgpud/vfio/qemu"
)

// TestCampaign shares a GPU among four VMs with weights 1, 1, 2 and 4 for the time -campaign, and
// resets one of them once a minute. Over the times in which all four have work, and in which only
// the other three have, each must get its entitlement within 3 points.
func TestCampaign(t *testing.T) {
	if *campaign == 0 {
		t.Skip("minutes long: asked for by -campaign 5m")
	}
	const points, resetEvery = 0.03, time.Minute
	// Four VMs on few processors produce less work, so the GPU is slower.
	h := withTimeout(host.Start(t, "dfq", "--warp-time", "1us"))
	weights := map[string]float64{"a": 1, "b": 1, "c": 2, "d": 4}
	kinds := map[string][]workload.Work{"a": long, "b": medium, "c": medium, "d": medium}
	const unlucky = "b"
	machines, workers := make(map[string]*machine), make(map[string]*worker)
	names := slices.Sorted(maps.Keys(weights))
	for _, name := range names {
		machines[name] = boot(t, h, qemu.Options{}, h.NewVM(api.VMSpec{Name: name, Weight: weights[name]}))
	}
	for _, name := range names {
		machines[name].ready()
		workers[name] = machines[name].begin(name, "", kinds[name])
	}
	s := &shares{client: h.Client, sums: make(map[string]map[string]float64)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(ctx) })

	resets := 0
	past := make(map[string]workload.Report) // of workers that have ended
	note := func(name string) {
		r, sum := workers[name].last(), past[name]
		sum.Cases += r.Cases
		sum.BusySeconds += r.BusySeconds
		sum.BackloggedSeconds += r.BackloggedSeconds
		past[name] = sum
	}
	all, three := strings.Join(names, " "), strings.ReplaceAll(strings.Join(names, " "), unlucky+" ", "")
	for begin := time.Now(); time.Since(begin) < *campaign; resets++ {
		s.setWorking(all)
		if err := clock.Sleep(ctx, clock.Real{}, min(resetEvery, *campaign-time.Since(begin))); err != nil {
			t.Fatal(err)
		}
		m, w := machines[unlucky], workers[unlucky]
		s.setWorking("")
		m.do(m.vm.Reset)
		w.awaitLost()
		note(unlucky)
		s.setWorking(three)
		m.ready()
		workers[unlucky] = m.begin(unlucky, "", kinds[unlucky])
	}
	s.setWorking("")
	cancel()
	watching.Wait()
	if s.err != nil {
		t.Fatal(s.err)
	}
	cases := uint64(0)
	for _, name := range names {
		workers[name].end()
		note(name)
		cases += past[name].Cases
	}
	fmt.Printf("%v, %d resets of %s, %d results checked, all right\n", *campaign, resets, unlucky, cases)
	out := tabwriter.NewWriter(os.Stdout, 0, 8, 3, ' ', 0)
	for _, set := range []string{all, three} {
		total, entitled := 0.0, 0.0
		for _, name := range strings.Fields(set) {
			total += s.sums[set][name]
			entitled += weights[name]
		}
		fmt.Fprintf(out, "\n%s have work:\t%.1f s of GPU time\n", set, total)
		fmt.Fprintln(out, "VM\tWEIGHT\tGPU-S\tSHARE\tENTITLED\tHAD WORK WAITING")
		for _, name := range strings.Fields(set) {
			share, due := s.sums[set][name]/total, weights[name]/entitled
			fmt.Fprintf(out, "%s\t%g\t%.2f\t%.1f%%\t%.1f%%\t%.1f%%\n", name, weights[name], s.sums[set][name], 100*share, 100*due,
				100*past[name].BackloggedSeconds/past[name].BusySeconds)
			if math.Abs(share-due) > points {
				t.Errorf("while %s have work %s got %.1f%%, entitled to %.1f%%", set, name, 100*share, 100*due)
			}
		}
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
}

// shares sums GPU time, by the GPU's own count, over the times in which a set of VMs has work.
type shares struct {
	client *api.Client

	mu      sync.Mutex
	set     string // the VMs that have work now; "" while that changes
	changes int
	sums    map[string]map[string]float64 // by set, then by VM
	err     error                         // once watch has returned
}

// setWorking sets which VMs have work from now on.
func (s *shares) setWorking(set string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set = set
	s.changes++
}

// watch samples until ctx ends. An interval in which the set changed does not count.
func (s *shares) watch(ctx context.Context) {
	before, changes := map[string]float64(nil), 0
	for clock.Sleep(ctx, clock.Real{}, 200*time.Millisecond) == nil {
		vms, err := s.client.VMs(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.err = err
			}
			return
		}
		now := make(map[string]float64)
		for _, v := range vms {
			if v.GPUSecondsOwn != nil {
				now[v.Name] = *v.GPUSecondsOwn
			}
		}
		s.mu.Lock()
		if before != nil && changes == s.changes && s.set != "" {
			if s.sums[s.set] == nil {
				s.sums[s.set] = make(map[string]float64)
			}
			for _, name := range strings.Fields(s.set) {
				s.sums[s.set][name] += now[name] - before[name]
			}
		}
		before, changes = now, s.changes
		s.mu.Unlock()
	}
}
