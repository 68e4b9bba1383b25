package nova

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"vgpud/e2e/host"
	"vgpud/gpu"
	"vgpud/gpu/soft/remote"
	"vgpud/mediator/api"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := host.Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// TestInstances takes instances with a virtual GPU, on two hosts with libvirt, QEMU, vgpud and
// vgpu-placement, through their life.
func TestInstances(t *testing.T) {
	b := startBed(t, 0, 2)
	admin := newClient(b, "admin", "admin")
	awaitGPUs(t, b, admin)
	disk := image(t, admin, "empty", make([]byte, 1<<20), map[string]string{"hw_machine_type": "q35"})
	quarter, most := flavor(t, admin, 25, 256), flavor(t, admin, 60, 512)
	var gpus []string // HOST/GPU
	var instances []server
	for i := range 4 {
		s := boot(t, admin, fmt.Sprintf("most%d", i), most, disk)
		active(t, s)
		vm := onlyVM(t, b, s)
		if vm.Weight != 60 || vm.Guarantee != 0.6 || vm.MemoryLimitBytes != 512<<20 || !vm.Attached {
			t.Errorf("instance %s has the virtual GPU %+v, want 60 of 100, 512 MiB and QEMU attached", s.ID, vm)
		}
		gpus = append(gpus, s.Host+"/"+vm.GPU)
		instances = append(instances, s)
		// Placement named this GPU.
		if a := allocated(t, admin, s.ID); a[providerUUID(nodeOf(t, admin, s.Host).UUID, vm.GPU)][share] != 60 {
			t.Errorf("instance %s is on %s, and was given %v", s.ID, vm.GPU, a)
		}
	}
	slices.Sort(gpus)
	if want := []string{"host1/gpu0", "host1/gpu1", "host2/gpu0", "host2/gpu1"}; !slices.Equal(gpus, want) {
		t.Errorf("four instances of 60 shares are on %v, want %v", gpus, want)
	}
	fifth := boot(t, admin, "fifth", most, disk)
	noHost(t, fifth)
	remove(t, admin, fifth.ID)

	// Through its life an instance has a virtual GPU while it runs, and its allocation throughout.
	s := instances[0]
	for _, step := range []struct {
		action string
		body   any
		state  string
	}{
		{"reboot", map[string]string{"type": "HARD"}, "ACTIVE"},
		{"os-stop", nil, "SHUTOFF"},
		{"os-start", nil, "ACTIVE"},
		{"rebuild", map[string]string{"imageRef": disk}, "ACTIVE"},
	} {
		before := vms(t, b, s.Host)
		act(t, admin, s.ID, step.action, step.body)
		until(t, step.action+" of instance "+s.ID, func() error {
			if got := settle(t, admin, s.ID); got.Status != step.state {
				return fmt.Errorf("it is %s", got.Status)
			}
			of := vmsOf(t, b, s)
			switch {
			case step.state == "SHUTOFF" && len(of) > 0:
				return errors.New("its virtual GPU is there still")
			case step.state == "ACTIVE" && (len(of) != 1 || !of[0].Attached):
				return fmt.Errorf("its virtual GPUs are %+v", of)
			case step.state == "ACTIVE" && slices.ContainsFunc(before, func(v api.VM) bool { return v.PID == of[0].PID }):
				return errors.New("its virtual GPU is the one from before")
			}
			return nil
		})
		if a := allocated(t, admin, s.ID); len(a) != 2 {
			t.Errorf("after %s, instance %s has %v", step.action, s.ID, a)
		}
	}

	// A GPU that is cordoned is given nothing new, and what runs on it stays.
	on := cordon(t, b, admin, s)
	for i := range 3 {
		q := boot(t, admin, fmt.Sprintf("quarter%d", i), quarter, disk)
		active(t, q)
		if vm := onlyVM(t, b, q); q.Host == s.Host && vm.GPU == on {
			t.Errorf("instance %s came to %s of %s, which is cordoned", q.ID, on, q.Host)
		}
		instances = append(instances, q)
	}
	noHost(t, boot(t, admin, "none", quarter, disk))
	onlyVM(t, b, s)

	// In the end nothing is left.
	for _, s := range instances {
		remove(t, admin, s.ID)
	}
	nothingLeft(t, b, admin, instances)
	checkAgents(t, b)
}

// checkAgents fails the test unless each host's vgpu-placement has never had more than 30 MB of memory.
func checkAgents(t *testing.T, b *bed) {
	t.Helper()
	const mostKB = 30_000
	// The hosts' processes have numbers of one kind.
	out := b.on(b.hosts[0], "sh", "-c", "grep -h VmHWM $(grep -l '^Name:.vgpu-placement$' /proc/[0-9]*/status)")
	n := 0
	for line := range strings.Lines(out) {
		var kb int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); err != nil || kb > mostKB {
			t.Errorf("vgpu-placement has had %s of memory (%v), want at most %d kB", strings.TrimSpace(line), err, mostKB)
		}
		n++
	}
	if n != len(b.hosts) {
		t.Errorf("%d hosts have %d vgpu-placement", len(b.hosts), n)
	}
}

