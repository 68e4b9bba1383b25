#!/usr/bin/env bash
# Installs what `make build` made: on a KVM host the daemon, its command line, its units,
# manual pages, documentation and libvirt's hook; with --guest, in a VM, the agent, its
# unit, and the libraries that CUDA programs load, where the linker finds them; with
# --kubernetes, on a node of Kubernetes beside the first, the driver for it that `make vgpu-dra`
# made, its unit, and what an administrator gives the cluster. Run it
# again to update: the configuration that is there stays, and so do guests that run.
#
#   --remove   removes what the same call without it installs. A configuration that was
#              changed stays, unless --purge is given too.
#
#   PREFIX   where programs and manual pages go: /usr/local
#   DESTDIR  goes before every path, for packages
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
dest=${DESTDIR:-}
sbin=$dest$prefix/sbin
share=$dest$prefix/share
lib=$dest/etc # where systemd looks for what an administrator installed
units=$lib/systemd/system
[ -z "$dest" ] || lib=$dest/usr/lib units=$dest/usr/lib/systemd/system

guest='' kubernetes='' remove='' purge=''
for arg; do
	case $arg in
	--guest) guest=yes ;;
	--kubernetes) kubernetes=yes ;;
	--remove) remove=yes ;;
	--purge) purge=yes ;;
	*) echo "install.sh: unknown argument $arg: want --guest, --kubernetes, --remove or --purge" >&2; exit 2 ;;
	esac
done

die() {
	echo "install.sh: $*" >&2
	exit 1
}

# take removes files that this script installed.
take() {
	local f
	for f; do
		if [ -e "$f" ] || [ -L "$f" ]; then
			rm -f "$f"
			echo "removed $f"
		fi
	done
}

# put MODE FILE PATH installs a file in one step: a program that runs keeps its own. With
# --remove it removes the file.
put() {
	if [ -n "$remove" ]; then
		take "$3"
		return
	fi
	mkdir -p "$(dirname "$3")"
	install -m "$1" "$2" "$3.new"
	mv -f "$3.new" "$3"
	echo "installed $3"
}

program() {
	[ -n "$remove" ] || [ -x "bin/$1" ] || die "no bin/$1: \`make ${2:-build}\` makes it"
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

# page installs a manual page, compressed, without the time.
page() {
	if [ -n "$remove" ]; then
		take "$share/man/man${1##*.}/${1##*/}.gz"
		return
	fi
	gzip -9n <"$1" >"$1.gz"
	put 0644 "$1.gz" "$share/man/man${1##*.}/${1##*/}.gz" >/dev/null
}

# Where zsh looks for what an administrator installed, and for what a package did.
zsh=site-functions
[ "$prefix" != /usr ] || zsh=vendor-completions

# manual installs a program's manual pages and its completion for three shells.
manual() {
	local pages page shell to
	if [ -n "$remove" ]; then
		take "$share/man"/man[18]/"$1".[18].gz "$share/man"/man[18]/"$1"-*.[18].gz
	else
		pages=$(mktemp -d)
		"bin/$1" man "$pages"
		for page in "$pages"/*; do page "$page"; done
		rm -rf "$pages"
		echo "installed the manual pages of $1"
	fi
	for shell in bash zsh fish; do
		case $shell in
		bash) to=$share/bash-completion/completions/$1 ;;
		zsh) to=$share/zsh/$zsh/_$1 ;;
		fish) to=$share/fish/vendor_completions.d/$1.fish ;;
		esac
		page=$(mktemp)
		[ -n "$remove" ] || "bin/$1" completion $shell >"$page"
		put 0644 "$page" "$to"
		rm -f "$page"
	done
}

# helper installs the manual page of a program that vgpud runs.
helper() {
	local file
	file=$(mktemp -d)/$1.8
	printf '.TH "%s" "8" "" "vgpud" "vgpud"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n\\fB%s\\fR %s\n.SH DESCRIPTION\n%s\n.SH SEE ALSO\n\\fBvgpud\\fR(8)\n' \
		"${1^^}" "$1" "$2" "$1" "$3" "$4" >"$file"
	page "$file"
	rm -rf "${file%/*}"
}

# format installs the manual page of a file, made from what docs and the file say.
format() {
	local pages name=$1 title=$2
	shift 2
	if [ -n "$remove" ]; then
		take "$share/man/man5/$name.5.gz"
		return
	fi
	[ -x bin/manpage ] || die "no bin/manpage: \`make build\` makes it"
	pages=$(mktemp -d)
	bin/manpage -name "$name" -title "$title" "$@" >"$pages/$name.5"
	page "$pages/$name.5"
	rm -rf "$pages"
	echo "installed the manual page of $name"
}

# docs installs pages of docs, for PACKAGE, with the pictures that they link to.
docs() {
	local name picture package=$1
	shift
	for name; do
		put 0644 "docs/$name.md" "$share/doc/$package/$name.md"
		{ grep -oE '\]\([^):]*\.(png|svg)\)' "docs/$name.md" || true; } | sed 's/.*(//; s/)$//' | while read -r picture; do
			picture=$(dirname "$name")/$picture
			put 0644 "docs/$picture" "$share/doc/$package/${picture#./}"
		done
	done
	[ -z "$remove" ] || rmdir "$share/doc/$package/results" "$share/doc/$package" 2>/dev/null || true
}

# setting installs a configuration file unless there is one.
setting() {
	local to=$dest/etc/vgpud/${1##*/}
	if [ -z "$remove" ]; then
		[ -e "$to" ] || put 0644 "$1" "$to"
	elif [ -n "$purge" ] || cmp -s "$1" "$to"; then
		take "$to"
	elif [ -e "$to" ]; then
		echo "kept $to, which was changed"
	fi
}

