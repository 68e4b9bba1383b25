package domain

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vgpud/mediator/api"
)

// started is a domain as libvirt gives it to a hook, formatted its way.
func started(t *testing.T) []byte {
	t.Helper()
	x, err := os.ReadFile("testdata/started.xml")
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestParse(t *testing.T) {
	got, err := Parse(started(t))
	if err != nil {
		t.Fatal(err)
	}
	want := &Domain{
		Name: "web1", UUID: testUUID, Type: "kvm", Machine: "pc-q35-10.1",
		Owner: &Owner{"+64055", "+109"},
		GPUs: Devices{
			{Weight: 2, Cap: 0.5, Guarantee: 0.1, PriorityCeiling: 3, Memory: 4 << 30, GPU: "any", Float: true, KernelTimeLimit: 10 * time.Second, BAR2: 64 << 20},
			{KernelTimeLimit: api.NoTimeLimit},
		},
		Devices: []Device{
			{0, 0x10, "/run/vgpud/domains/" + testUUID + "/gpu0.sock", testUUID},
			{1, 0x11, "/run/vgpud/domains/" + testUUID + "/gpu1.sock", testUUID},
		},
		Spare: true,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Domain{})); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
	spec := api.VMSpec{
		Name: "web1", Domain: "web1", DomainUUID: testUUID, GPU: "any", Float: true, Weight: 2, Cap: 0.5, Guarantee: 0.1, PriorityCeiling: 3,
		BAR2Bytes: 64 << 20, MemoryLimitBytes: 4 << 30, KernelTimeLimit: 10 * time.Second, Socket: "/run/vgpud/domains/" + testUUID + "/gpu0.sock",
	}
	if diff := cmp.Diff(spec, got.Spec(0, "web1")); diff != "" {
		t.Errorf("Spec (-want +got):\n%s", diff)
	}
}

