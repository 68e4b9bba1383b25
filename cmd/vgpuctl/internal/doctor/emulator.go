package doctor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"vgpud/cmd/internal/ability"
)

// wrapper is where vgpu-qemu stands for libvirt to find it before QEMU.
const wrapper = "usr/local/bin/qemu-system-x86_64"

// capabilities is where libvirt keeps what QEMU told it, by the path of the program that it asked.
var capabilities = fmt.Sprintf("var/cache/libvirt/qemu/capabilities/%x.xml", sha256.Sum256([]byte("/"+wrapper)))

// emulator checks for vgpu-qemu, which engines need that write domains' XML themselves.
func emulator(ctx context.Context, h *Host) []ability.Ability {
	const place = "deploy/nova/install.sh puts it there; then restart libvirt's daemon"
	st, err := fs.Stat(h.Files, wrapper)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return []ability.Ability{ability.Undetermined(Emulator, err.Error(), asRoot)}
	case err != nil:
		return []ability.Ability{ability.Missing(Emulator, "there is no vgpu-qemu at /"+wrapper, "for Nova, and other engines that write domains' XML themselves, only: "+place)}
	}
	out, err := h.Run(ctx, "/"+wrapper, "--vgpu-qemu")
	if err != nil {
		return []ability.Ability{ability.Missing(Emulator, fmt.Sprintf("/%s: %v", wrapper, err), "if it is another program, remove it; "+place)}
	}
	_, qemu, found := strings.Cut(firstLine(out), " runs ")
	if !found || !strings.HasPrefix(out, "vgpu-qemu version ") {
		return []ability.Ability{ability.Missing(Emulator, "/"+wrapper+" is another program", "remove it; "+place)}
	}
	a := ability.Available(Emulator, "/%s runs %s", wrapper, qemu)
	a.Do = staleCapabilities(h, st, qemu)
	return []ability.Ability{a}
}

// staleCapabilities returns what to do if libvirt has capabilities of a QEMU that was replaced
// since, or "". libvirt asks QEMU again if the file that it runs has changed, which is vgpu-qemu.
func staleCapabilities(h *Host, wrapped fs.FileInfo, qemu string) string {
	real, err := fs.Stat(h.Files, strings.TrimPrefix(qemu, "/"))
	if err != nil {
		return fmt.Sprintf("%s can't be looked at: %v", qemu, err)
	}
	asked, err := fs.Stat(h.Files, capabilities)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "whether libvirt knows this QEMU can't be seen: " + asRoot
	case err != nil:
		return "" // it has yet to ask
	case changed(real).After(changed(asked)) && !changed(wrapped).After(changed(asked)):
		return fmt.Sprintf("libvirt still has the capabilities of the QEMU before %s was changed: `touch /%s`", qemu, wrapper)
	}
	return ""
}

// changed returns when a file was changed, its place and rights included: packages give files the
// time of their building.
func changed(st fs.FileInfo) time.Time {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return time.Unix(sys.Ctim.Unix())
	}
	return st.ModTime()
}
