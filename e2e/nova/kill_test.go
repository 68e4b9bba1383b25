package nova

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"vgpud/mediator/api"
)

// restTimeout bounds how long Nova may be busy with an instance before an operator does something about
// it. It is several of the periods in which nova-compute looks for what went wrong, which are of a minute.
const restTimeout = 3 * time.Minute

// maxRequests is how often an operator asks for something before giving up.
const maxRequests = 5

// TestKills kills a host's nova-compute, libvirtd and vgpud, each in the middle of whatever Nova does
// with an instance. Each time Nova, or its operator by Nova's requests, brings the instance to where it
// should be, and nothing is lost or left.
func TestKills(t *testing.T) {
	b := startBed(t, 0, 1)
	admin := newClient(b, "admin", "admin")
	awaitGPUs(t, b, admin)
	k := killer{T: t, b: b, c: admin, image: guestImage(t, admin, work), flavor: flavor(t, admin, 25, 256)}
	for _, k.service = range []string{"compute", "libvirtd", "vgpud"} {
		s := k.create()
		used := k.check(s, "ACTIVE", 0)
		for _, d := range []deed{
			{"hard reboot", "reboot", map[string]string{"type": "HARD"}, "ACTIVE"},
			{"stop", "os-stop", nil, "SHUTOFF"},
			{"start", "os-start", nil, "ACTIVE"},
			{"delete", "", nil, ""},
		} {
			k.interrupt(s, d)
			k.bring(s, d)
			used = k.check(s, d.state, used)
		}
		nothingLeft(t, b, admin, k.ordered)
	}
}

// deed is something that Nova does with an instance.
type deed struct {
	name   string
	action string // empty: delete
	body   any
	state  string // that the instance then has; empty: none, it is gone
}

// killer kills a service of host1.
type killer struct {
	*testing.T
	b       *bed
	c       *client
	image   string
	flavor  string
	service string
	ordered []server
}

// look returns an instance, and what Nova is doing with it. It returns false if there is no such
// instance.
func (k *killer) look(id string) (s server, task string, ok bool) {
	k.Helper()
	a := k.c.send(http.MethodGet, novaURL+"/servers/"+id, nil)
	if a.status == http.StatusNotFound {
		return s, "", false
	}
	if a.status != http.StatusOK {
		k.Fatalf("instance %s: %d: %s", id, a.status, a.body)
	}
	var got struct {
		Server struct {
			server
			Task *string `json:"OS-EXT-STS:task_state"`
		}
	}
	a.decode(k, &got)
	if got.Server.Task != nil {
		task = *got.Server.Task
	}
	return got.Server.server, task, true
}

// rest waits until Nova does nothing with an instance. If Nova is never done, it has the state reset, as
// an operator would. It returns false if the instance is gone.
func (k *killer) rest(id string) (s server, ok bool) {
	k.Helper()
	limit := time.Now().Add(restTimeout)
	untilWithin(k, 2*restTimeout, "rest of instance "+id, func() error {
		var task string
		s, task, ok = k.look(id)
		if !ok || task == "" && s.Status != "BUILD" && s.Status != "DELETED" {
			return nil
		}
		if time.Now().After(limit) {
			limit = limit.Add(restTimeout)
			k.Logf("instance %s is %s, %s for %v: reset-state", id, s.Status, task, restTimeout)
			act(k, k.c, id, "os-resetState", map[string]string{"state": "error"})
		}
		return fmt.Errorf("it is %s, %s", s.Status, task)
	})
	return s, ok
}

