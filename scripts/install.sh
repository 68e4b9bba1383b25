#!/usr/bin/env bash
# Installs what `make build` made: on a KVM host the daemon, its command line, its
# units and libvirt's hook; with --guest, in a VM, the agent and its unit. Run it
# again to update: the configuration that is there stays, and so do guests that
# run.
#
#   PREFIX   where programs and manual pages go: /usr/local
#   DESTDIR  goes before every path, for packages
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
dest=${DESTDIR:-}
sbin=$dest$prefix/sbin
units=$dest/etc/systemd/system
[ -z "$dest" ] || units=$dest/usr/lib/systemd/system

die() {
	echo "install.sh: $*" >&2
	exit 1
}

# put MODE FILE PATH installs a file in one step: a program that runs keeps its own.
put() {
	mkdir -p "$(dirname "$3")"
	install -m "$1" "$2" "$3.new"
	mv -f "$3.new" "$3"
	echo "installed $3"
}

program() {
	[ -x "bin/$1" ] || die "no bin/$1: \`make build\` makes it"
	put 0755 "bin/$1" "$sbin/$1"
}

# unit installs a unit that knows where the programs are.
unit() {
	local text
	text=$(mktemp)
	sed "s,=/usr/s\?bin/,=$prefix/sbin/," "deploy/$1" >"$text"
	put 0644 "$text" "$units/$1"
	rm -f "$text"
}

# manual installs a program's manual pages and its completion for bash.
manual() {
	local pages page
	pages=$(mktemp -d)
	"bin/$1" man "$pages"
	for page in "$pages"/*; do
		put 0644 "$page" "$dest$prefix/share/man/man${page##*.}/${page##*/}"
	done >/dev/null
	echo "installed the manual pages of $1"
	"bin/$1" completion bash >"$pages/completion"
	put 0644 "$pages/completion" "$dest$prefix/share/bash-completion/completions/$1"
	rm -rf "$pages"
}

# setting installs a configuration file unless there is one.
setting() {
	[ -e "$dest/etc/vgpud/${1##*/}" ] || put 0644 "$1" "$dest/etc/vgpud/${1##*/}"
}

case ${1:-} in
--guest)
	program vgpu-agent
	unit vgpu-agent.service
	manual vgpu-agent
	;;
'')
	for p in vgpud vgpuctl vgpu-libvirt vgpu-nvml; do program "$p"; done
	for u in vgpud.service vgpud-softgpu@.service; do unit "$u"; done
	for p in vgpud vgpuctl; do manual "$p"; done
	setting deploy/vgpud.yaml
	setting deploy/libvirt/hook.yaml
	deploy/libvirt/install.sh --hook bin/vgpu-hook
	;;
*) die "unknown argument $1: want none, or --guest" ;;
esac
if [ -z "$dest" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
