package nova

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"vgpud/mediator/api"
)

// TestLife takes an instance that computes through what moves it or ends its host.
func TestLife(t *testing.T) {
	b := startBed(t, 0, 2)
	admin := newClient(b, "admin", "admin")
	awaitGPUs(t, b, admin)
	disk := guestImage(t, admin, work)
	quarter, half := flavor(t, admin, 25, 256), flavor(t, admin, 50, 512)
	s := boot(t, admin, "life", quarter, disk)
	active(t, s)
	b.computes(s, 2)
	used := b.gpuSeconds(s)

	// Soft reboot: the guest powers itself off, and libvirt starts the domain as it is.
	before := onlyVM(t, b, s)
	act(t, admin, s.ID, "reboot", map[string]string{"type": "SOFT"})
	until(t, "a virtual GPU of its own after the soft reboot", func() error {
		of := vmsOf(t, b, s)
		if len(of) != 1 || of[0].PID == before.PID || !of[0].Attached {
			return fmt.Errorf("its virtual GPUs are %+v", of)
		}
		return nil
	})
	settled(t, admin, s.ID, "ACTIVE")
	if log := b.log(s.Host + "-compute"); !strings.Contains(log, "Instance soft rebooted successfully") {
		t.Errorf("Nova did not reboot instance %s softly", s.ID)
	}
	b.computes(s, 2)
	used = b.goesOn(t, s, used)

	// A resize moves it to the other host. Until it is confirmed or taken back, the amounts on the first
	// host are the migration's.
	first := s.Host
	for _, end := range []struct {
		action, flavor string
		moves          bool
	}{{"revertResize", quarter, false}, {"confirmResize", half, true}} {
		act(t, admin, s.ID, "resize", map[string]string{"flavorRef": half})
		moved := settled(t, admin, s.ID, "VERIFY_RESIZE")
		if moved.Host == first {
			t.Fatalf("instance %s was resized on its host", s.ID)
		}
		if vm := onlyVM(t, b, moved); vm.Weight != 50 || vm.MemoryLimitBytes != 512<<20 {
			t.Errorf("after the resize instance %s has the virtual GPU %+v, want 50 of 100 and 512 MiB", s.ID, vm)
		}
		if left := vmsOf(t, b, s); len(left) > 0 {
			t.Errorf("on the host that it left, instance %s has %+v", s.ID, left)
		}
		b.computes(moved, 2)
		act(t, admin, s.ID, end.action, nil)
		now := settled(t, admin, s.ID, "ACTIVE")
		if (now.Host != first) != end.moves {
			t.Fatalf("after %s instance %s is on %s, and was on %s", end.action, s.ID, now.Host, first)
		}
		oneGrant(t, b, admin, now, end.flavor)
		s = now
		b.computes(s, 2)
		used = b.goesOn(t, s, used)
	}

	// The host loses its power. Nova evacuates the instance to the other one.
	dead := s.Host
	b.act("down", dead)
	down(t, admin, dead, true)
	act(t, admin, s.ID, "evacuate", map[string]any{})
	until(t, "evacuation of instance "+s.ID, func() error {
		s = settle(t, admin, s.ID)
		if s.Status != "ACTIVE" || s.Host == dead {
			return fmt.Errorf("it is %s on %s", s.Status, s.Host)
		}
		return nil
	})
	onlyVM(t, b, s)
	b.computes(s, 2)
	// When the host returns it has nothing of the instance.
	b.act("up", dead)
	down(t, admin, dead, false)
	awaitService(t, admin, dead)
	oneGrant(t, b, admin, s, half)
	if left := vms(t, b, dead); len(left) > 0 {
		t.Errorf("%s, which has returned, has %+v", dead, left)
	}
	b.goesOn(t, s, used)
	remove(t, admin, s.ID)
	nothingLeft(t, b, admin, []server{s})
}

// settled waits until an instance is in a state, and at rest there.
func settled(tb testing.TB, c *client, id, state string) (s server) {
	tb.Helper()
	untilSlow(tb, "instance "+id+" "+state, func() error {
		var got struct {
			Server struct {
				server
				Task *string `json:"OS-EXT-STS:task_state"`
			}
		}
		c.must(http.MethodGet, novaURL+"/servers/"+id, nil, &got)
		s = got.Server.server
		switch {
		case s.Status == "ERROR" && state != "ERROR":
			tb.Fatalf("instance %s is in an error: %s", id, s.Fault.Message)
		case s.Status != state || got.Server.Task != nil:
			return fmt.Errorf("it is %s", s.Status)
		}
		return nil
	})
	return s
}

