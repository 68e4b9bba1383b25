#!/usr/bin/env bash
# Gets what the tests of packages and units need: Debian trixie, bootstrapped, and a kernel
# to boot it in a VM. Nothing is installed on this machine, but bootstrapping takes root,
# for chroot and device nodes.
#
# The directory is $VGPUD_SYSTEM_DEPS, or vgpud/system in the user's cache:
#
#   manifest      every package's name, version, SHA-256 and file
#   debs/         those files
#   tools/        debootstrap, unpacked
#   archives/     what debootstrap downloaded
#   clean.tar     a minimal trixie with systemd, D-Bus and AppArmor
#   lint.tar      the same with lintian, rpm and rpmlint
#   shells.tar    clean.tar with zsh, fish and what completes words in bash
#   vmlinuz       Debian's kernel for virtual machines
#   initrd.cpio   loads the driver of the VM's disk and starts its init
#
#   VGPUD_DEBIAN_MIRROR   use this archive, and no other
set -eEuo pipefail
cd "$(dirname "$0")/.."
trap 'say "line $LINENO: $BASH_COMMAND: exit status $?"' ERR

deps=${VGPUD_SYSTEM_DEPS:-${XDG_CACHE_HOME:-${HOME:?neither VGPUD_SYSTEM_DEPS nor HOME is set}/.cache}/vgpud/system}

suites=(trixie)
packages=(debootstrap busybox-static)
kernel=linux-image-cloud-amd64
# What a host with systemd has. ca-certificates and perl stay away: "clean" is the point.
include=(systemd-sysv dbus udev kmod apparmor procps)

. scripts/debian.sh

wish="# ${suites[*]}: ${packages[*]} $kernel"

# fetch fills $1 with debs/, manifest and mirror.
fetch() {
	local dir=$1 image
	lists "$dir"
	sed -n 's/^deb \[[^]]*\] \([^ ]*\) .*/\1/p' "$dir/apt/sources.list" | head -n 1 >"$dir/mirror"
	image=$(apt-cache show --no-all-versions "$kernel" | sed -n 's/^Depends: \([^ ,]*\).*/\1/p')
	say "downloading ${packages[*]} and $image"
	(cd "$dir/apt/cache/archives" && apt-get download -qq "${packages[@]}" "$image") >"$dir/log" 2>&1 || {
		cat "$dir/log" >&2
		die "packages can't be had from this archive"
	}
	keep "$dir"
}

# file prints the path of the package whose name begins with $1.
file() { awk -v name="$1" -v debs="$deps/debs/" 'index($1, name) == 1 { print debs $4 }' "$deps/manifest"; }

# bootstrap fills $1 with tools/, clean.tar and archives/.
bootstrap() {
	local dir=$1
	mkdir -p "$dir/tools" "$deps/archives"
	dpkg-deb -x "$(file debootstrap)" "$dir/tools"
	say "bootstrapping ${suites[0]} from $(cat "$deps/mirror")"
	# In a mount namespace of its own: it mounts proc, which would stay if it were killed.
	if ! DEBOOTSTRAP_DIR=$dir/tools/usr/share/debootstrap unshare --mount "$dir/tools/usr/sbin/debootstrap" \
		--variant=minbase --cache-dir="$deps/archives" --include="$(IFS=,; echo "${include[*]}")" \
		"${suites[0]}" "$dir/clean" "$(cat "$deps/mirror")" >"$dir/log" 2>&1; then
		tail -n 20 "$dir/log" >&2
		die "debootstrap failed"
	fi
	tar -C "$dir/clean" --exclude=./var/cache/apt/archives/*.deb -cf "$dir/clean.tar" .
}

# with fills $1 with $2.tar: clean.tar with the packages after it.
with() {
	local dir=$1 name=$2
	shift 2
	say "adding $*"
	rm -rf "$dir/clean"
	mkdir "$dir/clean"
	tar -C "$dir/clean" -xf "$deps/clean.tar"
	cp /etc/resolv.conf "$dir/clean/etc/resolv.conf"
	# ca-certificates, which lintian needs, reads /dev/fd, a link into /proc.
	if ! env -u TMPDIR unshare --mount --pid --fork --mount-proc="$dir/clean/proc" chroot "$dir/clean" sh -ec '
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq
		apt-get install -qq -y --no-install-recommends "$@"' sh "$@" >"$dir/log" 2>&1; then
		grep -A 3 '^Setting up ca-cert\|rror' "$dir/log" | tail -n 40 >&2
		die "$* can't be installed"
	fi
	rm -rf "$dir"/clean/var/cache/apt/archives/*.deb "$dir"/clean/var/lib/apt/lists/*
	tar -C "$dir/clean" -cf "$dir/$name.tar" .
}

# boot fills $1 with vmlinuz and initrd.cpio. ext4 is built into this kernel; the disk's
# driver is not.
boot() {
	local dir=$1 image
	image=$(file linux-image)
	mkdir "$dir/kernel" "$dir/busybox"
	dpkg-deb --fsys-tarfile "$image" | tar -x --no-same-owner -C "$dir/kernel" --wildcards './boot/vmlinuz-*' '*/virtio_blk.ko.xz'
	mv "$dir"/kernel/boot/vmlinuz-* "$dir/vmlinuz"
	dpkg-deb --fsys-tarfile "$(file busybox-static)" | tar -x --no-same-owner -C "$dir/busybox" --wildcards '*bin/busybox'
	"$dir"/busybox/usr/bin/busybox xz -dc "$dir"/kernel/usr/lib/modules/*/kernel/drivers/block/virtio_blk.ko.xz >"$dir/virtio_blk.ko"
	cat >"$dir/init" <<-'END'
		#!/bin/busybox sh
		/bin/busybox insmod /virtio_blk.ko
		/bin/busybox mount -t devtmpfs dev /dev
		until /bin/busybox mount -t ext4 /dev/vda /root; do /bin/busybox sleep 0.1; done
		/bin/busybox umount /dev
		exec /bin/busybox switch_root /root /sbin/init
	END
	chmod +x "$dir/init"
	go run ./vfio/qemu/internal/initramfs -o "$dir/initrd.cpio" init="$dir/init" bin/busybox="$dir/busybox/usr/bin/busybox" \
		virtio_blk.ko="$dir/virtio_blk.ko" dev/empty=/dev/null root/empty=/dev/null
}

# bootstrapped names what clean.tar is made from.
bootstrapped() { echo "${include[*]} $(sha256sum <"$deps/manifest")"; }

[ "$(id -u)" = 0 ] || die "bootstrapping Debian takes root"
claim "this is"

packages_match || {
	fetch "$new"
	place debs manifest mirror
}
if ! recipe | cmp -s - "$deps/made"; then
	rm -f "$deps/made"
	unset APT_CONFIG
	if ! bootstrapped | cmp -s - "$deps/bootstrapped"; then
		rm -f "$deps/bootstrapped"
		bootstrap "$new"
		place tools clean.tar
		bootstrapped >"$deps/bootstrapped"
	fi
	with "$new" lint lintian rpm rpmlint
	with "$new" shells bash-completion zsh fish
	boot "$new"
	place lint.tar shells.tar vmlinuz initrd.cpio
	recipe >"$deps/made"
fi
