package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPage(t *testing.T) {
	text, err := cut("# Title\n\n## First\n\nno\n\n## Second\n\nRead `a.yaml`, see [below](#x), **not** C:\\.\n.start\n\n"+
		"| key | default | meaning |\n|---|---|---|\n| `a` | none | what \\| it is |\n\n    a: 1\n\n- one\n1. two\n\n```xml\n<a/>\n```\n\n### Part\n\nx\n\n## Third\n", "Second")
	if err != nil {
		t.Fatal(err)
	}
	const want = `.TH "A.YAML" "5" "" "vgpud" "File formats"
.nh
.SH NAME
a.yaml \- a file
.SH DESCRIPTION
Read \fBa.yaml\fR, see below, \fBnot\fR C:\e.
\&.start
.PP
.TP
\fBa\fR
default: none.
.br
what | it is
.PP
.PP
.PP
.EX
a: 1

.EE
.PP
.IP \(bu 3
one
.IP 1. 4
two
.PP
.PP
.EX
<a/>
.EE
.PP
.SS Part
.PP
x
`
	if diff := cmp.Diff(want, page("a.yaml", "a file", text)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := cut("# Title\n", "Second"); err == nil {
		t.Error("a section that is not there")
	}
}

// TestInstalledPages: each key of the installed files is in its page.
func TestInstalledPages(t *testing.T) {
	b, err := os.ReadFile("../../deploy/libvirt/hook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := page("vgpu-hook.yaml", "t", fromYAML(string(b)))
	for _, key := range []string{"socket", "user", "group", "run_dir", "timeout", "pid_dir", "save_dir", "qemu_conf"} {
		if !strings.Contains(got, `\fB`+strings.ReplaceAll(key, "-", `\-`)+`:`) {
			t.Errorf("%s is not in the page:\n%s", key, got)
		}
	}
	if b, err = os.ReadFile("../../docs/operations.md"); err != nil {
		t.Fatal(err)
	}
	configuration, err := cut(string(b), "Configuration")
	if err != nil {
		t.Fatal(err)
	}
	got = page("vgpud.yaml", "t", configuration)
	for _, key := range []string{"run_dir", "gpus[].accounting.poll", "confinement.uids"} {
		if !strings.Contains(got, ".TP\n\\fB"+key+"\\fR\n") {
			t.Errorf("%s is not in the page:\n%s", key, got)
		}
	}
}