// oneGrant waits until an instance has the amounts of a flavor from one GPU of its host, and nothing
// else of any GPU: not of the host that it left, nor of a migration's.
func oneGrant(t *testing.T, b *bed, c *client, s server, flavor string) {
	t.Helper()
	gpu := providerUUID(nodeOf(t, c, s.Host).UUID, onlyVM(t, b, s).GPU)
	until(t, "the grant of instance "+s.ID, func() error {
		if a := allocated(t, c, s.ID); len(a) != 2 || fmt.Sprintf("vgpu.%d", a[gpu][share]) != flavor {
			return fmt.Errorf("it has %v, want what %s has of %s", a, flavor, gpu)
		}
		// Its amounts are all that the GPUs have given.
		given := 0
		for _, host := range b.hosts {
			for _, id := range addedTo(t, c, host) {
				var usage struct {
					Usages map[string]int `json:"usages"`
				}
				c.must(http.MethodGet, placementURL+"/resource_providers/"+id+"/usages", nil, &usage)
				given += usage.Usages[share]
			}
		}
		if fmt.Sprintf("vgpu.%d", given) != flavor {
			return fmt.Errorf("the GPUs have given %d shares, want those of %s", given, flavor)
		}
		return nil
	})
}

// act has something done to a host or a service: see nova-testbed.sh.
func (b *bed) act(command, to string) {
	b.tb.Helper()
	if out, err := b.command(command, to).CombinedOutput(); err != nil {
		b.tb.Fatalf("%s %s: %v: %s", command, to, err, out)
	}
}

// log returns what a service has printed.
func (b *bed) log(service string) string {
	b.tb.Helper()
	out, err := b.command("logs", service).Output()
	if err != nil {
		b.tb.Fatalf("log of %s: %v", service, err)
	}
	return string(out)
}

// gpuSeconds returns the GPU time that the hosts have recorded of an instance, by its UUID.
func (b *bed) gpuSeconds(s server) (sum float64) {
	b.tb.Helper()
	for _, host := range b.hosts {
		var u api.Usage
		if err := json.Unmarshal([]byte(b.on(host, "/opt/vgpud/vgpuctl", "usage", "-o", "json", "--domain", s.ID)), &u); err != nil {
			b.tb.Fatal(err)
		}
		for _, r := range u.Rows {
			if r.DomainUUID != s.ID {
				b.tb.Errorf("the usage of instance %s on %s has a row of %+v", s.ID, host, r)
			}
			sum += r.GPUSeconds
		}
	}
	return sum
}

// goesOn waits until the recorded GPU time of an instance is more than it was, and returns it. It never
// gets less.
func (b *bed) goesOn(t *testing.T, s server, was float64) (now float64) {
	t.Helper()
	untilSlow(t, "GPU time of instance "+s.ID, func() error {
		now = b.gpuSeconds(s)
		if now < was {
			t.Fatalf("the hosts have recorded %.3f s of instance %s, and before it were %.3f", now, s.ID, was)
		}
		if now == was {
			return fmt.Errorf("it is %.3f s as before", now)
		}
		return nil
	})
	return now
}

// service is what Nova knows of a host's nova-compute.
type service struct {
	ID string `json:"id"`
	// State is up or down, by when it last reported; Status is enabled or disabled.
	State  string `json:"state"`
	Status string `json:"status"`
}

func computeService(tb testing.TB, c *client, host string) service {
	tb.Helper()
	var found struct {
		Services []service `json:"services"`
	}
	c.must(http.MethodGet, novaURL+"/os-services?binary=nova-compute&host="+host, nil, &found)
	if len(found.Services) != 1 {
		tb.Fatalf("Nova has %+v of %s, want one nova-compute", found.Services, host)
	}
	return found.Services[0]
}

// down tells Nova that a host is known to be dead, or no longer so. Nova believes the latter when
// nova-compute there has looked for instances that were evacuated.
func down(tb testing.TB, c *client, host string, dead bool) {
	tb.Helper()
	id := computeService(tb, c, host).ID
	until(tb, "the state of "+host, func() error {
		if a := c.send(http.MethodPut, novaURL+"/os-services/"+id, map[string]bool{"forced_down": dead}); a.status != http.StatusOK {
			return fmt.Errorf("%d: %s", a.status, a.body)
		}
		return nil
	})
}

// awaitService waits until a host's nova-compute reports.
func awaitService(tb testing.TB, c *client, host string) {
	tb.Helper()
	until(tb, "nova-compute of "+host, func() error {
		if s := computeService(tb, c, host); s.State != "up" {
			return errors.New("it is " + s.State)
		}
		return nil
	})
}
