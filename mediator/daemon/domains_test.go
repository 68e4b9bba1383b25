package daemon

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/api"
	"vgpud/mediator/libvirt"
	"vgpud/mediator/libvirt/domain"
)

const testUUID = "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"

func TestConsequences(t *testing.T) {
	// socket's path matters by its last part alone.
	of := func(name, domain, socket string, weight float64) api.VM {
		return api.VM{Name: name, Domain: domain, DomainUUID: testUUID, Socket: "/run/vgpud/domains/" + testUUID + "/" + socket, PID: 7, Weight: weight}
	}
	two := []api.VM{of("web", "web", "gpu0.sock", 1), of("web-1", "web", "gpu1.sock", 1)}
	three, half := 3.0, 0.5
	one, none, four := 1.0, 0.0, 4
	name, second, millisecond := "shop", time.Second, time.Millisecond
	for what, c := range map[string]struct {
		seen   domainState
		guests []api.VM
		terms  bool
		want   []consequence
	}{
		"nothing changed":         {seen: domainState{name: "web", active: true, gpus: domain.Devices{{Weight: 3}, {}}}, guests: two},
		"metadata as it was":      {seen: domainState{name: "web", active: true, gpus: domain.Devices{{}, {Weight: 1}}}, guests: two, terms: true},
		"stopped":                 {seen: domainState{name: "web"}, guests: two, want: []consequence{{guest: "web", end: true, pid: 7}, {guest: "web-1", end: true, pid: 7}}},
		"gone":                    {seen: parseDomain(libvirt.Domain{}), guests: two[:1], want: []consequence{{guest: "web", end: true, pid: 7}}},
		"another name":            {seen: domainState{name: "shop", active: true}, guests: two[:1], want: []consequence{{guest: "web", update: api.VMUpdate{Domain: &name}}}},
		"another weight":          {seen: domainState{name: "web", active: true, gpus: domain.Devices{{}, {Weight: 3}}}, guests: two, terms: true, want: []consequence{{guest: "web-1", update: api.VMUpdate{Weight: &three}}}},
		"all terms":               {seen: domainState{name: "web", active: true, gpus: domain.Devices{{Weight: 3, Cap: 0.5, Guarantee: 0.5, PriorityCeiling: 4, Latency: time.Millisecond}}}, guests: two[:1], terms: true, want: []consequence{{guest: "web", update: api.VMUpdate{Weight: &three, Cap: &half, Guarantee: &half, PriorityCeiling: &four, Latency: &millisecond}}}},
		"another time limit":      {seen: domainState{name: "web", active: true, gpus: domain.Devices{{}, {KernelTimeLimit: time.Second}}}, guests: two, terms: true, want: []consequence{{guest: "web-1", update: api.VMUpdate{KernelTimeLimit: &second}}}},
		"back to the defaults":    {seen: domainState{name: "web", active: true, gpus: domain.Devices{{}}}, guests: []api.VM{{Name: "web", Domain: "web", Socket: "gpu0.sock", Weight: 3, Cap: 0.5}}, terms: true, want: []consequence{{guest: "web", update: api.VMUpdate{Weight: &one, Cap: &none}}}},
		"metadata taken out":      {seen: domainState{name: "web", active: true}, guests: two, terms: true},
		"attached at run time":    {seen: domainState{name: "web", active: true, gpus: domain.Devices{{Weight: 1}}}, guests: append(two[:1:1], of("web-9", "web", "gpu9.sock", 8)), terms: true},
		"made by hand":            {seen: domainState{name: "web", active: true, gpus: domain.Devices{{Weight: 3}}}, guests: []api.VM{of("mine", "web", "vfio-user.sock", 1)}, terms: true},
		"metadata with a mistake": {seen: domainState{name: "shop", active: true, problem: fmt.Errorf("twice"), gpus: domain.Devices{{Weight: 3}}}, guests: two[:1], terms: true, want: []consequence{{guest: "web", update: api.VMUpdate{Domain: &name}}}},
	} {
		t.Run(what, func(t *testing.T) {
			var members []member
			for _, v := range c.guests {
				m := member{VM: v}
				if want, ok := c.seen.terms(&v); ok {
					m.granted = &want // what is granted has not changed
				}
				members = append(members, m)
			}
			if diff := cmp.Diff(c.want, c.seen.consequences(members, c.terms), cmp.AllowUnexported(consequence{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestChangedMetadata: what is applied depends on what the metadata granted last.
func TestChangedMetadata(t *testing.T) {
	seen := domainState{name: "web", active: true, gpus: domain.Devices{{Weight: 5}}}
	v := api.VM{Name: "web", Domain: "web", Socket: "gpu0.sock", Weight: 7}
	now, before := api.Terms{Weight: 5}, api.Terms{Weight: 2}
	five := 5.0
	for what, c := range map[string]struct {
		granted *api.Terms
		told    bool
		want    []consequence
	}{
		"as it was":       {granted: &now},
		"as it was, told": {granted: &now, told: true, want: []consequence{{guest: "web", update: api.VMUpdate{Weight: &five}}}},
		"news":            {granted: &before, want: []consequence{{guest: "web", update: api.VMUpdate{Weight: &five}, granted: &now}}},
		"not known":       {want: []consequence{{guest: "web", granted: &now}}},
		"not known, told": {told: true, want: []consequence{{guest: "web", update: api.VMUpdate{Weight: &five}, granted: &now}}},
	} {
		got := seen.consequences([]member{{VM: v, granted: c.granted}}, c.told)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(consequence{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}

func TestParseDomain(t *testing.T) {
	xml := func(gpus string) string {
		return `<domain type='kvm'><name>web</name><metadata><vgpud:devices xmlns:vgpud="urn:vgpud:domain:1">` + gpus + `</vgpud:devices></metadata></domain>`
	}
	if s := parseDomain(libvirt.Domain{Name: "web", Active: true, XML: xml(`<vgpud:gpu weight="2"/><vgpud:gpu cap="0.5"/>`)}); s.problem != nil || !s.active || len(s.gpus) != 2 || s.gpus[0].Weight != 2 || s.gpus[1].Cap != 0.5 {
		t.Errorf("%+v", s)
	}
	if s := parseDomain(libvirt.Domain{Name: "web", Active: true, XML: xml(`<vgpud:gpu weight="-2"/>`)}); s.problem == nil || s.gpus != nil {
		t.Errorf("a weight below zero: %+v", s)
	}
	if s := parseDomain(libvirt.Domain{Name: "web", Active: true, XML: "none of ours, & no XML"}); s.problem != nil || s.gpus != nil {
		t.Errorf("a domain without our element: %+v", s)
	}
}

// oneSource is a libvirt with one domain, or none while its name is empty.
type oneSource struct{ domain *libvirt.Domain }

func (s oneSource) Domain(_ context.Context, key string, _ libvirt.View) (libvirt.Domain, error) {
	if s.domain.Name == "" || key != s.domain.UUID {
		return libvirt.Domain{}, libvirt.ErrNoDomain
	}
	return *s.domain, nil
}

func (oneSource) Next(ctx context.Context) (libvirt.Event, error) {
	<-ctx.Done()
	return libvirt.Event{}, ctx.Err()
}

func (oneSource) Close() error { return nil }

// metadata returns a domain's XML with a weight.
func metadata(weight string) string {
	return `<domain type='kvm'><name>web</name><metadata><vgpud:devices xmlns:vgpud="urn:vgpud:domain:1"><vgpud:gpu weight="` +
		weight + `"/></vgpud:devices></metadata></domain>`
}

func TestGuestsFollowTheirDomain(t *testing.T) {
	d := startDaemon(t, runDir(t))
	f := &follower{d.service}
	dom := &libvirt.Domain{Name: "web", UUID: testUUID, Active: true, XML: metadata("2")}
	happened := func(metadata bool) {
		t.Helper()
		f.Changed(t.Context(), oneSource{dom}, libvirt.Event{UUID: testUUID, Metadata: metadata})
	}
	happened(true) // it has no guests yet
	_, err := d.client.CreateVM(t.Context(), api.VMSpec{
		Name: "web", Domain: "web", DomainUUID: testUUID, Weight: 2, BAR2Bytes: 4 << 20,
		Socket: domain.SocketPath(d.service.runDir(), testUUID, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	weighs := func(want float64, name string) {
		t.Helper()
		v, err := d.client.VM(t.Context(), "web")
		if err != nil || v.Weight != want || v.Domain != name {
			t.Errorf("weight %v, domain %q, %v; want %v, %q", v.Weight, v.Domain, err, want, name)
		}
	}
	f.Connected(t.Context(), oneSource{dom})
	weighs(2, "web")
	dom.XML = metadata("5")
	happened(true)
	weighs(5, "web")
	// The operator's settings hold while the metadata does not change.
	if _, err := d.client.UpdateVM(t.Context(), "web", api.VMUpdate{Weight: new(7.0)}); err != nil {
		t.Fatal(err)
	}
	happened(false)
	f.Connected(t.Context(), oneSource{dom})
	weighs(7, "web")
	dom.XML = metadata("none")
	happened(true)
	weighs(7, "web")
	// A change while no daemon listened is found afterwards.
	dom.XML, dom.Name = metadata("8"), "shop"
	f.Connected(t.Context(), oneSource{dom})
	weighs(8, "shop")
	// A guest's process that came after the domain was read is left alone.
	if ended, err := d.service.end("web", func(g *guest) bool { return g.pid == -1 }); ended || err != nil {
		t.Errorf("another process's guest: %v, %v", ended, err)
	}
	dom.Name = ""
	happened(false)
	if _, err := d.client.VM(t.Context(), "web"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("the guest of a domain that is gone: %v", err)
	}
}

// TestMetadataChangedWhileTheDaemonIsDown: what changed while there was no daemon is granted by the
// next one, and what the operator has changed over the API stays while the metadata does not
// change.
func TestMetadataChangedWhileTheDaemonIsDown(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	dom := &libvirt.Domain{Name: "web", UUID: testUUID, Active: true, XML: metadata("2")}
	d.createVM(api.VMSpec{
		Name: "web", Domain: "web", DomainUUID: testUUID, Weight: 2, BAR2Bytes: 4 << 20,
		Socket: domain.SocketPath(d.service.runDir(), testUUID, 0),
	})
	restart := func(want float64) {
		t.Helper()
		d.stop()
		d = startDaemon(t, dir)
		(&follower{d.service}).Connected(t.Context(), oneSource{dom})
		if v := d.vm("web"); v.Weight != want {
			t.Errorf("metadata %s: weight %v, want %v", dom.XML, v.Weight, want)
		}
	}
	restart(2)
	if _, err := d.client.UpdateVM(t.Context(), "web", api.VMUpdate{Weight: new(7.0)}); err != nil {
		t.Fatal(err)
	}
	restart(7)
	dom.XML = metadata("5")
	restart(5)
	if _, err := d.client.UpdateVM(t.Context(), "web", api.VMUpdate{Weight: new(6.0)}); err != nil {
		t.Fatal(err)
	}
	restart(6)
	dom.XML = metadata("2")
	restart(2)
}
