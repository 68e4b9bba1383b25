// Package foreign tests this project's vfio-user peers against those of libvfio-user, the
// protocol's reference implementation.
//
// Its tests need programs from a checkout of libvfio-user, which environment variables name.
// scripts/foreign.sh builds them and runs everything; docs/foreign-peers.md has the results.
// Without them the tests are skipped, since no Debian package has these programs. e2e/vm tests
// against QEMU, the most important peer.
//
// vgpud_server.py runs libvfio-user's Python tests against our server, which command serve runs
// with the device that a test wants.
package foreign
