package packages

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/e2e/operators"
)

// rpmHere is rpm for a system whose packages' requirements dpkg meets, in a root directory that is no
// mount, as rpm's plugin for scripts' namespaces wants it.
const rpmHere = "rpm --nodeps --noplugins "

// TestRPM takes the RPMs through their lives, by Debian's rpm: installed with their scripts, used,
// with their configuration changed, and removed with nothing left but that. The system is Debian's
// still, so that the packages' requirements are not looked up.
func TestRPM(t *testing.T) {
	r := newRoot(t, "lint.tar")
	r.run("rpmdb --initdb")
	before := r.files()
	command := rpmHere + "-i "
	for _, name := range names {
		command += r.copy(operators.Built(t).RPM(t, name)) + " "
	}
	r.run(command)
	checkInstalled(r, "zsh/site-functions")
	r.run("rpm --verify --nodeps vgpud vgpu-agent vgpu-dra; systemctl is-enabled vgpu-agent")
	if out, err := r.try("systemctl is-enabled vgpud"); err == nil {
		t.Errorf("vgpud is enabled before its configuration knows the host's GPUs: %s", out)
	}
	r.run(start + "vgpuctl get vms -o name; vgpuctl version")

	const changed = "# An operator was here.\n"
	r.add("/etc/vgpud/vgpud.yaml", changed)
	r.run("rm -r /var/lib/vgpud; " + rpmHere + "-e vgpud vgpu-agent vgpu-dra")
	const saved = "/etc/vgpud/vgpud.yaml.rpmsave"
	if !strings.HasSuffix(r.read(saved), changed) {
		t.Errorf("%s has lost what the operator wrote", saved)
	}
	if out := r.run("ldconfig -p"); strings.Contains(out, "/vgpu/") {
		t.Errorf("the linker still knows the libraries:\n%s", out)
	}
	// These directories are other packages' on a distribution with RPM.
	r.run("rm -r /etc/vgpud; rmdir -p --ignore-fail-on-non-empty /etc/libvirt/hooks/qemu.d /usr/share/licenses /usr/share/fish/vendor_completions.d")
	if diff := cmp.Diff(before, r.files()); diff != "" {
		t.Errorf("what the removal left (+) or took of the system's (-):\n%s", diff)
	}
}

// TestRPMFiles: into an empty root the RPMs put the files that Debian's packages have, but for what
// each kind has in its own way, and they require the C library that their programs need.
func TestRPMFiles(t *testing.T) {
	r := newRoot(t, "lint.tar")
	for _, name := range names {
		rpm, deb := r.copy(operators.Built(t).RPM(t, name)), r.copy(operators.Built(t).Deb(t, name))
		r.run("mkdir -p /tmp/" + name + "/rpm /tmp/" + name + "/deb; rpm --root /tmp/" + name + "/rpm --noplugins -i --nodeps --noscripts " + rpm + "; dpkg-deb -x " + deb + " /tmp/" + name + "/deb")
		list := func(dir string) []string {
			out := r.run("cd /tmp/" + name + "/" + dir + "; find . ! -type d -printf '/%P %m %u %l\\n' | sort")
			var paths []string
			for line := range strings.Lines(out) {
				if !ownFiles.MatchString(line) {
					paths = append(paths, strings.TrimSpace(strings.Replace(line, "/zsh/vendor-completions/", "/zsh/site-functions/", 1)))
				}
			}
			return paths
		}
		if diff := cmp.Diff(list("deb"), list("rpm")); diff != "" {
			t.Errorf("%s: files of Debian's package (-) and of the RPM (+):\n%s", name, diff)
		}
		r.run("rpm -qip " + rpm + "; rpm -qp --scripts " + rpm)
		r.run("rpm -qp --configfiles " + rpm + " | grep /etc/")
		checkGlibc(r, name, rpm)
	}
}

// ownFiles are what each kind of package has in its own way or has no use for, and rpm's database.
var ownFiles = regexp.MustCompile(`^/(etc/apparmor.d/|usr/share/lintian/|usr/share/doc/[^/]*/(copyright|changelog.Debian.gz) |usr/share/licenses/|var/lib/rpm/|usr/lib/sysimage/rpm/)`)

// checkGlibc checks that a package requires the newest version of the C library's functions that
// its programs and libraries use, as rpm's own generator of requirements finds them.
func checkGlibc(r *root, name, rpm string) {
	r.tb.Helper()
	version := regexp.MustCompile(`^libc\.so\.6\(GLIBC_2\.(\d+)\)\(64bit\)$`)
	newest := func(out string) (minor int) {
		for line := range strings.Lines(out) {
			if m := version.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				n, _ := strconv.Atoi(m[1]) // digits
				minor = max(minor, n)
			}
		}
		return minor
	}
	needs := newest(r.run("cd /tmp/" + name + "/rpm; chmod -R a+x .; find . -type f | /usr/lib/rpm/elfdeps --requires || true"))
	says := newest(r.run("rpm -qp --requires " + rpm))
	static := name == "vgpu-dra" // it needs no C library
	if says != needs || (needs == 0) != static {
		r.tb.Errorf("%s uses functions of glibc 2.%d and requires 2.%d", name, needs, says)
	}
}