# libraries installs what CUDA programs load, and has the linker find it. Programs that
# are setuid ignore LD_LIBRARY_PATH, so the path is the linker's own, and the first of
# all, lest another libcuda hide ours.
libraries() {
	local f dir=$prefix/lib/vgpu
	if [ -n "$remove" ]; then
		take "$dest$dir"/*.so* "$dest/etc/ld.so.conf.d/00-vgpu.conf"
		rmdir "$dest$dir" 2>/dev/null || true
	else
		[ -e bin/lib/libcuda.so.1 ] || die "no bin/lib/libcuda.so.1: \`make build\` makes it, with a C compiler"
		for f in bin/lib/*.so*; do
			if [ -L "$f" ]; then
				mkdir -p "$dest$dir"
				ln -sfn "$(readlink "$f")" "$dest$dir/${f##*/}"
			else
				put 0644 "$f" "$dest$dir/${f##*/}"
			fi
		done
		f=$(mktemp)
		echo "$dir" >"$f"
		put 0644 "$f" "$dest/etc/ld.so.conf.d/00-vgpu.conf"
		rm -f "$f"
	fi
	[ -n "$dest" ] || ldconfig
}

# stop ends services that are about to be removed.
stop() {
	[ -z "$dest" ] && [ -d /run/systemd/system ] || return 0
	systemctl disable --now "$@" 2>/dev/null || true
}

if [ -n "$guest" ]; then
	[ -z "$remove" ] || stop vgpu-agent.service
	program vgpu-agent
	unit vgpu-agent.service
	manual vgpu-agent
	docs vgpu-agent guest cuda cudart device preemption results/{h100,cuda-suites}
	libraries
elif [ -n "$kubernetes" ]; then
	[ -z "$remove" ] || stop vgpu-dra.service
	program vgpu-dra vgpu-dra
	unit vgpu-dra.service
	manual vgpu-dra
	format vgpu-dra.yaml 'the configuration of vgpu-dra' deploy/kubernetes.yaml
	for f in deploy/kubernetes/*; do put 0644 "$f" "$share/vgpud/kubernetes/${f##*/}"; done
	[ -z "$remove" ] || rmdir "$share/vgpud/kubernetes" "$share/vgpud" 2>/dev/null || true
	setting deploy/kubernetes.yaml
	[ -z "$remove" ] || rmdir "$dest/etc/vgpud" 2>/dev/null || true
else
	# As the package does it: guests' virtual GPUs, which go on without the daemon, end first.
	[ -z "$remove" ] || [ -n "$dest" ] || PATH=$sbin:$PATH sh scripts/packages/vgpud.prerm remove
	for p in vgpud vgpuctl vgpu-libvirt vgpu-nvml vgpu-placement vgpu-qemu; do program "$p"; done
	for u in vgpud.service vgpud-softgpu@.service vgpu-placement.service; do unit "$u"; done
	put 0644 deploy/sysusers.d/vgpud.conf "$lib/sysusers.d/vgpud.conf"
	put 0644 deploy/tmpfiles.d/vgpud.conf "$lib/tmpfiles.d/vgpud.conf"
	for p in vgpud vgpuctl vgpu-placement; do manual "$p"; done
	helper vgpu-libvirt "load libvirt's client library for vgpud" URI \
		'vgpud and vgpuctl, which contain no C, run this program to talk to libvirt. It ends with its standard input.'
	helper vgpu-nvml "load NVIDIA's management library for vgpud" '[--once] [--every DURATION]' \
		"vgpud and vgpuctl, which contain no C, run this program to read the state of NVIDIA's GPUs. It changes nothing."
	helper vgpu-qemu "become QEMU with the virtual GPUs of a domain" "QEMU'S ARGUMENTS" \
		'libvirt runs this program as QEMU on hosts of Nova, where deploy/nova/install.sh has put a link to it. It appends what the libvirt hook wrote for the domain, and becomes QEMU. With the one argument --vgpu-qemu it prints which. /etc/vgpud/qemu.yaml may name another QEMU (qemu) and the directory of the daemon (run_dir).'
	format vgpud.yaml 'the configuration of vgpud' -section Configuration docs/operations.md
	format vgpu-hook.yaml "the configuration of libvirt's hook" deploy/libvirt/hook.yaml
	format vgpu-placement.yaml 'the configuration of vgpu-placement' deploy/placement.yaml
	format vgpu-domain 'virtual GPUs in the XML of a libvirt domain' docs/domain-xml.md
	docs vgpud install operations nova other-engines placement domain-xml gpu-maintenance guest security nvidia preemption performance metrics troubleshooting glossary \
		device cuda cudart foreign-peers results/{h100,h200,quota,preempt,preempt-gpu,preemption-on-h100,cuda-suites,case,case-live,edge,edge-gpu,nova-scale}
	# What an administrator runs or copies from, on hosts of OpenStack.
	for f in deploy/nova/*; do
		case $f in
		*.sh) put 0755 "$f" "$share/vgpud/nova/${f##*/}" ;;
		*) put 0644 "$f" "$share/vgpud/nova/${f##*/}" ;;
		esac
	done
	[ -z "$remove" ] || rmdir "$share/vgpud/nova" "$share/vgpud" 2>/dev/null || true
	setting deploy/vgpud.yaml
	setting deploy/libvirt/hook.yaml
	setting deploy/placement.yaml
	if [ -n "$remove" ]; then
		deploy/libvirt/install.sh --remove
		rmdir "$dest/etc/vgpud" 2>/dev/null || true
	else
		deploy/libvirt/install.sh --hook bin/vgpu-hook
		if [ -z "$dest" ] && command -v systemd-sysusers >/dev/null; then systemd-sysusers vgpud.conf; fi
	fi
fi
if [ -z "$dest" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
