package systemd

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestService takes the service through an operator's days: installed, started, restarted, stuck,
// upgraded, while a guest computes.
func TestService(t *testing.T) {
	m := boot(t)
	m.step(t, "Boot", func(t *testing.T) {
		m.run(t, "systemd-analyze time || true; systemd-analyze blame --no-pager | head -n 8; uname -r; systemctl --version | head -n 1; systemctl list-units --failed --no-legend")
	})
	m.step(t, "Install", m.install)
	m.step(t, "Start", m.start)

	m.run(t, "vgpuctl create vm web1 --weight 2")
	g := m.compute(t, "web1")
	g.goesOn(t)
	m.step(t, "ControlGroups", m.controlGroups)
	m.step(t, "Profile", m.profile)
	m.step(t, "Devices", func(t *testing.T) { m.devices(t, g) })
	m.step(t, "Restart", func(t *testing.T) { m.restart(t, g) })
	m.step(t, "Watchdog", func(t *testing.T) { m.watchdog(t, g) })
	m.step(t, "Upgrade", func(t *testing.T) { m.upgrade(t, g) })
	m.step(t, "NoDenials", m.noDenials)
	m.step(t, "Refusal", m.refusal)
	m.step(t, "Score", m.score)
	m.step(t, "LeftOff", m.leftOff)
	g.end(t)
}

// install installs the earlier version, which starts nothing.
func (m *machine) install(t *testing.T) {
	m.run(t, "dpkg --force-unsafe-io -i "+packagesDir+"/earlier.deb")
	if out, err := m.try(t, "systemctl is-active vgpud vgpud-softgpu@gpu0"); err == nil || strings.Contains(out, "failed") {
		t.Errorf("a first installation has started the service: %s", out)
	}
	if out := m.run(t, "cat /sys/kernel/security/apparmor/profiles"); !strings.Contains(out, "vgpud (enforce)") {
		t.Errorf("the installation did not load the profile: %s", out)
	}
}

// patient has systemd wait longer for the daemon than the unit says: without KVM on a busy machine it
// may not get to the processor in time.
const patient = `
mkdir -p /run/systemd/system/vgpud.service.d
printf '[Service]\nWatchdogSec=300\n' >/run/systemd/system/vgpud.service.d/patient.conf
systemctl daemon-reload
`

// start starts the GPU and the daemon, which answers as soon as systemd says that it is started.
func (m *machine) start(t *testing.T) {
	m.run(t, patient)
	m.run(t, "systemctl enable --now vgpud-softgpu@gpu0 vgpud; vgpuctl get gpus; systemctl is-active vgpud vgpud-softgpu@gpu0")
	if got := m.word(t, "systemctl show -P Type vgpud"); got != "notify" {
		t.Errorf("the unit is of type %s: starting it does not wait for the daemon's word", got)
	}
	if out := m.run(t, "vgpuctl doctor || true"); strings.Contains(out, "unconfined") {
		t.Errorf("guests are not confined")
	}
}

// daemon returns the daemon's process.
func (m *machine) daemon(t *testing.T) string {
	t.Helper()
	pid := m.word(t, "systemctl show -P MainPID vgpud")
	if pid == "0" || pid == "" {
		t.Fatalf("the daemon does not run\n%s", m.journal(t))
	}
	return pid
}

// group prints the directory of the guest's control group. Without KVM on a busy machine the daemon may
// not get to the processor while vgpuctl waits for an answer.
const group = `for try in 1 2 3 4 5 6 7 8; do vgpuctl describe vm web1 && break; done | sed -n 's/ *Control group: *//p'`

