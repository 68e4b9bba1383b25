package packages

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/e2e/operators"
)

// names are the packages.
var names = []string{"vgpud", "vgpu-agent", "vgpu-dra"}

// aptInstall installs packages of Debian's without asking anybody or any archive.
const aptInstall = "apt-get install -qq -y --no-install-recommends "

// TestDebian takes the packages through their lives in a clean trixie: installed, upgraded with a
// configuration that was changed, removed with the configuration kept, and purged with nothing left.
func TestDebian(t *testing.T) {
	r := newRoot(t, "clean.tar")
	before := r.files()
	install := func(p operators.Packages) {
		t.Helper()
		command := aptInstall
		for _, name := range names {
			command += r.copy(p.Deb(t, name)) + " "
		}
		r.run(command)
	}
	install(operators.Built(t).Earlier(t, names...))
	checkInstalled(r, "zsh/vendor-completions")
	r.run("systemctl is-enabled vgpu-agent")
	for _, unit := range []string{"vgpud", "vgpu-dra"} {
		if out, err := r.try("systemctl is-enabled " + unit); err == nil {
			t.Errorf("%s is enabled before its configuration is written: %s", unit, out)
		}
	}
	r.run(start + "vgpuctl get vms -o name; vgpuctl usage -o csv; vgpuctl version")

	const changed = "# An operator was here.\n"
	for _, path := range []string{"/etc/vgpud/vgpud.yaml", "/etc/vgpud/hook.yaml", "/etc/vgpud/kubernetes.yaml", "/etc/apparmor.d/vgpud"} {
		r.add(path, changed)
	}
	old := r.run("dpkg-query -W vgpud vgpu-agent vgpu-dra")
	install(operators.Built(t))
	if now := r.run("dpkg-query -W vgpud vgpu-agent vgpu-dra"); now == old || strings.Contains(now, "earlier") {
		t.Errorf("after the upgrade there is %s, before it there was %s", now, old)
	}
	checkInstalled(r, "zsh/vendor-completions")
	r.run(start + "vgpuctl get vms -o name")

	r.run("systemctl enable vgpud vgpud-softgpu@gpu0 vgpu-dra")
	r.run("apt-get remove -qq -y vgpud vgpu-agent vgpu-dra")
	for _, path := range []string{"/usr/sbin/vgpud", "/usr/sbin/vgpuctl", "/usr/sbin/vgpu-agent", "/usr/sbin/vgpu-dra", "/usr/share/vgpud", "/usr/lib/vgpu", "/usr/lib/systemd/system/vgpud.service", "/run/vgpud"} {
		if r.exists(path) {
			t.Errorf("%s is left after the removal", path)
		}
	}
	for _, path := range []string{"/etc/vgpud/vgpud.yaml", "/etc/vgpud/hook.yaml", "/etc/vgpud/kubernetes.yaml", "/etc/apparmor.d/vgpud"} {
		if !strings.HasSuffix(r.read(path), changed) {
			t.Errorf("%s has lost what the operator wrote", path)
		}
	}
	if out := r.run("ldconfig -p"); strings.Contains(out, "/vgpu/") {
		t.Errorf("the linker still knows the libraries:\n%s", out)
	}
	if !r.exists("/var/lib/vgpud/usage.sqlite") {
		t.Error("the removal took the usage record, which only purging may")
	}
	r.run("apt-get purge -qq -y vgpud vgpu-agent vgpu-dra")
	if diff := cmp.Diff(before, r.files()); diff != "" {
		t.Errorf("what purging left (+) or took of the system's (-):\n%s", diff)
	}
}

// start starts the GPU in software and the daemon, as their units do, and creates a guest.
const start = `
rm -f /run/vgpud/gpu0.sock # a GPU that was killed leaves it
vgpud softgpu --socket /run/vgpud/gpu0.sock --group 1879048192 >/tmp/softgpu.log 2>&1 &
until [ -S /run/vgpud/gpu0.sock ]; do kill -0 $! || { cat /tmp/softgpu.log; exit 1; }; sleep 0.1; done
vgpud serve --config /etc/vgpud/vgpud.yaml >/tmp/serve.log 2>&1 &
until vgpuctl get gpus >/dev/null 2>&1; do kill -0 $! || { cat /tmp/serve.log; exit 1; }; sleep 0.1; done
vgpuctl get gpus
vgpuctl create vm web1 --weight 2
`

// checkInstalled checks what an installed version put in place, whichever package manager did. zsh is
// the directory of completions for zsh, in /usr/share.
func checkInstalled(r *root, zsh string) {
	r.tb.Helper()
	r.run(`
vgpud --version; vgpuctl --version; vgpu-agent --version; vgpu-placement --version; vgpu-dra --version
vgpu-nvml </dev/null 2>&1 | grep 'libnvidia-ml.so.1 is missing' # it starts where there is no NVIDIA driver
vgpud serve --check --config /etc/vgpud/vgpud.yaml
SYSTEMD_LOG_LEVEL=err systemd-analyze verify --man=no vgpud.service vgpud-softgpu@gpu0.service vgpu-placement.service vgpu-agent.service vgpu-dra.service
test "$(getent group vgpu-guests)" = vgpu-guests:x:1879048192:
test "$(stat -c '%a %U' /run/vgpud)" = "711 root"
ldconfig -p | grep -F 'libcuda.so.1 (libc6,x86-64) => /usr/lib/vgpu/libcuda.so.1'
ldconfig -p | grep -F /usr/lib/vgpu/libcudart.so.13
test -x /etc/libvirt/hooks/qemu.d/50-vgpu
for page in 8/vgpud.8 8/vgpu-placement.8 1/vgpuctl.1 5/vgpud.yaml.5 5/vgpu-hook.yaml.5 5/vgpu-domain.5 8/vgpu-agent.8 8/vgpu-dra.8 5/vgpu-dra.yaml.5; do
	test -s /usr/share/man/man$page.gz || { echo "no manual page $page"; exit 1; }
done
for file in bash-completion/completions/vgpuctl ` + zsh + `/_vgpuctl fish/vendor_completions.d/vgpuctl.fish; do test -s /usr/share/$file; done
`)
}
