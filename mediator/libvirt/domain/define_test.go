package domain

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	testUUID = "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"
	runDir   = "/run/vgpud"
)

// two are virtual GPUs that use every attribute.
var two = Devices{
	{Weight: 2, Cap: 0.5, Guarantee: 0.1, PriorityCeiling: 3, Memory: 4 << 30, GPU: "any", KernelTimeLimit: 10 * time.Second, BAR2: 64 << 20},
	{KernelTimeLimit: -1},
}

// TestDefine defines the domains in testdata and takes the definition out again.
func TestDefine(t *testing.T) {
	paths, err := filepath.Glob("testdata/define/*.xml")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			after, err := Define(before, two, runDir)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(path, ".xml")+".diff", Diff("domain.xml", before, after))
			back, err := Undefine(after)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(before), string(back)); diff != "" {
				t.Errorf("Undefine(Define(x)) (-x +got):\n%s", diff)
			}
		})
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// minimal is a domain with something in its parts.
func minimal(os, memory, rest string) string {
	return `<domain type='kvm'>
  <name>web</name>
  <uuid>` + testUUID + `</uuid>
  ` + memory + `
  ` + os + `
  ` + rest + `
</domain>
`
}

const q35 = `<os><type machine='pc-q35-10.1'>hvm</type></os>`

func TestDefineRefuses(t *testing.T) {
	for name, test := range map[string]struct{ xml, want string }{
		"i440fx": {minimal(`<os><type machine='pc-i440fx-9.2'>hvm</type></os>`, "", ""),
			`line 5: <type>: attribute machine: "pc-i440fx-9.2" has no PCI Express that a virtual GPU could be plugged into: want "q35"`},
		"pc": {minimal(`<os><type machine='pc'>hvm</type></os>`, "", ""),
			`line 5: <type>: attribute machine: "pc" has no PCI Express that a virtual GPU could be plugged into: want "q35"`},
		"microvm": {minimal(`<os><type machine='microvm'>hvm</type></os>`, "", ""),
			`line 5: <type>: attribute machine: "microvm" has no PCI Express that a virtual GPU could be plugged into: want "q35"`},
		"no machine": {minimal(`<os><type>hvm</type></os>`, "", ""),
			`line 5: <type>: attribute machine: not given, and QEMU's default has no PCI Express: want "q35"`},
		"no os": {minimal(``, "", ""),
			`line 1: <domain>: attribute machine: not given, and QEMU's default has no PCI Express: want "q35"`},
		"container": {strings.Replace(minimal(q35, "", ""), "kvm", "lxc", 1),
			`line 1: <domain>: attribute type: "lxc": a virtual GPU is for domains of "kvm" or "qemu"`},
		"no uuid": {strings.Replace(minimal(q35, "", ""), "<uuid>"+testUUID+"</uuid>", "", 1),
			`line 1: <domain>: no <uuid> in it: libvirt gives a domain one when it is defined, so define it first`},
		"bad uuid": {strings.Replace(minimal(q35, "", ""), testUUID, "../../etc", 1),
			`line 3: <uuid>: "../../etc": want 8-4-4-4-12 hexadecimal digits`},
		"bad label": {minimal(q35, "<seclabel model='dac'><label>root</label></seclabel>", ""),
			`line 4: <label>: "root": want USER:GROUP, names or numbers`},
		"id taken": {minimal(q35, "", `<commandline xmlns="http://libvirt.org/schemas/domain/qemu/1.0"><arg value="-device"/><arg value="edu,id=vgpu0"/></commandline>`),
			`line 6: <arg>: a device of another kind has the id vgpu0 already: give it another`},
		"later version": {minimal(q35, `<metadata><v:devices xmlns:v="urn:vgpud:domain:2"/></metadata>`, ""),
			`line 4: <v:devices>: the namespace "urn:vgpud:domain:2" is not known: want "urn:vgpud:domain:1"`},
		"no slot": {minimal(q35, "", "<devices>"+full()+"</devices>"),
			"no slot of pcie.0 is left: put some of the domain's devices behind a pcie-root-port"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Define([]byte(test.xml), two, runDir)
			if err == nil || err.Error() != test.want {
				t.Errorf("Define:\n got %v\nwant %s", err, test.want)
			}
		})
	}
}

