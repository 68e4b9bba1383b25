#!/usr/bin/env bash
# The first process of the test bed's namespaces: it starts the services, reaps what they
# leave behind, and all of them end with it. scripts/nova-testbed.sh runs it:
#
#   first.sh STATE FAKES HOSTS PROGRAMS
#
# STATE is the directory of this test bed, FAKES the number of computes without VMs, HOSTS
# that of computes with libvirt and QEMU, PROGRAMS the directory of our programs. STATE/ready appears when all of them are known to
# Nova. Each service's output is STATE/log/SERVICE.
set -eEuo pipefail
cd "$(dirname "$0")/../.."
state=$1 fakes=$2 hosts=$3 programs=$4
root=$state/root
deps=${DEPS:?}

say() { echo "$*" >&2; }
trap 'echo "line $LINENO: $BASH_COMMAND: exit status $?" >&2' ERR
trap 'exit 0' TERM INT

. scripts/nova/configure.sh
. scripts/nova/host.sh

# volatile mounts what is empty whenever a machine starts, under $at.
volatile() {
	mount -t tmpfs -o mode=755 tmpfs "$at/run"
	mkdir -p "$at/run"/{nova,libvirt,vgpud,lock}
}

# layer mounts at $2 the unpacked packages below a layer of its own, $1.
layer() {
	mkdir -p "$1/upper" "$1/work" "$2"
	mount -t overlay overlay -o "lowerdir=$deps/root,upperdir=$1/upper,workdir=$1/work" "$2"
	mount -t proc proc "$2/proc"
	# Without its submounts, which are the host's control groups.
	mount --bind /sys "$2/sys"
	mount --rbind /dev "$2/dev"
	at=$2 volatile
	mount --bind "$state/srv" "$2/srv"
}

# prepare sets command to what runs a program under the root directory, or under $at, as a machine
# of the name $as.
prepare() {
	command=()
	# shellcheck disable=SC2016 # the inner shell expands it
	[ -z "${as:-}" ] || command=(unshare --uts sh -c 'hostname "$1"; shift; exec "$@"' uts "$as")
	command+=(env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 chroot "${at:-$root}" "$@")
}

# inside runs such a program.
inside() {
	local command
	prepare "$@"
	"${command[@]}"
}

# The services: their commands, quoted, and their processes.
declare -A service_command service_process

# service starts a program that keeps running, $1.
service() {
	local name=$1 command
	shift
	prepare "$@"
	service_command[$name]=${command[*]@Q}
	launch "$name"
}

# launch starts a service that is known.
launch() {
	local command
	eval "command=(${service_command[$1]})"
	"${command[@]}" >>"$state/log/$1" 2>&1 </dev/null 3>&- &
	service_process[$1]=$!
}

# end kills a service. What it has started goes on.
end() {
	local pid=${service_process[$1]:?no service is called $1}
	# It may have ended by itself.
	kill -KILL "$pid" 2>/dev/null || return 0
	while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
}

# restart kills a service and starts it again.
restart() {
	end "$1"
	launch "$1"
}

# down has all processes of a host end at once, as if it lost its power.
down() {
	local at=$state/$1/root p
	for p in /proc/[0-9]*; do
		[ "$(readlink "$p/root")" != "$at" ] || kill -KILL "${p#/proc/}" 2>/dev/null || true
	done
	umount -l "$at/run"
}

# up starts a host that is down.
up() {
	local at=$state/$1/root
	volatile
	host_services "${1#host}"
}

# until_ok waits until the rest of its arguments succeed, which is about $1.
until_ok() {
	local what=$1 i
	shift
	for ((i = 0; i < 600; i++)); do
		"$@" >/dev/null 2>&1 && return
		sleep 0.2
	done
	echo "$what did not come up in two minutes: see $state/log" >&2
	return 1
}

port() { inside bash -c ": </dev/tcp/127.0.0.1/$1"; }
answers() { inside curl -sf -o /dev/null "http://127.0.0.1:$1/"; }

uwsgi() {
	service "$1" uwsgi_python3 --ini "/etc/$1/bed.ini" --http-socket "127.0.0.1:$2"
}

# database starts MariaDB.
database() {
	service mariadb mariadbd --defaults-file=/etc/mysql/bed.cnf
	until_ok MariaDB inside mariadb --defaults-file=/etc/mysql/bed.cnf -e 'select 1'
}

