#!/usr/bin/env bash
# Gets what the tests with real VMs and `make demo-vms` need: a QEMU that knows
# vfio-user, libvirt, a kernel for the guests and an initramfs with our agent.
# All of it comes from Debian's packages, through the mirror that this machine's
# apt is configured with or Debian's own, and is unpacked under a directory of its
# own. Nothing is installed: neither dpkg nor apt's own files are touched, root
# isn't needed.
#
# The directory is $VGPUD_VM_DEPS, or vgpud/vm in the user's cache:
#
#   manifest          every package's name, version, SHA-256 and file
#   debs/             those files
#   root/             QEMU, libvirt and all that they need, unpacked
#   qemu              runs root's QEMU by root's own dynamic linker
#   vmlinux           the guests' kernel
#   vmlinuz           the same as UEFI firmware starts it
#   modules/          kernel modules, and the order to load them in
#   programs/         what runs in a guest, built from this tree
#   initramfs.cpio    modules/ and programs/ for a guest
#
# Every run checks the packages by digest and the rest against what was
# unpacked, and does again only what doesn't match: where all does, no network
# is used. Each result appears by a rename, and a second run waits for the first.
#
#   VGPUD_DEBIAN_MIRROR   use this archive, and no other
set -eEuo pipefail
cd "$(dirname "$0")/.."
trap 'say "line $LINENO: $BASH_COMMAND: exit status $?"' ERR

deps=${VGPUD_VM_DEPS:-${XDG_CACHE_HOME:-${HOME:?neither VGPUD_VM_DEPS nor HOME is set}/.cache}/vgpud/vm}

# QEMU has vfio-user-pci since 10.1, which is in trixie's backports alone.
suites=(trixie trixie-backports)
# xz and zstd: a bare machine has neither, and the kernel and its modules are
# packed with them. dash: what libvirt runs inside root/ may be a script.
packages=(
	qemu-system-x86 ovmf
	libvirt-daemon libvirt-daemon-driver-qemu libvirt-daemon-log libvirt-clients
	dash xz-utils zstd
)
# Debian's kernel for virtual machines. What it has to have was looked up in its
# /boot/config of 6.12: PVH=y (starts as vmlinux, without unpacking itself under
# TCG), HOTPLUG_PCI_PCIE=y, SERIAL_8250=y with RUNTIME_UARTS=4, DEVTMPFS=y,
# MAGIC_SYSRQ=y, VFIO_PCI=m and INTEL_IOMMU=y. No kernel of Debian has
# VFIO_NOIOMMU, so a guest that is to use vfio-pci gets an emulated IOMMU.
kernel=linux-image-cloud-amd64
modules=(
	virt/lib/irqbypass
	drivers/vfio/vfio
	drivers/vfio/vfio_iommu_type1
	drivers/vfio/pci/vfio-pci-core
	drivers/vfio/pci/vfio-pci
)
modules=("${modules[@]/%/.ko.xz}")
# The guest's programs: package, and the path in the guest.
programs=(
	./e2e/vm/init       init
	./cmd/vgpu-agent    bin/vgpu-agent
	./cmd/vgpud/demoguest bin/demoguest
)

. scripts/debian.sh

# wish names what was asked of apt; a manifest of another wish is of no use.
wish="# ${suites[*]}: ${packages[*]} $kernel"

# fetch fills $1 with debs/ and manifest.
fetch() {
	local dir=$1 image
	lists "$dir"
	# The kernel's own name, without what its installation would need.
	image=$(apt-cache show -o APT::Default-Release="${suites[0]}" --no-all-versions "$kernel" | sed -n 's/^Depends: \([^ ,]*\).*/\1/p')
	say "downloading $image and the closure of ${packages[*]}"
	if ! { apt-get install -qq -y --download-only "${packages[@]}" &&
		(cd "$dir/apt/cache/archives" && apt-get download -qq "$image"); } >"$dir/log" 2>&1; then
		cat "$dir/log" >&2
		die "packages can't be had from this archive"
	fi
	keep "$dir"
}

# inside runs a program of root/ by its own dynamic linker and libraries: the
# host's may be older, or lack it.
inside() {
	local root=$1 program=$2
	shift 2
	"$root/usr/lib64/ld-linux-x86-64.so.2" --inhibit-cache --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/$program" "$@"
}

# vmlinux writes the kernel that a bzImage unpacks into memory. The numbers are
# fields of its header (Linux, Documentation/arch/x86/boot.rst): setup_sects at
# 0x1f1, payload_offset at 0x248, payload_length at 0x24c.
vmlinux() {
	local root=$1 image=$2 sectors offset length
	sectors=$(od -An -tu1 -j $((0x1f1)) -N1 "$image")
	offset=$(od -An -tu4 -j $((0x248)) -N4 "$image")
	length=$(od -An -tu4 -j $((0x24c)) -N4 "$image")
	# The payload ends with the unpacked length, 4 bytes that aren't zstd's.
	length=$((length - 4))
	head -c $(((sectors + 1) * 512 + offset + length)) "$image" | tail -c "$length" | inside "$root" usr/bin/zstd -dcq
}