// create orders an instance and kills the service when its virtual GPU is there. If that ends in an
// error, the instance is deleted and another is ordered.
func (k *killer) create() server {
	k.Helper()
	for range maxRequests {
		k.ready()
		s := k.order()
		var failed bool
		until(k, "a virtual GPU of instance "+s.ID, func() error {
			got, _, _ := k.look(s.ID)
			if failed = got.Status == "ERROR"; !failed && len(k.vmsOf(s)) == 0 {
				return errors.New("there is none")
			}
			return nil
		})
		if failed {
			k.giveUp(s)
			continue
		}
		k.kill(s, deed{name: "create", state: "ACTIVE"})
		for range maxRequests {
			got, _ := k.rest(s.ID)
			if got.Status == "ACTIVE" {
				k.bring(got, deed{name: "create", state: "ACTIVE"})
				return got
			}
			k.giveUp(s)
			k.ready()
			s = k.order()
		}
	}
	k.Fatalf("no instance after %d attempts", maxRequests)
	return server{}
}

// order orders an instance.
func (k *killer) order() server {
	k.Helper()
	s := order(k, k.c, fmt.Sprintf("%s%d", k.service, len(k.ordered)), k.flavor, k.image)
	s.Host = "host1"
	k.ordered = append(k.ordered, s)
	return s
}

// giveUp deletes an instance that came to nothing.
func (k *killer) giveUp(s server) {
	k.Helper()
	got, _, _ := k.look(s.ID)
	k.Logf("instance %s is %s (%s): delete it, and order another", s.ID, got.Status, got.Fault.Message)
	k.ready()
	k.request(s.ID, deed{name: "delete"})
	k.bring(s, deed{name: "delete"})
}

// interrupt asks for something and kills the service in the middle of it.
func (k *killer) interrupt(s server, d deed) {
	k.Helper()
	before := k.vmsOf(s)
	k.request(s.ID, d)
	switch {
	case d.state == "ACTIVE":
		until(k, "a new virtual GPU of instance "+s.ID, func() error {
			if now := k.vmsOf(s); len(now) == 0 || slices.ContainsFunc(before, func(v api.VM) bool { return v.PID == now[0].PID }) {
				return fmt.Errorf("there is %+v", now)
			}
			return nil
		})
	case k.service == "compute":
		until(k, "the end of the virtual GPU of instance "+s.ID, func() error {
			if now := k.vmsOf(s); len(now) > 0 {
				return fmt.Errorf("there is %+v", now)
			}
			return nil
		})
	}
	k.kill(s, d)
}

// kill kills the service and starts it again.
func (k *killer) kill(s server, d deed) {
	k.Helper()
	_, task, ok := k.look(s.ID)
	k.b.act("end", "host1-"+k.service)
	k.Logf("%s killed in %s (%q, instance is there: %v)", k.service, d.name, task, ok)
	switch k.service {
	case "libvirtd":
		// nova-compute disables itself when it notices, and so it is known when it is enabled again.
		until(k, "nova-compute without libvirt", func() error {
			if c := computeService(k, k.c, "host1"); c.Status != "disabled" {
				return errors.New("it is " + c.Status)
			}
			return nil
		})
	case "vgpud":
		if d.state != "ACTIVE" {
			// libvirt's hook finds no daemon.
			k.rest(s.ID)
		}
	}
	k.b.act("launch", "host1-"+k.service)
	k.ready()
}

// ready waits until Nova would have the host do something, and vgpud answers there.
func (k *killer) ready() {
	k.Helper()
	untilWithin(k, restTimeout, "nova-compute and vgpud of host1", func() error {
		if c := computeService(k, k.c, "host1"); c.State != "up" || c.Status != "enabled" {
			return fmt.Errorf("nova-compute is %s and %s", c.State, c.Status)
		}
		return k.b.command("on", "host1", "/opt/vgpud/vgpuctl", "get", "vms").Run()
	})
}

// request asks Nova for something. Nova may refuse it.
func (k *killer) request(id string, d deed) {
	k.Helper()
	var a answer
	if d.action == "" {
		a = k.c.send(http.MethodDelete, novaURL+"/servers/"+id, nil)
	} else {
		a = k.c.send(http.MethodPost, novaURL+"/servers/"+id+"/action", map[string]any{d.action: d.body})
	}
	if a.status >= 300 {
		k.Logf("%s of instance %s: %d: %s", d.name, id, a.status, a.body)
	}
}

