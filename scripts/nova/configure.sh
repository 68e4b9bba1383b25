# shellcheck shell=bash
# The configuration of the test bed's services, for scripts/nova/first.sh, which sources this.
# Everything listens on the loopback interface of a network namespace of its own, so the
# passwords are public.

password=secret

# credential prints the options by which a service proves who it is to Keystone.
credential() {
	cat <<-END
		auth_type = password
		auth_url = http://127.0.0.1:5000/v3
		username = $1
		password = $password
		project_name = service
		user_domain_id = default
		project_domain_id = default
		region_name = RegionOne
	END
}

# configure writes the services' configuration under the root directory $1.
configure() {
	local root=$1
	cat >"$root/etc/mysql/bed.cnf" <<-END
		[mariadbd]
		datadir = /srv/db
		socket = /run/mysqld.sock
		pid_file = /run/mysqld.pid
		user = root
		skip_networking
		max_connections = 500
		innodb_flush_log_at_trx_commit = 0
		innodb_flush_method = nosync
		[client]
		socket = /run/mysqld.sock
	END
	printf '127.0.0.1 localhost control\n127.0.1.1 host1\n127.0.1.2 host2\n127.0.1.3 host3\n' >"$root/etc/hosts"
	cat >"$root/etc/keystone/keystone.conf" <<-END
		[DEFAULT]
		log_dir = /var/log/keystone
		[database]
		connection = mysql+pymysql://root@localhost/keystone?unix_socket=/run/mysqld.sock
		[token]
		provider = fernet
		expiration = 86400
	END
	cat >"$root/etc/placement/placement.conf" <<-END
		[placement_database]
		connection = mysql+pymysql://root@localhost/placement?unix_socket=/run/mysqld.sock
		[api]
		auth_strategy = keystone
		[oslo_policy]
		policy_file = /etc/placement/policy.yaml
		[keystone_authtoken]
		$(credential placement)
	END
	cp deploy/nova/placement-policy.yaml "$root/etc/placement/policy.yaml"
	cat >"$root/etc/glance/glance-api.conf" <<-END
		[DEFAULT]
		enabled_backends = store:file
		[glance_store]
		default_backend = store
		[store]
		filesystem_store_datadir = /srv/images
		[database]
		connection = mysql+pymysql://root@localhost/glance?unix_socket=/run/mysqld.sock
		[paste_deploy]
		flavor = keystone
		[keystone_authtoken]
		$(credential glance)
	END
	cat >"$root/etc/nova/nova.conf" <<-END
		[DEFAULT]
		transport_url = rabbit://guest:guest@127.0.0.1:5672/
		my_ip = 127.0.0.1
		state_path = /var/lib/nova
		service_down_time = 20
		report_interval = 5
		[api_database]
		connection = mysql+pymysql://root@localhost/nova_api?unix_socket=/run/mysqld.sock
		[database]
		connection = mysql+pymysql://root@localhost/nova?unix_socket=/run/mysqld.sock
		[keystone_authtoken]
		$(credential nova)
		[service_user]
		send_service_user_token = true
		$(credential nova)
		[placement]
		$(credential nova)
		[glance]
		endpoint_override = http://127.0.0.1:9292
		$(credential nova)
		[neutron]
		endpoint_override = http://127.0.0.1:9696
		$(credential nova)
		[conductor]
		workers = 1
		[scheduler]
		workers = 1
		discover_hosts_in_cells_interval = 5
		[oslo_concurrency]
		lock_path = /run/nova
		[vnc]
		enabled = false
		[libvirt]
		virt_type = qemu
		cpu_mode = host-model
		hw_machine_type = x86_64=q35
		num_pcie_ports = 12
		images_type = raw
		live_migration_uri = qemu+tcp://%s/system
	END
	local name
	for name in keystone placement glance nova; do
		web "$root" "$name"
	done
}

# web makes the packaged configuration of uwsgi for the service $2 one for a test bed: run by
# root, with one process, and without a connection left open that nobody reads, which clients
# would see as dropped.
web() {
	local root=$1 packaged
	case $2 in
	keystone) packaged=$root/etc/keystone/keystone-uwsgi.ini ;;
	*) packaged=$root/etc/$2/$2-api-uwsgi.ini ;;
	esac
	sed -e '/^\(uid\|gid\|processes\|threads\|apparmor-profile\|add-header\|logto\) *=/d' -e 's/^plugins *=.*/plugins = python3/' "$packaged"
	printf 'processes = 1\nthreads = 1\nadd-header = Connection: close\n'
} >"$1/etc/$2/bed.ini"
