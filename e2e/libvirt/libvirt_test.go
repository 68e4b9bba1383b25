package libvirt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/api"
)

// vms returns the daemon's guests.
func (h *machine) vms() []api.VM {
	h.tb.Helper()
	vms, err := h.Client.VMs(h.tb.Context())
	if err != nil {
		h.tb.Fatal(err)
	}
	return vms
}

// onlyVM returns the only guest.
func (h *machine) onlyVM() api.VM {
	h.tb.Helper()
	vms := h.vms()
	if len(vms) != 1 {
		h.tb.Fatalf("%d guests: %+v", len(vms), vms)
	}
	return vms[0]
}

// awaitWeight waits until a guest has a weight.
func (h *machine) awaitWeight(name string, want float64) {
	h.tb.Helper()
	h.until(fmt.Sprintf("weight %v of %s", want, name), func() error {
		v, err := h.Client.VM(h.tb.Context(), name)
		if err == nil && v.Weight != want {
			err = fmt.Errorf("its weight is %v", v.Weight)
		}
		return err
	})
}

// awaitEmpty waits until nothing remains of any guest.
func (h *machine) awaitEmpty() {
	h.tb.Helper()
	h.until("the guests' end", func() error {
		if vms := h.vms(); len(vms) > 0 {
			return fmt.Errorf("guest %s is there", vms[0].Name)
		}
		for _, dir := range []string{"vms", "domains"} {
			entries, err := os.ReadDir(filepath.Join(h.dir, "run/vgpud", dir))
			if err != nil && !os.IsNotExist(err) {
				return err
			}
			if len(entries) > 0 {
				return fmt.Errorf("%s/%s is left", dir, entries[0].Name())
			}
		}
		return nil
	})
}

// awaitConsole waits until the guest has printed a text a number of times.
func (h *machine) awaitConsole(domain, text string, times int) {
	h.tb.Helper()
	h.until(fmt.Sprintf("%q on the console", text), func() error {
		if said := h.console(domain); strings.Count(said, text) < times {
			return fmt.Errorf("the console so far:\n%s", said[max(0, len(said)-2000):])
		}
		return nil
	})
}

func setWeight(weight string) []string {
	return []string{"virsh", "metadata", "web1", "--uri", "urn:vgpud:domain:1", "--key", "vgpud", "--live",
		"--set", "<devices><gpu weight='" + weight + "'/></devices>"}
}

func TestLibvirt(t *testing.T) {
	h := newMachine(t)
	uuid := h.define("web1")
	// Each step starts from the state that the previous one left.
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"define and undefine", h.defineAndUndefine},
		{"start", func(*testing.T) { h.starts(uuid) }},
		{"weight at run time", h.weightAtRunTime},
		{"hot plug and unplug", h.plugAndUnplug},
		{"restore and migrate are refused", h.saveAndMigrate},
		{"libvirt restarts", h.libvirtRestarts},
		{"destroy leaves nothing", func(*testing.T) { h.run("virsh", "destroy", "web1"); h.awaitEmpty() }},
		{"no start without the daemon", h.noStartWithoutTheDaemon},
		{"no start where there is no room", h.noRoom},
		{"the hook is missing at the end", h.hookMissing},
		{"starts and stops in quick succession", h.quickSuccession},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			outer := h.tb
			h.tb = t
			defer func() { h.tb = outer }()
			step.do(t)
		}) {
			return
		}
	}
}

