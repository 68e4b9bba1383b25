package domain

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// novaDomain is a Nova instance's domain with this in its flavor and its devices.
func novaDomain(flavor, devices string) string {
	return minimal(q35, `<metadata>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:flavor name="gpu.small">`+flavor+`</nova:flavor>
      <nova:owner><nova:user uuid="u1">alice</nova:user><nova:project uuid="p1">blue</nova:project></nova:owner>
    </nova:instance>
  </metadata>`, `<devices><emulator>/usr/local/bin/qemu-system-x86_64</emulator>`+devices+`</devices>`)
}

func TestParseInstance(t *testing.T) {
	base := Instance{Name: "web", UUID: testUUID, Flavor: "gpu.small", Account: Account{"u1", "p1"}, Emulator: "/usr/local/bin/qemu-system-x86_64"}
	for name, test := range map[string]struct {
		xml  string
		want func(*Instance)
	}{
		"without extra specs": {novaDomain("<nova:vcpus>1</nova:vcpus>", ""), func(*Instance) {}},
		"with": {novaDomain(`<nova:extraSpecs><nova:extraSpec name="vgpud:cap">0.5</nova:extraSpec><nova:other name="x"/></nova:extraSpecs>`, ""),
			func(v *Instance) { v.ExtraSpecs = map[string]string{"vgpud:cap": "0.5"} }},
		"with none": {novaDomain(`<nova:extraSpecs/>`, ""), func(v *Instance) { v.ExtraSpecs = map[string]string{} }},
		"with long ones": {novaDomain(`<nova:extraSpecs><nova:extraSpec name="a">`+strings.Repeat("x", 256)+`</nova:extraSpec></nova:extraSpecs>`, ""),
			func(v *Instance) { v.ExtraSpecs = map[string]string{} }},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseInstance([]byte(test.xml))
			if err != nil {
				t.Fatal(err)
			}
			want := base
			test.want(&want)
			if diff := cmp.Diff(&want, got, cmpopts.IgnoreUnexported(Instance{})); diff != "" {
				t.Errorf("ParseInstance (-want +got):\n%s", diff)
			}
		})
	}
	if v, err := ParseInstance([]byte(minimal(q35, "", ""))); v != nil || err != nil {
		t.Errorf("a domain that Nova did not write: %+v, %v", v, err)
	}
	defined, err := Define([]byte(novaDomain("", "")), Devices{{}}, runDir)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := ParseInstance(defined); err != nil || !v.Defined {
		t.Errorf("an instance that was also defined: %+v, %v", v, err)
	}
	if _, err := ParseInstance([]byte(strings.ReplaceAll(novaDomain("", ""), "<uuid>"+testUUID+"</uuid>", ""))); err == nil {
		t.Error("an instance without a UUID")
	}
}

func TestInstanceArguments(t *testing.T) {
	v, err := ParseInstance([]byte(novaDomain("", `<a><address type='pci' slot='0x10'/></a>`)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.Arguments(2, runDir)
	want := []string{
		"-device", `{"driver":"vfio-user-pci","id":"vgpu0","bus":"pcie.0","addr":"0x11","socket":{"path":"/run/vgpud/domains/` + testUUID + `/gpu0.sock","type":"unix"},"x-msg-timeout":60000}`,
		"-device", `{"driver":"vfio-user-pci","id":"vgpu1","bus":"pcie.0","addr":"0x12","socket":{"path":"/run/vgpud/domains/` + testUUID + `/gpu1.sock","type":"unix"},"x-msg-timeout":60000}`,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Arguments: %v (-want +got):\n%s", err, diff)
	}
	for what, xml := range map[string]string{
		"no PCI Express": strings.ReplaceAll(novaDomain("", ""), "pc-q35-10.1", "pc-i440fx-10.0"),
		"no slot":        novaDomain("", full()+`<d><address type='pci' slot='0x05'/></d><d><address type='pci' slot='0x14'/></d>`),
	} {
		v, err := ParseInstance([]byte(xml))
		if err != nil {
			t.Fatal(err)
		}
		if args, err := v.Arguments(1, runDir); err == nil {
			t.Errorf("%s: %q", what, args)
		}
	}
	if args, err := v.Arguments(1, "/"+strings.Repeat("x", maxSocket)); err == nil {
		t.Errorf("a long path: %q", args)
	}
}

// FuzzInstance reads any document: an error is short and on one line, and an instance is what its
// file of arguments can say.
func FuzzInstance(f *testing.F) {
	f.Add([]byte(novaDomain(`<nova:extraSpecs><nova:extraSpec name="vgpud:cap">0.5</nova:extraSpec></nova:extraSpecs>`, full())))
	f.Add([]byte(`<domain><name>a</name><metadata><i:instance xmlns:i="http://openstack.org/xmlns/libvirt/nova/9"/></metadata></domain>`))
	f.Fuzz(func(t *testing.T, x []byte) {
		v, err := ParseInstance(x)
		if err != nil {
			checkMessage(t, err)
			return
		}
		if v == nil {
			return
		}
		if args, err := v.Arguments(1, runDir); err != nil {
			checkMessage(t, err)
		} else if len(args) != 2 || strings.ContainsFunc(args[1], func(r rune) bool { return r < ' ' }) {
			t.Errorf("arguments %q", args)
		}
	})
}
