#!/usr/bin/env bash
# Packs the demo and its VMs, to be carried to an x86-64 Linux where nothing can be
# fetched or installed:
#
#	portable-vm.sh OUT.tar.xz [FILE...]
#
# vgpud, QEMU with vfio-user, its libraries and their dynamic linker, its firmware,
# the guests' kernel and initramfs, as `make vm-deps` put them aside (run it first),
# and whatever FILEs are to go along. On the other machine, as any user:
#
#	tar -xJf OUT.tar.xz        # or: python3 -m tarfile -e OUT.tar.xz
#	VGPUD_VM_DEPS=$PWD/vm ./vgpud demo --vms
#
# Of that machine QEMU and vgpud need nothing but its kernel and /bin/sh. What would
# take more than 30 MB is not made: it is to be small enough to be handed around.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "portable-vm: $*" >&2; }
die() { say "$*"; exit 1; }

[ $# -ge 1 ] || die "usage: portable-vm.sh OUT.tar.xz [FILE...]"
out=$(realpath "$1")
shift
most=30000000 # bytes
deps=${VGPUD_VM_DEPS:-${XDG_CACHE_HOME:-${HOME:?neither VGPUD_VM_DEPS nor HOME is set}/.cache}/vgpud/vm}
[ -e "$deps/unpacked" ] || die "what VMs need is not in $deps: run make vm-deps"
root=$deps/root
work=$(mktemp -d)
trap 'rm -rf "$work" "$out.new"' EXIT
vm=$work/vm
mkdir -p "$vm"/root/usr/{bin,lib64,lib/x86_64-linux-gnu,share/qemu,share/seabios}

# The wrapper, and what Find of vfio/qemu looks for.
cp "$deps/qemu" "$deps/vmlinux" "$deps/initramfs.cpio" "$vm/"
echo "portable" >"$vm/unpacked"
cp "$root/usr/bin/qemu-system-x86_64" "$vm/root/usr/bin/"
cp -L "$root/usr/lib64/ld-linux-x86-64.so.2" "$vm/root/usr/lib64/"
# What the dynamic linker maps, by the names that it looks for.
"$root/usr/lib64/ld-linux-x86-64.so.2" --inhibit-cache --library-path "$root/usr/lib/x86_64-linux-gnu" \
	--list "$root/usr/bin/qemu-system-x86_64" | awk '$2 == "=>" { print $3 }' |
	while read -r library; do
		case $library in
		"$root"/*) cp -L "$library" "$vm/root/usr/lib/x86_64-linux-gnu/" ;;
		*) die "QEMU's library $library is not in $root" ;;
		esac
	done
# What the q35 machine loads that starts a kernel by itself and has no display.
for file in bios-256k.bin kvmvapic.bin linuxboot_dma.bin pvh.bin; do
	found=$(find "$root/usr/share/seabios" "$root/usr/share/qemu" -name "$file" | head -1)
	[ -n "$found" ] || die "there is no $file in $root/usr/share"
	cp -L "$found" "$vm/root/usr/share/${found#"$root"/usr/share/}"
done
# Stripped, as Debian's packages are, and the guests' programs.
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -buildvcs=false -ldflags='-s -w' -o "$work/vgpud" ./cmd/vgpud
for file; do
	[ ! -e "$work/${file##*/}" ] || die "$file: a ${file##*/} is packed already"
	cp "$file" "$work/"
done

# The same bytes for the same contents; others may pass through the directory. Nearly
# all of it is x86 code: the filter makes it a tenth smaller, and one window has what
# vgpud and the guests' programs share.
chmod 755 "$work"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -c . |
	xz --threads=1 --x86 --lzma2=preset=9e >"$out.new"
size=$(stat -c %s "$out.new")
[ "$size" -le "$most" ] || {
	# What to make smaller.
	(cd "$work" && find . -type f -size +1M -printf '%s %P\n' | sort -rn | sed 's/^/portable-vm:   /') >&2
	die "$out would have $size bytes, more than the $most that it may have: it is not made"
}
mv "$out.new" "$out"
say "$out: $((size / 1000)) kB, $(du -sm "$work" | cut -f1) MiB unpacked"
