// Package systemd tests the service in a VM in which systemd is the first process: Debian trixie
// with its own kernel, AppArmor and control groups. The packages that `make packages` builds are
// installed there, the daemon runs by its unit on a GPU in software, and a guest computes while the
// daemon is restarted, stopped by a signal and upgraded.
//
// All tests share one VM, because it takes minutes to boot where KVM does not work and QEMU
// translates its instructions. The VM has only the units and AppArmor profiles that the tests are
// about. `make system-deps` and `make vm-deps` get what it needs; making its disk takes root.
package systemd
