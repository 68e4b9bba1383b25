package system

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/fairshare/quota"
	"vgpud/mediator/api"
)

var (
	kills    = flag.Int("kills", 6, "how often TestKills kills the daemon")
	killSeed = flag.Uint64("kill-seed", 0, "the seed of TestKills' random moments; 0: by the time")
)

// killRound is the longest round of accounting by registers (accounting.Config): what a kill may
// lose of each guest's usage.
const killRound = 24 * time.Millisecond

// killed is a host whose daemon is killed again and again.
type killed struct {
	*host.Host
	t      *testing.T
	random *rand.Rand
	guests []*killedGuest

	back  []time.Duration // how long it took until the state was back, by kill
	lost  []time.Duration // the most that a guest's usage lost, by kill
	kills map[string]int  // by moment
}

// killedGuest is a guest with what its operator set. An update that was under way when the daemon
// was killed may have been made or not: then may has the weights that are right.
type killedGuest struct {
	*busyGuest
	name string
	want api.VM
	may  []float64
	// short is by how much the guest's usage was less than the GPU's own count after the last kill.
	short float64
}

// TestKills kills the daemon at random moments while guests compute. Their programs go on while no
// daemon runs. The next daemon adopts every guest, with its weight, cap, guarantee and budget, and
// the GPUs' cordons; and what it has recorded is what the GPU counted, but for a round of each kill.
//
// The campaign is `go test ./e2e/system -run TestKills -kills 100 -v -timeout 2h`.
func TestKills(t *testing.T) {
	seed := cmp.Or(*killSeed, uint64(time.Now().UnixNano()))
	t.Logf("-kill-seed %d", seed)
	k := &killed{Host: host.StartGPUs(t, 2, "dfq"), t: t, random: rand.New(rand.NewPCG(seed, 0)), kills: make(map[string]int)}
	ctx := t.Context()
	cordoned := true
	if _, err := k.Client.UpdateGPU(ctx, "gpu1", api.GPUUpdate{Cordoned: &cordoned}); err != nil {
		t.Fatal(err)
	}
	month := quota.Budget{Period: quota.Month, Soft: time.Hour, Hard: 100 * time.Hour}
	k.create(api.VMSpec{Name: "long", GPU: host.GPUName, Owner: "alice", Budget: month}, 1500)
	k.create(api.VMSpec{Name: "short", GPU: host.GPUName, Weight: 4, Guarantee: 0.2, Owner: "bob", PriorityCeiling: 1}, 150)
	k.create(api.VMSpec{Name: "capped", GPU: host.GPUName, Cap: 0.25, KernelTimeLimit: time.Minute, Budget: quota.Budget{Period: quota.Day, Hard: 10 * time.Hour}}, 300)

	moments := []struct {
		name string
		kill func()
	}{
		{"under load", k.underLoad},
		{"while it writes state", k.whileItWrites},
		{"while a guest is created", k.whileCreating},
		{"while a guest is deleted", k.whileDeleting},
		{"while guests are adopted", k.whileAdopting},
		{"twice in a row", k.twice},
	}
	for n := range *kills {
		m := moments[n%len(moments)]
		m.kill()
		k.kills[m.name]++
		for _, g := range k.guests {
			k.goesOn(g)
		}
		k.restart(m.name)
		if t.Failed() {
			t.Fatalf("kill %d, %s", n+1, m.name)
		}
	}
	k.report()
}

// create creates a guest that works until the end of the test.
func (k *killed) create(s api.VMSpec, iterations int) {
	w := newBusyGuest(k.t, k.Host, s, iterations)
	v := k.VM(s.Name)
	k.guests = append(k.guests, &killedGuest{busyGuest: w, name: s.Name, want: v, may: []float64{v.Weight}})
}

// goesOn waits until a guest's kernels have ended that had not begun, without a daemon.
func (k *killed) goesOn(g *killedGuest) {
	goal := g.kernels.Load() + 2
	k.Until("more of "+g.name+"'s kernels while no daemon runs", func() error {
		if n := g.kernels.Load(); n < goal {
			return fmt.Errorf("%d of %d", n, goal)
		}
		return nil
	})
}

// pause waits for a random moment.
func (k *killed) pause(most time.Duration) {
	time.Sleep(time.Duration(k.random.Int64N(int64(most)))) // waits for nothing: it is the moment of the kill
}

func (k *killed) kill() {
	if err := k.Daemon.Kill(); err != nil {
		k.t.Fatal(err)
	}
}