// TestParseRefuses puts something else in place of the metadata.
func TestParseRefuses(t *testing.T) {
	const open = `<vgpud:devices xmlns:vgpud="urn:vgpud:domain:1">`
	gpu := func(attrs string) string { return open + "\n<vgpud:gpu " + attrs + "/></vgpud:devices>" }
	for name, test := range map[string]struct{ metadata, want string }{
		"weight 0":          {gpu(`weight="0"`), `line 6: <vgpud:gpu>: attribute weight: "0": want a number from 0.001 to 1000000`},
		"weight below 0":    {gpu(`weight="-1"`), `line 6: <vgpud:gpu>: attribute weight: "-1": want a number from 0.001 to 1000000`},
		"weight NaN":        {gpu(`weight="NaN"`), `line 6: <vgpud:gpu>: attribute weight: "NaN": want a number from 0.001 to 1000000`},
		"weight infinite":   {gpu(`weight="Inf"`), `line 6: <vgpud:gpu>: attribute weight: "Inf": want a number from 0.001 to 1000000`},
		"weight huge":       {gpu(`weight="1e300"`), `line 6: <vgpud:gpu>: attribute weight: "1e300": want a number from 0.001 to 1000000`},
		"weight too large":  {gpu(`weight="1000001"`), `line 6: <vgpud:gpu>: attribute weight: "1000001": want a number from 0.001 to 1000000`},
		"weight in hex":     {gpu(`weight="0x1p1"`), `line 6: <vgpud:gpu>: attribute weight: "0x1p1": want a number from 0.001 to 1000000`},
		"weight empty":      {gpu(`weight=""`), `line 6: <vgpud:gpu>: attribute weight: "": want a number from 0.001 to 1000000`},
		"weight spaced":     {gpu(`weight=" 1"`), `line 6: <vgpud:gpu>: attribute weight: " 1": want a number from 0.001 to 1000000`},
		"weight long":       {gpu(`weight="` + strings.Repeat("9", 5000) + `"`), `line 6: <vgpud:gpu>: attribute weight: "` + strings.Repeat("9", maxShown) + `…": want a number from 0.001 to 1000000`},
		"weight of lines":   {gpu(`weight="1&#10;2"`), `line 6: <vgpud:gpu>: attribute weight: "1\n2": want a number from 0.001 to 1000000`},
		"cap above 1":       {gpu(`cap="50"`), `line 6: <vgpud:gpu>: attribute cap: "50": want a number from 0 to 1`},
		"cap in percent":    {gpu(`cap="50%"`), `line 6: <vgpud:gpu>: attribute cap: "50%": want a number from 0 to 1`},
		"guarantee":         {gpu(`guarantee="1.5"`), `line 6: <vgpud:gpu>: attribute guarantee: "1.5": want a number from 0 to 1`},
		"floats on one":     {gpu(`float="yes" gpu="gpu1"`), `line 6: <vgpud:gpu>: a guest that floats is on whichever GPU has room: want no gpu "gpu1"`},
		"floats perhaps":    {gpu(`float="1"`), `line 6: <vgpud:gpu>: attribute float: "1": want yes or no`},
		"guarantee and cap": {gpu(`cap="0.2" guarantee="0.5"`), `line 6: <vgpud:gpu>: a guarantee of 0.5 is more than the cap, 0.2: want at most the cap`},
		"priority":          {gpu(`priority="16"`), `line 6: <vgpud:gpu>: attribute priority: "16": want a whole number from 0 to 15`},
		"priority huge":     {gpu(`priority="99999999999999999999"`), `line 6: <vgpud:gpu>: attribute priority: "99999999999999999999": want a whole number from 0 to 15`},
		"memory bare":       {gpu(`memory="4096"`), `line 6: <vgpud:gpu>: attribute memory: "4096": want a whole number with KiB, MiB, GiB or TiB, such as 256MiB`},
		"memory of thirds":  {gpu(`memory="4GB"`), `line 6: <vgpud:gpu>: attribute memory: "4GB": want a whole number with KiB, MiB, GiB or TiB, such as 256MiB`},
		"memory 0":          {gpu(`memory="0GiB"`), `line 6: <vgpud:gpu>: attribute memory: "0GiB": want more than 0; for the default leave the attribute out`},
		"memory huge":       {gpu(`memory="18446744073709551615GiB"`), `line 6: <vgpud:gpu>: attribute memory: "18446744073709551615GiB": want at most 1024TiB`},
		"bar2":              {gpu(`bar2="48MiB"`), `line 6: <vgpud:gpu>: attribute bar2: "48MiB": want a power of two from 4MiB to 64GiB`},
		"bar2 small":        {gpu(`bar2="1MiB"`), `line 6: <vgpud:gpu>: attribute bar2: "1MiB": want a power of two from 4MiB to 64GiB`},
		"time limit":        {gpu(`kernel-time-limit="10"`), `line 6: <vgpud:gpu>: attribute kernel-time-limit: "10": want "none", or a time above 0, at most 24h, such as 10s or 500ms`},
		"time limit long":   {gpu(`kernel-time-limit="999999h"`), `line 6: <vgpud:gpu>: attribute kernel-time-limit: "999999h": want "none", or a time above 0, at most 24h, such as 10s or 500ms`},
		"time limit 0":      {gpu(`kernel-time-limit="0s"`), `line 6: <vgpud:gpu>: attribute kernel-time-limit: "0s": want "none", or a time above 0, at most 24h, such as 10s or 500ms`},
		"gpu":               {gpu(`gpu="../0"`), "line 6: <vgpud:gpu>: attribute gpu: \"../0\": want a GPU's name as `vgpuctl get gpus` shows it, or \"any\""},
		"unknown attribute": {gpu(`wieght="2"`), `line 6: <vgpud:gpu>: attribute wieght: not known: want weight, cap, guarantee, priority, latency, memory, gpu, float, kernel-time-limit, bar2 or budget`},
		"foreign attribute": {gpu(`xmlns:a="a" a:weight="2"`), `line 6: <vgpud:gpu>: attribute weight: not known: want weight, cap, guarantee, priority, latency, memory, gpu, float, kernel-time-limit, bar2 or budget`},
		"attribute twice":   {gpu(`weight="2" weight="2"`), `line 6: <vgpud:gpu>: attribute weight: given twice`},
		"gpu's attribute on devices": {`<vgpud:devices xmlns:vgpud="urn:vgpud:domain:1" weight="1"/>`,
			`line 5: <vgpud:devices>: attribute weight: not known: a GPU's settings belong on <vgpud:gpu>`},
		"added": {`<vgpud:devices xmlns:vgpud="urn:vgpud:domain:1" added="memory everything"/>`,
			"line 5: <vgpud:devices>: attribute added: \"memory\" is not known: it is written by `vgpuctl define`, leave it as it was"},
		"empty":           {open + "</vgpud:devices>", `line 5: <vgpud:devices>: empty: want at least one <vgpud:gpu>`},
		"text":            {open + "2</vgpud:devices>", `line 5: <vgpud:devices>: text "2" in it: want <vgpud:gpu> only`},
		"unknown element": {open + "\n<vgpud:cpu/></vgpud:devices>", `line 6: <vgpud:cpu>: not known in <vgpud:devices>: want <vgpud:gpu>`},
		"foreign element": {open + "\n<gpu/></vgpud:devices>", `line 6: <gpu>: not known in <vgpud:devices>: want <vgpud:gpu>`},
		"content":         {open + "\n<vgpud:gpu>2</vgpud:gpu></vgpud:devices>", `line 6: <vgpud:gpu>: something in it: want it empty, with attributes`},
		"too many":        {open + strings.Repeat("\n<vgpud:gpu/>", 17) + "</vgpud:devices>", `line 22: <vgpud:gpu>: more than 16 virtual GPUs`},
		"twice": {open + "<vgpud:gpu/></vgpud:devices>\n" + open + "<vgpud:gpu/></vgpud:devices>",
			`line 6: <vgpud:devices>: a second one (the first is on line 5): want all <vgpud:gpu> in one`},
		"later version":    {`<v:devices xmlns:v="urn:vgpud:domain:2"/>`, `line 5: <v:devices>: the namespace "urn:vgpud:domain:2" is not known: want "urn:vgpud:domain:1"`},
		"no version":       {`<devices xmlns="urn:vgpud:domain"/>`, `line 5: <devices>: the namespace "urn:vgpud:domain" is not known: want "urn:vgpud:domain:1"`},
		"wrong namespace":  {`<vgpud:devices xmlns:vgpud="http://vgpud"/>`, `line 5: <vgpud:devices>: the namespace "http://vgpud" is not known: want "urn:vgpud:domain:1"`},
		"mixed versions":   {open + "\n<v:gpu xmlns:v='urn:vgpud:domain:2'/></vgpud:devices>", `line 6: <v:gpu>: the namespace "urn:vgpud:domain:2" is not known: want "urn:vgpud:domain:1"`},
		"no namespace":     {`<vgpud:devices/>`, `line 5: <vgpud:devices>: the prefix vgpud has no namespace: want xmlns:vgpud=… here or further out`},
		"gpu by itself":    {`<vgpud:gpu xmlns:vgpud="urn:vgpud:domain:1"/>`, `line 5: <vgpud:gpu>: not known in <metadata>: want <vgpud:devices>`},
		"too deep":         {"<a>\n" + open + "</vgpud:devices></a>", `line 6: <vgpud:devices>: wrong place: want <vgpud:devices> directly in the domain's <metadata>`},
		"outside":          {"</metadata>\n" + open + "</vgpud:devices>\n<metadata>", `line 6: <vgpud:devices>: wrong place: want <vgpud:devices> directly in the domain's <metadata>`},
		"entity":           {`&lol;`, `line 5: malformed XML: invalid character entity &lol;`},
		"not closed":       {`<a>`, `line 6: malformed XML: element <a> closed by </metadata>`},
		"label":            {"</metadata><seclabel type='static' model='dac'>\n<label>nobody</label></seclabel><metadata>", `line 6: <label>: "nobody": want USER:GROUP, names or numbers`},
		"label of a shell": {"</metadata><seclabel type='static' model='dac'>\n<label>a b:c</label></seclabel><metadata>", `line 6: <label>: "a b:c": want USER:GROUP, names or numbers`},
	} {
		t.Run(name, func(t *testing.T) {
			x := "<domain type='kvm'>\n<name>web</name>\n<uuid>" + testUUID + "</uuid>\n<metadata>\n" + test.metadata + "\n</metadata>\n</domain>\n"
			_, err := Parse([]byte(x))
			checkError(t, err, test.want)
		})
	}
}

