package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"vgpud/mediator/nova"
	"vgpud/mediator/nova/placement/placementtest"
)

const (
	computeNode  = "0c8bd1e8-7a4b-4a45-9d3b-4f4a1d2b3c4d"
	instanceUUID = "22222222-2222-4222-8222-222222222222"
)

// instanceXML is a Nova instance's domain, by Nova 31.0 and libvirt 11.3, shortened.
const instanceXML = `<domain type='qemu'>
  <name>instance-00000003</name>
  <uuid>22222222-2222-4222-8222-222222222222</uuid>
  <metadata>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:package version="31.0.0"/>
      <nova:name>one</nova:name>
      <nova:flavor name="gpu.sixty" id="4d1f">
        <nova:memory>128</nova:memory>
        <nova:vcpus>1</nova:vcpus>
      </nova:flavor>
      <nova:owner>
        <nova:user uuid="u1">alice</nova:user>
        <nova:project uuid="p1">blue</nova:project>
      </nova:owner>
    </nova:instance>
  </metadata>
  <os>
    <type arch='x86_64' machine='pc-q35-11.1'>hvm</type>
  </os>
  <devices>
    <emulator>/usr/local/bin/qemu-system-x86_64</emulator>
    <controller type='pci' index='1' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x10' function='0x0' multifunction='on'/>
    </controller>
  </devices>
  <seclabel type='static' model='dac'>
    <label>+%d:+%d</label>
  </seclabel>
</domain>
`

type placementKey struct{}

// setUpNova gives a script a Placement with this host's GPUs and an instance, one.xml. Placement is
// asked with the configuration nova.yaml.
func setUpNova(e *testscript.Env, d *fakeDaemon) error {
	s := placementtest.New()
	s.AddProvider(nova.Provider{UUID: computeNode, Name: "host1"})
	for _, gpu := range []string{"gpu0", "gpu1"} {
		s.AddProvider(nova.Provider{UUID: nova.ProviderUUID(computeNode, gpu), Name: "host1_vgpud_" + gpu, Parent: computeNode})
	}
	h := httptest.NewServer(s)
	e.Defer(h.Close)
	e.Values[placementKey{}] = s
	e.Setenv("RUN", d.dir)
	write := func(name, text string) error {
		return os.WriteFile(filepath.Join(e.WorkDir, name), []byte(text), 0o600)
	}
	return errors.Join(
		write("one.xml", fmt.Sprintf(instanceXML, os.Getuid(), os.Getgid())),
		write("nova.yaml", fmt.Sprintf("save_dir: %s\nnova: {placement: %s, state_dir: %s}\n", e.WorkDir, filepath.Join(e.WorkDir, "placement.yaml"), filepath.Join(e.WorkDir, "known"))),
		write("placement.yaml", fmt.Sprintf("keystone: {url: %q, username: vgpud, password_file: %q}\nhost: host1\ncompute_id_file: /nonexistent\n", h.URL+"/v3", filepath.Join(e.WorkDir, "password"))),
		write("password", placementtest.Password),
	)
}

func placementOf(ts *testscript.TestScript) *placementtest.Server {
	s, ok := ts.Value(placementKey{}).(*placementtest.Server)
	if !ok {
		ts.Fatalf("no Placement")
	}
	return s
}

// allocate PROVIDER [CLASS=N…] has Placement say that the instance has this of a provider: a GPU's
// name, or a UUID. Without amounts it has nothing there.
func allocate(ts *testscript.TestScript, _ bool, args []string) {
	provider := args[0]
	if strings.HasPrefix(provider, "gpu") {
		provider = nova.ProviderUUID(computeNode, provider)
	}
	var amounts map[string]int
	for _, a := range args[1:] {
		class, n, _ := strings.Cut(a, "=")
		class, ok := map[string]string{"share": nova.ClassShare, "memory": nova.ClassMemory, "vcpu": "VCPU"}[class]
		if !ok {
			ts.Fatalf("no class in %s", a)
		}
		if amounts == nil {
			amounts = make(map[string]int)
		}
		var amount int
		_, err := fmt.Sscan(n, &amount)
		ts.Check(err)
		amounts[class] = amount
	}
	placementOf(ts).Allocate(instanceUUID, provider, amounts)
}

// answer STATUS FILE has every request to Placement be answered so, "answer" as it is again.
func answer(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		placementOf(ts).SetFault(nil)
		return
	}
	f := placementtest.Fault{Body: ts.ReadFile(args[1])}
	_, err := fmt.Sscan(args[0], &f.Status)
	ts.Check(err)
	placementOf(ts).SetFault(func(r *http.Request) *placementtest.Fault {
		if strings.HasPrefix(r.URL.Path, "/v3") {
			return nil
		}
		return &f
	})
}

// arguments writes the instance's file of arguments to arguments.txt, with the daemon's directory
// as RUN; "! arguments" checks that there is none.
func arguments(ts *testscript.TestScript, not bool, _ []string) {
	dir := daemonOf(ts).dir
	path := filepath.Join(dir, "domains", instanceUUID, "qemu.args")
	b, err := os.ReadFile(path)
	if not {
		if err == nil {
			ts.Fatalf("%s is there: %s", path, b)
		}
		return
	}
	ts.Check(err)
	st, err := os.Stat(path)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("arguments.txt"), []byte(st.Mode().String()+"\n"+strings.ReplaceAll(string(b), dir, "RUN")), 0o600))
}

// directory makes the instance's directory, with a mode that lets others write to it, and a link in
// place of its file of arguments.
func directory(ts *testscript.TestScript, _ bool, args []string) {
	dir := filepath.Join(daemonOf(ts).dir, "domains", instanceUUID)
	ts.Check(os.MkdirAll(dir, 0o711))
	switch args[0] {
	case "open":
		ts.Check(os.Chmod(dir, 0o777))
	case "link":
		ts.Check(os.Symlink(ts.MkAbs("victim"), filepath.Join(dir, "qemu.args")))
		ts.Check(os.Symlink(ts.MkAbs("victim"), filepath.Join(dir, "qemu.args.new")))
	}
}