func (k *killed) underLoad() {
	k.pause(300 * time.Millisecond)
	k.kill()
}

// whileItWrites changes weights all the time, each of which is saved before it is answered.
func (k *killed) whileItWrites() {
	var wg sync.WaitGroup
	for _, g := range k.guests {
		weights := make([]float64, 1000)
		for i := range weights {
			weights[i] = float64(1 + k.random.IntN(8))
		}
		wg.Go(func() {
			for _, w := range weights {
				// If the answer is missing, either weight is right.
				g.may = append(g.may[:1:1], w)
				if _, err := k.Client.UpdateVM(k.t.Context(), g.name, api.VMUpdate{Weight: &w}); err != nil {
					return
				}
				g.may = []float64{w}
			}
		})
	}
	k.pause(200 * time.Millisecond)
	k.kill()
	wg.Wait()
}

// whileCreating kills the daemon while it creates a guest. Whether there is one then is not known
// unless the daemon said so; it is usable and can be deleted, or its name is free.
func (k *killed) whileCreating() {
	created := make(chan error, 1)
	spec := api.VMSpec{Name: "new", GPU: host.GPUName, BAR2Bytes: 64 << 20}
	go func() {
		_, err := k.Client.CreateVM(context.Background(), spec)
		created <- err
	}()
	k.pause(60 * time.Millisecond)
	k.kill()
	err := <-created
	k.start()
	v, verr := k.Client.VM(k.t.Context(), spec.Name)
	if err == nil && (verr != nil || v.Lost != "" || v.Silent != "") {
		k.t.Errorf("a guest whose creation was answered is %+v, %v", v, verr)
	}
	if verr != nil || v.Lost != "" {
		v = k.NewVM(spec)
	}
	dev := k.Attach(v.Socket)
	works(k.t, contextOf(k.t, dev))
	if err := k.Client.ForceDeleteVM(k.t.Context(), spec.Name); err != nil {
		k.t.Error(err)
	}
	k.kill()
}

// whileDeleting kills the daemon while it deletes a guest, whose name is free then or becomes so.
func (k *killed) whileDeleting() {
	spec := api.VMSpec{Name: "old", GPU: host.GPUName, BAR2Bytes: 64 << 20}
	k.NewVM(spec)
	deleted := make(chan error, 1)
	go func() { deleted <- k.Client.ForceDeleteVM(context.Background(), spec.Name) }()
	k.pause(20 * time.Millisecond)
	k.kill()
	err := <-deleted
	k.start()
	if v, verr := k.Client.VM(k.t.Context(), spec.Name); verr == nil {
		if err == nil && v.Lost == "" {
			k.t.Errorf("a guest whose end was answered is %+v", v)
		}
		if err := k.Client.ForceDeleteVM(k.t.Context(), spec.Name); err != nil {
			k.t.Error(err)
		}
	}
	k.NewVM(spec)
	if err := k.Client.ForceDeleteVM(k.t.Context(), spec.Name); err != nil {
		k.t.Error(err)
	}
	k.kill()
}

// whileAdopting kills the daemon, and the next one while it starts.
func (k *killed) whileAdopting() {
	k.kill()
	k.SpawnDaemon()
	k.pause(150 * time.Millisecond)
	k.kill()
}

// twice kills the daemon, and the next one as soon as it answers.
func (k *killed) twice() {
	k.kill()
	k.start()
	k.kill()
}

// start starts the daemon, and measures how long it takes until it shows all guests adopted.
func (k *killed) start() {
	begin := time.Now()
	k.SpawnDaemon()
	k.Until("the state to be back", func() error {
		vms, err := k.Client.VMs(k.t.Context())
		if err != nil {
			return err
		}
		for _, g := range k.guests {
			i := slices.IndexFunc(vms, func(v api.VM) bool { return v.Name == g.name })
			if i < 0 || vms[i].Silent != "" {
				return fmt.Errorf("%s is not adopted: %+v", g.name, vms)
			}
		}
		return nil
	})
	k.back = append(k.back, time.Since(begin))
}

