#!/bin/sh
# Installs vgpu-hook as a hook of libvirt's, and lets confined QEMUs connect to
# virtual GPUs. Run it as root, again after every update; guests are not affected.
#
#   install.sh [--hook FILE] [--single] [--remove]
#
#   --hook FILE  the program (default: bin/vgpu-hook of this checkout)
#   --single     install as the single file hooks/qemu, the only one that libvirt
#                before 6.5 calls; the default if such a libvirt is found
#   --remove     remove what this script installs
#
# DESTDIR goes before every path, for packages.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
program=$here/../../bin/vgpu-hook
single= remove=
while [ $# -gt 0 ]; do
	case $1 in
	--hook) program=${2:?--hook: want a file}; shift ;;
	--single) single=yes ;;
	--remove) remove=yes ;;
	*) sed -n 's/^# \{0,1\}//; 2,13p' "$0" >&2; exit 2 ;;
	esac
	shift
done

etc=${DESTDIR:-}/etc
hooks=$etc/libvirt/hooks
one=$hooks/qemu
ours=$hooks/qemu.d/50-vgpu
profiles=$etc/apparmor.d/abstractions

die() { echo "install.sh: $*" >&2; exit 1; }

# is_ours reports whether a file is a version of the program.
is_ours() { [ -f "$1" ] && grep -qa 'usage: vgpu-hook DOMAIN OPERATION' "$1"; }

# libvirt_version prints the version of the libvirt that runs QEMUs here, if any.
libvirt_version() {
	for p in virtqemud libvirtd virsh; do
		v=$("$p" --version 2>/dev/null | grep -o '[0-9][0-9]*\.[0-9][0-9]*\.[0-9][0-9]*' | head -n 1) || continue
		if [ -n "$v" ]; then echo "$v"; return; fi
	done
}

# before VERSION MAJOR MINOR reports whether VERSION is earlier.
before() {
	major=${1%%.*} rest=${1#*.}
	minor=${rest%%.*}
	[ "$major" -lt "$2" ] || { [ "$major" -eq "$2" ] && [ "$minor" -lt "$3" ]; }
}

# put MODE FILE PATH installs a file in one step, so that a hook call during the
# installation runs either the old program or the new one.
put() {
	mkdir -p "$(dirname "$3")"
	install -m "$1" "$2" "$3.new"
	mv -f "$3.new" "$3"
	echo "installed $3"
}

if [ -n "$remove" ]; then
	for f in "$ours" "$one"; do
		if is_ours "$f"; then rm -f "$f"; echo "removed $f"; fi
	done
	if [ -f "$profiles/libvirt-qemu.d/vgpud" ]; then
		rm -f "$profiles/libvirt-qemu.d/vgpud"
		echo "removed $profiles/libvirt-qemu.d/vgpud"
	fi
	exit 0
fi

[ -f "$program" ] || die "no program at $program: \`make build\` makes it, --hook FILE names another"
is_ours "$program" || die "$program is not vgpu-hook"

# A package may be installed beside any version of libvirt.
if [ -z "$single" ] && [ -z "${DESTDIR:-}" ]; then
	version=$(libvirt_version)
	if [ -n "$version" ] && before "$version" 6 5; then
		echo "libvirt $version does not know $(dirname "$ours"): installing the one hook $one"
		single=yes
	fi
fi

new=yes
if is_ours "$ours" || is_ours "$one"; then new=; fi
if [ -n "$single" ]; then
	if [ -e "$one" ] && ! is_ours "$one"; then
		die "$one is another program: install this one beside it, and make that one call it with the same arguments and standard input, and fail if it fails"
	fi
	put 0755 "$program" "$one"
	if is_ours "$ours"; then rm -f "$ours"; fi
else
	put 0755 "$program" "$ours"
	# libvirt would call both.
	if is_ours "$one"; then rm -f "$one"; echo "removed $one"; fi
fi

# QEMU under AppArmor may connect to the sockets that its profile names.
if [ -f "$profiles/libvirt-qemu" ]; then
	if grep -q 'abstractions/libvirt-qemu\.d' "$profiles/libvirt-qemu"; then
		put 0644 "$here/apparmor" "$profiles/libvirt-qemu.d/vgpud"
	else
		echo "add the rules of $here/apparmor to $profiles/libvirt-qemu, which includes no directory of them"
	fi
fi
if [ -n "$new" ]; then
	echo "restart libvirt's daemon once, which searches for hooks when it starts: systemctl restart libvirtd (or virtqemud)"
fi