// controlGroups: the guest has a group of its own below the unit's, with limits, beside the daemon's.
func (m *machine) controlGroups(t *testing.T) {
	m.run(t, `
grep -qx 0::/system.slice/vgpud.service/serve /proc/$(systemctl show -P MainPID vgpud)/cgroup
group=$(`+group+`)
test "$(dirname $group)" = /sys/fs/cgroup/system.slice/vgpud.service/guests
cd $group
for limit in pids.max memory.max cpu.weight; do echo $limit $(cat $limit); done
test "$(cat pids.max)" != max
pids=$(cat cgroup.procs)
test -n "$pids"
for pid in $pids; do
	printf '%s %s %s\n' $pid $(stat -c %u /proc/$pid) "$(tr '\0' ' ' </proc/$pid/cmdline | cut -c 1-60)"
done`)
}

// profile: the daemon, the GPU and the guest's processes run under the profile, enforced.
func (m *machine) profile(t *testing.T) {
	m.run(t, `
pids="$(systemctl show -P MainPID vgpud) $(systemctl show -P MainPID vgpud-softgpu@gpu0) $(cat $(`+group+`)/cgroup.procs)"
for pid in $pids; do
	echo $pid $(cat /proc/$pid/attr/current)
	test "$(cat /proc/$pid/attr/current)" = "vgpud (enforce)"
done`)
}

// devices: the daemon sees NVIDIA's devices, also those that the driver's tools make when it starts, and
// none of the host's others. The VM has no such driver: in its tools' place is one that makes nodes of
// a class that the kernel knows, and a drop-in allows that class as the unit allows NVIDIA's.
func (m *machine) devices(t *testing.T, g *guest) {
	m.replaced(t, "the restart", func() {
		m.run(t, `
cat >/usr/bin/nvidia-modprobe <<'EOF'
#!/bin/sh
mknod -m 666 /dev/nvidiactl c 10 254
mknod -m 666 /dev/nvidia-uvm c 10 253
EOF
chmod +x /usr/bin/nvidia-modprobe
mknod -m 666 /dev/nvidia11 c 10 252
printf '[Service]\nDeviceAllow=char-misc rwm\n' >/run/systemd/system/vgpud.service.d/devices.conf
systemctl daemon-reload
systemctl restart vgpud`)
	})
	seen := strings.Fields(m.run(t, "nsenter -m -t $(systemctl show -P MainPID vgpud) ls /dev"))
	for _, node := range []string{"null", "nvidiactl", "nvidia-uvm", "nvidia11"} {
		if !slices.Contains(seen, node) {
			t.Errorf("the daemon does not see /dev/%s", node)
		}
	}
	for _, node := range []string{"vda", "mem", "ttyS0", "nvidia0"} {
		if slices.Contains(seen, node) {
			t.Errorf("the daemon sees /dev/%s", node)
		}
	}
	m.run(t, "rm /usr/bin/nvidia-modprobe /dev/nvidia* /run/systemd/system/vgpud.service.d/devices.conf; systemctl daemon-reload")
	g.goesOn(t)
}

// restart: a restart of the daemon leaves the guest and its virtual GPU as they are.
func (m *machine) restart(t *testing.T, g *guest) {
	m.replaced(t, "the restart", func() { m.run(t, "systemctl restart vgpud; vgpuctl get vms") })
	g.goesOn(t)
	m.accounted(t)
}

// replaced calls do, after which another daemon runs beside the same processes of the guest's.
func (m *machine) replaced(t *testing.T, by string, do func()) {
	t.Helper()
	before, processes := m.daemon(t), m.guestProcesses(t)
	do()
	if m.daemon(t) == before {
		t.Errorf("process %s is still the daemon after %s", before, by)
	}
	if got := m.guestProcesses(t); got != processes {
		t.Errorf("the guest's processes are %s after %s, before it were %s", got, by, processes)
	}
}

// guestProcesses returns the processes in the guest's control group.
func (m *machine) guestProcesses(t *testing.T) string {
	t.Helper()
	return m.word(t, "cat $("+group+")/cgroup.procs | sort -n | tr '\\n' ' '")
}