// restart starts the daemon and checks that all is as it was.
func (k *killed) restart(moment string) {
	k.start()
	gpus, err := k.Client.GPUs(k.t.Context())
	if err != nil || gpus[0].Cordoned || !gpus[1].Cordoned {
		k.t.Errorf("%s: cordons %v, %+v", moment, err, gpus)
	}
	most := 0.0
	for _, g := range k.guests {
		v := k.VM(g.name)
		if !slices.Contains(g.may, v.Weight) {
			k.t.Errorf("%s: %s has weight %v, want one of %v", moment, g.name, v.Weight, g.may)
		}
		g.may = []float64{v.Weight}
		w := &g.want
		if v.PID != w.PID || v.Cap != w.Cap || v.Guarantee != w.Guarantee || v.PriorityCeiling != w.PriorityCeiling || v.Lost != "" || !v.Attached ||
			v.KernelTimeLimit != w.KernelTimeLimit || v.Owner != w.Owner || v.GPU != w.GPU || v.Errors != 0 || v.GPUSeconds < w.GPUSeconds || v.Kernels < w.Kernels {
			k.t.Errorf("%s: before\n%+v\nafter\n%+v", moment, w, v)
		}
		// A budget counts more than the charge by as much as the charge's error explains, and of that
		// error a kill loses the part that was not saved.
		if (v.Budget == nil) != (w.Budget == nil) || v.Budget != nil && (v.Budget.Budget != w.Budget.Budget || v.Budget.Used < w.Budget.Used-killRound) {
			k.t.Errorf("%s: %s's budget was %+v and is %+v", moment, g.name, w.Budget, v.Budget)
		}
		g.want = v
		short := *v.GPUSecondsOwn - v.GPUSeconds
		most = max(most, short-g.short)
		g.short = short
	}
	k.lost = append(k.lost, time.Duration(most*1e9))
}

// report stops the guests, and compares the record with what the GPU counted of each guest.
func (k *killed) report() {
	for _, g := range k.guests {
		g.stop()
	}
	(&ledger{t: k.t, h: k.Host}).idles()
	recorded := make(map[string]float64)
	k.Until("all to be recorded", func() error {
		u, err := k.Client.Usage(k.t.Context(), api.UsageQuery{From: "1d", By: "vm"})
		if err != nil {
			return err
		}
		for _, r := range u.Rows {
			recorded[r.VM] = r.GPUSeconds
		}
		for _, g := range k.guests {
			if v := k.VM(g.name); math.Abs(recorded[g.name]-v.GPUSeconds) > 1e-4 {
				return fmt.Errorf("%s: recorded %.6f s, accounted %.6f s", g.name, recorded[g.name], v.GPUSeconds)
			}
		}
		return nil
	})
	gpus, err := k.Client.GPUs(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	// As in agrees: an overloaded host doesn't watch all of the time. This daemon's gaps stand for
	// those of the killed ones.
	late := gpus[0].GapSeconds/max(gpus[0].WatchedSeconds, 1e-3) + 0.01
	n := len(k.back)
	var text strings.Builder
	for _, g := range k.guests {
		v := k.VM(g.name)
		own, got := *v.GPUSecondsOwn, recorded[g.name]
		allowed := own*late + float64(n)*killRound.Seconds() + gpus[0].OverrunSeconds
		fmt.Fprintf(&text, "%-7s the GPU counted %8.3f s, recorded %8.3f s: %+.4f s a kill (allowed %.4f), %d kernels\n", g.name, own, got, (own-got)/float64(n), allowed/float64(n), g.kernels.Load())
		if own-got > allowed || got-own > allowed {
			k.t.Errorf("%s: the GPU counted %.3f s, recorded %.3f s, more than a round of each of %d kills apart", g.name, own, got, n)
		}
		// A budget counts what kernels took from their starts to their ends, where accounting, which
		// samples, may have seen less (quota.Measured).
		if b := v.Budget; b != nil && (b.Used.Seconds() < v.GPUSeconds-1e-3 || b.Used.Seconds() > max(v.GPUSeconds, own)+allowed) {
			k.t.Errorf("%s: of its budget %v are used, it used %.6f s, and the GPU counted %.6f s", g.name, b.Used, v.GPUSeconds, own)
		}
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		k.t.Fatal(err)
	}
	slices.Sort(k.back)
	slices.Sort(k.lost)
	k.t.Logf("%d kills %v and %d starts; load %s%sstate back after %v (median), %v (9 of 10), %v (longest); the most that a guest lost by a kill: %v (median), %v (largest)",
		*kills, k.kills, n, load, text.String(), k.back[n/2], k.back[n*9/10], k.back[n-1], k.lost[len(k.lost)/2], k.lost[len(k.lost)-1])
}
