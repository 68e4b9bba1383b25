# shellcheck shell=bash
# Unpacks Debian's packages without installing them, for the scripts *-deps.sh
# that source this. Neither dpkg nor apt's own files are touched, root isn't needed.
#
# The script that sources this sets deps (the directory that it fills), suites,
# packages, source_packages if it wants any, and wish (what it asks of apt: a line
# that opens the manifest).

say() { echo "$(basename "$0" .sh): $*" >&2; }
die() { say "$*"; exit 1; }

# mirrors lists the archives that this machine's apt is configured with, in
# whichever format and place, and last Debian's own, for derivatives, whose archives
# lack these suites: by TLS, as their keyrings may lack Debian's keys.
mirrors() {
	if [ -n "${VGPUD_DEBIAN_MIRROR:-}" ]; then
		echo "$VGPUD_DEBIAN_MIRROR"
		return
	fi
	{
		# What an update would ask for, whether or not there ever was one. Other
		# publishers' archives mostly have other suites.
		apt-get update --print-uris |
			sed -nE "s|^'(.*)/dists/[a-z]+(-updates\|-backports)?/InRelease' .*|\1|p"
		echo https://deb.debian.org/debian
	} | awk '!seen[$0]++'
}

# configure_apt writes a configuration for apt under $1 that shares only how to
# reach the network with the machine's own: not its sources, state or hooks.
# $2 is the archive.
configure_apt() {
	local dir=$1 mirror=$2 trust='[trusted=yes]' suite
	local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	if [ -r "$keyring" ]; then
		trust="[signed-by=$keyring]"
	else
		say "there is no $keyring: the archive's signature can't be checked"
	fi
	mkdir -p "$dir"/lists/partial "$dir"/cache/archives/partial
	: >"$dir/status" # nothing is installed, so apt resolves all of a closure
	for suite in "${suites[@]}"; do
		echo "deb $trust $mirror $suite main"
		[ -z "${source_packages:-}" ] || echo "deb-src $trust $mirror $suite main"
	done >"$dir/sources.list"
	{
		apt-config dump | grep '^Acquire::.*"' || true
		cat <<-END
			Dir::Etc::parts "/dev/null";
			Dir::Etc::main "/dev/null";
			Dir::Etc::sourcelist "$dir/sources.list";
			Dir::Etc::sourceparts "/dev/null";
			Dir::Etc::preferences "/dev/null";
			Dir::Etc::preferencesparts "/dev/null";
			Dir::State "$dir";
			Dir::State::lists "$dir/lists";
			Dir::State::status "$dir/status";
			Dir::Cache "$dir/cache";
			Debug::NoLocking "true";
			APT::Architecture "amd64";
			APT::Architectures { "amd64"; };
			APT::Default-Release "${suites[-1]}";
			APT::Install-Recommends "false";
			APT::Sandbox::User "$(id -un)";
			Acquire::Languages "none";
			Acquire::Retries "2";
			Acquire::http::Timeout "20";
			Acquire::https::Timeout "20";
			Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
			Binary::apt-get::APT::Keep-Downloaded-Packages "true";
		END
	} >"$dir/apt.conf"
}

# lists configures apt under $1/apt, and gets the package lists of the first archive
# that has these suites.
lists() {
	local dir=$1 tool mirror found got=
	for tool in apt-get dpkg-deb; do
		command -v $tool >/dev/null ||
			die "there is no $tool here: what this needs is taken from Debian's packages, so it takes Debian or a derivative"
	done
	export APT_CONFIG=$dir/apt/apt.conf
	found=$(APT_CONFIG='' mirrors)
	for mirror in $found; do
		rm -rf "$dir/apt"
		APT_CONFIG='' configure_apt "$dir/apt" "$mirror"
		say "asking $mirror for ${suites[*]}"
		# Without this, apt-get update only warns of what it could not get.
		if apt-get update -qq -o APT::Update::Error-Mode=any >"$dir/log" 2>&1; then
			got=$mirror
			break
		fi
		sed "s/^/$(basename "$0" .sh):   /" "$dir/log" >&2
	done
	[ -n "$got" ] ||
		die "no package lists of ${suites[*]} from ${found//$'\n'/ }: is there a network? VGPUD_DEBIAN_MIRROR can name another Debian archive"
}

