# shellcheck shell=bash
# A compute node of the test bed with VMs, for scripts/nova/first.sh, which sources this: libvirt,
# QEMU under TCG, vgpud with two GPUs in software, vgpu-placement and nova-compute. Each has a root directory and
# a host name of its own, and the control services' network.

# on_host starts a program on host $1 that keeps running, $2.
on_host() {
	local n=$1 name=$2
	shift 2
	at=$state/host$n/root service "host$n-$name" "$@"
}

# host starts the n-th compute node with VMs.
host() {
	local n=$1 at=$state/host$1/root
	layer "$state/host$n" "$at"
	configure "$at"
	mkdir -p "$at"/opt/{vgpud,deploy} "$at"/etc/{vgpud,nova} "$at"/var/lib/nova/instances "$state/instances"
	# As on shared storage: an instance goes to another host without a copy of its disk.
	mount --bind "$state/instances" "$at/var/lib/nova/instances"
	mount --bind "$programs" "$at/opt/vgpud"
	mount --bind deploy "$at/opt/deploy"
	cp scripts/qemu.conf "$at/etc/libvirt/"
	# libvirt's networks want a firewall, and there are none.
	rm -f "$at"/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_{network,nwfilter}.so
	cat >"$at/etc/libvirt/libvirtd.conf" <<-END
		auth_unix_rw = "none"
	END
	cat >"$at/etc/vgpud/vgpud.yaml" <<-END
		gpus:
		- {name: gpu0, kind: soft, socket: /run/vgpud/gpu0.sock}
		- {name: gpu1, kind: soft, socket: /run/vgpud/gpu1.sock}
		# So few that a user who is not given back is missed soon. The hosts share their processes'
		# numbers, and so the users.
		confinement: {uids: 1879048192-$((1879048192 + 5 * hosts))}
	END
	cat >"$at/etc/nova/host.conf" <<-END
		[DEFAULT]
		host = host$n
		compute_driver = libvirt.LibvirtDriver
		[nova_sys_admin]
		helper_command = privsep-helper --config-file /etc/nova/nova.conf
		[vif_plug_ovs_privileged]
		helper_command = privsep-helper --config-file /etc/nova/nova.conf
	END
	# A compute node reaches the databases through the conductor alone.
	sed -i '/^connection *=/d' "$at/etc/nova/nova.conf"
	: >"$at/etc/machine-id"
	echo "$password" >"$at/etc/vgpud/placement.password"
	chmod 600 "$at/etc/vgpud/placement.password"
	cat >"$at/etc/vgpud/placement.yaml" <<-END
		keystone:
		  url: http://127.0.0.1:5000/v3
		  username: vgpud
		  user_domain: Default
		  project: service
		  project_domain: Default
		  password_file: /etc/vgpud/placement.password
		  region: RegionOne
		timeout: 1m # on a busy machine
		compute_id_file: /var/lib/nova/compute_id
		host: host$n
	END
	echo 'nova: {}' >"$at/etc/vgpud/hook.yaml"
	ln -sfn /opt/vgpud/vgpu-hook "$at/etc/libvirt/hooks/qemu.d/50-vgpu"
	at=$at inside sh /opt/deploy/nova/install.sh --program /opt/vgpud/vgpu-qemu >>"$state/log/host$n-install" 2>&1
	host_services "$n"
}

# host_services starts what runs on the n-th compute node, under $at.
host_services() {
	local n=$1
	on_host "$n" gpu0 /opt/vgpud/vgpud softgpu --warp-time 500ns --socket /run/vgpud/gpu0.sock
	on_host "$n" gpu1 /opt/vgpud/vgpud softgpu --warp-time 500ns --socket /run/vgpud/gpu1.sock
	on_host "$n" virtlogd virtlogd
	as=host$n on_host "$n" libvirtd libvirtd
	until_ok "libvirtd of host$n" [ -S "$at/run/libvirt/libvirt-sock" ] || return
	until_ok "GPUs of host$n" [ -S "$at/run/vgpud/gpu0.sock" -a -S "$at/run/vgpud/gpu1.sock" ] || return
	on_host "$n" vgpud /opt/vgpud/vgpud serve --config /etc/vgpud/vgpud.yaml
	as=host$n on_host "$n" placement /opt/vgpud/vgpu-placement serve
	as=host$n on_host "$n" compute nova-compute --config-file /etc/nova/nova.conf --config-file /etc/nova/host.conf
}
