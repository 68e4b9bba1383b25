package nova

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/cmd/vgpud/workload"
	"vgpud/vfio/qemu"
)

// kernelArgs is the kernel command line of a guest. Nova keeps at most 255 bytes of it.
const kernelArgs = "console=ttyS0 quiet panic=-1 intel_iommu=on mitigations=off noreplace-smp tsc=reliable no_timer_check cryptomgr.notests"

// work is what each guest does, always with more of it waiting: kernels of about 10 ms on the test
// bed's slow GPUs.
var work = workload.Plan{
	Name: "guest", Agent: true, Workers: 5, Channels: 5, Seed: 1,
	Work: []workload.Work{{Kernel: "warp", Size: "small", Repeat: 8}, {Kernel: "reduce", Size: "small", Repeat: 8}},
}

// guestImage makes an image whose guests do a plan: a kernel, and an initramfs with the agent and
// the corpus. The disk is empty.
func guestImage(tb testing.TB, c *client, plan workload.Plan) (id string) {
	tb.Helper()
	deps, err := qemu.Find("")
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	text, err := json.Marshal(plan)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "plan.json"), text, 0o644)
	}
	if err != nil {
		tb.Fatal(err)
	}
	packed := filepath.Join(dir, "initramfs")
	if out, err := exec.Command("../../scripts/nova/guest.sh", filepath.Join(dir, "plan.json"), packed).CombinedOutput(); err != nil {
		tb.Fatalf("make an initramfs: %v: %s", err, out)
	}
	upload := func(name, path string) string {
		content, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		return image(tb, c, name, content, nil)
	}
	return image(tb, c, "guest", make([]byte, 1<<20), map[string]string{
		"kernel_id": upload("kernel", deps.Kernel), "ramdisk_id": upload("initramfs", packed), "os_command_line": kernelArgs,
		"hw_machine_type": "q35", "hw_viommu_model": "intel",
	})
}

// console returns what an instance has printed on its first serial port, by QEMU's own record. Nova, asked
// for it, reads the port itself and finds nothing while the guest is silent.
func (b *bed) console(s server) string {
	b.tb.Helper()
	return b.on(s.Host, "cat", "/var/lib/nova/instances/"+s.ID+"/console.log")
}

// report returns the last report of an instance's guest.
func (b *bed) report(s server) (r workload.Report, err error) {
	b.tb.Helper()
	out := b.console(s)
	lines := strings.Split(out, "\n")
	for i := len(lines) - 2; i >= 0; i-- { // the last line may be half
		line := strings.TrimSpace(lines[i])
		if strings.HasPrefix(line, `{"kernels"`) {
			return r, json.Unmarshal([]byte(line), &r)
		}
	}
	return r, fmt.Errorf("no report yet; the console ends with %q", out[max(0, len(out)-300):])
}

// computes waits until an instance's guest has checked so many results since it started, all of them
// right.
func (b *bed) computes(s server, cases uint64) {
	b.tb.Helper()
	untilSlow(b.tb, "results of instance "+s.ID, func() error {
		r, err := b.report(s)
		switch {
		case err != nil:
			return err
		case r.Wrong > 0 || r.Error != "":
			b.tb.Fatalf("instance %s: %d of %d results are wrong: %s", s.ID, r.Wrong, r.Cases, r.Error)
		case r.Cases < cases:
			return fmt.Errorf("%d of %d results", r.Cases, cases)
		}
		return nil
	})
}

// TestGuests has instances compute. A GPU that is sold out gives each the share that its flavor has
// bought.
func TestGuests(t *testing.T) {
	b := startBed(t, 0, 2)
	admin := newClient(b, "admin", "admin")
	awaitGPUs(t, b, admin)
	disk := guestImage(t, admin, work)
	quarter, half, most := flavor(t, admin, 25, 256), flavor(t, admin, 50, 512), flavor(t, admin, 60, 512)

	// Instances of 60 are on three GPUs. Each computes, and then leaves this machine's processors to
	// the others. The three GPUs are given nothing new.
	var instances []server
	for i := range 3 {
		s := boot(t, admin, fmt.Sprintf("most%d", i), most, disk)
		active(t, s)
		b.computes(s, 6)
		act(t, admin, s.ID, "pause", nil)
		cordon(t, b, admin, s)
		instances = append(instances, s)
	}
	// So the fourth is sold to those of 50, 25 and 25.
	var sold []server
	for i, f := range []string{half, quarter, quarter} {
		s := boot(t, admin, fmt.Sprintf("sold%d", i), f, disk)
		active(t, s)
		if i > 0 && (s.Host != sold[0].Host || onlyVM(t, b, s).GPU != onlyVM(t, b, sold[0]).GPU) {
			t.Fatalf("instance %s is on another GPU than %s", s.ID, sold[0].ID)
		}
		sold = append(sold, s)
	}
	none := boot(t, admin, "none", quarter, disk)
	noHost(t, none)
	for _, s := range sold {
		b.computes(s, 6)
	}
	awaitShares(t, b, sold)

	instances = append(instances, sold...)
	for _, s := range append(instances, none) {
		remove(t, admin, s.ID)
	}
	nothingLeft(t, b, admin, instances)
}

// awaitShares waits for an interval over which the instances on a GPU that is sold out each get the
// share that they have bought, or at most three points less. Not every interval shows that: a VM that
// the machine gives no processor has no work.
func awaitShares(t *testing.T, b *bed, all []server) {
	t.Helper()
	const points, enough = 3, 4 // hundredths of the GPU; GPU seconds
	used := func() (times []float64, shares []float64) {
		for _, s := range all {
			vm := onlyVM(t, b, s)
			if vm.GPUSecondsOwn == nil {
				t.Fatalf("instance %s has no GPU time by the GPU's own count", s.ID)
			}
			times, shares = append(times, *vm.GPUSecondsOwn), append(shares, vm.Weight)
		}
		return times, shares
	}
	before, shares := used()
	untilSlow(t, "shares that were bought", func() error {
		now, _ := used()
		sum := 0.0
		for i := range now {
			sum += now[i] - before[i]
		}
		if sum < enough {
			return fmt.Errorf("%.1f of %d s of GPU time", sum, enough)
		}
		was := before
		for i, s := range all {
			b.computes(s, 0)
			if got := 100 * (now[i] - was[i]) / sum; got < shares[i]-points {
				before = now // a new interval
				return fmt.Errorf("%s got %.1f of the %.0f shares that it has", s.ID, got, shares[i])
			}
		}
		for i, s := range all {
			t.Logf("instance %s of %.0f shares got %.1f in %.1f s of the GPU's time", s.ID, shares[i], 100*(now[i]-was[i])/sum, sum)
		}
		return nil
	})
}
