#!/usr/bin/env bash
# Makes packages of what `make build vgpu-dra` made, for Debian and, by the same description, for
# RPM: vgpud for KVM hosts, vgpu-agent for VMs, and vgpu-dra for nodes of Kubernetes, beside vgpud.
# They come to the directory that the argument names.
#
#   VERSION      their version
#   MAINTAINER   who publishes them: NAME <ADDRESS>
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: packages.sh DIRECTORY}
version=${VERSION:?}
maintainer=${MAINTAINER:?}
# The last release that needs only modules that Go's mirror has.
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
umask 022
PREFIX=/usr DESTDIR=$stage/vgpud scripts/install.sh >/dev/null
PREFIX=/usr DESTDIR=$stage/vgpu-agent scripts/install.sh --guest >/dev/null
PREFIX=/usr DESTDIR=$stage/vgpu-dra scripts/install.sh --kubernetes >/dev/null

# Packages have the hook where programs belong, and a link where libvirt looks for it.
hook=$stage/vgpud/etc/libvirt/hooks/qemu.d/50-vgpu
install -D -m 0755 "$hook" "$stage/vgpud/usr/lib/vgpud/vgpu-hook"
ln -sf /usr/lib/vgpud/vgpu-hook "$hook"
install -D -m 0644 deploy/libvirt/apparmor "$stage/vgpud/etc/apparmor.d/abstractions/libvirt-qemu.d/vgpud"
install -D -m 0644 deploy/apparmor.d/vgpud "$stage/vgpud/etc/apparmor.d/vgpud"
# A package's units, sysusers and tmpfiles are not the administrator's.
find "$stage" -type f \( -path '*/sbin/*' -o -name vgpu-hook -o -name '*.so*' \) -exec strip --strip-unneeded -R .comment {} +

date=$(git log -1 --format=%cD 2>/dev/null || date -R)
# RPM's scripts call systemctl. What Debian's call instead obeys the administrator's policy-rc.d
# and remembers what was enabled; there, a trigger renews the linker's cache.
mkdir -p "$stage/scripts/rpm" "$stage/scripts/deb"
for script in vgpud vgpu-agent vgpu-dra; do
	for step in postinst prerm postrm; do
		cp "scripts/packages/$script.$step" "$stage/scripts/rpm/"
		sed -E 's/systemctl (start|stop|try-restart) /deb-systemd-invoke \1 /; s/systemctl (enable|disable) /deb-systemd-helper \1 /; /^\s*ldconfig$/d' \
			"scripts/packages/$script.$step" >"$stage/scripts/deb/$script.$step"
	done
done
mkdir -p "$out"
rm -f "$out"/*.deb "$out"/*.rpm
for package in vgpud vgpu-agent vgpu-dra; do
	# RPMs have their own ways to tell licence and history, and another directory for zsh.
	mkdir -p "$stage/rpm" "$stage/deb"
	cp -al "$stage/$package" "$stage/rpm/$package"
	mv "$stage/$package" "$stage/deb/$package"
	mv "$stage/rpm/$package/usr/share/zsh/vendor-completions" "$stage/rpm/$package/usr/share/zsh/site-functions"
	install -D -m 0644 LICENSE "$stage/rpm/$package/usr/share/licenses/$package/LICENSE"
	{
		printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: vgpud\n\n'
		printf 'Files: *\nCopyright: 2026 the authors of vgpud\nLicense: Apache-2.0\n On Debian systems, see /usr/share/common-licenses/Apache-2.0.\n'
	} >"$stage/copyright"
	install -D -m 0644 "$stage/copyright" "$stage/deb/$package/usr/share/doc/$package/copyright"
	install -D -m 0644 "scripts/packages/$package.lintian" "$stage/deb/$package/usr/share/lintian/overrides/$package"
	printf '%s (%s-0vgpud1) stable; urgency=medium\n\n  * The history is in the repository.\n\n -- %s  %s\n' \
		"$package" "$version" "$maintainer" "$date" | gzip -9n >"$stage/deb/$package/usr/share/doc/$package/changelog.Debian.gz"
	for format in rpm deb; do
		sed "s,@STAGE@,$stage/$format,g; s,@SCRIPTS@,$stage/scripts/$format,g; s,@VERSION@,$version,g; s,@MAINTAINER@,$maintainer,g" "scripts/packages/$package.yaml" >"$stage/$package.yaml"
		# dpkg knows no field License.
		[ "$format" != deb ] || sed -i '/^license:/d' "$stage/$package.yaml"
		${GO:-go} run "$nfpm" package -f "$stage/$package.yaml" -p "$format" -t "$out" >/dev/null
	done
done
ls "$out"