// TestParseBounds checks the bounds on documents.
func TestParseBounds(t *testing.T) {
	for name, test := range map[string]struct{ xml, want string }{
		"nothing":       {"", "no XML element: want <domain>"},
		"no domain":     {"<network/>", "line 1: <network>: want <domain>"},
		"other's":       {"<domain xmlns='urn:x'/>", "line 1: <domain>: want <domain>"},
		"no name":       {"<domain/>", "line 1: <domain>: no <name> in it"},
		"empty name":    {"<domain><name> </name></domain>", `line 1: <name>: "": want a domain's name`},
		"name of paths": {"<domain><name>../x</name></domain>", `line 1: <name>: "../x": want a domain's name`},
		"two":           {"<domain><name>a</name></domain>\n<domain/>", "line 2: <domain>: a second element beside <domain>"},
		"text behind":   {"<domain><name>a</name></domain>\nx", "line 1: text outside of <domain>"},
		"doctype": {"<!DOCTYPE domain [<!ENTITY a \"" + strings.Repeat("a", 100) + "\"><!ENTITY b \"&a;&a;\">]><domain><name>&b;</name></domain>",
			"line 1: a document type declaration: a domain has none"},
		"external":   {"<!DOCTYPE domain SYSTEM \"file:///etc/passwd\"><domain/>", "line 1: a document type declaration: a domain has none"},
		"encoding":   {"<?xml version='1.0' encoding='utf-16'?><domain/>", `line 1: malformed XML: xml: encoding \"utf-16\" declared but Decoder.CharsetReader is nil`},
		"bytes":      {strings.Repeat(" ", maxBytes+1), "1048577 bytes of XML: a domain has at most 1048576"},
		"depth":      {strings.Repeat("<a>", 100), "line 1: <a>: nested more than 64 deep"},
		"elements":   {"<domain>" + strings.Repeat("<a/>", maxElements), "line 1: <a>: more than 32768 elements"},
		"attributes": {"<domain" + manyAttributes(65) + "/>", "line 1: <domain>: more than 64 attributes"},
		"cut short":  {"<domain", "line 1: malformed XML: unexpected EOF"},
		"tag twice":  {"<domain a='1' a='2'/>", "line 1: <domain>: attribute a: given twice"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(test.xml))
			checkError(t, err, test.want)
		})
	}
}

