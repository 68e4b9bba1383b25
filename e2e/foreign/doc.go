// Package foreign has this project's vfio-user peers meet those of libvfio-user,
// the protocol's reference implementation.
//
// Its tests need programs built from a checkout of libvfio-user, which environment
// variables name: scripts/foreign.sh builds them and runs everything, and
// docs/foreign-peers.md says what came of it. Without them they are skipped, since
// no Debian package has these programs. QEMU, the peer that counts most, is
// e2e/vm's.
//
// vgpud_server.py turns libvfio-user's Python tests on our server, which serve
// runs with whatever device a test wants.
package foreign
