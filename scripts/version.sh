#!/usr/bin/env bash
# Prints the version of the tree in the current directory: 1.2.3 at the tag v1.2.3, and
# 1.2.3+4.g0a1b2c3d four commits later, with .dirty if tracked files were changed.
# Packagers compare these as they should: each is later than the ones before it.
set -euo pipefail
# Whoever asks trusts this tree, also where another owns it.
git() { command git -c safe.directory="$PWD" "$@"; }

if ! git rev-parse -q --verify HEAD >/dev/null 2>&1; then
	echo 0.0.0+unknown
	exit
fi
if tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
	commits=$(git rev-list --count "$tag..HEAD")
else
	tag=v0.0.0
	commits=$(git rev-list --count HEAD)
fi
version=${tag#v}
[ "$commits" = 0 ] || version+=+$commits.g$(git rev-parse --short=8 HEAD)
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	case $version in
	*+*) version+=.dirty ;;
	*) version+=+dirty ;;
	esac
fi
echo "$version"
