package libvirt

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vgpud/e2e/host"
)

// slowTimeout bounds waits for a guest that UEFI firmware starts, whose instructions are translated.
const slowTimeout = 8 * time.Minute

// uefiXML returns a domain with Debian's UEFI firmware and two free ports, for which nothing is
// reserved: the firmware gives each a window of 512 MiB. It does so with the 40 address bits of
// QEMU's default processor; with the other domains' 39 bits a port had 2 MiB.
func uefiXML(name string) string {
	return strings.NewReplacer(
		"NAME", name,
		"<memory unit='MiB'>128</memory>", "<memory unit='MiB'>384</memory>",
		depsDir+"/vmlinux<", depsDir+"/vmlinuz<",
		"<kernel>", "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>\n"+
			"    <nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>/log/"+name+".vars</nvram>\n    <kernel>",
		"<maxphysaddr mode='emulate' bits='39'/>", "",
		"<controller type='usb' model='none'/>", "<controller type='usb' model='none'/>\n"+
			"    <controller type='pci' index='1' model='pcie-root-port'/>\n    <controller type='pci' index='2' model='pcie-root-port'/>",
	).Replace(domainXML)
}

// TestUEFI plugs a virtual GPU into a guest that runs and has never had one. Under SeaBIOS, which
// starts the other tests' domains, a port has no room that was not reserved: TestNoSpace has what is
// said then.
func TestUEFI(t *testing.T) {
	h := newMachine(t)
	const name = "uefi1"
	h.defineXML(uefiXML(name))
	h.run("virsh", "start", name)
	awaits := func(text string) {
		t.Helper()
		host.Until(t, slowTimeout, fmt.Sprintf("%q on the console", text), func() error {
			if said := h.console(name); !strings.Contains(said, text) {
				return fmt.Errorf("the console so far:\n%s", said[max(0, len(said)-2000):])
			}
			return nil
		})
	}
	awaits("no virtual GPU yet; waiting for one")
	if got := h.fails("vgpuctl", "attach", name, "--bar2", "1GiB"); !strings.Contains(got, "no space: port") || !strings.Contains(got, "has room for 512 MiB") {
		t.Errorf("a BAR that is too large: %s", got)
	}
	got := h.run("vgpuctl", "attach", name, "--bar2", "256MiB", wait)
	t.Log(strings.TrimSpace(got))
	if want := "vm uefi1: attached to port "; !strings.HasPrefix(got, want) {
		t.Errorf("attach says %q, want %q", got, want)
	}
	awaits(agentReady)
	h.run("virsh", "destroy", name)
	h.awaitEmpty()
	h.run("virsh", "undefine", "--nvram", name)
}