func manyAttributes(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(" a" + strings.Repeat("a", i) + "='1'")
	}
	return b.String()
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if e, ok := errors.AsType[*Error](err); !ok || e.Error() != want {
		t.Errorf("error:\n got %v\nwant %s", err, want)
	}
}

func TestCheck(t *testing.T) {
	other := "00000000-0b0a-4c56-9d3f-6b1f0a0e7c11"
	for name, test := range map[string]struct{ old, new, want string }{
		"no devices":   {"vfio-user-pci", "edu", "the metadata asks for 2 virtual GPUs, but the QEMU command line has no vgpu0"},
		"one is less":  {"&quot;vgpu1&quot;", "&quot;edu&quot;", "the metadata asks for 2 virtual GPUs, but the QEMU command line has no vgpu1"},
		"one too many": {`<vgpud:gpu kernel-time-limit="none"/>`, "", "the QEMU command line has vgpu1, but the metadata asks for 1 virtual GPUs"},
		"twice":        {"vgpu1&quot;,&quot;bus&quot;:&quot;pcie.0&quot;,&quot;addr&quot;:&quot;0x11&quot;,&quot;socket&quot;:{&quot;path&quot;:&quot;/run/vgpud/domains/" + testUUID + "/gpu1", "vgpu0&quot;,&quot;socket&quot;:{&quot;path&quot;:&quot;/run/vgpud/domains/" + testUUID + "/gpu0", "the QEMU command line has vgpu0 twice"},
		"other socket": {"gpu1.sock", "gpu2.sock", "the metadata asks for 2 virtual GPUs, but the QEMU command line has no vgpu1"},
		"a copy":       {"<uuid>" + testUUID, "<uuid>" + other, "the QEMU command line connects vgpu0 for the domain with UUID " + testUUID + ", but this domain's is " + other + " (is it a copy?)"},
		"slot taken":   {"slot='0x02' function='0x0'", "slot='0x11' function='0x0'", "vgpu1 is at slot 0x11 of pcie.0, where <controller> is"},
		"same slot":    {"&quot;0x11&quot;", "&quot;0x10&quot;", "vgpu1 is at slot 0x10 of pcie.0, where vgpu0 is"},
		"spare's slot": {"slot='0x02' function='0x0'", "slot='0x12' function='0x0'", "vgpu-spare is at slot 0x12 of pcie.0, where <controller> is"},
		"in the spare": {"addr=0x12,chassis", "addr=0x10,chassis", "vgpu0 is at slot 0x10 of pcie.0, where vgpu-spare is"},
		"no uuid":      {"<uuid>" + testUUID + "</uuid>", "", "it has no <uuid>"},
	} {
		t.Run(name, func(t *testing.T) {
			x := string(started(t))
			if !strings.Contains(x, test.old) {
				t.Fatalf("no %s in\n%s", test.old, x)
			}
			v, err := Parse([]byte(strings.ReplaceAll(x, test.old, test.new)))
			if err != nil {
				t.Fatal(err)
			}
			err = v.Check()
			if !errors.Is(err, ErrMismatch) || !strings.HasPrefix(err.Error(), test.want+": ") {
				t.Errorf("Check:\n got %v\nwant %s", err, test.want)
			}
		})
	}
}