func (h *machine) defineAndUndefine(t *testing.T) {
	before := h.run("virsh", "dumpxml", "--inactive", "web1")
	diff := h.run("vgpuctl", "define", "web1", "--weight", "2", "--bar2", "64MiB", "--dry-run")
	for _, want := range []string{`+      <vgpud:gpu weight="2" bar2="64MiB"/>`, "pcie-root-port,id=vgpu-spare"} {
		if !strings.Contains(diff, want) {
			t.Errorf("the change lacks %q:\n%s", want, diff)
		}
	}
	if d := cmp.Diff(before, h.run("virsh", "dumpxml", "--inactive", "web1")); d != "" {
		t.Errorf("a dry run changes the domain, -before +after:\n%s", d)
	}
	define := []string{"vgpuctl", "define", "web1", "--weight", "2", "--bar2", "64MiB"}
	if got, want := h.run(define...), "domain web1: a virtual GPU, weight 2\n"; got != want {
		t.Errorf("define says %q, want %q", got, want)
	}
	if got, want := h.run("vgpuctl", "undefine", "web1"), "domain web1: no virtual GPU\n"; got != want {
		t.Errorf("undefine says %q, want %q", got, want)
	}
	if d := cmp.Diff(before, h.run("virsh", "dumpxml", "--inactive", "web1")); d != "" {
		t.Errorf("undefine does not undo define, -before +after:\n%s", d)
	}
	if got := h.fails("vgpuctl", "define", "web9"); !strings.Contains(got, "no such domain") {
		t.Errorf("a domain that isn't there: %s", got)
	}
	h.run(define...)
}

