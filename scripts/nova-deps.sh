#!/usr/bin/env bash
# Gets what scripts/nova-testbed.sh runs: Keystone, Placement, Glance, Nova, RabbitMQ, MariaDB,
# libvirt and QEMU. All of it comes from Debian's packages and is unpacked under a directory of its
# own. Nothing is installed on this machine, but it takes root, for chroot.
#
# The directory is $VGPUD_NOVA_DEPS, or vgpud/nova in the user's cache:
#
#   manifest   every package's name, version, SHA-256 and file
#   debs/      those files
#   root/      a root directory: the packages, unpacked, and what their installation would
#              have added for programs that all run as root
#
#   VGPUD_DEBIAN_MIRROR   use this archive, and no other
set -eEuo pipefail
cd "$(dirname "$0")/.."
trap 'say "line $LINENO: $BASH_COMMAND: exit status $?"' ERR

deps=${VGPUD_NOVA_DEPS:-${XDG_CACHE_HOME:-${HOME:?neither VGPUD_NOVA_DEPS nor HOME is set}/.cache}/vgpud/nova}

# QEMU has vfio-user-pci since 10.1, which is in trixie's backports alone.
suites=(trixie trixie-backports)
packages=(
	keystone placement-api glance-api nova-api nova-conductor nova-scheduler nova-compute
	uwsgi-core uwsgi-plugin-python3 rabbitmq-server mariadb-server-core mariadb-client-core python3-pymysql
	python3-openstackclient python3-osc-placement
	python3-libvirt libvirt-daemon libvirt-daemon-driver-qemu libvirt-daemon-log libvirt-clients
	qemu-system-x86 qemu-utils ovmf
	bash dash coreutils sed grep findutils mawk hostname iproute2 procps mount util-linux curl libc-bin
)

. scripts/debian.sh

wish="# ${suites[*]}: ${packages[*]}"

# furnish does in root what the packages' installation scripts would have done for programs
# that run as root in namespaces of their own: users, configuration, directories.
furnish() {
	local root=$1 name
	mkdir -p "$root"/{dev,proc,sys,root,srv,run} "$root"/tmp "$root"/var/log/libvirt/qemu "$root"/var/cache/libvirt/qemu \
		"$root"/var/lib/libvirt/{qemu,images,boot} "$root"/var/lib/{nova/instances,glance/images,rabbitmq,mysql} \
		"$root"/var/log/{nova,keystone,placement,glance,rabbitmq} "$root"/etc/libvirt/hooks/qemu.d
	chmod 1777 "$root/tmp"
	rm -rf "$root/var/run"
	ln -s /run "$root/var/run"
	ln -sf mawk "$root/usr/bin/awk"
	for name in passwd group; do
		cp "$root/usr/share/base-passwd/$name.master" "$root/etc/$name"
	done
	grep -q '^kvm:' "$root/etc/group" || echo 'kvm:x:104:' >>"$root/etc/group"
	# libvirt's QEMU driver doesn't start without this user, whoever runs QEMU.
	echo 'libvirt-qemu:x:64055:' >>"$root/etc/group"
	echo 'libvirt:x:64056:' >>"$root/etc/group"
	echo 'libvirt-qemu:x:64055:104:Libvirt Qemu:/var/lib/libvirt:/usr/sbin/nologin' >>"$root/etc/passwd"
	for name in nova glance keystone placement rabbitmq; do
		echo "$name:x:$((64100 + ${#name})):0::/var/lib/$name:/usr/sbin/nologin" >>"$root/etc/passwd"
	done
	printf 'passwd: files\ngroup: files\nhosts: files\n' >"$root/etc/nsswitch.conf"
	cp "$root"/usr/share/nova-common/api-paste.ini "$root/etc/nova/"
	cp "$root"/usr/share/glance-common/{glance-api-paste.ini,schema-image.json} "$root/etc/glance/"
	# Only x86-64 guests: libvirt asks every emulator that it finds for what it can.
	find "$root/usr/bin" -name 'qemu-system-*' ! -name qemu-system-x86_64 -delete
	# Python's requests don't load without certificates.
	mkdir -p "$root/etc/ssl/certs"
	find "$root/usr/share/ca-certificates" -name '*.crt' -exec cat {} + >"$root/etc/ssl/certs/ca-certificates.crt"
	chroot "$root" /sbin/ldconfig
	# Without this each start of a service would compile its modules anew. Some modules are not
	# for this Python, and fail.
	# shellcheck disable=SC2016 # the inner shell expands it
	unshare --mount bash -c 'mount --bind /dev "$1/dev" && mount --bind /dev/shm "$1/dev/shm" && exec chroot "$1" \
		python3 -m compileall -q -j 2 /usr/lib/python3.13 /usr/lib/python3/dist-packages' compile "$root" >/dev/null || true
}

# unpack fills $1 with root/ and unpacked from debs/.
unpack() {
	local dir=$1
	say "unpacking $(grep -vc '^#' "$deps/manifest") packages"
	tail -n +2 "$deps/manifest" | awk '{ print $4 }' | unpack_debs "$dir/root"
	furnish "$dir/root"
	recipe >"$dir/unpacked"
}

[ "$(id -u)" = 0 ] || die "this takes root, for chroot"
claim "these packages are"
provide root
