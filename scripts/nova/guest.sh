#!/usr/bin/env bash
# Makes the initramfs of a guest that Nova can run: that of the tests with real VMs (scripts/vm-deps.sh),
# with a plan of work that it does unattended, and with what hears the power button.
#
#   guest.sh PLAN FILE      PLAN is a plan of cmd/vgpud/workload in JSON, FILE the initramfs
set -eEuo pipefail
cd "$(dirname "$0")/../.."
plan=$1 out=$2
deps=${VGPUD_VM_DEPS:-${XDG_CACHE_HOME:-${HOME:?neither VGPUD_VM_DEPS nor HOME is set}/.cache}/vgpud/vm}
modules=(drivers/acpi/button.ko.xz drivers/input/evdev.ko.xz)
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

dpkg-deb --fsys-tarfile "$deps"/debs/linux-image-*.deb | tar -x --no-same-owner -C "$new" --wildcards "${modules[@]/#/*/kernel/}"
cp "$deps/modules/order" "$new/order"
files=("plan.json=$plan" "lib/modules/order=$new/order")
for module in "${modules[@]}"; do
	name=$(basename "$module" .xz)
	"$deps/root/usr/lib64/ld-linux-x86-64.so.2" --inhibit-cache --library-path "$deps/root/usr/lib/x86_64-linux-gnu" \
		"$deps/root/usr/bin/xz" -dc "$new"/usr/lib/modules/*/kernel/"$module" >"$new/$name"
	echo "$name" >>"$new/order"
	files+=("lib/modules/$name=$new/$name")
done
# The first process knows of plans only if it is of this tree.
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags='-s -w' -o "$new/init" ./e2e/vm/init
files+=("init=$new/init")
go run ./vfio/qemu/internal/initramfs -o "$new/more.cpio" "${files[@]}"
# Linux unpacks archives one after the other; a later file replaces one of the same name.
cat "$deps/initramfs.cpio" "$new/more.cpio" >"$out"
