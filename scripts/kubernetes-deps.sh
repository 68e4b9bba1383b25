#!/usr/bin/env bash
# Builds the control plane that `make test-kubernetes` runs: etcd, kube-apiserver, kube-scheduler and
# kube-controller-manager, as they are, from the Go modules that scripts/kubernetes/go.mod names. Its
# go.sum has the digest of each, which go checks. Nothing is installed; root isn't needed.
#
# The directory is $VGPUD_KUBERNETES_DEPS, or vgpud/kubernetes in the user's cache:
#
#   bin/     the programs
#   built    what they were built from, and their digests
#
# The first time takes a download of 91 MB, some 2 GB in Go's caches, and 13 minutes of processor time.
# Every run checks the programs by digest, and builds anew only what is not from these
# modules, by this script and this Go.
set -eEuo pipefail
cd "$(dirname "$0")/.."
trap 'say "line $LINENO: $BASH_COMMAND: exit status $?"' ERR

deps=${VGPUD_KUBERNETES_DEPS:-${XDG_CACHE_HOME:-${HOME:?neither VGPUD_KUBERNETES_DEPS nor HOME is set}/.cache}/vgpud/kubernetes}
module=scripts/kubernetes
go=${GO:-go}
# What makes each program, by its name. Those of Kubernetes are told their version, as its own build does.
declare -A programs=(
	[etcd]=go.etcd.io/etcd/server/v3
	[kube-apiserver]=k8s.io/kubernetes/cmd/kube-apiserver
	[kube-scheduler]=k8s.io/kubernetes/cmd/kube-scheduler
	[kube-controller-manager]=k8s.io/kubernetes/cmd/kube-controller-manager
)

. scripts/debian.sh

# recipe names what the programs are built from.
recipe() { { cat "$module/go.mod" "$module/go.sum" scripts/kubernetes-deps.sh && "$go" version; } | sha256sum; }

built_match() {
	[ "$(head -n 1 "$deps/built" 2>/dev/null)" = "$(recipe)" ] &&
		(cd "$deps/bin" && tail -n +2 ../built | sha256sum -c --quiet --status) 2>/dev/null
}

# progress passes on what go says, but of the packages that it has compiled only how many they are.
progress() {
	awk -v name="kubernetes-deps" '/^[^ :]+$/ { if (++n % 200 == 0) print name ":   " n " packages compiled"; next } { print }' >&2
}

# build fills $1/bin.
build() {
	local name version flags
	version=$(cd "$module" && "$go" list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes)
	flags="-s -w -X k8s.io/component-base/version.gitVersion=$version"
	mkdir -p "$1/bin"
	for name in etcd kube-apiserver kube-scheduler kube-controller-manager; do
		say "building $name"
		(
			cd "$module"
			# The compilers' garbage is collected less often: that takes a fifth of their processor time.
			CGO_ENABLED=0 GOGC=${GOGC:-400} GOWORK=off "$go" build -v -mod=readonly -ldflags "$flags" -o "$1/bin/$name" "${programs[$name]}"
		) 2>&1 | progress ||
			die "$name is not built. If modules can't be had: is there a network? GOPROXY can name another mirror"
	done
	(
		recipe
		cd "$1/bin"
		sha256sum -- *
	) >"$1/built"
}

claim "these programs are"
built_match || {
	build "$new"
	rm -f "$deps/built"
	place bin built
	say "etcd and Kubernetes are in $deps/bin"
}
