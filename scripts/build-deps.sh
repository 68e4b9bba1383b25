#!/usr/bin/env bash
# Makes sure that go can get the modules that this tree needs: a bare machine has
# no certificates to check their mirror by. As root, it gets them. Where they can't
# be had, go says itself what it could not get.
set -euo pipefail
cd "$(dirname "$0")/.."

certificates=
# Where Go looks for them: SSL_CERT_FILE, SSL_CERT_DIR, and what crypto/x509 has
# for the distributions. A directory may be there and be empty.
IFS=: read -ra places <<<"${SSL_CERT_FILE:-}:${SSL_CERT_DIR:-}"
places+=(/etc/ssl/{certs,cert.pem,ca-bundle.pem} /etc/pki/tls/{certs,cacert.pem} /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem)
for place in "${places[@]}"; do
	[ -z "$place" ] || [ -z "$(ls "$place" 2>/dev/null)" ] || certificates=yes
done
# No mirror is asked where all modules are at hand.
GOPROXY=off go mod download >/dev/null 2>&1 && exit 0
if [ -n "$certificates" ]; then
	# go repeats an error of TLS for each module.
	if ! said=$(go mod download 2>&1) && grep -q x509 <<<"$said"; then
		grep -m 1 x509 <<<"$said" >&2
		echo "the certificate of Go's module mirror is not trusted here. Behind a proxy that opens TLS, add its CA's certificate (/usr/local/share/ca-certificates and update-ca-certificates, or SSL_CERT_FILE), or set GOPROXY to a mirror that you trust" >&2
		exit 1
	fi
	exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "no certificates (ca-certificates) to get Go's modules by, and no right to install them" >&2
	exit 0
fi
echo "installing ca-certificates, to get Go's modules" >&2
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -qq && apt-get install -y -qq --no-install-recommends ca-certificates >/dev/null; } ||
	echo "ca-certificates can't be installed" >&2