# keep moves what was downloaded under $1/apt to $1/debs and writes $1/manifest.
keep() {
	local dir=$1
	rm -rf "$dir/debs"
	mv "$dir/apt/cache/archives" "$dir/debs"
	rm -rf "$dir/debs/partial" "$dir/debs/lock" "$dir/apt" "$dir/log"
	(
		echo "$wish"
		cd "$dir/debs"
		sha256sum -- * | awk '{
			split($2, f, "_"); gsub("%3a", ":", f[2])
			print f[1], f[2], $1, $2
		}'
	) >"$dir/manifest"
}

# fetch fills $1 with debs/ and manifest.
fetch() {
	local dir=$1
	lists "$dir"
	say "downloading the closure of ${packages[*]}"
	if ! apt-get install -qq -y --download-only "${packages[@]}" >"$dir/log" 2>&1; then
		cat "$dir/log" >&2
		die "packages can't be had from this archive"
	fi
	keep "$dir"
}

# file prints the path of the package's file that the manifest names $1.
file() { awk -v name="$1" -v deps="$deps/debs/" '$1 == name { print deps $4 }' "$deps/manifest"; }

# unpack_debs unpacks the packages in $deps/debs that standard input lists into $1.
unpack_debs() {
	local root=$1 link
	for link in bin lib lib64 sbin; do
		mkdir -p "$root/usr/$link"
		ln -s "usr/$link" "$root/$link"
	done
	# Manuals serve nobody here.
	# shellcheck disable=SC2016 # the inner shell expands it
	(cd "$deps/debs" && ROOT=$root xargs -n 8 -P "$(nproc)" bash -c 'set -euo pipefail
		for deb; do
			dpkg-deb --fsys-tarfile "$deb" | tar -x --no-same-owner --keep-directory-symlink -C "$ROOT" \
				--exclude="./usr/share/"{doc,info,locale,lintian,man,bash-completion}"/*"
		done' unpack)
}

# place moves $@ from $new to where they belong.
place() {
	local name
	mkdir -p "$new/old"
	for name; do
		[ ! -e "$deps/$name" ] || mv "$deps/$name" "$new/old/"
		mv "$new/$name" "$deps/$name"
	done
	rm -rf "$new/old"
}

packages_match() {
	[ "$(head -n 1 "$deps/manifest" 2>/dev/null)" = "$wish" ] &&
		(cd "$deps/debs" && tail -n +2 ../manifest | awk '{ print $3 "  " $4 }' | sha256sum -c --quiet --status) 2>/dev/null
}

# recipe names what unpack works from: other packages or another way of
# unpacking them give another result.
recipe() { cat "$deps/manifest" "scripts/$(basename "$0")" scripts/debian.sh | sha256sum; }

unpacked_match() {
	[ -e "$deps/unpacked" ] && recipe | cmp -s - "$deps/unpacked"
}

# claim waits until no other run fills deps. It makes new beside what is there: this
# run works in it, and removes it in the end. $1 begins the sentence that says what
# is for x86-64 alone.
claim() {
	[ "$(uname -sm)" = "Linux x86_64" ] || die "$1 for x86-64 under Linux, this is $(uname -sm)"
	mkdir -p "$deps"
	deps=$(cd "$deps" && pwd)
	new=$deps/new
	exec 9>"$deps/lock"
	flock -n 9 || {
		say "waiting for another run to end"
		flock 9
	}
	trap 'rm -rf --one-file-system "$new"' EXIT
	rm -rf --one-file-system "$new"
	mkdir -p "$new/tmp"
	export TMPDIR=$new/tmp
}

# provide gets the packages and unpacks them, as far as what is there is made of
# others. $@ is what unpack makes.
provide() {
	packages_match || {
		fetch "$new"
		place debs manifest
	}
	unpacked_match || {
		rm -f "$deps/unpacked"
		unpack "$new"
		place "$@" unpacked
	}
}