# databases starts MariaDB and Keystone, with databases that the services filled by their own
# commands, Keystone's also by seed.py. What they are filled with is the same for each test bed
# of these packages, so it is kept.
databases() {
	local kept=$deps/databases.tar key name others
	key=$(cat "$deps/unpacked" scripts/nova/{first.sh,configure.sh,seed.py} | sha256sum)
	if [ "$(cat "$deps/databases.key" 2>/dev/null)" = "$key" ]; then
		tar -C "$root" -xf "$kept"
		database
		uwsgi keystone 5000
		return
	fi
	say "filling databases"
	inside mariadb-install-db --defaults-file=/etc/mysql/bed.cnf --auth-root-authentication-method=normal --skip-test-db >>"$state/log/sync" 2>&1
	database
	for name in keystone placement glance nova_api nova nova_cell0; do
		inside mariadb --defaults-file=/etc/mysql/bed.cnf -e "create database $name character set utf8mb3"
	done
	(
		inside placement-manage db sync
		inside glance-manage db_sync
		inside keystone-manage db_sync
	) >>"$state/log/sync" 2>&1 &
	others=$!
	(
		inside nova-manage api_db sync
		inside nova-manage cell_v2 map_cell0
		inside nova-manage db sync
		inside nova-manage cell_v2 create_cell --name cell1
	) >>"$state/log/sync" 2>&1
	wait "$others"
	mkdir -p "$root"/etc/keystone/{fernet-keys,credential-keys}
	inside keystone-manage fernet_setup --keystone-user root --keystone-group root >>"$state/log/sync" 2>&1
	inside keystone-manage credential_setup --keystone-user root --keystone-group root >>"$state/log/sync" 2>&1
	inside keystone-manage bootstrap --bootstrap-password "$password" --bootstrap-region-id RegionOne \
		--bootstrap-public-url http://127.0.0.1:5000/v3 --bootstrap-internal-url http://127.0.0.1:5000/v3 \
		--bootstrap-admin-url http://127.0.0.1:5000/v3 >>"$state/log/sync" 2>&1
	uwsgi keystone 5000
	until_ok Keystone answers 5000/v3
	cp scripts/nova/seed.py "$root/srv/"
	inside python3 /srv/seed.py >>"$state/log/sync" 2>&1
	# MariaDB's files are whole only when it has ended.
	inside mariadb --defaults-file=/etc/mysql/bed.cnf -e shutdown
	until_ok "MariaDB's end" [ ! -e "$root/run/mysqld.pid" ]
	tar -C "$root" -cf "$kept.new" srv/db etc/keystone/fernet-keys etc/keystone/credential-keys
	mv "$kept.new" "$kept"
	echo "$key" >"$deps/databases.key"
	database
}

# control starts what is not on a compute node.
control() {
	mkdir -p "$root/srv/images" "$root"/var/lib/{keystone,placement}
	service rabbit env RABBITMQ_NODENAME=rabbit@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 HOME=/var/lib/rabbitmq \
		/usr/lib/rabbitmq/bin/rabbitmq-server
	service neutron python3 /srv/neutron.py
	databases
	uwsgi placement 8778
	uwsgi glance 9292
	until_ok Placement answers 8778
	until_ok RabbitMQ port 5672
	service conductor nova-conductor --config-file /etc/nova/nova.conf
	service scheduler nova-scheduler --config-file /etc/nova/nova.conf
	uwsgi nova 8774
	until_ok Glance answers 9292/healthcheck
	until_ok Nova answers 8774
}

# fake starts a compute node of which only Nova and Placement know: its VMs are records.
fake() {
	local name=fake$1
	mkdir -p "$root/var/lib/nova/$name"
	cat >"$root/etc/nova/$name.conf" <<-END
		[DEFAULT]
		host = $name
		compute_driver = fake.FakeDriver
		state_path = /var/lib/nova/$name
	END
	service "$name" nova-compute --config-file /etc/nova/nova.conf --config-file "/etc/nova/$name.conf"
}

# known succeeds when Nova has a compute node for each host.
known() {
	[ "$(inside mariadb --defaults-file=/etc/mysql/bed.cnf -BNe 'select count(*) from nova_api.host_mappings')" = $((fakes + hosts)) ]
}

ip link set lo up
mkdir -p "$state"/{log,srv}
cp scripts/nova/neutron.py "$state/srv/"
layer "$state/control" "$root"
configure "$root"
control
for ((n = 1; n <= fakes; n++)); do fake "$n"; done
for ((n = 1; n <= hosts; n++)); do host "$n"; done
until_ok "$fakes + $hosts compute nodes" known
# Requests of nova-testbed.sh: a line with a file for the exit status, and one of the functions end,
# launch, restart, down and up with its argument. As the first process this shell is the parent of
# whatever loses its own; it reaps those meanwhile.
mkfifo "$state/requests"
exec 3<>"$state/requests"
date +%s >"$state/ready"
while true; do
	read -r -u 3 answer request argument || continue
	rc=0
	"$request" "$argument" || rc=$?
	echo "$rc" >"$answer.new"
	mv "$answer.new" "$answer"
done