# unpack fills $1 with root/, vmlinux, vmlinuz, modules/, qemu and unpacked from debs/.
unpack() {
	local dir=$1 root=$1/root module name image
	say "unpacking $(grep -vc '^#' "$deps/manifest") packages"
	tail -n +2 "$deps/manifest" | awk '$1 !~ /^linux-image/ { print $4 }' | unpack_debs "$root"
	furnish "$root"

	# Of the kernel's package only what a guest is given.
	image=$deps/debs/$(awk '$1 ~ /^linux-image/ { print $4 }' "$deps/manifest")
	mkdir "$dir/kernel" "$dir/modules"
	dpkg-deb --fsys-tarfile "$image" | tar -x --no-same-owner -C "$dir/kernel" --wildcards \
		'./boot/vmlinuz-*' "${modules[@]/#/*/kernel/}"
	mv "$dir"/kernel/boot/vmlinuz-* "$dir/vmlinuz"
	vmlinux "$root" "$dir/vmlinuz" >"$dir/vmlinux"
	for module in "${modules[@]}"; do
		name=$(basename "$module" .xz)
		inside "$root" usr/bin/xz -dc "$dir"/kernel/usr/lib/modules/*/kernel/"$module" >"$dir/modules/$name"
		echo "$name" >>"$dir/modules/order"
	done
	rm -rf "$dir/kernel"

	cat >"$dir/qemu" <<-'END'
		#!/bin/sh
		# Runs the QEMU of root/ beside this file by root's own dynamic linker.
		root=${0%/*}/root
		exec "$root/usr/lib64/ld-linux-x86-64.so.2" --inhibit-cache --library-path "$root/usr/lib/x86_64-linux-gnu" \
			--argv0 qemu-system-x86_64 "$root/usr/bin/qemu-system-x86_64" \
			-L "$root/usr/share/qemu" -L "$root/usr/share/seabios" "$@"
	END
	chmod +x "$dir/qemu"
	"$dir/qemu" -device vfio-user-pci,help >/dev/null || die "this QEMU has no vfio-user-pci: $("$dir/qemu" --version | head -n 1)"
	listing "$dir" >"$dir/unpacked"
}

# furnish does in root what the packages' installation scripts would have done
# and libvirt needs when root/ is a daemon's root directory: users, directories
# for what changes, and a configuration without what only a host's own init
# system provides.
furnish() {
	local root=$1 name
	mkdir -p "$root"/{dev,proc,sys,root} "$root"/tmp \
		"$root"/run/libvirt "$root"/var/log/libvirt/qemu "$root"/var/cache/libvirt/qemu \
		"$root"/var/lib/libvirt/{qemu,images,boot} "$root"/etc/libvirt/hooks/qemu.d
	chmod 1777 "$root/tmp"
	for name in passwd group; do
		cp "$root/usr/share/base-passwd/$name.master" "$root/etc/$name"
	done
	grep -q '^kvm:' "$root/etc/group" || echo 'kvm:x:104:' >>"$root/etc/group"
	# libvirt's QEMU driver doesn't start without this user, whoever runs QEMU.
	echo 'libvirt-qemu:x:64055:' >>"$root/etc/group"
	echo 'libvirt-qemu:x:64055:104:Libvirt Qemu:/var/lib/libvirt:/usr/sbin/nologin' >>"$root/etc/passwd"
	echo 'passwd: files' >"$root/etc/nsswitch.conf"
	cp scripts/qemu.conf "$root/etc/libvirt/"
}

# listing says what unpack left in $1, so that a later run sees what is missing
# or was changed: digests of the files beside root/ and, of what is in it,
# names, modes, sizes and times. Its etc, run and var are left out: whoever runs
# libvirt there changes them.
listing() {
	recipe
	sha256sum scripts/qemu.conf
	(
		cd "$1"
		sha256sum vmlinux vmlinuz qemu modules/*
		find root/usr -type d -printf '%P %m\n' -o -printf '%P %m %s %T@ %l\n' | LC_ALL=C sort | sha256sum
	)
}

unpacked_match() {
	[ -e "$deps/unpacked" ] && listing "$deps" 2>/dev/null | cmp -s - "$deps/unpacked"
}

# build makes the guest's programs and, if one changed, the initramfs.
build() {
	local files=() i
	mkdir -p "$deps/programs"
	for ((i = 0; i < ${#programs[@]}; i += 2)); do
		compgen -G "${programs[i]}/*.go" >/dev/null || continue
		CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -tags libvirt_dlopen,netgo,osusergo -buildvcs=false -ldflags='-s -w' \
			-o "$deps/programs/${programs[i + 1]##*/}" "${programs[i]}"
		files+=("${programs[i + 1]}=$deps/programs/${programs[i + 1]##*/}")
	done
	for i in "$deps"/modules/*; do
		files+=("lib/modules/${i##*/}=$i")
	done
	go run ./vfio/qemu/internal/initramfs -o "$new/initramfs.cpio" "${files[@]}"
	cmp -s "$new/initramfs.cpio" "$deps/initramfs.cpio" || place initramfs.cpio
}

claim "the tests' VMs are"
provide root vmlinux vmlinuz modules qemu
build
