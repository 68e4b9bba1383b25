#!/usr/bin/env bash
# A real OpenStack on this machine, for tests: Keystone, Placement, Glance, Nova, RabbitMQ and
# MariaDB from Debian's packages, in namespaces of their own. What it needs is fetched once
# (scripts/nova-deps.sh); nothing is installed, no port of this machine is taken. It takes root.
#
#   nova-testbed.sh start [--fakes N] [--hosts N] [--programs DIRECTORY]
#                  N computes without VMs (default: 2), and N with libvirt, QEMU, vgpud and
#                  two soft GPUs each (default: 0), with our programs in bin or that
#                  DIRECTORY; returns when Nova knows them all
#   nova-testbed.sh status           what answers, and which computes there are
#   nova-testbed.sh logs [SERVICE]   what a service has printed; without one, which there are
#   nova-testbed.sh run COMMAND...   runs a command of this machine in the test bed's network
#   nova-testbed.sh on HOST COMMAND...
#                  runs a command among the files of "control" or "host1", "host2"
#   nova-testbed.sh end SERVICE      kills a service (logs names them), but not what it started
#   nova-testbed.sh launch SERVICE   starts it again; restart does both
#   nova-testbed.sh down HOST        ends all of a host's processes, as if it lost its power
#   nova-testbed.sh up HOST          starts it again
#   nova-testbed.sh versions         the packages' versions that matter
#   nova-testbed.sh stop             ends all of its processes and removes what they wrote
#
# Keystone is at http://127.0.0.1:5000/v3 there: admin, demo and vgpud (the role of
# deploy/nova/placement-policy.yaml), each with the password "secret".
#
#   VGPUD_NOVA_BED   this test bed's directory (default: bed beside the packages); several
#                    test beds may run at once
set -eEuo pipefail
cd "$(dirname "$0")/.."
say() { echo "$(basename "$0" .sh): $*" >&2; }
die() { say "$*"; exit 1; }

deps=${VGPUD_NOVA_DEPS:-${XDG_CACHE_HOME:-${HOME:?neither VGPUD_NOVA_DEPS nor HOME is set}/.cache}/vgpud/nova}
bed=${VGPUD_NOVA_BED:-$deps/bed}

usage() {
	sed -n 's/^# \{0,1\}//; 2,29p' "$0" >&2
	exit 2
}

# running prints the first process of the test bed, if it runs.
running() {
	local pid
	pid=$(cat "$bed/pid" 2>/dev/null) || return 1
	# Another process may have its number by now.
	grep -qsF "$bed" "/proc/$pid/cmdline" || return 1
	echo "$pid"
}

start() {
	local fakes=2 hosts=0 programs=$PWD/bin outer began=$SECONDS
	while [ $# -gt 0 ]; do
		case $1 in
		--fakes) fakes=${2:?--fakes: want a number} ;;
		--hosts) hosts=${2:?--hosts: want a number} ;;
		--programs) programs=$(cd "${2:?--programs: want a directory}" && pwd) ;;
		*) usage ;;
		esac
		shift 2
	done
	[ "$(id -u)" = 0 ] || die "the test bed has namespaces and root directories of its own: it takes root"
	! running >/dev/null || die "it runs already: \`$0 stop\` first"
	[ "$hosts" = 0 ] || [ -x "$programs/vgpu-qemu" ] || die "no vgpu-qemu in $programs: \`make build\` makes it"
	scripts/nova-deps.sh
	remove
	mkdir -p "$bed/log"
	# With --kill-child all ends if somebody kills unshare.
	DEPS=$deps setsid unshare --mount --pid --net --uts --ipc --fork --kill-child --mount-proc \
		scripts/nova/first.sh "$bed" "$fakes" "$hosts" "$programs" >"$bed/log/first" 2>&1 </dev/null &
	outer=$!
	until [ -e "$bed/ready" ]; do
		kill -0 "$outer" 2>/dev/null || {
			cat "$bed/log/first" >&2
			die "it ended: see $bed/log"
		}
		pgrep -P "$outer" >"$bed/pid" || true
		sleep 0.2
	done
	say "ready after $((SECONDS - began)) s"
}

stop() {
	local pid
	if pid=$(running); then
		kill -KILL "$pid"
		while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
	fi
	remove
}

# remove removes what an earlier run wrote.
remove() {
	# The namespaces' mounts go a moment after their last process.
	local i
	for ((i = 0; i < 100; i++)); do
		rm -rf --one-file-system "$bed" 2>/dev/null && return
		sleep 0.1
	done
	rm -rf --one-file-system "$bed"
}

# enter runs a command in the test bed's namespaces, with the options of nsenter before --.
enter() {
	local pid
	pid=$(running) || die "it does not run: \`$0 start\`"
	exec nsenter --target "$pid" "$@"
}

status() {
	local pid
	pid=$(running) || die "it does not run"
	(enter --net --mount --pid -- bash -c '
		for s in keystone:5000/v3 placement:8778/ glance:9292/healthcheck nova:8774/ neutron:9696/; do
			printf "%-10s " "${s%%:*}"
			curl -s -o /dev/null -m 5 -w "%{http_code}\n" "http://127.0.0.1:${s#*:}" || echo "no answer"
		done')
	("$0" on control mariadb --defaults-file=/etc/mysql/bed.cnf -te \
		"select host, uuid, running_vms from nova.compute_nodes where deleted = 0")
}

versions() {
	awk '$1 ~ /^(keystone|placement-api|nova-api|libvirt-daemon|qemu-system-x86)$/ { printf "%s%s %s", sep, $1, $2; sep = ", " } END { print "" }' \
		"$deps/manifest"
}

logs() {
	if [ $# = 0 ]; then ls "$bed/log"; else cat "$bed/log/$1"; fi
}

# request has the first process do something to a service or a host.
request() {
	local answer pid
	pid=$(running) || die "it does not run: \`$0 start\`"
	answer=$bed/answer.$$ # the first process makes it when it is done
	rm -f "$answer"
	echo "$answer $1 $2" >"$bed/requests"
	until [ -e "$answer" ]; do
		kill -0 "$pid" || die "it ended: see $bed/log/first"
		sleep 0.1
	done
	[ "$(cat "$answer")" = 0 ] || die "$1 $2: see $bed/log/first"
	rm "$answer"
}

command=${1:-}
[ $# = 0 ] || shift
case $command in
start | stop | status | logs | versions) $command "$@" ;;
end | launch | restart | down | up) request "$command" "${1:?$command what?}" ;;
run) enter --net -- "$@" ;;
on)
	[ $# -ge 2 ] || usage
	case $1 in
	control) at=$bed/root ;;
	*) at=$bed/$1/root ;;
	esac
	shift
	enter --net --mount --pid --ipc -- env PATH=/usr/local/bin:/usr/sbin:/usr/bin chroot "$at" "$@"
	;;
*) usage ;;
esac