// full are devices on all slots of pcie.0 but two.
func full() string {
	var b strings.Builder
	for slot := range 32 {
		if slot != 0x05 && slot != 0x14 {
			b.WriteString(`<d><address type='pci' domain='0x0000' bus='0x00' slot='` + slotText(slot) + `' function='0x0'/></d>`)
		}
	}
	return b.String()
}

func TestDefineChecksDevices(t *testing.T) {
	x := []byte(minimal(q35, "", ""))
	for want, ds := range map[string]Devices{
		"0 virtual GPUs: want 1 to 16":                                                             nil,
		"17 virtual GPUs: want 1 to 16":                                                            make(Devices, 17),
		`virtual GPU 0: weight "-1": want a number from 0.001 to 1000000`:                          {{Weight: -1}},
		`virtual GPU 1: cap "2": want a number from 0 to 1`:                                        {{}, {Cap: 2}},
		"virtual GPU 0: a guarantee of 0.75 is more than the cap, 0.5: want at most the cap":       {{Cap: 0.5, Guarantee: 0.75}},
		`virtual GPU 0: bar2 "3MiB": want a power of two from 4MiB to 64GiB`:                       {{BAR2: 3 << 20}},
		"virtual GPU 0: memory of 5 bytes: want whole KiB":                                         {{Memory: 5}},
		`virtual GPU 0: priority "16": want a whole number from 0 to 15`:                           {{PriorityCeiling: 16}},
		"virtual GPU 0: gpu \"a/b\": want a GPU's name as `vgpuctl get gpus` shows it, or \"any\"": {{GPU: "a/b"}},
	} {
		if _, err := Define(x, ds, runDir); err == nil || err.Error() != want {
			t.Errorf("Define %+v:\n got %v\nwant %s", ds, err, want)
		}
	}
	for _, dir := range []string{"", "run", "/run/../vgpud", "/run/vgpud/"} {
		if _, err := Define(x, two, dir); err == nil {
			t.Errorf("Define with the run_dir %q: no error", dir)
		}
	}
	if _, err := Define(x, two, "/"+strings.Repeat("long/", 20)+"end"); err == nil || !strings.Contains(err.Error(), "shorter run_dir") {
		t.Errorf("Define with a run_dir too long for a socket: %v", err)
	}
}

// TestUndefineAfterwards undefines domains that were edited after Define.
func TestUndefineAfterwards(t *testing.T) {
	after, err := Define([]byte(minimal(q35, "", "")), two, runDir)
	if err != nil {
		t.Fatal(err)
	}
	x := string(after)
	for _, change := range [][2]string{
		{"</metadata>", "  <app:note xmlns:app='urn:a'/>\n  </metadata>"},
		{"</qemu:commandline>", "<qemu:arg value='-foo'/></qemu:commandline>"},
	} {
		if !strings.Contains(x, change[0]) {
			t.Fatalf("no %s in\n%s", change[0], x)
		}
		x = strings.Replace(x, change[0], change[1], 1)
	}
	back, err := Undefine([]byte(x))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/afterwards.xml", back)
}

// TestEarlierDefine: a domain that was defined when Define still gave it shared memory loses that with
// the rest, but what others have put there since.
func TestEarlierDefine(t *testing.T) {
	earlier, err := os.ReadFile("testdata/earlier.xml")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := os.ReadFile("testdata/define/libvirt.xml")
	if err != nil {
		t.Fatal(err)
	}
	back, err := Undefine(earlier)
	if diff := cmp.Diff(string(plain), string(back)); diff != "" || err != nil {
		t.Errorf("Undefine (-want +got):\n%s%v", diff, err)
	}
	want, err := Define(plain, two, runDir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Define(earlier, two, runDir)
	if diff := cmp.Diff(string(want), string(got)); diff != "" || err != nil {
		t.Errorf("Define (-want +got):\n%s%v", diff, err)
	}
	back, err = Undefine([]byte(strings.Replace(string(earlier), "</memoryBacking>", "<locked/></memoryBacking>", 1)))
	if err != nil || !strings.Contains(string(back), "<locked/></memoryBacking>") || strings.Contains(string(back), "<source type='memfd'") {
		t.Errorf("what others have put there: %v\n%s", err, back)
	}
}