// accounted waits until the daemon charges the guest for work that it did after the call.
func (m *machine) accounted(t *testing.T) {
	t.Helper()
	m.run(t, `
kernels() { vgpuctl get vms web1 -o json | sed -n 's/.*"kernels": *\([0-9]*\).*/\1/p' | head -n 1; }
before=$(kernels)
until test "$(kernels)" -gt "$before"; do sleep 0.2; done`)
}

// watchdog: systemd ends a daemon that doesn't answer for as long as the unit says and starts another,
// and the guest goes on.
func (m *machine) watchdog(t *testing.T, g *guest) {
	m.run(t, "rm /run/systemd/system/vgpud.service.d/patient.conf; systemctl daemon-reload; systemctl restart vgpud")
	before := m.daemon(t)
	m.run(t, `kill -STOP `+before+`
until test "$(systemctl show -P MainPID vgpud)" != `+before+` && systemctl is-active -q vgpud; do sleep 0.5; done
systemctl show -P NRestarts vgpud
`+patient+`systemctl restart vgpud
vgpuctl get vms`)
	if out := m.run(t, "journalctl --no-pager -u vgpud -o cat | grep -i watchdog"); !strings.Contains(out, "Watchdog timeout") {
		t.Errorf("systemd restarted the daemon for another reason: %s", out)
	}
	g.goesOn(t)
	m.accounted(t)
}

// upgrade: the package of this tree replaces the earlier one, its daemon runs, and the guest goes on.
func (m *machine) upgrade(t *testing.T, g *guest) {
	m.replaced(t, "the upgrade", func() {
		m.run(t, "dpkg --force-unsafe-io -i "+packagesDir+"/new.deb")
		if got := m.word(t, "dpkg-query -W -f '${Version}' vgpud"); strings.Contains(got, "earlier") {
			t.Errorf("version %s is still installed", got)
		}
		m.run(t, "systemctl is-active vgpud")
	})
	m.profile(t)
	g.goesOn(t)
	m.accounted(t)
}

// denials prints what AppArmor refused of the profile.
const denials = `dmesg | grep 'apparmor="DENIED"' || true`

// noDenials: nothing that the service did so far was refused.
func (m *machine) noDenials(t *testing.T) {
	if out := m.run(t, denials); out != "" {
		t.Errorf("AppArmor refused:\n%s", out)
	}
}

// refusal: the profile refuses what the service has no use for, which works without the profile.
func (m *machine) refusal(t *testing.T) {
	m.run(t, "cp /etc/vgpud/vgpud.yaml /root/other.yaml; vgpud serve --check --config /root/other.yaml")
	out, err := m.try(t, "systemd-run --quiet --pipe --wait -p AppArmorProfile=vgpud /usr/sbin/vgpud serve --check --config /root/other.yaml")
	if err == nil || !strings.Contains(out, "permission denied") {
		t.Errorf("under the profile the daemon reads root's files: %v\n%s", err, out)
	}
	if out := m.run(t, denials); !strings.Contains(out, `profile="vgpud" name="/root/other.yaml"`) {
		t.Errorf("the kernel's log does not have the refusal:\n%s", out)
	}
}

// worst is the exposure from which systemd-analyze rates a unit worse than "OK".
const worst = 5.0

// score: systemd-analyze rates the units "OK" or better.
func (m *machine) score(t *testing.T) {
	for _, unit := range []string{"vgpud.service", "vgpud-softgpu@gpu0.service", "vgpu-placement.service"} {
		out := m.run(t, "systemd-analyze security --no-pager "+unit)
		found := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+) (\S+)`).FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("systemd-analyze gives %s no exposure:\n%s", unit, out)
		}
		t.Logf("%s: %s", unit, found[0])
		if n, err := strconv.ParseFloat(found[1], 64); err != nil || n >= worst {
			t.Errorf("%s has an exposure of %s, rated %s; below %v it is OK", unit, found[1], found[2], worst)
		}
	}
}
