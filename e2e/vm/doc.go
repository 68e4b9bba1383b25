// Package vm tests vgpud with real VMs: QEMU, a guest kernel and the guest's agent, unmodified, on
// soft GPUs. The guest checks what it computes.
//
// Without KVM the VMs' instructions are translated, so they boot in 4 to 9 seconds and compute a
// tenth as fast as the host; the GPUs are slowed down accordingly. `make vm-deps` gets what the
// tests need.
//
//	go test ./e2e/vm                                           the tests
//	go test ./e2e/vm -run Campaign -campaign 5m -v             shares, while a VM is reset once a minute
//	go test ./e2e/vm -run '^$' -bench . -benchtime 1x          launch latency and idle cost
package vm
