#!/bin/sh
# Has libvirt run vgpu-qemu as QEMU, for hosts that OpenStack or another engine drives. Run it as
# root; running VMs are not affected.
#
#   install.sh [--program FILE] [--remove]
#
#   --program FILE  vgpu-qemu (default: where `make install` or the package has put it)
#   --remove        remove what this script installs
#
# libvirt takes the first qemu-system-x86_64 in its PATH, which systemd begins with
# /usr/local/sbin and /usr/local/bin. DESTDIR goes before every path but the program's, for tests.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
program='' remove=''
while [ $# -gt 0 ]; do
	case $1 in
	--program) program=${2:?--program: want a file}; shift ;;
	--remove) remove=yes ;;
	*) sed -n 's/^# \{0,1\}//; 2,12p' "$0" >&2; exit 2 ;;
	esac
	shift
done

link=${DESTDIR:-}/usr/local/bin/qemu-system-x86_64
profiles=${DESTDIR:-}/etc/apparmor.d
libvirtd=$profiles/local/usr.sbin.libvirtd

die() { echo "install.sh: $*" >&2; exit 1; }

# is_ours reports whether a file is a version of the program.
is_ours() { [ -f "$1" ] && grep -qa 'vgpu-qemu version' "$1"; }

# strip_rules removes our lines from libvirtd's local rules.
strip_rules() {
	[ -f "$libvirtd" ] || return 0
	sed '/^# begin of vgpud/,/^# end of vgpud/d' "$libvirtd" >"$libvirtd.new"
	mv -f "$libvirtd.new" "$libvirtd"
}

# reload has AppArmor read libvirtd's profile again.
reload() {
	if [ -z "${DESTDIR:-}" ] && [ -e /sys/kernel/security/apparmor/profiles ] && [ -f "$profiles/usr.sbin.libvirtd" ]; then
		apparmor_parser -r "$profiles/usr.sbin.libvirtd"
	fi
}

if [ -n "$remove" ]; then
	if [ -L "$link" ] && { is_ours "$link" || [ ! -e "$link" ]; }; then
		rm -f "$link"
		echo "removed $link"
	fi
	rm -f "$profiles/abstractions/libvirt-qemu.d/vgpu-qemu"
	strip_rules
	reload
	exit 0
fi

if [ -z "$program" ]; then
	for program in /usr/local/sbin/vgpu-qemu /usr/sbin/vgpu-qemu; do
		[ ! -e "$program" ] || break
	done
fi
[ -e "$program" ] || die "no program at $program: \`make install\` or the package vgpud puts it there, --program FILE names another"
is_ours "$program" || die "$program is not vgpu-qemu"
if [ -e "$link" ] && ! is_ours "$link"; then
	die "$link is another program, which libvirt runs as QEMU: if it is QEMU, name its new place as qemu in /etc/vgpud/qemu.yaml, and move it there"
fi
mkdir -p "$(dirname "$link")"
ln -sfn "$program" "$link.new"
mv -fT "$link.new" "$link"
echo "installed $link, which is $program"

if [ -f "$profiles/abstractions/libvirt-qemu" ]; then
	if grep -q 'abstractions/libvirt-qemu\.d' "$profiles/abstractions/libvirt-qemu"; then
		mkdir -p "$profiles/abstractions/libvirt-qemu.d"
		cp "$here/apparmor-guest" "$profiles/abstractions/libvirt-qemu.d/vgpu-qemu"
		echo "installed $profiles/abstractions/libvirt-qemu.d/vgpu-qemu"
	else
		echo "add the rules of $here/apparmor-guest to $profiles/abstractions/libvirt-qemu, which includes no directory of them"
	fi
fi
case $program in
/usr/local/*)
	if [ -f "$profiles/usr.sbin.libvirtd" ]; then
		mkdir -p "$profiles/local"
		strip_rules
		{
			echo '# begin of vgpud'
			cat "$here/apparmor-libvirtd"
			echo '# end of vgpud'
		} >>"$libvirtd"
		echo "added rules to $libvirtd"
	fi
	;;
esac
reload
echo "restart libvirt's daemon once, so that it finds this QEMU: systemctl restart libvirtd (or virtqemud)"