// bring waits until an instance is where something has to lead it, and repeats requests if Nova has
// stopped elsewhere.
func (k *killer) bring(s server, d deed) {
	k.Helper()
	var err error
	for range maxRequests {
		got, ok := k.rest(s.ID)
		if got.Status == d.state {
			if err = k.settled(s, d.state); err == nil {
				return
			}
			if d.state == "" {
				break // Nova knows nothing of it that it could be asked for
			}
		} else {
			err = fmt.Errorf("it is %q, want %q", got.Status, d.state)
		}
		next := deed{name: "hard reboot", action: "reboot", body: map[string]string{"type": "HARD"}}
		switch {
		case d.state == "" && ok:
			next = deed{name: "delete"}
		case d.state == "SHUTOFF" && got.Status == "ACTIVE":
			next = deed{name: "stop", action: "os-stop"}
		case d.state == "ACTIVE" && got.Status == "SHUTOFF":
			next = deed{name: "start", action: "os-start"}
		}
		k.Logf("after %s, instance %s: %v: %s (%s)", d.name, s.ID, err, next.name, got.Fault.Message)
		k.ready()
		k.request(s.ID, next)
	}
	k.Fatalf("after %s, instance %s: %v", d.name, s.ID, err)
}

// settled waits until an instance that Nova says is in a state has what it should have there. It returns
// an error if that does not come, or Nova says otherwise by now.
func (k *killer) settled(s server, state string) (err error) {
	k.Helper()
	began := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < timeout {
		got, task, _ := k.look(s.ID)
		if got.Status != state || task != "" {
			return fmt.Errorf("it was %q, and is %q, %s", state, got.Status, task)
		}
		if err = k.has(s, state); err == nil {
			break
		}
		<-tick.C
	}
	if took := time.Since(began); took > 10*time.Second {
		k.Logf("instance %s was %q for %v until it had what it should: %v", s.ID, state, took, err)
	}
	return err
}

// has returns an error unless an instance has what it should have in a state.
func (k *killer) has(s server, state string) error {
	k.Helper()
	of := k.vmsOf(s)
	switch state {
	case "ACTIVE":
		if len(of) != 1 || !of[0].Attached || of[0].Weight != 25 {
			return fmt.Errorf("it runs, and its virtual GPUs are %+v", of)
		}
	default:
		if len(of) > 0 {
			return fmt.Errorf("it does not run, and its virtual GPUs are %+v", of)
		}
	}
	a, want := allocated(k, k.c, s.ID), 2
	if state == "" {
		want = 0
	}
	if len(a) != want {
		return fmt.Errorf("its allocation is of %d providers, want %d: %v", len(a), want, a)
	}
	return nil
}

// check fails the test unless an instance computes, if it runs, and its recorded GPU time has not become
// less. It returns that time.
func (k *killer) check(s server, state string, was float64) float64 {
	k.Helper()
	if state == "ACTIVE" {
		k.b.computes(s, 2)
		oneGrant(k.T, k.b, k.c, s, k.flavor)
		return k.b.goesOn(k.T, s, was)
	}
	now := k.b.gpuSeconds(s)
	if now < was {
		k.Fatalf("%s has recorded %.3f s of instance %s, and before it were %.3f", s.Host, now, s.ID, was)
	}
	return now
}

// vmsOf returns an instance's virtual GPUs, and fails the test if another has any.
func (k *killer) vmsOf(s server) []api.VM {
	k.Helper()
	all := vms(k, k.b, "host1")
	for i := range all {
		if !strings.EqualFold(all[i].DomainUUID, s.ID) {
			k.Fatalf("there is a virtual GPU of another instance than %s: %+v", s.ID, all[i])
		}
	}
	return all
}