// TestWithoutOurs reads a domain that has nothing of vgpud's.
func TestWithoutOurs(t *testing.T) {
	x, err := os.ReadFile("testdata/define/libvirt.xml")
	if err != nil {
		t.Fatal(err)
	}
	v, err := Parse(x)
	if err != nil || len(v.GPUs) > 0 || len(v.Devices) > 0 || v.Spare || v.Owner != nil || Concerns(x) {
		t.Errorf("Parse: %+v, %v", v, err)
	}
	if !Concerns(started(t)) {
		t.Error("a domain with virtual GPUs does not concern us")
	}
	same, err := Undefine(x)
	if diff := cmp.Diff(string(x), string(same)); diff != "" || err != nil {
		t.Errorf("Undefine (-want +got):\n%s%v", diff, err)
	}
}

func TestGuestName(t *testing.T) {
	for _, test := range []struct {
		domain string
		n      int
		other  bool
		want   string
	}{
		{"web", 0, false, "web"},
		{"web", 2, false, "web-2"},
		{"web", 0, true, "web-5d4b2f6e"},
		{"web", 1, true, "web-1-5d4b2f6e"},
		{"web & co/ü", 0, false, "web___co__"},
		{".hidden", 0, false, "_hidden"},
		{"-", 1, false, "_-1"},
		{"", 0, false, "_"},
		{strings.Repeat("x", 100), 15, true, strings.Repeat("x", 52) + "-15-5d4b2f6e"},
	} {
		got := GuestName(test.domain, testUUID, test.n, test.other)
		if got != test.want || api.CheckName(got) != nil {
			t.Errorf("GuestName(%q, %d, %v) = %q, want %q (%v)", test.domain, test.n, test.other, got, test.want, api.CheckName(got))
		}
	}
}
