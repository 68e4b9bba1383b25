package abi

// barrier orders a guest's stores before its later loads, as the host sees them. A swap does so on
// a real processor. But where QEMU emulates the processor (TCG) and the VM can never have a second
// one, it translates swaps to plain loads and stores (accel/tcg/tcg-accel-ops-mttcg.c of QEMU 11.1
// leaves out CF_PARALLEL). It never does so with MFENCE (tcg_gen_mb in tcg/tcg-op.c, since 8.1).
func barrier()