// awaitGPUs waits until the hosts have told Placement of all their GPUs.
func awaitGPUs(t *testing.T, b *bed, c *client) {
	t.Helper()
	until(t, "the GPUs in Placement", func() error {
		n := 0
		for _, host := range b.hosts {
			n += len(addedTo(t, c, host))
		}
		if n != len(b.free) {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

// cordon takes the GPU of an instance out of use for new ones, and waits until Placement knows. It
// returns the GPU's name.
func cordon(t *testing.T, b *bed, c *client, s server) (gpu string) {
	t.Helper()
	gpu = onlyVM(t, b, s).GPU
	b.on(s.Host, "/opt/vgpud/vgpuctl", "cordon", "gpu", gpu)
	until(t, "all of its shares reserved", func() error {
		var now inventories
		c.must(http.MethodGet, placementURL+"/resource_providers/"+providerUUID(nodeOf(t, c, s.Host).UUID, gpu)+"/inventories", nil, &now)
		if i := now.Inventories[share]; i.Reserved != i.Total {
			return fmt.Errorf("%d of %d are reserved", i.Reserved, i.Total)
		}
		return nil
	})
	return gpu
}

// nothingLeft fails the test unless of these instances, which are deleted, and of all others nothing is
// left on the hosts: no allocation, virtual GPU, file, process of a guest, or memory of a GPU.
func nothingLeft(t *testing.T, b *bed, c *client, instances []server) {
	t.Helper()
	for _, s := range instances {
		if a := allocated(t, c, s.ID); len(a) > 0 {
			t.Errorf("instance %s is gone, and its allocation is not: %v", s.ID, a)
		}
	}
	for _, host := range b.hosts {
		if left := vms(t, b, host); len(left) > 0 {
			t.Errorf("%s has virtual GPUs of no instance: %+v", host, left)
		}
		if left := b.on(host, "find", "/run/vgpud", "-path", "/run/vgpud/domains/*"); left != "" {
			t.Errorf("%s has %s", host, left)
		}
	}
	// The hosts' processes have numbers of one kind. Each vgpud has at most one process ahead for its next
	// guest; "vm" is its last argument. A process that was told to end may take a moment.
	until(t, "the end of all processes of guests", func() error {
		ahead := 0
		for line := range strings.Lines(b.on(b.hosts[0], "sh", "-c", guestProcesses)) {
			args := strings.Fields(line)
			switch {
			case len(args) == 0: // it has just ended
			case args[len(args)-1] == "vm":
				ahead++
			default:
				return fmt.Errorf("one is left: %s", line)
			}
		}
		if ahead > len(b.hosts) {
			return fmt.Errorf("%d hosts have %d processes ahead", len(b.hosts), ahead)
		}
		return nil
	})
	until(t, "the GPUs' memory", func() error {
		if now := b.freeMemory(); !maps.Equal(now, b.free) {
			return fmt.Errorf("%v bytes are free, and in the beginning there were %v", now, b.free)
		}
		return nil
	})
}

// freeMemory returns how many bytes of each GPU's memory another program could have.
func (b *bed) freeMemory() map[string]uint64 {
	b.tb.Helper()
	free := make(map[string]uint64)
	for _, host := range b.hosts {
		for _, name := range []string{"gpu0", "gpu1"} {
			n, err := b.freeOf(fmt.Sprintf("/proc/%d/root%s/%s/root/run/vgpud/%s.sock", b.pid, b.dir, host, name))
			if err != nil {
				b.tb.Fatalf("%s of %s: %v", name, host, err)
			}
			free[host+"/"+name] = n
		}
	}
	return free
}

// freeOf returns how many bytes of memory are free to a new context of the GPU at a socket.
func (b *bed) freeOf(socket string) (n uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	dev, err := remote.Dial(ctx, socket)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	c, err := dev.NewContext(ctx, gpu.ContextOptions{})
	if err != nil {
		return 0, err
	}
	n, _, err = c.Memory()
	return n, err
}

// guestProcesses prints the command lines of processes with users of confinement.uids, of which the first
// is the software GPUs' group.
const guestProcesses = `for p in $(find /proc -maxdepth 1 -uid +1879048192 -uid -1879052288); do
	tr '\0' ' ' <$p/cmdline 2>/dev/null && echo; done; true`

// on runs a command on a host and returns its output.
func (b *bed) on(host string, args ...string) string {
	b.tb.Helper()
	var stderr strings.Builder
	cmd := b.command(append([]string{"on", host}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		b.tb.Fatalf("%q on %s: %v: %s", args, host, err, stderr.String())
	}
	return string(out)
}

// act asks for an action on an instance.
func act(tb testing.TB, c *client, id, action string, body any) {
	tb.Helper()
	c.must(http.MethodPost, novaURL+"/servers/"+id+"/action", map[string]any{action: body}, nil)
}

// vms returns a host's virtual GPUs.
func vms(tb testing.TB, b *bed, host string) (all []api.VM) {
	tb.Helper()
	if err := json.Unmarshal([]byte(b.on(host, "/opt/vgpud/vgpuctl", "get", "vms", "-o", "json")), &all); err != nil {
		tb.Fatal(err)
	}
	return all
}

// vmsOf returns an instance's virtual GPUs.
func vmsOf(tb testing.TB, b *bed, s server) []api.VM {
	tb.Helper()
	return slices.DeleteFunc(vms(tb, b, s.Host), func(v api.VM) bool { return v.DomainUUID != s.ID })
}

// onlyVM returns an instance's one virtual GPU.
func onlyVM(tb testing.TB, b *bed, s server) api.VM {
	tb.Helper()
	of := vmsOf(tb, b, s)
	if len(of) != 1 {
		tb.Fatalf("instance %s has the virtual GPUs %+v, want one", s.ID, of)
	}
	return of[0]
}