func (h *machine) starts(uuid string) {
	h.tb.Helper()
	h.run("virsh", "start", "web1")
	h.until("QEMU's connection", func() error {
		if !h.onlyVM().Attached {
			return fmt.Errorf("no VMM is attached")
		}
		return nil
	})
	v := h.onlyVM()
	got := api.VM{Name: v.Name, Domain: v.Domain, DomainUUID: v.DomainUUID, GPU: v.GPU, Weight: v.Weight, Socket: v.Socket, Peer: v.Peer}
	want := api.VM{
		Name: "web1", Domain: "web1", DomainUUID: uuid, GPU: "gpu0", Weight: 2,
		Socket: "/run/vgpud/domains/" + uuid + "/gpu0.sock", Peer: &api.Peer{PIDFile: "/run/libvirt/qemu/web1.pid"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.tb.Errorf("the guest, -want +got:\n%s", diff)
	}
	h.awaitConsole("web1", agentReady, 1)
}

// agentReady is the agent's message about a virtual GPU on which it has run a kernel with the right
// result.
const agentReady = `msg="virtual GPU ready"`

func (h *machine) weightAtRunTime(t *testing.T) {
	h.run(setWeight("5")...)
	h.awaitWeight("web1", 5)
	// A change that can't be parsed leaves the guest as it is.
	h.run(setWeight("heavy")...)
	h.until("a word about the metadata", func() error {
		if log := h.daemon.logTail(); !strings.Contains(log, "attribute weight") {
			return fmt.Errorf("the log so far:\n%s", log)
		}
		return nil
	})
	h.awaitWeight("web1", 5)
	h.run(setWeight("6")...)
	h.awaitWeight("web1", 6)
	// A setting made through the daemon overrides the metadata until that changes.
	h.run("vgpuctl", "set", "vm", "web1", "weight=7")
	h.run("virsh", "suspend", "web1")
	h.run("virsh", "resume", "web1")
	h.awaitWeight("web1", 7)
	h.run(setWeight("3")...)
	h.awaitWeight("web1", 3)

	// The definition and the running guest are changed apart, and together. That the domain is
	// defined anew changes nothing of the running guest.
	h.run("vgpuctl", "set", "vm", "web1", "weight=8", "--config")
	h.definedWeight(t, "8")
	h.run("virsh", "suspend", "web1")
	h.run("virsh", "resume", "web1")
	h.awaitWeight("web1", 3)
	h.run("vgpuctl", "set", "vm", "web1", "weight=9", "--config", "--live")
	h.definedWeight(t, "9")
	h.run("virsh", "suspend", "web1")
	h.run("virsh", "resume", "web1")
	h.awaitWeight("web1", 9)
	h.run("vgpuctl", "set", "vm", "web1", "weight=3", "--live")
	h.run("vgpuctl", "set", "vm", "web1", "weight=2", "--config")
	h.definedWeight(t, "2")
	h.awaitWeight("web1", 3)
}

// definedWeight checks the weight in the domain's definition.
func (h *machine) definedWeight(t *testing.T, want string) {
	t.Helper()
	if xml := h.run("virsh", "dumpxml", "--inactive", "web1"); !strings.Contains(xml, `<vgpud:gpu weight="`+want+`"`) {
		t.Errorf("its definition has no weight %s:\n%s", want, xml)
	}
}

// wait bounds the guest's time for plugging and unplugging; it is shorter than timeout.
const wait = "--wait=90s"

func (h *machine) plugAndUnplug(t *testing.T) {
	if got := h.fails("vgpuctl", "attach", "web1", "--bar2", "1GiB"); !strings.Contains(got, "no space: port vgpu-spare has room for 128 MiB") {
		t.Errorf("a BAR that is too large: %s", got)
	}
	for i := range 2 {
		if got, want := h.run("vgpuctl", "attach", "web1", "--weight", "4", "--bar2", "64MiB", wait), "vm web1-1: attached to port vgpu-spare, on GPU gpu0\n"; got != want {
			t.Errorf("attach says %q, want %q", got, want)
		}
		v, err := h.Client.VM(t.Context(), "web1-1")
		if err != nil || !v.Attached || v.Weight != 4 || v.Domain != "web1" {
			t.Errorf("%+v: %v", v, err)
		}
		if got := h.fails("vgpuctl", "attach", "web1", "--bar2", "64MiB", wait); !strings.Contains(got, "no PCI Express port is free") {
			t.Errorf("a second one: %s", got)
		}
		h.awaitConsole("web1", agentReady, 2+i)
		if got, want := h.run("vgpuctl", "detach", "web1", wait), "vm web1-1: detached\n"; got != want {
			t.Errorf("detach says %q, want %q", got, want)
		}
		if v := h.onlyVM(); v.Name != "web1" || !v.Attached {
			t.Errorf("after detach: %+v", v)
		}
	}
	if got := h.fails("vgpuctl", "detach", "web1"); !strings.Contains(got, "stay until it stops") {
		t.Errorf("nothing to detach: %s", got)
	}
}

// saveAndMigrate tests what happens on a save: QEMU 11.1 saves a VM with a vfio-user device as if
// there were none, and asks no program of ours before. So the restore is what is refused.
func (h *machine) saveAndMigrate(t *testing.T) {
	got := h.fails("virsh", "migrate", "--live", "web1", "qemu+unix:///system?socket=/run/libvirt/libvirt-sock")
	if !strings.Contains(got, "vgpud: domain web1: a domain with a virtual GPU can't be migrated while it runs") {
		t.Errorf("migrate: %s", got)
	}
	if v := h.onlyVM(); !v.Attached {
		t.Errorf("after a migration that is refused: %+v", v)
	}
	h.run("virsh", "save", "web1", "/log/web1.save")
	h.awaitEmpty()
	const refused = "vgpud: domain web1: a domain with a virtual GPU can't be restored from a saved state"
	if got := h.fails("virsh", "restore", "/log/web1.save"); !strings.Contains(got, refused) {
		t.Errorf("restore: %s", got)
	}
	h.awaitEmpty()
	h.boots()
	h.run("virsh", "managedsave", "web1")
	h.awaitEmpty()
	if got := h.fails("virsh", "start", "web1"); !strings.Contains(got, refused) {
		t.Errorf("start from a managed save: %s", got)
	}
	h.awaitEmpty()
	h.run("virsh", "managedsave-remove", "web1")
	h.boots()
}

// boots starts the domain, whose guest boots again.
func (h *machine) boots() {
	h.tb.Helper()
	if err := os.Truncate(filepath.Join(h.dir, "log/web1.console"), 0); err != nil {
		h.tb.Fatal(err)
	}
	h.run("virsh", "start", "web1")
	h.awaitConsole("web1", agentReady, 1)
	if v := h.onlyVM(); !v.Attached {
		h.tb.Errorf("no VMM is attached: %+v", v)
	}
}

func (h *machine) libvirtRestarts(*testing.T) {
	h.kill(h.libvirtd)
	h.startLibvirt()
	h.until("the daemon's new connection", func() error {
		if n := strings.Count(h.daemon.logTail(), "following libvirt's domains"); n < 2 {
			return fmt.Errorf("it has followed %d times", n)
		}
		return nil
	})
	h.run(setWeight("8")...)
	h.awaitWeight("web1", 8)
}

func (h *machine) noStartWithoutTheDaemon(t *testing.T) {
	h.kill(h.daemon)
	got := h.fails("virsh", "start", "web1")
	t.Log(got)
	if !strings.Contains(got, "domain web1: no daemon listens on /run/vgpud/vgpud.sock: start it") {
		t.Errorf("the start without a daemon: %s", got)
	}
	h.startDaemon()
	h.awaitEmpty()
}

func (h *machine) noRoom(t *testing.T) {
	uuid := h.define("greedy")
	h.run("vgpuctl", "define", "greedy", "--memory", "1TiB")
	got := h.fails("virsh", "start", "greedy")
	t.Log(got)
	if !strings.Contains(got, `guest "greedy": no GPU for`) {
		t.Errorf("the start without room: %s", got)
	}
	h.awaitEmpty()
	h.run("virsh", "undefine", uuid)
}

func (h *machine) hookMissing(t *testing.T) {
	h.run("virsh", "start", "web1")
	if !h.onlyVM().Attached {
		t.Error("no VMM is attached")
	}
	h.setHook("/log/broken")
	h.run("virsh", "destroy", "web1")
	h.awaitEmpty()
	// The daemon says so once the guest is gone.
	h.until("a word about the hook that is missing", func() error {
		if log := h.daemon.logTail(); !strings.Contains(log, "guest released: its domain is not running") {
			return fmt.Errorf("the log so far:\n%s", log)
		}
		return nil
	})
	h.setHook(ourHook)
}

// quickSuccession has events of one stop arrive while the next start is under way.
func (h *machine) quickSuccession(t *testing.T) {
	for range 5 {
		h.run("virsh", "start", "web1")
		h.run(setWeight("2")...)
		if v := h.onlyVM(); !v.Attached {
			t.Errorf("the guest of a domain that runs: %+v", v)
		}
		h.run("virsh", "destroy", "web1")
	}
	h.awaitEmpty()
}

// BenchmarkStart measures `virsh start` of a domain, with and without a virtual GPU.
func BenchmarkStart(b *testing.B) {
	h := newMachine(b)
	h.define("with")
	h.define("without")
	h.run("vgpuctl", "define", "with", "--bar2", "64MiB")
	for _, name := range []string{"without", "with"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				h.run("virsh", "start", name)
				b.StopTimer()
				h.run("virsh", "destroy", name)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkAttach measures `vgpuctl attach` to a VM whose guest runs. host-ms is the part until
// QEMU is connected, which is the host's; the rest is the guest's, which finds the device and
// assigns addresses.
func BenchmarkAttach(b *testing.B) {
	h := newMachine(b)
	h.define("web1")
	h.run("vgpuctl", "define", "web1", "--bar2", "64MiB")
	h.run("virsh", "start", "web1")
	h.awaitConsole("web1", agentReady, 1)
	var host time.Duration
	for b.Loop() {
		start := time.Now()
		attached := make(chan time.Duration, 1)
		go func() {
			for {
				v, err := h.Client.VM(b.Context(), "web1-1")
				if err == nil && v.Attached || b.Context().Err() != nil {
					attached <- time.Since(start)
					return
				}
				time.Sleep(time.Millisecond) // polling without pause would take processor time from what is measured
			}
		}()
		h.run("vgpuctl", "attach", "web1", "--bar2", "64MiB", wait)
		b.StopTimer()
		host += <-attached
		h.run("vgpuctl", "detach", "web1", wait)
		b.StartTimer()
	}
	b.ReportMetric(float64(host.Milliseconds())/float64(b.N), "host-ms")
}
