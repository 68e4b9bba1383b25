// Package nvreg knows where NVIDIA's GPUs, Ampere and later, show what they are executing: offsets of registers in
// BAR0, and encoders and decoders of their fields. The soft GPU keeps a page of this layout and accounting reads it
// with the instructions that it reads a mapped BAR0 with; one package so that the two can't disagree.
//
// Names and layouts are those of NVIDIA's open-gpu-doc, manuals/ampere/ga100: dev_boot, dev_timer and dev_runlist; and
// of the published dev_top.h (NV_PTOP_DEVICE_INFO2) of the open GPU kernel modules.
//
// # How to find out who executes
//
// [FindGraphics] walks the device table (NV_PTOP_DEVICE_INFO2) to the graphics engine, which is also the compute
// engine, and to the runlist that feeds it. That runlist's registers have, for each of its engines, an
// [EngineStatus] with the channel group on the engine, the context switch in progress, and a busy bit; and they say
// where in BAR0 the entries of the runlist's channels are ([ChannelEntry]).
//
// # Time
//
// PTIMER counts nanoseconds in steps of 32. A GPU's own ticks; a page in memory can't, so the soft GPU declares its
// clock to be the host's CLOCK_MONOTONIC and stores into PTIMER, with each change of status, the instant of that
// change. A reader therefore stamps its readings with CLOCK_MONOTONIC, which costs 20 ns where PTIMER costs three
// reads over PCIe, and adds the offset that [Calibrate] found, which is zero where PTIMER doesn't tick by itself.
// The polling loop is the same one load and one stamp for both.
package nvreg
